"""Spans: pieces of input files that are read in one go, planned from footers and sizes alone.

Tokens are estimated: four bytes of UTF-8 a token and two more a row.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.corpus.files import InputFile
from transforms.corpus.lines import line_starts
from transforms.errors import OptionError, SentenceBeamError, first_line

UNIT_TOKENS = 262_144  # in one unit, where nothing else is said
BYTES_PER_TOKEN = 4
TOKENS_PER_ROW = 2
TEXT_BYTES_PER_TOKEN = 3  # leaves room for the tokens per row, so that a byte range is rarely cut again


@dataclass(frozen=True)
class Span:
    """A piece of one file: rows [start, stop) of whole row groups, bytes [start, stop) of the uncompressed text.

    `stop` is None for a compressed file, whose length only its reader learns. `rows` is exact for Parquet and None
    for text; `tokens` is an estimate.
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
        """The unit's name, or the stem of its units' names; `number` is the first row group or the first byte."""
        return f"{self.file.key}-{self.number:012d}"


def estimated_tokens(text_bytes: int, rows: int) -> int:
    """Tokens that so many bytes of text in so many rows should make."""
    return text_bytes // BYTES_PER_TOKEN + TOKENS_PER_ROW * rows


def plan_file(file: InputFile, text_column: str, unit_tokens: int) -> list[Span]:
    """Spans of about `unit_tokens`, in order. Raises SentenceBeamError for a file that cannot be read."""
    if file.format == "parquet":
        return list(_parquet_spans(file, text_column, unit_tokens))
    if file.compression:
        # Text packs to about a third; a wrong guess costs nothing but the estimate.
        return [Span(file, 0, 0, None, tokens=3 * file.size // BYTES_PER_TOKEN)] if file.size else []
    return list(_byte_ranges(file, unit_tokens))


def _byte_ranges(file: InputFile, unit_tokens: int) -> Iterator[Span]:
    step = TEXT_BYTES_PER_TOKEN * unit_tokens
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        yield Span(file, start, start, stop, tokens=(stop - start) // TEXT_BYTES_PER_TOKEN)


def _parquet_spans(file: InputFile, text_column: str, unit_tokens: int) -> Iterator[Span]:
    footer = _footer(file)
    column = _leaf(footer, text_column)
    groups: list[int] = []
    first_row = rows = tokens = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        estimate = estimated_tokens(group.column(column).total_uncompressed_size, group.num_rows)
        if groups and tokens + estimate > unit_tokens:
            yield Span(file, groups[0], first_row, first_row + rows, tuple(groups), rows, tokens)
            groups, first_row, rows, tokens = [], first_row + rows, 0, 0
        if group.num_rows:
            groups, rows, tokens = groups + [number], rows + group.num_rows, tokens + estimate
    if groups:
        yield Span(file, groups[0], first_row, first_row + rows, tuple(groups), rows, tokens)


@functools.lru_cache(16)
def _footer(file: InputFile) -> pq.FileMetaData:
    """Read once for the columns and the spans of a file."""
    with parquet_file(file) as parquet:
        return parquet.metadata


def _leaf(footer: pq.FileMetaData, name: str) -> int:
    for i in range(footer.num_columns):
        if footer.schema.column(i).path == name:
            return i
    raise OptionError(f"column {name} is nested; --text-column needs a plain string column")


def parquet_file(file: InputFile) -> pq.ParquetFile:
    """The file's footer, read. Raises SentenceBeamError where it is not Parquet or cut short."""
    try:
        source = file.path if storage.is_local(file.path) else storage.storage_of(file.path).open(file.path, file.entry)
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError, UnicodeError) as error:  # the latter of columns' names
        reason = first_line(error).rstrip(".")
        raise SentenceBeamError(
            f"{file.path} is not a readable Parquet file ({reason}); replace it or leave it out of --input"
        ) from error


def check_columns(file: InputFile, text: str, id_column: str | None, keep: tuple[str, ...]) -> pa.Schema:
    """The Parquet schema, once the named columns are in it with types that can be used.

    Raises OptionError naming the file, the column, what was found and the option that mends it.
    """
    schema = _footer(file).schema.to_arrow_schema()
    for option, name in [("--text-column", text), ("--id-column", id_column), *(("--keep-columns", k) for k in keep)]:
        if name is not None and name not in schema.names:
            columns = ", ".join(schema.names) or "none"
            raise OptionError(f"{file.path} has no column {name} ({option}); its columns: {columns}")
    if not is_string(schema.field(text).type):
        raise OptionError(
            f"{file.path}: column {text} is {schema.field(text).type}, not string; "
            "name another --text-column or cast it"
        )
    if id_column is not None:
        found = schema.field(id_column).type
        if not is_string(found) and not pa.types.is_integer(found):
            raise OptionError(
                f"{file.path}: column {id_column} is {found}; ids must be strings or integers (--id-column)"
            )
    return schema


def is_string(found: pa.DataType) -> bool:
    """Whether a column of this type holds text (dictionary-encoded text included)."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    return pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)


def limit_spans(spans: list[Span], limit: int) -> list[Span]:
    """The spans that hold the first `limit` rows; text is read up to there to count its lines."""
    kept = []
    for span in spans:
        if limit <= 0:
            break
        span = _cut(span, limit)
        limit -= span.rows or 0
        # How many lines text has is known by now, but is not the plan's to promise.
        kept.append(span if span.file.format == "parquet" else replace(span, rows=None))
    return kept


def _cut(span: Span, limit: int) -> Span:
    if span.rows is not None:
        rows = min(span.rows, limit)
        return replace(span, rows=rows, stop=span.start + rows, tokens=span.tokens * rows // span.rows)
    rows, stop = 0, span.stop
    for start in line_starts(span.file, span.start, span.stop):
        if rows == limit:
            stop = start
            break
        rows += 1
    return replace(span, rows=rows, stop=stop)
