"""Check the columns that options name in each file, before any of its rows is embedded."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from transforms.base.arrow import parquet_bytes, without_views
from transforms.base.errors import OptionError
from transforms.base.values import nearest
from transforms.corpus.column_types import ColumnType, is_string
from transforms.corpus.files import InputFile

ITS_COLUMNS = "its columns"
Kinds = Mapping[str, ColumnType]
NO_KINDS: Kinds = MappingProxyType({})


@dataclass(frozen=True)
class FileColumns(ABC):
    """The columns of a file: their names and types, and checks of their use by options."""

    file: InputFile

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all columns; nested ones have dotted names."""

    @abstractmethod
    def check(
        self, text: str | None, id_column: str | None, keep: tuple[str, ...], types: Kinds
    ) -> None:
        """Raise OptionError if the file lacks a named column or has it in a wrong type.

        `text` is None if a template makes the text. `types` are the requested types of kept
        columns.
        """

    @abstractmethod
    def template_names(self, names: tuple[str, ...], option: str) -> tuple[str, ...] | None:
        """Return the columns of a template that the file has; None if it has no rows to tell.

        Raises OptionError for a column of bytes, which cannot be text.
        """

    def kept_types(
        self,
        text: str | None,
        id_column: str | None,
        keep: tuple[str, ...],
        types: Kinds = NO_KINDS,
    ) -> tuple[tuple[str, str], ...]:
        """Return name and Arrow type of each kept column without an open type; raises as `check`.

        For the others see `open_types`.
        """
        self.check(text, id_column, keep, types)
        return tuple((name, str(types[name].arrow)) for name in keep if name in types)

    def open_types(self, keep: tuple[str, ...], types: Kinds) -> tuple[tuple[str, str], ...]:
        """Return each kept column with an open type, and the word for its values in the first rows.

        The word is "" if the first rows have no value, or if values can be read as any type.
        """
        return ()

    def existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the checked names that the file has; None if it has no rows to tell."""
        return names

    def first_keys(self) -> list[str] | None:
        """Return the keys of the first rows; None for formats with a schema or a header."""
        return None

    @property
    def trimmed_names(self) -> tuple[str, ...]:
        """The names that were stripped, as the file has them."""
        return ()

    def missing_error(self, name: str, option: str) -> OptionError:
        """Return the error for a column that the file does not have."""
        return no_column(self.file, name, option, ITS_COLUMNS, self.names())


@dataclass(frozen=True)
class RowlessColumns(FileColumns):
    """The columns of no rows: their names and types mean nothing."""

    def names(self) -> Sequence[str]:
        return ()

    def check(
        self, text: str | None, id_column: str | None, keep: tuple[str, ...], types: Kinds
    ) -> None:
        """Accept any columns."""

    def template_names(self, names: tuple[str, ...], option: str) -> tuple[str, ...] | None:
        return None

    def open_types(self, keep: tuple[str, ...], types: Kinds) -> tuple[tuple[str, str], ...]:
        return tuple((name, "") for name in keep if name not in types)

    def existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        return None


def name_options(
    text: str | None, id_column: str | None, keep: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Return the columns that options name, each with its option."""
    named: list[tuple[str, str]] = []
    if text is not None:
        named.append(("--text-column", text))
    if id_column is not None:
        named.append(("--id-column", id_column))
    named += (("--keep-columns", name) for name in keep)
    return named


def no_column(
    file: InputFile, name: str, option: str, noun: str, names: Sequence[str]
) -> OptionError:
    """Return the error for a missing column; `noun` is the message's word for the other columns."""
    return OptionError(
        f"{file.path} has no column {name} ({option}){list_columns(noun, name, names)}"
    )


def list_columns(noun: str, name: str, names: Sequence[str]) -> str:
    """Return the end of a message about a missing column: a similar name, and all names."""
    near = None
    if name not in names:
        near = nearest(name, names)
    listed = ", ".join(map(_quote, names)) or "none"
    if not near:
        return f"; {noun}: {listed}"
    return f"; did you mean {_quote(near)}? {noun}: {listed}"


def _quote(name: str) -> str:
    """Return a column's name for a list, in ASCII; quoted if it has a comma or blanks around it."""
    text = ascii(name)[1:-1]
    if "," in name or name != name.strip():
        return f'"{text}"'
    return text


@functools.lru_cache(64)
def can_be_kept(kind: pa.DataType) -> bool:
    """Whether rows of a column of this type can be selected and written as Parquet."""
    try:
        nulls = pa.RecordBatch.from_arrays([pa.nulls(1, kind)], ["kept"])
        rows = without_views(nulls).take(pa.array([0]))
        parquet_bytes(rows)
    except (pa.ArrowException, OSError):
        return False
    return True


def is_id(arrow_type: pa.DataType | None) -> bool:
    """Whether the values of a column of this type can be ids."""
    if arrow_type is None or is_string(arrow_type):
        return arrow_type is not None
    is_number_or_bytes = pa.types.is_integer(arrow_type) or pa.types.is_fixed_size_binary(
        arrow_type
    )
    return is_number_or_bytes or isinstance(arrow_type, pa.UuidType)
