"""Spans: pieces of input files that are read in one go, planned from footers and sizes alone.

Tokens are estimated: four bytes of UTF-8 a token and two more a row.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.base.compact import by_values
from transforms.base.errors import OptionError, SentenceBeamError, first_line
from transforms.corpus.files import BY_LINE, InputFile
from transforms.corpus.tables import orc_rows
from transforms.corpus.whole_files import check_size

UNIT_TOKENS = 262_144  # in one unit, where nothing else is said
BYTES_PER_TOKEN = 4
TOKENS_PER_ROW = 2
PACKS = 3  # times that text becomes smaller by compression
# leaves room for the tokens per row, so that a byte range is rarely cut again
TEXT_BYTES_PER_TOKEN = 3


@by_values
@dataclass(frozen=True, slots=True)
class Span:
    """A piece of one file: rows [start, stop) of a table, bytes [start, stop) of the uncompressed
    text.

    A table is a file of any format but text and JSONL; it is one span, Parquet's row groups aside.
    `stop` is None where only the reader learns the length. `rows` is exact for Parquet, ORC and
    whole files, None for others; `tokens` is an estimate.
    """

    file: InputFile
    number: int
    start: int
    stop: int | None
    row_groups: tuple[int, ...] = ()
    rows: int | None = None
    tokens: int = 0

    @property
    def name(self) -> str:
        """The unit's name, or the stem of its units' names; `number` is the first row group or the
        first byte.
        """
        return f"{self.file.key}-{self.number:012d}"


def estimated_tokens(text_bytes: int, rows: int) -> int:
    """Tokens that so many bytes of text in so many rows should make."""
    return text_bytes // BYTES_PER_TOKEN + TOKENS_PER_ROW * rows


def plan_file(file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
    """Spans of about `unit_tokens`, in order; `text` names the column with the text, or several
    that make it.

    Raises SentenceBeamError for a file that cannot be read.
    """
    if file.format == "parquet":
        return list(_parquet_spans(file, text, unit_tokens))
    if file.format == "orc":
        rows = orc_rows(file)
        return (
            [Span(file, 0, 0, rows, (), rows, PACKS * file.size // BYTES_PER_TOKEN)] if rows else []
        )
    if file.format == "file":
        check_size(file, file.size)
        size = file.size * (PACKS if file.compression else 1)
        return [Span(file, 0, 0, 1, (), 1, estimated_tokens(size, 1))]
    if file.format == "avro" or file.compression:
        # Text packs to about a third; a wrong guess costs nothing but the estimate.
        return (
            [Span(file, 0, 0, None, tokens=PACKS * file.size // BYTES_PER_TOKEN)]
            if file.size
            else []
        )
    if file.format not in BY_LINE:
        return [Span(file, 0, 0, None, tokens=file.size // BYTES_PER_TOKEN)] if file.size else []
    return list(_byte_ranges(file, unit_tokens))


def _byte_ranges(file: InputFile, unit_tokens: int) -> Iterator[Span]:
    step = TEXT_BYTES_PER_TOKEN * unit_tokens
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        yield Span(file, start, start, stop, tokens=(stop - start) // TEXT_BYTES_PER_TOKEN)


def _parquet_spans(
    file: InputFile, text: str | tuple[str, ...], unit_tokens: int
) -> Iterator[Span]:
    footer = footer_of(file)
    columns = [_leaf(footer, text)] if isinstance(text, str) else _leaves(footer, text)
    groups: list[int] = []
    first_row = rows = tokens = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        size = sum(group.column(column).total_uncompressed_size for column in columns)
        estimate = estimated_tokens(size, group.num_rows)
        if groups and tokens + estimate > unit_tokens:
            yield Span(file, groups[0], first_row, first_row + rows, tuple(groups), rows, tokens)
            groups, first_row, rows, tokens = [], first_row + rows, 0, 0
        if group.num_rows:
            groups, rows, tokens = groups + [number], rows + group.num_rows, tokens + estimate
    if groups:
        yield Span(file, groups[0], first_row, first_row + rows, tuple(groups), rows, tokens)


@functools.lru_cache(16)
def footer_of(file: InputFile) -> pq.FileMetaData:
    """A Parquet file's footer, read once for the columns and the spans."""
    with parquet_file(file) as parquet:
        return parquet.metadata


def _leaf(footer: pq.FileMetaData, name: str) -> int:
    for i in range(footer.num_columns):
        if footer.schema.column(i).path == name:
            return i
    raise OptionError(f"column {name} is nested; --text-column needs a plain string column")


def _leaves(footer: pq.FileMetaData, names: tuple[str, ...]) -> list[int]:
    """The columns of these names, and those inside of them; none of a name that the file has
    not.
    """
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    return [
        i
        for i, path in enumerate(paths)
        if any(f"{path}.".startswith(f"{name}.") for name in names)
    ]


def parquet_file(file: InputFile) -> pq.ParquetFile:
    """The file's footer, read. Raises SentenceBeamError where it is not Parquet or cut short."""
    try:
        source = (
            file.path
            if storage.is_local(file.path)
            else storage.storage_of(file.path).open(file.path, file.entry)
        )
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError, UnicodeError) as error:  # the latter of columns' names
        reason = first_line(error).rstrip(".")
        raise SentenceBeamError(
            f"{file.path} is not a readable Parquet file ({reason}); replace it or leave it out of"
            " --input"
        ) from error
