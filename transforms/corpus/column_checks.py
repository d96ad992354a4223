"""Check the columns that options name in each file, before any of its rows is embedded."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import (
    as_plain_type,
    is_bytes,
    is_string,
    write_parquet_bytes,
)
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.values import find_nearest
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.row_blocks import Columns

ITS_COLUMNS = "its columns"
SAMPLED = 20  # rows, for one value of each column
SHOWN = 30  # characters of a value


@dataclass(frozen=True)
class FileColumns(ABC):
    """The columns of a file: their names and types, and checks of their use by options."""

    file: InputFile

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all columns; nested ones have dotted names."""

    @abstractmethod
    def check(self, columns: Columns) -> None:
        """Raise OptionError if the file lacks the text or the ids, or has a column in a wrong type.

        The file may lack kept columns, and those of templates.
        """

    def kept_types(self, columns: Columns) -> tuple[tuple[str, str], ...]:
        """Return each kept column that the file has, with the code of its type; raises as `check`.

        The type is the requested one, else that of the values, as `find_types` has it.
        """
        self.check(columns)
        keep = columns.keep
        types = columns.kinds
        kinds = dict(self.find_types(tuple(name for name in keep if name not in types)))
        kinds |= {
            name: types[name].word for name in self.find_existing(keep) or () if name in types
        }
        return tuple((name, kinds[name]) for name in keep if name in kinds)

    @abstractmethod
    def find_types(self, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Return each of the columns that the file has, with the code of the type of its values.

        The code is "" if values can be read as any type; see `arrow_types` for the others.
        """

    @abstractmethod
    def find_existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the names that the file has; None if it has no rows to tell."""

    def lacking(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of columns that the file does not have."""
        existing = self.find_existing(names)
        return tuple(name for name in names if name not in existing) if existing is not None else ()

    def read_first_keys(self) -> list[str] | None:
        """Return the keys of the first rows; None for formats with a schema or a header."""
        return None

    def read_first_values(self, rows: int) -> dict[str, list[Any]]:
        """Return the values of the first rows, by column; none for plain text.

        Values of no type that a text or an id has may be left out, with their columns.
        """
        return {}

    def has_nulls(self, name: str) -> bool:
        """Whether a column is known to have nulls, without a look at its values."""
        return False

    @property
    def trimmed_names(self) -> tuple[str, ...]:
        """The names that were stripped, as the file has them."""
        return ()

    def make_missing_error(self, name: str, option: str) -> OptionError:
        """Return the error for a column that the file does not have."""
        return make_column_error(self.file, name, option, ITS_COLUMNS, self.names())


def name_options(columns: Columns) -> list[tuple[str, str]]:
    """Return the columns that options name, each with its option; without those of templates."""
    named = [(cite("text_column"), columns.text_column), (cite("id_column"), columns.id)]
    named += [(cite("keep_columns"), name) for name in columns.keep]
    return [(option, name) for option, name in named if name is not None]


def make_column_error(
    file: InputFile, name: str, option: str, noun: str, names: Sequence[str]
) -> OptionError:
    """Return the error for a missing column; `noun` is the message's word for the other columns."""
    return OptionError(
        f"{file.path} has no column {name} ({option}){list_columns(noun, name, names)}"
    )


def list_columns(noun: str, name: str, names: Sequence[str]) -> str:
    """Return the end of a message about a missing column: a similar name, and all names."""
    near = find_nearest(name, names) if name not in names else None
    listed = ", ".join(map(_quote, names)) or "none"
    return f"; did you mean {_quote(near)}? {noun}: {listed}" if near else f"; {noun}: {listed}"


def add_values(message: str, columns: FileColumns) -> str:
    """Return a message that lists columns with a value of each.

    Messages that a store keeps have no values: rows may be erased from it.
    """
    names = columns.names()
    before, listed, after = message.rpartition(f": {', '.join(map(_quote, names))}")
    if not listed:
        return message
    values = columns.read_first_values(SAMPLED)
    shown = [f"{_quote(name)}{_show_value(values.get(name, ()))}" for name in names]
    return f"{before}: {', '.join(shown)}{after}"


def _show_value(values: Sequence[Any]) -> str:
    """Return the beginning of the first value after a blank, for a list; "" without one."""
    value = next((value for value in values if value not in (None, "")), None)
    if value is None:
        return ""
    text = str(value)
    if len(text) > SHOWN:
        text = f"{text[:SHOWN].rstrip()}..."
    return f" {text!r}" if isinstance(value, str) else f" {text}"


def _quote(name: str) -> str:
    """Return a column's name for a list, in ASCII; quoted if it has a comma or blanks around it."""
    text = ascii(name)[1:-1]
    return f'"{text}"' if "," in name or name != name.strip() else text


@functools.lru_cache(64)
def can_be_kept(kind: pa.DataType) -> bool:
    """Whether rows of a column of this type can be selected and written as Parquet."""
    try:
        rows = pa.table({"kept": pa.nulls(1, as_plain_type(kind))})
        write_parquet_bytes(rows.take(pa.array([0])))
    except (pa.ArrowException, OSError):
        return False
    return True


def is_id(kind: pa.DataType | None) -> bool:
    """Whether the values of a column of this type can be ids; a column of nulls has none."""
    if kind is None:
        return False
    kind = as_plain_type(kind)
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= 0)
    is_number_or_bytes = pa.types.is_integer(kind) or pa.types.is_fixed_size_binary(kind)
    return is_number_or_bytes or is_text(kind) or isinstance(kind, pa.UuidType)


def is_text(kind: pa.DataType | None) -> bool:
    """Whether a column of this type can hold texts: strings, or bytes that should be UTF-8.

    A column of nulls can: the writers of empty tables know no type.
    """
    return kind is not None and (is_string(kind) or is_bytes(kind) or pa.types.is_null(kind))
