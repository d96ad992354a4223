"""Input from a Python program: names of files, or rows; and rows as a file."""

import contextlib
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, first_line
from sentence_beam.transforms.base.values import StrPath, as_text
from sentence_beam.transforms.corpus.lakes import is_table
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.row_columns import TEXT, Rows, read_columns

ROWS_IN_A_GROUP = 10_000
NOT_IN_NAMES = set("/*?[]{}")
LONGEST_NAME = 200  # bytes; file systems allow 255, and a suffix is added
DIGITS = 16  # of the sha256 that names a batch without a name
STORED = ("gs://", "s3://")
NO_ROWS = pa.table({})
_SMALL = {pa.large_string(): pa.string()}
Files: TypeAlias = StrPath | Iterable[os.PathLike[str]]


def read_input(
    source: Rows | Files, used: Callable[[Any], Columns] | None = None
) -> tuple[str, ...] | pa.Table:
    """The files that a pattern, a path or several paths name; else the rows, as a table.

    Rows are as for `read_columns`, dicts and texts also from an iterator; `used` returns the columns
    of rows that are used (None: all). Raises OptionError for anything else, for values without an
    Arrow type, and for texts that all are names of files.
    """
    if isinstance(source, str | os.PathLike):
        return (as_text(source),)
    rows: Any = source
    with _naming_rows(source):
        is_table_of_rows = isinstance(source, pa.RecordBatch | pa.Array | Mapping)
        if not is_table_of_rows and not hasattr(source, "__arrow_c_stream__"):
            rows = list(source)
            paths = _read_paths(rows)
            if paths:
                return paths
    columns = used(rows) if used is not None else None
    with _naming_rows(source):
        return _cast_strings(read_columns(rows, columns))


@contextlib.contextmanager
def _naming_rows(source: Any) -> Iterator[None]:
    """Turn errors about values that are no rows into one line with their type."""
    try:
        yield
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise OptionError(
            f"rows of {type(source).__name__} cannot be read ({error}); give texts or dicts"
        ) from None


def _cast_strings(table: pa.Table) -> pa.Table:
    """Return the table with plain strings, which all libraries then write alike."""
    fields = [field.with_type(_SMALL.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def check_batch_name(text: str) -> str:
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
    types. Raises OptionError for a column that Parquet cannot hold.
    """
    path = os.path.join(folder, "batch")
    if not len(rows):
        rows = NO_ROWS
    try:
        pq.write_table(rows.combine_chunks(), path, row_group_size=ROWS_IN_A_GROUP)
    except pa.ArrowException as error:
        raise OptionError(
            f"the rows cannot be written as Parquet ({first_line(error)}); cast the column"
        ) from None
    file = f"{name or storage.sha256_of(path)[0][:DIGITS]}.parquet"
    os.rename(path, os.path.join(folder, file))
    return file


def _read_paths(items: list[Any]) -> tuple[str, ...]:
    """Return the paths if all items are paths, () for rows.

    Raises OptionError for items of several kinds, and for texts that all are names of files.
    """
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
    if items and isinstance(items[0], str):
        _check_texts(items)
    return ()


def _check_texts(texts: Sequence[str]) -> None:
    """Raise OptionError if all texts name files, since a list of texts means rows."""
    if all(map(_names_files, texts)):
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
