"""Find the columns of text and ids in the first rows of files, if no option names them.

The text is the column `text`, else the only column of strings, else the only one whose name is in
`NAMES`, else the only one whose name ends so, as `review_text` and `comments` do. Such a column,
except `text`, has to read like a text: most of its values have several words, and no other column
of strings has longer values on average. So a title, a link or a note beside the text is not taken
for it. Ids are in a column of `ID_NAMES` that has a value of its own in each row. Two candidates
are none.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.corpus.column_checks import add_values
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.first_bytes import check_first_bytes
from sentence_beam.transforms.corpus.formats.registry import choose_reader, open_columns
from sentence_beam.transforms.corpus.row_blocks import Columns

TEXT = "text"
NAMES = (
    "body", "content", "sentence", "description", "review", "question", "document", "passage",
    "abstract", "title", "comment", "message",
)  # fmt: skip
ID_NAMES = ("id", "_id", "ID")
LIKE_IDS = ("id", "key", "doi")  # ends of the names of columns that may have ids
SEVERAL = 3  # words
CHARACTERS = 2  # a word has so many, in scripts without spaces
FILES = 256  # that are opened
FILES_AT_ONCE = 16
JOINED = 2  # columns in an example
ROWS = 1000  # that are read of one file
LEAST_ROWS = 20  # that are read of each of many files

_LETTER = re.compile(r"[^\W\d_]")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s.*\d:\d\d", re.I)
_NO_WORDS = frozenset(("true", "false", "yes", "no", "nan", "null", "none", "n/a", "na"))
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")  # of a name
_INDEX = re.compile(r"__index_level_\d+__")  # that pandas adds


@dataclass(frozen=True)
class FoundColumns:
    """The columns of text and ids; None each if it was not looked for, or not found.

    `texts` are all columns that read like texts, if none of them is the text. `other_id` is a
    column that could have the ids. `has_ids` says whether ids were looked for.
    """

    text: str | None = None
    id: str | None = None
    texts: tuple[str, ...] = ()
    other_id: str | None = None
    has_ids: bool = False


@dataclass(frozen=True)
class FirstRows:
    """The first rows of files: the values of each column of all, and the columns of each file.

    `nulls` are the columns that have a null after these rows, as far as the files say.
    """

    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    names: Sequence[frozenset[str]] = ()
    nulls: frozenset[str] = frozenset()

    def is_everywhere(self, name: str) -> bool:
        """Whether every file has a column."""
        return all(name in names for names in self.names)


def find_columns(files: Sequence[InputFile], text: bool = True, ids: bool = False) -> FoundColumns:
    """Return the columns of text and ids in files, as far as they are looked for.

    Files that cannot be read are left out. Among many files some are opened.
    """
    return find_in_rows(read_samples(files), text, ids)


def find_in_values(
    values: Mapping[str, Sequence[Any]], text: bool = True, ids: bool = False
) -> FoundColumns:
    """Return the columns of text and ids in the values of first rows, as `find_columns` does."""
    return find_in_rows(FirstRows(values, [frozenset(values)]), text, ids)


def find_in_rows(samples: FirstRows, text: bool, ids: bool) -> FoundColumns:
    """Return the columns of text and ids, as far as they are looked for, in first rows."""
    if not samples.values:
        return FoundColumns()
    found_id = find_id(samples) if ids else None
    found_text = find_text(samples, found_id) if text else None
    texts = _find_texts(samples) if text and found_text is None else ()
    other = find_other_id(samples, found_text) if ids and found_id is None else None
    return FoundColumns(found_text, found_id, texts, other, ids)


def choose_text_column(files: Sequence[InputFile], named: str | None) -> str:
    """Return the column of text in files: the one that is named, else the one that is found."""
    return choose_columns(files, named, "").text


def choose_columns(files: Sequence[InputFile], text: str | None, ids: str | None) -> Columns:
    """Return the columns that are named, else those that are found; "" for `ids`: none.

    Raises OptionError if no text is found.
    """
    if text is not None and ids is not None:
        return Columns(text, ids or None)
    columns = find_columns(files, text is None, ids is None)
    if text is None and columns.text is None:
        check_text(files)
    return Columns(text or columns.text or TEXT, ids or columns.id)


def check_text(files: Sequence[InputFile], texts: Sequence[str] = ()) -> None:
    """Raise OptionError for the first opened file that has rows and no column `text`.

    The message names the columns, with a value each, and a template that joins the first `texts`.
    """
    for file in _choose_files(files):
        if not choose_reader(file).has_columns:
            continue
        columns = open_columns(file)
        try:
            columns.check(Columns(TEXT))
        except OptionError as error:
            message = add_values(error.message, columns)
            raise OptionError(f"{message}{_suggest_joining(texts)}") from None
        except SentenceBeamError:
            continue  # left to whoever reads the rows


def _suggest_joining(texts: Sequence[str]) -> str:
    """Return the end of a message about several columns that may be the text."""
    if len(texts) < 2:
        return ""
    template = r"\n\n".join(f"{{{name}}}" for name in texts[:JOINED])
    return (
        f"; name the one with the text, or join several, as in {cite('text_template')} '{template}'"
    )


def _choose_files(files: Sequence[InputFile]) -> Sequence[InputFile]:
    """Return the files to open."""
    return files[:: max(1, -(-len(files) // FILES))]


def read_samples(files: Sequence[InputFile]) -> FirstRows:
    """Return the first rows of files; none if a file of plain text is among them."""
    opened = _choose_files(files)
    if not all(choose_reader(file).has_columns for file in opened):
        return FirstRows()
    rows = max(LEAST_ROWS, ROWS // max(1, len(opened)))
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        samples = list(pool.map(lambda file: _read_sample(file, rows), opened))
    return _join_samples([sample for sample in samples if sample.values])


def _read_sample(file: InputFile, rows: int) -> FirstRows:
    try:
        check_first_bytes(file)
        columns = choose_reader(file).columns(file)
        first = columns.read_first_values(rows)
        values = {name: some for name, some in first.items() if not _INDEX.fullmatch(name)}
        nulls = frozenset(name for name in ID_NAMES if columns.has_nulls(name))
    except SentenceBeamError:
        return FirstRows()
    return FirstRows(values, [frozenset(values)], nulls)


def _join_samples(samples: Iterable[FirstRows]) -> FirstRows:
    values: dict[str, list[Any]] = {}
    names: list[frozenset[str]] = []
    nulls: frozenset[str] = frozenset()
    for sample in samples:
        names += sample.names
        nulls |= sample.nulls
        for name, some in sample.values.items():
            values.setdefault(name, []).extend(some)
    return FirstRows(values, names, nulls)


def find_text(samples: FirstRows, ids: str | None = None) -> str | None:
    """Return the column of text, None if none is found; `ids` is the column of ids."""
    if TEXT in samples.values:
        return TEXT
    others = {name: some for name, some in samples.values.items() if name != ids}
    strings = [name for name, some in others.items() if _are_mostly(_is_string, some)]
    if len(strings) == 1:
        return strings[0] if _reads_like_text(strings[0], strings, samples) else None
    for is_named in (_is_text, _has_name, _ends_in_name):
        candidates = _choose_named(strings, is_named)
        if len(candidates) > 1:
            return None
        if candidates and _reads_like_text(candidates[0], strings, samples):
            return candidates[0]
    return None


def _reads_like_text(name: str, strings: Sequence[str], samples: FirstRows) -> bool:
    """Whether a column that all files have has several words in a value, and the longest values."""
    values = samples.values[name]
    if not samples.is_everywhere(name) or not _are_mostly(_has_words, values):
        return False
    length = _mean_length(values)
    return all(_mean_length(samples.values[other]) <= length for other in strings)


def _find_texts(samples: FirstRows) -> tuple[str, ...]:
    return tuple(name for name, some in samples.values.items() if _are_mostly(_has_words, some))


def _choose_named(strings: Sequence[str], is_named: Callable[[str], bool]) -> Sequence[str]:
    """Return the columns with such a name; those inside of others only if there are no others."""
    named = [name for name in strings if is_named(name.rpartition(".")[2])]
    return [name for name in named if "." not in name] or named


def _is_text(name: str) -> bool:
    return name.lower() == TEXT


def _has_name(name: str) -> bool:
    return name.lower() in NAMES


def _ends_in_name(name: str) -> bool:
    """Whether a name ends in a word of `NAMES`, or its plural: `reviewText`, `Review Text`."""
    words = _PART.findall(name)
    if _is_text(name) or _has_name(name) or not words:
        return False
    return words[-1].lower().removesuffix("s") in (TEXT, *NAMES)


def find_id(samples: FirstRows) -> str | None:
    """Return the column of `ID_NAMES` with an id in each row, None if there is no such column."""
    named = [name for name in ID_NAMES if _has_ids(samples, name)]
    return named[0] if len(named) == 1 else None


def find_other_id(samples: FirstRows, text: str | None) -> str | None:
    """Return a column other than the text that could have ids, None if there is none.

    Its name says so, or else its values, as `T-101` and links do.
    """
    names = [name for name in samples.values if name != text and _has_ids(samples, name)]
    named = [name for name in names if name.lower().endswith(LIKE_IDS)]
    like_ids = [name for name in names if all(map(_is_like_id, samples.values[name]))]
    return next(iter([*named, *like_ids]), None)


def _has_ids(samples: FirstRows, name: str) -> bool:
    """Whether each row that was read has a value of its own in a column."""
    values = samples.values.get(name, ())
    if not values or name in samples.nulls or not samples.is_everywhere(name):
        return False
    if not all(isinstance(value, str | int) and value != "" for value in values):
        return False
    are_flags = any(isinstance(value, bool) for value in values)
    return not are_flags and len(set(values)) == len(values)


def _drop_empty(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None and value != ""]


def _are_mostly(is_kind: Callable[[Any], bool], values: Sequence[Any]) -> bool:
    """Whether most values are of a kind."""
    filled = _drop_empty(values)
    return 2 * sum(map(is_kind, filled)) > len(filled)


def _is_string(value: Any) -> bool:
    """Whether a value is a string, and neither a number, a date nor a flag written as such."""
    if not isinstance(value, str) or value.strip().lower() in _NO_WORDS:
        return False
    return bool(_LETTER.search(value)) and not _DATE.match(value)


def _is_like_id(value: Any) -> bool:
    if not _is_string(value) or len(value.split()) > 1:
        return False
    return "://" in value or any(map(str.isdigit, value))


def _has_words(value: Any) -> bool:
    """Whether a value has several words."""
    if not isinstance(value, str):
        return False
    words = sum(bool(_LETTER.search(word)) for word in value.split())
    return words >= SEVERAL or len(_UNSPACED.findall(value)) >= SEVERAL * CHARACTERS


def _mean_length(values: Sequence[Any]) -> float:
    lengths = [len(value) for value in _drop_empty(values) if isinstance(value, str)]
    return sum(lengths) / max(1, len(lengths))
