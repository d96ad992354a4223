"""Training and dev data: read with named roles, checked, counted."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from transforms import storage
from transforms.base.errors import DataGateError, OptionError
from transforms.corpus.files import InputFile
from transforms.corpus.find import match_inputs
from transforms.corpus.reading import naming_option, read_header, read_values
from transforms.corpus.row_blocks import EMPTY_TEXT, NULL_TEXT, TEXT_NOT_STRING
from transforms.evaluation.tables import stem
from transforms.training.labels import Labels, read_labels
from transforms.training.options import TrainOptions
from transforms.training.roles import LABEL, SCORE, VALUES, columns_of

NO_LABEL, NO_SCORE = "no label", "no score"
SHOWN = 5


@dataclass(frozen=True)
class Source:
    """A file of data: the name it was given, its sha256, the column of each role, and its rows,
    rejected by reason.
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
    """Rows by role: texts, and labels or scores; `origin` is each row's place in `sources` and
    number in its file.
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
        """The texts of each row."""
        return zip(*self.texts.values(), strict=True)

    def where(self, place: int) -> str:
        """The file and number of a row."""
        source, number = self.origin[place]
        return f"{self.sources[source].path}, row {number}"


def read_examples(
    flag: str, words: Sequence[str], options: TrainOptions, limit: int | None = None
) -> Examples:
    """The rows of the files that values of a flag name, [NAME=]PATH each; the first `limit` of
    them, or all.

    Raises OptionError for files, columns and values that cannot be used, DataGateError for too many
    rejected rows.
    """
    named = [(name, file) for word in words for name, file in _files(flag, word)]
    found = [
        columns_of(file.path, read_header(file), options.objective, options.columns)
        for _, file in named
    ]
    roles = list(found[0])
    other = next((place for place, columns in enumerate(found) if list(columns) != roles), None)
    if other is not None:
        odd = next(iter(set(roles) ^ set(found[other])))
        raise OptionError(
            f"of {named[0][1].path} and {named[other][1].path} one has a column {odd} and one has"
            " not; say --columns"
        )
    labels = read_labels(options.labels)
    values: dict[str, list[Any]] = {role: [] for role in roles}
    sources: list[Source] = []
    origin: list[tuple[int, int]] = []
    for (name, file), columns in zip(named, found, strict=True):
        left = None if limit is None else limit - len(origin)
        if left is None or left > 0:
            sources.append(_read(name, file, columns, labels, left, values, origin, len(sources)))
    examples = Examples(tuple(sources), values, origin)
    _check_rejects(flag, examples, options.max_rejects)
    return examples


def _files(flag: str, word: str) -> list[tuple[str, InputFile]]:
    """The files that a word names, each with its name."""
    name, equals, path = word.partition("=")
    if not equals or "/" in name:
        name, path = "", word
    if not path:
        raise OptionError(f"{flag} {word}: say NAME=PATH, or PATH")
    with naming_option(flag):
        return [(name or stem(file.relative), file) for file in match_inputs(path)]


def _read(
    name: str,
    file: InputFile,
    columns: Mapping[str, str],
    labels: Labels,
    limit: int | None,
    values: dict[str, list[Any]],
    origin: list[tuple[int, int]],
    place: int,
) -> Source:
    """Add a file's good rows to `values` and `origin`, and count the others."""
    rejected: Counter[str] = Counter()
    first: list[int] = []
    readers = [_reader(role, file.path, columns[role], labels) for role in columns]
    rows = 0
    for raw in islice(read_values(file, list(columns.values())), limit):
        rows += 1
        row: list[Any] = []
        reason = raw.reason
        for read, value in zip(readers, raw.values, strict=False):
            reason = reason or read(raw.number, value, row)
        if reason is not None:
            rejected[reason] += 1
            first += [raw.number] if len(first) < SHOWN else []
            continue
        for column, value in zip(values.values(), row, strict=True):
            column.append(value)
        origin.append((place, raw.number))
    sha256, _ = storage.sha256_of(file.path)
    return Source(name, file.path, sha256, dict(columns), rows, dict(rejected), tuple(first))


Reader = Callable[[int, Any, list[Any]], str | None]


def _reader(role: str, path: str, column: str, labels: Labels) -> Reader:
    """What reads a role's value into a row, or says why the row is rejected.

    Raises OptionError for a score that is no number: then the column is another one than it was
    taken for.
    """

    def label(number: int, value: Any, row: list[Any]) -> str | None:
        text = (
            ""
            if value is None
            else str(int(value) if isinstance(value, float) and value.is_integer() else value)
        )
        row.append(labels.named(text.strip()))
        return NO_LABEL if row[-1] is None else None

    def score(number: int, value: Any, row: list[Any]) -> str | None:
        if value is None or (isinstance(value, str) and not value.strip()):
            return NO_SCORE
        try:
            row.append(float(value))
        except (TypeError, ValueError):
            row.append(float("nan"))
        if not abs(row[-1]) < float("inf"):
            raise OptionError(
                f"{path}, row {number}: {_short(value)} in column {column} is no score; mend the"
                " row, or say --columns with the names in the order text1,text2,score"
            )
        return None

    def text(number: int, value: Any, row: list[Any]) -> str | None:
        row.append(value)
        if value is None:
            return NULL_TEXT
        if not isinstance(value, str):
            return TEXT_NOT_STRING
        return None if value.strip() else EMPTY_TEXT

    return {LABEL: label, SCORE: score}.get(role, text)


def _check_rejects(flag: str, examples: Examples, most: float) -> None:
    rows = sum(source.rows for source in examples.sources)
    rejected = rows - len(examples)
    if rows and rejected / rows > most:
        source = next(source for source in examples.sources if source.rejected)
        reasons = Counter[str]()
        for one in examples.sources:
            reasons.update(one.rejected)
        counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        numbers = ", ".join(map(str, source.first_rejected))
        raise DataGateError(
            f"{flag}: {rejected:,} of {rows:,} rows cannot be used ({counted}; of {source.path}"
            f" rows {numbers}), more than --max-rejects {most:g}; mend them or raise it"
        )
    if not len(examples):
        raise OptionError(f"{flag} {examples.sources[0].path} has no row; check the file")


# --- labels and scores


def labels_of(
    train: Examples, held_out: Sequence[Examples | None], given: Sequence[str]
) -> tuple[str, ...]:
    """The labels in their order: as given, else sorted.

    Raises OptionError where there is but one, and for a row with a label that is not given, or that
    training has not.
    """
    found = set(train.columns[LABEL])
    labels = read_labels(given).names or tuple(sorted(found))
    if len(found) < 2:
        raise OptionError(
            f"all labels are {_short(next(iter(found)))}; there is nothing to tell apart"
        )
    for examples in (train, *filter(None, held_out)):
        for place, label in enumerate(examples.columns[LABEL]):
            if label not in labels:
                why = "not among --labels" if given else "a label that no training row has"
                raise OptionError(
                    f"{examples.where(place)}: {_short(label)} is {why}; there are"
                    f" {_listed(labels)}"
                )
    unseen = [label for label in labels if label not in found]
    if unseen:
        raise OptionError(
            f"--labels: no training row has {unseen[0]!r}; there are {_listed(sorted(found))}"
        )
    if len(labels) > len(found) or len(found) > len(train) // 2:
        raise OptionError(
            f"{len(found):,} different labels in {len(train):,} rows, as {_short(labels[0])}: is"
            f" {_column(train)} the column of labels? Say --columns with the names in the order"
            " text1,text2,label"
        )
    return labels


def scaled(examples: Examples, scores: tuple[float, float] | None, bounded: bool) -> list[float]:
    """The scores from 0 to 1, `scores` being the ends of the data's scale; as they are without it.

    Raises OptionError for a row outside of the scale; without one, where `bounded`, for a row
    outside of 0 to 1.
    """
    low, high = scores or (0.0, 1.0)
    found = examples.columns[SCORE]
    for place, score in enumerate(found if scores or bounded else ()):
        if not low <= score <= high:
            mend = (
                "say --scores LOW,HIGH, the ends of the data's scale"
                if scores is None
                else "mend the row or --scores"
            )
            raise OptionError(
                f"{examples.where(place)}: score {score:g} is not from {low:g} to {high:g}; {mend}"
            )
    if len(set(found)) < 2:
        raise OptionError(f"all scores are {found[0]:g}; there is nothing to learn")
    return [(score - low) / (high - low) for score in found]


def overlap(train: Examples, dev: Examples) -> int:
    """The number of dev rows whose texts are those of a training row, in any order."""
    known = {_digest(texts) for texts in train.tuples()}
    return sum(_digest(texts) in known for texts in dev.tuples())


def _digest(texts: Sequence[str]) -> bytes:
    return hashlib.blake2b(
        "\0".join(sorted(text.strip() for text in texts)).encode(), digest_size=16
    ).digest()


def _column(examples: Examples) -> str:
    return examples.sources[0].columns[LABEL]


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(map(_short, labels[:SHOWN])) + (", ..." if len(labels) > SHOWN else "")


def _short(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:39] + "…")
