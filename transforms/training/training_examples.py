"""Read, check and count training and dev data with named roles."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DataGateError, OptionError, cite
from sentence_beam.transforms.corpus.collection_rows import naming_option, read_header, read_values
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.find import match_inputs
from sentence_beam.transforms.corpus.row_blocks import EMPTY_TEXT, NULL_TEXT, TEXT_NOT_STRING
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.evaluation.task import shorten
from sentence_beam.transforms.evaluation.task_files import stem
from sentence_beam.transforms.training.labels import Labels, read_labels
from sentence_beam.transforms.training.roles import LABEL, SCORE, VALUES, assign_columns
from sentence_beam.transforms.training.train_options import TrainOptions

NO_LABEL, NO_SCORE = "no label", "no score"
SHOWN = 5


@dataclass(frozen=True)
class Source:
    """A file of data: its name, its sha256, the column of each role, and its rows.

    `rejected` counts rows by reason.
    """

    name: str
    path: str
    sha256: str
    columns: Mapping[str, str]
    rows: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    first_rejected: tuple[int, ...] = ()


@dataclass(frozen=True)
class Examples:
    """Rows by role: texts, and labels or scores.

    `origin` is each row's place in `sources` and number in its file.
    """

    sources: tuple[Source, ...]
    columns: Mapping[str, list[Any]]
    origin: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def texts(self) -> dict[str, list[str]]:
        """The columns of texts, in the order of the roles."""
        return {role: column for role, column in self.columns.items() if role not in VALUES}

    def tuples(self) -> Iterator[tuple[str, ...]]:
        """Iterate over the texts of each row."""
        return zip(*self.texts.values(), strict=True)

    def where(self, place: int) -> str:
        """Return the file and number of a row, for messages."""
        source, number = self.origin[place]
        return f"{self.sources[source].path}, row {number}"


@dataclass(frozen=True)
class _ReadRows:
    """The rows read so far, the place of the next source, and how many rows it may add."""

    values: dict[str, list[Any]]
    origin: list[tuple[int, int]]
    source: int
    limit: int | None


def read_examples(
    flag: str, words: Sequence[str], options: TrainOptions, limit: int | None = None
) -> Examples:
    """Read the files that values of a flag name, [NAME=]PATH each.

    `limit` is the number of rows to read, None for all. Raises OptionError for files, columns and
    values that cannot be used, DataGateError for too many rejected rows.
    """
    named = [(name, file) for word in words for name, file in _find_files(flag, word, options)]
    files = [
        assign_columns(file.path, read_header(file), options.objective, options.columns)
        for _, file in named
    ]
    roles = list(files[0])
    other = next((place for place, columns in enumerate(files) if list(columns) != roles), None)
    if other is not None:
        odd = next(iter(set(roles) ^ set(files[other])))
        raise OptionError(
            f"of {named[0][1].path} and {named[other][1].path} one has a column {odd} and one has"
            f" not; say {cite('columns')}"
        )
    labels = read_labels(options.labels)
    values: dict[str, list[Any]] = {role: [] for role in roles}
    sources: list[Source] = []
    origin: list[tuple[int, int]] = []
    for (name, file), columns in zip(named, files, strict=True):
        remaining = limit - len(origin) if limit is not None else None
        if remaining == 0:
            break
        rows = _ReadRows(values, origin, len(sources), remaining)
        sources.append(_read(name, file, columns, labels, rows))
    examples = Examples(tuple(sources), values, origin)
    _check_rejects(flag, examples, options.max_rejects)
    return examples


def _find_files(flag: str, word: str, options: TrainOptions) -> list[tuple[str, InputFile]]:
    """Return the files that a word names, each with its name."""
    name, equals, path = word.partition("=")
    if not equals or "/" in name:
        name = ""
        path = word
    if not path:
        raise OptionError(f"{flag} {word}: say NAME=PATH, or PATH")
    with naming_option(flag):
        files = match_inputs(path, syntax=Syntax.from_options(options))
        return [(name or stem(file.relative), file) for file in files]


def _read(
    name: str, file: InputFile, columns: Mapping[str, str], labels: Labels, rows: _ReadRows
) -> Source:
    """Add a file's good rows to `rows`, and count the others."""
    rejected: Counter[str] = Counter()
    first: list[int] = []
    readers = [_make_reader(role, file.path, columns[role], labels) for role in columns]
    count = 0
    for raw in islice(read_values(file, list(columns.values())), rows.limit):
        count += 1
        row: list[Any] = []
        reason = raw.reason
        for read, value in zip(readers, raw.values, strict=False):
            reason = reason or read(raw.number, value, row)
        if reason is not None:
            rejected[reason] += 1
            if len(first) < SHOWN:
                first.append(raw.number)
            continue
        for column, value in zip(rows.values.values(), row, strict=True):
            column.append(value)
        rows.origin.append((rows.source, raw.number))
    sha256, _ = storage.sha256_of(file.path)
    return Source(name, file.path, sha256, dict(columns), count, dict(rejected), tuple(first))


Reader = Callable[[int, Any, list[Any]], str | None]


def _make_reader(role: str, path: str, column: str, labels: Labels) -> Reader:
    """Return the function that reads a role's value into a row, or returns why it is rejected.

    It raises OptionError for a score that is no number, because the column must be another one.
    """

    def read_label(number: int, value: Any, row: list[Any]) -> str | None:
        name = labels.named(_format_label(value))
        row.append(name)
        return NO_LABEL if name is None else None

    def read_score(number: int, value: Any, row: list[Any]) -> str | None:
        if value is None or (isinstance(value, str) and not value.strip()):
            return NO_SCORE
        score = _parse_score(value)
        if not math.isfinite(score):
            raise OptionError(
                f"{path}, row {number}: {quote_value(value)} in column {column} is no score; mend"
                f" the row, or say {cite('columns')} with the names in the order text1,text2,score"
            )
        row.append(score)
        return None

    def read_text(number: int, value: Any, row: list[Any]) -> str | None:
        row.append(value)
        if value is None:
            return NULL_TEXT
        if not isinstance(value, str):
            return TEXT_NOT_STRING
        if not value.strip():
            return EMPTY_TEXT
        return None

    return {LABEL: read_label, SCORE: read_score}.get(role, read_text)


def _format_label(value: Any) -> str:
    """Return a label as text; a whole number has no decimal point."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _parse_score(value: Any) -> float:
    """Return a score, NaN for a value that is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _check_rejects(flag: str, examples: Examples, most: float) -> None:
    rows = sum(source.rows for source in examples.sources)
    rejected = rows - len(examples)
    if rows and rejected / rows > most:
        source = next(source for source in examples.sources if source.rejected)
        reasons = Counter[str]()
        for rows_read in examples.sources:
            reasons.update(rows_read.rejected)
        counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        numbers = ", ".join(map(str, source.first_rejected))
        raise DataGateError(
            f"{flag}: {rejected:,} of {rows:,} rows cannot be used ({counted}; of {source.path}"
            f" rows {numbers}), more than {cite('max_rejects')} {most:g}; mend them or raise it"
        )
    if not len(examples):
        raise OptionError(f"{flag} {examples.sources[0].path} has no row; check the file")


def count_overlap(train: Examples, dev: Examples) -> int:
    """Count the dev rows whose texts are those of a training row, in any order."""
    train_digests = {_digest(texts) for texts in train.tuples()}
    return sum(_digest(texts) in train_digests for texts in dev.tuples())


def _digest(texts: Sequence[str]) -> bytes:
    return hashlib.blake2b(
        "\0".join(sorted(text.strip() for text in texts)).encode(), digest_size=16
    ).digest()


def quote_value(value: Any) -> str:
    """Return a value in quotes, cut to 40 characters, for messages."""
    return repr(shorten(str(value), 40))
