"""JSON objects as rows; their keys are the columns."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.arrow_types import join_words
from sentence_beam.transforms.corpus.column_checks import (
    FileColumns,
    make_column_error,
    name_options,
)
from sentence_beam.transforms.corpus.column_types import STR, find_word_of_value
from sentence_beam.transforms.corpus.column_values import EXCERPT, KEPT_NOT_UTF8, NOT_UTF8
from sentence_beam.transforms.corpus.files import InputFile, is_utf8
from sentence_beam.transforms.corpus.formats.encoding import describe_not_utf8
from sentence_beam.transforms.corpus.formats.format import Format, RawRow
from sentence_beam.transforms.corpus.nested import find_value, format_value, has_value, list_keys
from sentence_beam.transforms.corpus.parsed_rows import ParsedRow, fill_prefix, read_kept
from sentence_beam.transforms.corpus.row_blocks import NOT_JSON, TEXT_NOT_STRING, Columns
from sentence_beam.transforms.corpus.row_columns import read_id

FIRST_KEYS = "keys of its first rows"


class JsonFormat(Format):
    """A format whose rows are JSON objects."""

    @abstractmethod
    def first_rows(self, file: InputFile) -> list[dict[str, Any]]:
        """The objects in the first block of a file.

        Other values are skipped here and rejected later.
        """

    @abstractmethod
    def objects(self, file: InputFile) -> Iterator[dict[str, Any] | str]:
        """All objects of a file; for other values, the reason against them."""

    def make_missing_error(self, error: OptionError, file: InputFile) -> OptionError:
        """Return the error for a missing column with what else may mend it."""
        return error

    def columns(self, file: InputFile) -> "KeyColumns":
        return KeyColumns(file, self)

    def header(self, file: InputFile) -> list[str]:
        return list(next((value for value in self.objects(file) if isinstance(value, dict)), {}))

    def values(self, file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
        for number, value in enumerate(self.objects(file), 1):
            if isinstance(value, dict):
                yield RawRow(number, [value.get(name) for name in names])
            else:
                yield RawRow(number, reason=value)


@dataclass(frozen=True)
class KeyColumns(FileColumns):
    """The keys of a file's first rows. A kept key may appear later in the file, or never."""

    json: JsonFormat

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The first rows of the file."""
        return self.json.first_rows(self.file)

    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(key for row in self.rows for key in list_keys(row)))

    def read_first_keys(self) -> list[str] | None:
        return list(self.names())

    def check(self, columns: Columns) -> None:
        """Raise OptionError if the first rows have no text or id, or none that can be used."""
        path = self.file.path
        rows = self.rows
        text = columns.text_column
        id_column = columns.id
        for option, name in name_options(replace(columns, keep=())):
            if rows and not any(has_value(row, name) for row in rows):
                raise self.make_missing_error(name, option)
        kinds = _find_kinds(rows, text)
        if kinds and "str" not in kinds:
            raise OptionError(
                f"{path}: column {text} is {_join_or(kinds)} in the first rows, not string; name"
                f" another {cite('text_column')}"
            )
        kinds = _find_kinds(rows, id_column)
        if kinds and not kinds & {"str", "int"}:
            raise OptionError(
                f"{path}: column {id_column} is {_join_or(kinds)} in the first rows; ids must be "
                f"strings or integers ({cite('id_column')})"
            )

    def find_types(self, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Return the types of all values: the first megabyte may have whole numbers alone."""
        return tuple(_find_words(self.json.objects(self.file), keep).items()) if keep else ()

    def read_first_values(self, rows: int) -> dict[str, list[Any]]:
        first = self.rows[:rows]
        return {name: [find_value(row, name) for row in first] for name in self.names()}

    def find_existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        rows = self.rows
        if not rows:
            return None
        return tuple(name for name in names if any(has_value(row, name) for row in rows))

    def lacking(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys that no row has."""
        late = super().lacking(names)  # unless a row after the first ones has them
        if not late:
            return ()
        existing = dict(self.find_types(late))
        return tuple(name for name in late if name not in existing)

    def make_missing_error(self, name: str, option: str) -> OptionError:
        names = self.names()
        error = make_column_error(self.file, name, option, FIRST_KEYS, names)
        error = self.json.make_missing_error(error, self.file)
        return OptionError(f"{error.message}{describe_not_utf8(names)}")


def _find_words(rows: Iterable[dict[str, Any] | str], names: tuple[str, ...]) -> dict[str, str]:
    """The words for the types of columns that some row has; rows are read until all are text."""
    words: dict[str, set[str]] = {}
    open_names = set(names)
    for row in rows:
        if isinstance(row, str):
            continue
        for name in [name for name in open_names if has_value(row, name)]:
            seen = words.setdefault(name, set())
            value = find_value(row, name)
            if value is not None:
                seen.add(find_word_of_value(value))
            if join_words(seen) == STR.word:
                open_names.remove(name)
        if not open_names:
            break
    return {name: join_words(words[name]) for name in names if name in words}


def _find_kinds(rows: list[dict[str, Any]], name: str | None) -> set[str]:
    """The types of a column's values other than null; none without a column."""
    if name is None:
        return set()
    values = (find_value(row, name) for row in rows)
    return {type(value).__name__ for value in values if value is not None}


def _join_or(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def count_text_bytes(rows: list[dict[str, Any]], text: str | tuple[str, ...]) -> int:
    """The bytes of the rows' values in the column of the text, or in those of its template."""
    names = (text,) if isinstance(text, str) else text
    values = (format_value(find_value(row, name)) for row in rows for name in names)
    return sum(len((value or "").encode("utf8", "surrogatepass")) for value in values)


def read_object(
    columns: Columns, row: Any, default: str | None, source: str | None = None
) -> ParsedRow:
    """Read the row of a JSON value.

    `default` is its id unless a column has it. `source` is its JSON, if known.
    """

    def reject(row_id: str | None, reason: str) -> ParsedRow:
        text = json.dumps(row) if source is None else source
        return ParsedRow(text[:EXCERPT], row_id, reason)

    if not isinstance(row, dict):
        return reject(default, NOT_JSON)
    if columns.path:
        row = {**columns.path_values, **row}
    row_id = default
    reason = None
    if columns.id:
        row_id, reason = read_id(find_value(row, columns.id))
    text = _read_text(columns, row)
    if text is not None and not isinstance(text, str):
        return reject(row_id, TEXT_NOT_STRING)
    if not is_utf8(text) or not is_utf8(row_id):
        return reject(default, NOT_UTF8)
    values, fault = _read_values(columns, row)
    if fault is not None:
        return ParsedRow(text, row_id, fault)
    prefix = fill_prefix(columns, lambda name: format_value(find_value(row, name)))
    if not all(map(is_utf8, prefix)):
        return ParsedRow(text, row_id, NOT_UTF8)
    return ParsedRow(text, row_id, reason, values, prefix)


def _read_values(columns: Columns, row: dict[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """The kept values of a JSON object, and a reason if one of them cannot be used."""
    texts = {name: format_value(find_value(row, name)) for name in columns.keep}
    if not all(map(is_utf8, texts.values())):
        return {}, KEPT_NOT_UTF8
    return read_kept(columns, texts)


def _read_text(columns: Columns, row: dict[str, Any]) -> Any:
    """The text of a JSON object; a text column may hold a value of any type."""
    if columns.of_text is None:
        return find_value(row, columns.text)
    return columns.of_text.fill(lambda name: format_value(find_value(row, name)))
