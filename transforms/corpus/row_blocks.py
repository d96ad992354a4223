"""Blocks of rows as each input format gives them, each row with the reason against it, if there is
one.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms import storage
from transforms.base.arrow import without_views
from transforms.base.errors import SentenceBeamError, first_line
from transforms.corpus.column_types import STR, TYPES, ColumnType, as_type, not_of_type
from transforms.corpus.column_values import (
    EXCERPT,
    KEPT_NOT_UTF8,
    NOT_UTF8,
    Reasons,
    as_strings,
    decode,
    decoded,
    first_reasons,
    kept_faults,
    named_values,
)
from transforms.corpus.csv_rows import CutRow, dialect_of, read_csv
from transforms.corpus.files import BY_LINE, SEPARATED, InputFile, check_unchanged, is_utf8
from transforms.corpus.json_values import read_json
from transforms.corpus.lines import TOO_LONG, CutLine, read_lines
from transforms.corpus.nested import column_at, roots, type_at, value_as_text, value_at
from transforms.corpus.spans import Span, parquet_file
from transforms.corpus.tables import read_table, table_schema
from transforms.corpus.template import Template, parse
from transforms.corpus.whole_files import read_file

READ_ROWS = 8192

NULL_TEXT = "null text"
EMPTY_TEXT = "empty text"
BLANK_LINE = "blank line"  # of a text file
NULL_ID = "null id"
NOT_JSON = "not a JSON object"
TEXT_NOT_STRING = "text is not a string"
ID_NOT_STRING = "id is neither string nor integer"
OTHER_WIDTH = "not as many values as the header has names"


@dataclass(frozen=True)
class Columns:
    """The columns of the input with text and id (None: made from path and position), and those
    carried along.

    Where a `template` is given, the text is made of the columns that it names, which a file or a
    row may lack. `prefix` is one for what stands before every piece of a document, "" for nothing.
    `types` are the words for the types that kept columns are read as, by name; of others tables
    keep their own types, and other files give strings.
    """

    text: str = "text"
    id: str | None = None
    keep: tuple[str, ...] = ()
    template: str | None = None
    prefix: str = ""
    types: tuple[tuple[str, str], ...] = ()

    def reading(self, file: InputFile) -> "Columns":
        """The columns as they are to be read from a file."""
        return replace(self, types=(*self.types, *file.types)) if file.types else self

    @cached_property
    def kinds(self) -> dict[str, ColumnType]:
        """The types that kept columns are read as, by name."""
        return {name: TYPES[word] for name, word in self.types}

    @property
    def before_pieces(self) -> Template | None:
        """The template of what stands before every piece, None where nothing does."""
        return parse(self.prefix) if self.prefix else None

    @property
    def of_prefix(self) -> tuple[str, ...]:
        """The columns that the prefix names."""
        return self.before_pieces.columns if self.before_pieces else ()

    @property
    def of_text(self) -> Template | None:
        """The template, None where a column is the text."""
        return parse(self.template) if self.template is not None else None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that make the text."""
        return self.of_text.names if self.of_text else (self.text,)

    @property
    def wanted(self) -> list[str]:
        """The names of all these columns, each once."""
        return list(
            dict.fromkeys(
                [*self.texts, *self.of_prefix, *([self.id] if self.id else []), *self.keep]
            )
        )


@dataclass
class Rows:
    """Rows on their way into a unit, column by column; `reasons` is None for a row that is good so
    far.

    `prefixes` are what stands before the pieces of each row, cut where headings go; empty where
    nothing does.
    """

    positions: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    kept: list[pa.Table] = field(default_factory=list)
    prefixes: list[tuple[str, ...]] = field(default_factory=list)

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows [start, stop) of a block (which has one kept table at most)."""
        part = [
            column[start:stop] for column in (self.positions, self.texts, self.ids, self.reasons)
        ]
        kept = [table.slice(start, stop - start) for table in self.kept]
        return Rows(*part, kept, self.prefixes[start:stop])  # type: ignore[arg-type, call-arg]

    def extend(self, other: "Rows") -> None:
        """Append another run of rows."""
        for name in self.__dataclass_fields__:
            getattr(self, name).extend(getattr(other, name))


Block = tuple[Rows, np.ndarray]  # rows and their sizes in bytes


def blocks_of(span: Span, columns: Columns) -> Iterator[Block]:
    """The rows of a span in order. Raises SentenceBeamError naming a file that cannot be read."""
    columns = columns.reading(span.file)
    if span.file.format == "parquet":
        return _parquet_blocks(span, columns)
    if span.file.format in BY_LINE:
        return _line_blocks(span, columns)
    if span.file.format == "file":
        return iter([_whole_file(span.file, columns)])
    if span.file.format == "json":
        return _up_to(span, _json_blocks(span.file, columns))
    if span.file.format in SEPARATED:
        return _up_to(span, _csv_blocks(span.file, columns))
    return _up_to(span, _table_blocks(span.file, columns))


def _up_to(span: Span, blocks: Iterator[Block]) -> Iterator[Block]:
    """The rows of a file before the span's end."""
    for rows, sizes in blocks:
        left = len(rows.positions) if span.stop is None else span.stop - rows.positions[0]
        if left <= 0:
            check_unchanged(span.file)
            return
        yield (rows, sizes) if left >= len(rows.positions) else (rows.slice(0, left), sizes[:left])


def _parquet_blocks(span: Span, columns: Columns) -> Iterator[Block]:
    check_unchanged(span.file)
    position, left = span.start, span.rows or 0
    with parquet_file(span.file) as parquet:
        try:
            names, threads = columns.wanted, storage.threads_may_read(span.file.path)
            for batch in parquet.iter_batches(
                READ_ROWS, list(span.row_groups), names, use_threads=threads
            ):
                batch = batch.slice(0, left)
                if batch.num_rows:
                    yield _batch_rows(span.file, columns, batch, position)
                position, left = position + batch.num_rows, left - batch.num_rows
        except (pa.ArrowException, OSError) as error:
            check_unchanged(span.file)  # one that is being written over looks corrupt
            raise SentenceBeamError(
                f"{span.file.path} cannot be read ({first_line(error)}); replace the file"
            ) from error
    check_unchanged(span.file)


def _batch_rows(file: InputFile, columns: Columns, batch: pa.RecordBatch, position: int) -> Block:
    n = batch.num_rows
    positions = list(range(position, position + n))
    texts, reasons, sizes = _texts(batch, columns)
    prefixes, others = _prefixes(batch, columns)
    reasons = first_reasons(reasons, others)
    if columns.id:
        ids, id_reasons = decoded(as_strings(column_at(batch, columns.id)))
        reasons = first_reasons(reasons, id_reasons)
    else:
        ids = [f"{file.relative}#{p}" for p in positions]
    carried = []
    for name in columns.keep:
        column, others = _kept_column(batch, columns, name)
        reasons = first_reasons(reasons, others)
        carried.append(column)
    kept = (
        [without_views(pa.RecordBatch.from_arrays(carried, list(columns.keep)))]
        if columns.keep
        else []
    )
    return Rows(list(positions), texts, ids, reasons or [None] * n, kept, prefixes), sizes


def _kept_column(batch: pa.RecordBatch, columns: Columns, name: str) -> tuple[pa.Array, Reasons]:
    """A kept column, and reasons against its values."""
    column, kind = column_at(batch, name), columns.kinds.get(name)
    if kind is None:
        return column, kept_faults(column)
    column, reasons = as_type(column, name, kind)
    return column, first_reasons(reasons, kept_faults(column))


def _texts(batch: pa.RecordBatch, columns: Columns) -> tuple[list[str | None], Reasons, np.ndarray]:
    """Texts, reasons against them, and sizes in bytes."""
    if columns.of_text is None:
        text = _large(column_at(batch, columns.text))
        return *decoded(text), pc.fill_null(pc.binary_length(text), 0).to_numpy(
            zero_copy_only=False
        )
    rows, reasons = named_values(batch, columns.of_text.names)
    texts = [columns.of_text.fill(row.get) for row in rows]
    return list(texts), reasons, np.array([len(text.encode()) for text in texts], np.int64)


def _prefixes(batch: pa.RecordBatch, columns: Columns) -> tuple[list[tuple[str, ...]], Reasons]:
    """What stands before the pieces of each row, and reasons against it."""
    if columns.before_pieces is None:
        return [], None
    rows, reasons = named_values(batch, columns.of_prefix)
    return [columns.before_pieces.around_headings(row.get) for row in rows], reasons


def _large(text: pa.Array) -> pa.Array:
    return text if pa.types.is_large_string(text.type) else text.cast(pa.large_string())


def _table_blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    position = 0
    schema = table_schema(file)
    there = [name for name in columns.wanted if type_at(schema, name) is not None]
    for batch in read_table(file, roots(schema, there)):
        if batch.num_rows:
            yield _batch_rows(file, columns, batch, position)
            position += batch.num_rows


def _line_blocks(span: Span, columns: Columns) -> Iterator[Block]:
    parse = _jsonl_row if span.file.format == "jsonl" else _text_row
    for block in read_lines(span.file, span.start, span.stop):
        parsed = [parse(span.file, columns, offset, line) for offset, line in block]
        sizes = np.array([len(line) for _, line in block], np.int64)
        yield _parsed_rows(columns, [offset for offset, _ in block], parsed), sizes


def _json_blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    position = 0
    for values in read_json(file):
        parsed = [
            _object_row(columns, value, _row_id(file, columns, n))
            for n, value in enumerate(values, position)
        ]
        yield _parsed_rows(columns, range(position, position + len(parsed)), parsed), _sizes(parsed)
        position += len(values)


def _csv_blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    dialect, position = dialect_of(file), 0
    places = {
        name: place for name in columns.wanted if (place := dialect.place_of(name)) is not None
    }
    for rows in read_csv(file):
        parsed = []
        for number, row in enumerate(rows, position):
            default = _row_id(file, columns, number)
            if isinstance(row, CutRow):
                parsed.append(_Parsed(_readable(row[0][:EXCERPT]), default, TOO_LONG))
            elif len(row) == len(dialect.header):
                parsed.append(_csv_row(columns, places, row, default))
            else:
                parsed.append(
                    _Parsed(_readable(dialect.delimiter.join(row)[:EXCERPT]), default, OTHER_WIDTH)
                )
        yield _parsed_rows(columns, range(position, position + len(parsed)), parsed), _sizes(parsed)
        position += len(rows)


class _Parsed(NamedTuple):
    """A row: its text, its id, the reason against it, the kept values, and what stands before its
    pieces.
    """

    text: str | None
    id: str | None
    reason: str | None
    kept: Mapping[str, Any] = MappingProxyType({})
    prefix: tuple[str, ...] = ("",)


def _parsed_rows(columns: Columns, positions: Iterable[int], parsed: list[_Parsed]) -> Rows:
    texts, ids, reasons, kept, prefixes = (
        map(list, zip(*parsed, strict=True)) if parsed else ([], [], [], [], [])
    )
    tables = [_kept_table(columns, kept)] if columns.keep and kept else []
    return Rows(
        list(positions), texts, ids, reasons, tables, prefixes if columns.before_pieces else []
    )


def _prefix(columns: Columns, value: Callable[[str], str | None]) -> tuple[str, ...]:
    """What stands before the pieces of a row with these values."""
    return columns.before_pieces.around_headings(value) if columns.before_pieces else ("",)


def _sizes(parsed: list[_Parsed]) -> np.ndarray:
    return np.array([len((text or "").encode()) for text, *_ in parsed], np.int64)


def _row_id(file: InputFile, columns: Columns, number: int) -> str | None:
    """The id that is made for a row, None where ids come from a column."""
    return None if columns.id else f"{file.relative}#{number}"


def _kept_table(columns: Columns, rows: list[Mapping[str, Any]]) -> pa.Table:
    kinds = {name: columns.kinds.get(name, STR) for name in columns.keep}
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], kind.arrow)
            for name, kind in kinds.items()
        }
    )


def _kept_values(
    columns: Columns, texts: Mapping[str, str | None]
) -> tuple[Mapping[str, Any], str | None]:
    """The kept values of a row, read from their texts, and the reason against the row where one is
    not of its type.
    """
    if not columns.kinds:
        return texts, None
    values: dict[str, Any] = {}
    for name, text in texts.items():
        kind = columns.kinds.get(name, STR)
        try:
            values[name] = None if text is None else kind.read(text)
        except (ValueError, OverflowError):
            return {}, not_of_type(name, kind)
    return values, None


def _whole_file(file: InputFile, columns: Columns) -> Block:
    data = read_file(file)
    return _parsed_rows(columns, [0], [_plain_row(columns, file.relative, data)]), np.array(
        [len(data)], np.int64
    )


def _text_row(file: InputFile, columns: Columns, offset: int, line: bytes) -> _Parsed:
    if isinstance(line, CutLine):
        return _cut_row(line, f"{file.relative}@{offset}")
    return _plain_row(columns, f"{file.relative}@{offset}", line)


def _plain_row(columns: Columns, row_id: str, data: bytes) -> _Parsed:
    plain, reason = decode(data)
    text = plain if columns.of_text is None else columns.of_text.fill({columns.text: plain}.get)
    values = {columns.text: plain}
    return _Parsed(text, row_id, reason, values, _prefix(columns, values.get))


def _cut_row(line: CutLine, row_id: str | None) -> _Parsed:
    return _Parsed(line[:EXCERPT].decode(errors="replace"), row_id, TOO_LONG)


def _jsonl_row(file: InputFile, columns: Columns, offset: int, line: bytes) -> _Parsed:
    default = None if columns.id else f"{file.relative}@{offset}"
    if isinstance(line, CutLine):
        return _cut_row(line, default)
    source, reason = decode(line)
    if reason or not source.strip():
        return _Parsed(source, default, reason or EMPTY_TEXT)
    try:
        row = json.loads(source)
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets
        row = None
    return _object_row(columns, row, default, source)


def _object_row(
    columns: Columns, row: Any, default: str | None, source: str | None = None
) -> _Parsed:
    """The row of a JSON value; `default` is its id where no column has it, `source` the JSON, if
    that is at hand.
    """

    def rejected(row_id: str | None, reason: str) -> _Parsed:
        return _Parsed((json.dumps(row) if source is None else source)[:EXCERPT], row_id, reason)

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
    values, unread = _kept_values(columns, kept)
    if unread is not None:
        return rejected(row_id, unread)
    prefix = _prefix(columns, lambda name: value_as_text(value_at(row, name)))
    if not all(map(is_utf8, prefix)):
        return rejected(row_id, NOT_UTF8)
    return _Parsed(text, row_id, reason, values, prefix)


def _object_text(columns: Columns, row: dict[str, Any]) -> Any:
    """The text of a JSON object, of any type where a column has it."""
    if columns.of_text is None:
        return value_at(row, columns.text)
    return columns.of_text.fill(lambda name: value_as_text(value_at(row, name)))


def _csv_row(
    columns: Columns, places: dict[str, int], row: list[str], default: str | None
) -> _Parsed:
    """The row of CSV values; an empty one is null."""
    kept = {name: _csv_kept(columns, name, row[places[name]]) for name in columns.keep}
    if columns.of_text is None:
        text = row[places[columns.text]] or None
    else:
        text = columns.of_text.fill(lambda name: row[places[name]] if name in places else None)
    prefix = _prefix(columns, lambda name: row[places[name]] if name in places else None)
    row_id = row[places[columns.id]] or None if columns.id else default
    if not all(map(is_utf8, (text, row_id, *prefix))):
        return _Parsed(_readable((text or "")[:EXCERPT]), default, NOT_UTF8)
    if not all(map(is_utf8, kept.values())):
        return _Parsed(text, row_id, KEPT_NOT_UTF8)
    values, unread = _kept_values(columns, kept)
    return _Parsed(text, row_id, unread, values, prefix)


def _csv_kept(columns: Columns, name: str, value: str) -> str | None:
    """A kept value of CSV; an empty one is null, and so is a blank one of a column that is not
    text.
    """
    if columns.kinds.get(name, STR) is STR:
        return value or None
    return value.strip() or None


def _readable(text: str) -> str:
    """The text with what is no UTF-8 in it replaced."""
    return text.encode("utf8", errors="surrogateescape").decode("utf8", errors="replace")


def _json_id(value: Any) -> tuple[str | None, str | None]:
    if value is None:
        return None, NULL_ID
    if isinstance(value, str):
        return value, None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    return None, ID_NOT_STRING
