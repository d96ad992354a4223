"""The columns that options name, looked for in a file before any row of it is embedded."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from transforms.base.arrow import parquet_bytes, without_views
from transforms.base.errors import OptionError
from transforms.base.values import nearest
from transforms.corpus.column_types import ColumnType
from transforms.corpus.files import InputFile

ITS_COLUMNS = "its columns"
Kinds = Mapping[str, ColumnType]
NO_KINDS: Kinds = MappingProxyType({})


@dataclass(frozen=True)
class FileColumns(ABC):
    """The columns of a file: their names and types, and whether they can be what options name them
    for.
    """

    file: InputFile

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all columns, of columns in others with dots."""

    @abstractmethod
    def check(
        self, text: str | None, id_column: str | None, keep: tuple[str, ...], types: Kinds
    ) -> None:
        """Raise OptionError if the file lacks a named column or has it in a wrong type.

        `text` is None if a template makes the text, which asks for no column. `types` are those
        that kept columns were given.
        """

    @abstractmethod
    def template_names(self, names: tuple[str, ...], option: str) -> tuple[str, ...] | None:
        """Those names of a template that the file has, which need not be all; None if it has no
        rows to tell.

        Raises OptionError for a column of bytes, which is no text.
        """

    def kept_types(
        self,
        text: str | None,
        id_column: str | None,
        keep: tuple[str, ...],
        types: Kinds = NO_KINDS,
    ) -> tuple[tuple[str, str], ...]:
        """Name and Arrow type of each kept column, but for those that have `open_types`. Raises as
        `check` does.
        """
        self.check(text, id_column, keep, types)
        return tuple((name, str(types[name].arrow)) for name in keep if name in types)

    def open_types(self, keep: tuple[str, ...], types: Kinds) -> tuple[tuple[str, str], ...]:
        """Name of each kept column whose type is open, with the word for the values in the file's
        first rows.

        The word is "" where these have no value, and where values can be read as any type.
        """
        return ()

    def existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """Those of the checked names that the file has; None if it has no rows to tell."""
        return names

    def first_keys(self) -> list[str] | None:
        """The keys of the first rows; None for formats whose files say which columns they have."""
        return None

    @property
    def trimmed_names(self) -> tuple[str, ...]:
        """The names around which blanks were left out, as the file has them."""
        return ()

    def missing_error(self, name: str, option: str) -> OptionError:
        """The error for a column that the file does not have."""
        return no_column(self.file, name, option, ITS_COLUMNS, self.names())


def name_options(
    text: str | None, id_column: str | None, keep: tuple[str, ...]
) -> list[tuple[str, str]]:
    """The columns that options name, each with its option."""
    named = [
        ("--text-column", text),
        ("--id-column", id_column),
        *(("--keep-columns", name) for name in keep),
    ]
    return [(option, name) for option, name in named if name is not None]


def no_column(
    file: InputFile, name: str, option: str, said: str, names: Sequence[str]
) -> OptionError:
    """The error for a missing column; `said` is how it calls the columns that exist, `names`."""
    return OptionError(
        f"{file.path} has no column {name} ({option}){list_columns(said, name, names)}"
    )


def list_columns(said: str, name: str, names: Sequence[str]) -> str:
    """The end of a message about a missing column: the name that may be meant, and the names that
    exist.
    """
    near = None if name in names else nearest(name, names)
    meant = f"; did you mean {_quoted(near)}?" if near else ";"
    listed = ", ".join(map(_quoted, names)) or "none"
    return f"{meant} {said}: {listed}"


def _quoted(name: str) -> str:
    """A column's name in a list, in ASCII: in quotes if it has a comma, or blanks around it."""
    text = ascii(name)[1:-1]
    return f'"{text}"' if "," in name or name != name.strip() else text


@functools.lru_cache(64)
def can_be_kept(kind: pa.DataType) -> bool:
    """Whether rows of a column of this type can be taken, and written as Parquet."""
    try:
        rows = without_views(pa.RecordBatch.from_arrays([pa.nulls(1, kind)], ["kept"])).take(
            pa.array([0])
        )
        parquet_bytes(rows)
    except (pa.ArrowException, OSError):
        return False
    return True


def is_string(found: pa.DataType | None) -> bool:
    """Whether a column of this type holds text (dictionary-encoded text included)."""
    if found is not None and pa.types.is_dictionary(found):
        found = found.value_type
    return found is not None and (
        pa.types.is_string(found)
        or pa.types.is_large_string(found)
        or pa.types.is_string_view(found)
    )


def is_bytes(found: pa.DataType) -> bool:
    """Whether a column of this type holds bytes of any number, which are no text."""
    return (
        pa.types.is_binary(found)
        or pa.types.is_large_binary(found)
        or pa.types.is_binary_view(found)
    )


def is_id(found: pa.DataType | None) -> bool:
    """Whether the values of a column of this type can be ids."""
    return is_string(found) or (
        found is not None
        and (
            pa.types.is_integer(found)
            or pa.types.is_fixed_size_binary(found)
            or isinstance(found, pa.UuidType)
        )
    )
