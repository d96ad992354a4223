"""Objects of JSON: their rows, and their keys, which are the columns."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.base.errors import OptionError
from transforms.corpus.column_types import word_for_values
from transforms.corpus.column_values import EXCERPT, KEPT_NOT_UTF8, NOT_UTF8
from transforms.corpus.columns import FileColumns, Kinds, no_column
from transforms.corpus.files import InputFile, is_utf8
from transforms.corpus.formats.format import Format, RawRow
from transforms.corpus.nested import all_keys, has_value, value_as_text, value_at
from transforms.corpus.parsed_rows import ParsedRow, fill_prefix, read_kept
from transforms.corpus.row_blocks import ID_NOT_STRING, NOT_JSON, NULL_ID, TEXT_NOT_STRING, Columns

FIRST_KEYS = "keys of its first rows"


class JsonFormat(Format):
    """A format whose rows are JSON objects."""

    @abstractmethod
    def first_rows(self, file: InputFile) -> list[dict[str, Any]]:
        """The objects in the first block of a file; other values are skipped here and rejected
        later.
        """

    @abstractmethod
    def objects(self, file: InputFile) -> Iterator[dict[str, Any] | str]:
        """All objects of a file; for a value that is none, the reason against it."""

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
    """The keys of a file's first rows. A kept key may come later in the file, or never."""

    json: JsonFormat

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The first rows."""
        return self.json.first_rows(self.file)

    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(key for row in self.rows for key in all_keys(row)))

    def first_keys(self) -> list[str] | None:
        return list(self.names())

    def check(
        self, text: str | None, id_column: str | None, keep: tuple[str, ...], types: Kinds
    ) -> None:
        """Raise OptionError if none of the first rows has text or id, or none has a value there
        that can be used.
        """
        path, rows = self.file.path, self.rows
        for option, name in (("--text-column", text), ("--id-column", id_column)):
            if rows and name is not None and not any(has_value(row, name) for row in rows):
                raise self.missing_error(name, option)
        kinds = _kinds(rows, text)
        if kinds and "str" not in kinds:
            raise OptionError(
                f"{path}: column {text} is {_listed(kinds)} in the first rows, not string; name"
                " another --text-column"
            )
        kinds = _kinds(rows, id_column)
        if kinds and not kinds & {"str", "int"}:
            raise OptionError(
                f"{path}: column {id_column} is {_listed(kinds)} in the first rows; ids must be "
                "strings or integers (--id-column)"
            )

    def open_types(self, keep: tuple[str, ...], types: Kinds) -> tuple[tuple[str, str], ...]:
        names = [name for name in keep if name not in types]
        if not names:
            return ()
        rows = self.rows
        return tuple((name, word_for_values(value_at(row, name) for row in rows)) for name in names)

    def existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        rows = self.rows
        return (
            tuple(name for name in names if any(has_value(row, name) for row in rows))
            if rows
            else None
        )

    def template_names(self, names: tuple[str, ...], option: str) -> tuple[str, ...] | None:
        return self.existing(names)

    def missing_error(self, name: str, option: str) -> OptionError:
        return no_column(self.file, name, option, FIRST_KEYS, self.names())


def _kinds(rows: list[dict[str, Any]], name: str | None) -> set[str]:
    """The types of a column's values that are not null; none without a column."""
    if name is None:
        return set()
    return {type(found).__name__ for row in rows if (found := value_at(row, name)) is not None}


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def read_object(
    columns: Columns, row: Any, default: str | None, source: str | None = None
) -> ParsedRow:
    """The row of a JSON value; `default` is its id unless a column has it, `source` the JSON if
    that is at hand.
    """

    def rejected(row_id: str | None, reason: str) -> ParsedRow:
        return ParsedRow((json.dumps(row) if source is None else source)[:EXCERPT], row_id, reason)

    if not isinstance(row, dict):
        return rejected(default, NOT_JSON)
    row_id, reason = _json_id(value_at(row, columns.id)) if columns.id else (default, None)
    text = _object_text(columns, row)
    if text is not None and not isinstance(text, str):
        return rejected(row_id, TEXT_NOT_STRING)
    if not is_utf8(text) or not is_utf8(row_id):
        return rejected(default, NOT_UTF8)
    kept = {name: value_as_text(value_at(row, name)) for name in columns.keep}
    if not all(map(is_utf8, kept.values())):
        return rejected(row_id, KEPT_NOT_UTF8)
    values, unread = read_kept(columns, kept)
    if unread is not None:
        return rejected(row_id, unread)
    prefix = fill_prefix(columns, lambda name: value_as_text(value_at(row, name)))
    if not all(map(is_utf8, prefix)):
        return rejected(row_id, NOT_UTF8)
    return ParsedRow(text, row_id, reason, values, prefix)


def _object_text(columns: Columns, row: dict[str, Any]) -> Any:
    """The text of a JSON object, of any type where a column has it."""
    if columns.of_text is None:
        return value_at(row, columns.text)
    return columns.of_text.fill(lambda name: value_as_text(value_at(row, name)))


def _json_id(value: Any) -> tuple[str | None, str | None]:
    if value is None:
        return None, NULL_ID
    if isinstance(value, str):
        return value, None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    return None, ID_NOT_STRING
