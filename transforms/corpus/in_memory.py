"""Input from a Python program: names of files, or rows.

Rows are data frames, tables, columns, texts or dicts.
"""

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.base.errors import OptionError, first_line
from transforms.base.values import StrPath, as_text
from transforms.corpus.lakes import is_table

TEXT = "text"
ROWS_IN_A_GROUP = 10_000
NOT_IN_NAMES = set("/*?[]{}")
LONGEST_NAME = 200  # bytes; file systems allow 255, and a suffix is added
DIGITS = 16  # of the sha256 that names a batch without a name
STORED = ("gs://", "s3://")
NO_ROWS = pa.table({})
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # the index of a pandas data frame
_VIEWS = {
    pa.string_view(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary_view(): pa.binary(),
}


class ArrowStream(Protocol):
    """An object with Arrow data.

    Among them are data frames and columns of pandas and Polars, tables of Arrow, relations of
    DuckDB.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Rows: TypeAlias = ArrowStream | Mapping[str, Any] | Iterable[str] | Iterable[Mapping[str, Any]]
Files: TypeAlias = StrPath | Iterable[os.PathLike[str]]


def input_of(given: Rows | Files) -> tuple[str, ...] | pa.Table:
    """The files that a pattern, a path or several paths name; else the rows, as a table.

    Rows are an object with Arrow data, a dict of columns, dicts, or texts (column `text`). Raises
    OptionError for anything else, for values without an Arrow type, and for texts that all are
    names of files.
    """
    if isinstance(given, str | os.PathLike):
        return (as_text(given),)
    try:
        if isinstance(given, pa.RecordBatch | pa.Array) or hasattr(given, "__arrow_c_stream__"):
            return _of_arrow(given)
        if isinstance(given, Mapping):
            return _of_columns(given)
        return _of_items(list(given))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise OptionError(
            f"rows of {type(given).__name__} cannot be read ({error}); give texts or dicts"
        ) from None


def batch_name(text: str) -> str:
    """The name of a batch of rows.

    Raises OptionError for text that cannot be the name of a file.
    """
    if (
        not isinstance(text, str)
        or not text.strip()
        or not text.isprintable()
        or set(text) & NOT_IN_NAMES
        or len(text.encode()) > LONGEST_NAME
    ):
        raise OptionError(
            f"batch: {text!r} is no name; take up to {LONGEST_NAME} letters, digits, blanks and"
            " hyphens"
        )
    return text


def write_batch(rows: pa.Table, folder: str, name: str | None) -> str:
    """Write rows as a Parquet file and return its name: `name`, or a digest of the rows.

    If there are no rows, their columns are not written: an empty data frame has none of their
    types. Raises OptionError for rows without a column, and a column that Parquet cannot hold.
    """
    path = os.path.join(folder, "batch")
    if not len(rows):
        rows = NO_ROWS
    elif not rows.num_columns:
        raise OptionError(f"the {len(rows)} rows have no columns; give a column {TEXT}")
    try:
        pq.write_table(rows.combine_chunks(), path, row_group_size=ROWS_IN_A_GROUP)
    except pa.ArrowException as error:
        raise OptionError(
            f"the rows cannot be written as Parquet ({first_line(error)}); cast the column"
        ) from None
    file = f"{name or storage.sha256_of(path)[0][:DIGITS]}.parquet"
    os.rename(path, os.path.join(folder, file))
    return file


def _of_arrow(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return with_file_types(pa.table(rows))
    if isinstance(rows, pa.Array):
        rows = [rows]
    column = pa.chunked_array(rows)
    if not len(column):
        return NO_ROWS
    if pa.types.is_struct(column.type):
        table = pa.Table.from_struct_array(column)
        indices = list(filter(_UNNAMED_INDEX.fullmatch, table.column_names))
        return with_file_types(table.drop_columns(indices))
    return with_file_types(pa.table({TEXT: column}))


def _of_columns(columns: Mapping[str, Any]) -> pa.Table:
    for name, values in columns.items():
        if not isinstance(name, str):
            raise OptionError(f"column {name!r} has a name that is no text; rename it")
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise OptionError(
                f"column {name!r} holds one value ({type(values).__name__}), no list; a dict holds"
                " columns, as in {'text': ['one', 'two']}; for rows give a list of dicts"
            )
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise OptionError(f"columns of different lengths: {lengths}")
    return with_file_types(pa.table({name: _column(values) for name, values in columns.items()}))


def _column(values: Any) -> pa.Array | pa.ChunkedArray:
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    return pa.array(values)


def _of_items(items: list[Any]) -> tuple[str, ...] | pa.Table:
    paths = sum(isinstance(item, os.PathLike) for item in items)
    if paths and paths == len(items):
        return tuple(map(as_text, items))
    if paths:
        raise OptionError(
            f"{paths} of {len(items)} items are paths of files; give paths alone, or rows alone"
        )
    for place, item in enumerate(items):
        if not isinstance(item, str | Mapping):
            raise OptionError(
                f"row {place} is neither a text nor a dict ({type(item).__name__}); give one kind"
            )
        if isinstance(item, str) != isinstance(items[0], str):
            raise OptionError(
                f"row {place} is not of the kind of row 0; give texts or dicts, not both"
            )
    if items and isinstance(items[0], Mapping):
        return pa.Table.from_pylist([dict(item) for item in items], schema=_schema(items))
    _check_texts(items)
    return pa.table({TEXT: pa.array(items, pa.string())})


def _check_texts(texts: Sequence[str]) -> None:
    """Raise OptionError if all texts name files, since a list of texts means rows."""
    if texts and all(map(_names_files, texts)):
        what = "the text is the name of a file"
        if len(texts) > 1:
            what = f"all {len(texts)} texts are names of files"
        raise OptionError(
            f"{what} ({texts[0]}); to embed files give paths, as in [Path({texts[0]!r})], to embed"
            f" the names themselves give dicts, as in [{{{TEXT!r}: {texts[0]!r}}}]"
        )


def _names_files(text: str) -> bool:
    """Whether a text names files: by a path, a pattern, a table, or a URL of object storage."""
    if text.startswith(STORED) or is_table(text):
        return True
    try:
        return os.path.exists(text) or any(glob.iglob(text))
    except (ValueError, OSError):  # the text cannot be a name
        return False


def _schema(items: Iterable[Mapping[str, Any]]) -> pa.Schema:
    """The columns of all dicts, in the order of their first appearance.

    A missing key is null.
    """
    names = dict.fromkeys(name for item in items for name in item)
    return pa.schema([(name, pa.array([item.get(name) for item in items]).type) for name in names])


def with_file_types(table: pa.Table) -> pa.Table:
    """Return the table with the types that Parquet files have."""
    if not table.num_columns:  # the cast would lose the number of rows
        return table
    fields = [field.with_type(_VIEWS.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))
