"""Blocks of rows as each input format gives them, each row with the reason against it, if there is one."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms import storage
from transforms.arrow import without_views
from transforms.corpus.csv_rows import dialect_of, read_csv
from transforms.corpus.files import BY_LINE, SEPARATED, InputFile, check_unchanged, is_utf8
from transforms.corpus.json_values import read_json
from transforms.corpus.lines import read_lines
from transforms.corpus.nested import column_at, roots, type_at, value_as_text, value_at
from transforms.corpus.spans import Span, parquet_file
from transforms.corpus.tables import read_table, table_schema
from transforms.corpus.template import Template, parse
from transforms.corpus.whole_files import read_file
from transforms.errors import SentenceBeamError, first_line

READ_ROWS = 8192
EXCERPT = 80

NULL_TEXT = "null text"
EMPTY_TEXT = "empty text"
NULL_ID = "null id"
NOT_UTF8 = "not UTF-8"
KEPT_NOT_UTF8 = "kept column not UTF-8"
KEPT_NULL_LIST = "kept column null, which lists of a fixed number cannot be in Parquet"
NOT_JSON = "not a JSON object"
TEXT_NOT_STRING = "text is not a string"
ID_NOT_STRING = "id is neither string nor integer"
OTHER_WIDTH = "not as many values as the header has names"


@dataclass(frozen=True)
class Columns:
    """The columns of the input with text and id (None: made from path and position), and those carried along.

    Where a `template` is given, the text is made of the columns that it names, which a file or a row may lack. `prefix`
    is one for what stands before every piece of a document, "" for nothing.
    """

    text: str = "text"
    id: str | None = None
    keep: tuple[str, ...] = ()
    template: str | None = None
    prefix: str = ""

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
        return list(dict.fromkeys([*self.texts, *self.of_prefix, *([self.id] if self.id else []), *self.keep]))


@dataclass
class Rows:
    """Rows on their way into a unit, column by column; `reasons` is None for a row that is good so far.

    `prefixes` are what stands before the pieces of each row, cut where headings go; empty where nothing does.
    """

    positions: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    kept: list[pa.Table] = field(default_factory=list)
    prefixes: list[tuple[str, ...]] = field(default_factory=list)

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows [start, stop) of a block (which has one kept table at most)."""
        part = [column[start:stop] for column in (self.positions, self.texts, self.ids, self.reasons)]
        kept = [table.slice(start, stop - start) for table in self.kept]
        return Rows(*part, kept, self.prefixes[start:stop])  # type: ignore[arg-type, call-arg]

    def extend(self, other: "Rows") -> None:
        """Append another run of rows."""
        for name in self.__dataclass_fields__:
            getattr(self, name).extend(getattr(other, name))


Block = tuple[Rows, np.ndarray]  # rows and their sizes in bytes


def blocks_of(span: Span, columns: Columns) -> Iterator[Block]:
    """The rows of a span in order. Raises SentenceBeamError naming a file that cannot be read."""
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
            for batch in parquet.iter_batches(READ_ROWS, list(span.row_groups), names, use_threads=threads):
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
    reasons = _first(reasons, others)
    if columns.id:
        ids, id_reasons = _decoded(_as_strings(column_at(batch, columns.id)))
        reasons = _first(reasons, id_reasons)
    else:
        ids = [f"{file.relative}#{p}" for p in positions]
    carried = [column_at(batch, name) for name in columns.keep]
    for column in carried:
        reasons = _first(reasons, _kept_faults(column))
    kept = [without_views(pa.RecordBatch.from_arrays(carried, list(columns.keep)))] if columns.keep else []
    return Rows(list(positions), texts, ids, reasons or [None] * n, kept, prefixes), sizes


def _texts(batch: pa.RecordBatch, columns: Columns) -> tuple[list[str | None], "_Reasons", np.ndarray]:
    """Texts, reasons against them, and sizes in bytes."""
    if columns.of_text is None:
        text = _large(column_at(batch, columns.text))
        return *_decoded(text), pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    rows, reasons = named_values(batch, columns.of_text.names)
    texts = [columns.of_text.fill(row.get) for row in rows]
    return list(texts), reasons, np.array([len(text.encode()) for text in texts], np.int64)


def _prefixes(batch: pa.RecordBatch, columns: Columns) -> tuple[list[tuple[str, ...]], "_Reasons"]:
    """What stands before the pieces of each row, and reasons against it."""
    if columns.before_pieces is None:
        return [], None
    rows, reasons = named_values(batch, columns.of_prefix)
    return [columns.before_pieces.around_headings(row.get) for row in rows], reasons


def named_values(batch: pa.RecordBatch, names: tuple[str, ...]) -> tuple[list[dict[str, str | None]], "_Reasons"]:
    """The values of those columns that are there as text, row by row, and reasons against them."""
    values: dict[str, list[str | None]] = {}
    reasons: _Reasons = None
    for name in names:
        if type_at(batch.schema, name) is not None:
            values[name], others = _values_as_text(column_at(batch, name))
            reasons = _first(reasons, others)
    return [{name: column[row] for name, column in values.items()} for row in range(batch.num_rows)], reasons


def _large(text: pa.Array) -> pa.Array:
    return text if pa.types.is_large_string(text.type) else text.cast(pa.large_string())


def _values_as_text(column: pa.Array) -> tuple[list[str | None], "_Reasons"]:
    """Values for a template, and reasons against them: lists and structs as JSON, all else as ids are."""
    if not pa.types.is_nested(column.type):
        return _decoded(_as_strings(column))
    faults = _kept_faults(column)
    bad = faults or [None] * len(column)
    texts = [None if fault else value_as_text(value.as_py()) for value, fault in zip(column, bad, strict=True)]
    return texts, [fault and NOT_UTF8 for fault in bad] if faults else None


def _as_strings(ids: pa.Array) -> pa.Array:
    """Ids as text: integers in decimal, UUIDs as 8-4-4-4-12 hex digits, other bytes of a fixed number in hex."""
    if isinstance(ids.type, pa.UuidType):
        values = ids.storage.to_pylist()
        return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in values], pa.large_string())
    if pa.types.is_fixed_size_binary(ids.type):
        values = ids.to_pylist()
        return pa.array([None if value is None else value.hex() for value in values], pa.large_string())
    return ids.cast(pa.large_string())


def _table_blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    position = 0
    schema = table_schema(file)
    there = [name for name in columns.wanted if type_at(schema, name) is not None]
    for batch in read_table(file, roots(schema, there)):
        if batch.num_rows:
            yield _batch_rows(file, columns, batch, position)
            position += batch.num_rows


_Reasons = list[str | None] | None  # None: nothing against any row


def _first(reasons: _Reasons, others: _Reasons) -> _Reasons:
    """The first reason against each row."""
    if reasons is None or others is None:
        return reasons or others
    return [a or b for a, b in zip(reasons, others, strict=True)]


def _kept_faults(column: pa.Array) -> _Reasons:
    """Reasons against kept values that no reader of the shard could decode."""
    if pa.types.is_fixed_size_list(column.type) and column.null_count:
        return [KEPT_NULL_LIST if null else None for null in column.is_null().to_pylist()]
    try:
        column.validate(full=True)
        return None
    except pa.ArrowInvalid:
        return [None if _decodes(value) else KEPT_NOT_UTF8 for value in column]


def _decodes(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(text: pa.Array) -> tuple[list[str | None], _Reasons]:
    """Texts and reasons; files written by careless tools hold strings that are not UTF-8."""
    try:
        return text.to_pylist(), None
    except UnicodeDecodeError:
        pairs = [(None, None) if b is None else _decode(b) for b in text.cast(pa.large_binary()).to_pylist()]
        return [text for text, _ in pairs], [reason for _, reason in pairs]


def _decode(line: bytes) -> tuple[str, str | None]:
    try:
        return line.decode("utf8"), None
    except UnicodeDecodeError:
        return line[: 4 * EXCERPT].decode("utf8", errors="replace"), NOT_UTF8


def _line_blocks(span: Span, columns: Columns) -> Iterator[Block]:
    parse = _jsonl_row if span.file.format == "jsonl" else _text_row
    for block in read_lines(span.file, span.start, span.stop):
        parsed = [parse(span.file, columns, offset, line) for offset, line in block]
        sizes = np.array([len(line) for _, line in block], np.int64)
        yield _parsed_rows(columns, [offset for offset, _ in block], parsed), sizes


def _json_blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    position = 0
    for values in read_json(file):
        parsed = [_object_row(columns, value, _row_id(file, columns, n)) for n, value in enumerate(values, position)]
        yield _parsed_rows(columns, range(position, position + len(parsed)), parsed), _sizes(parsed)
        position += len(values)


def _csv_blocks(file: InputFile, columns: Columns) -> Iterator[Block]:
    dialect, position = dialect_of(file), 0
    places = {name: dialect.header.index(name) for name in columns.wanted if name in dialect.header}
    for rows in read_csv(file):
        parsed = []
        for number, row in enumerate(rows, position):
            default = _row_id(file, columns, number)
            if len(row) == len(dialect.header):
                parsed.append(_csv_row(columns, places, row, default))
            else:
                parsed.append(_Parsed(_readable(dialect.delimiter.join(row)[:EXCERPT]), default, OTHER_WIDTH))
        yield _parsed_rows(columns, range(position, position + len(parsed)), parsed), _sizes(parsed)
        position += len(rows)


class _Parsed(NamedTuple):
    """A row: its text, its id, the reason against it, the kept values, and what stands before its pieces."""

    text: str | None
    id: str | None
    reason: str | None
    kept: Mapping[str, Any] = MappingProxyType({})
    prefix: tuple[str, ...] = ("",)


def _parsed_rows(columns: Columns, positions: Iterable[int], parsed: list[_Parsed]) -> Rows:
    texts, ids, reasons, kept, prefixes = map(list, zip(*parsed, strict=True)) if parsed else ([], [], [], [], [])
    tables = [_string_table(columns.keep, kept)] if columns.keep and kept else []
    return Rows(list(positions), texts, ids, reasons, tables, prefixes if columns.before_pieces else [])


def _prefix(columns: Columns, value: Callable[[str], str | None]) -> tuple[str, ...]:
    """What stands before the pieces of a row with these values."""
    return columns.before_pieces.around_headings(value) if columns.before_pieces else ("",)


def _sizes(parsed: list[_Parsed]) -> np.ndarray:
    return np.array([len((text or "").encode()) for text, *_ in parsed], np.int64)


def _row_id(file: InputFile, columns: Columns, number: int) -> str | None:
    """The id that is made for a row, None where ids come from a column."""
    return None if columns.id else f"{file.relative}#{number}"


def _string_table(names: tuple[str, ...], rows: list[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})


def _whole_file(file: InputFile, columns: Columns) -> Block:
    data = read_file(file)
    return _parsed_rows(columns, [0], [_plain_row(columns, file.relative, data)]), np.array([len(data)], np.int64)


def _text_row(file: InputFile, columns: Columns, offset: int, line: bytes) -> _Parsed:
    return _plain_row(columns, f"{file.relative}@{offset}", line)


def _plain_row(columns: Columns, row_id: str, data: bytes) -> _Parsed:
    plain, reason = _decode(data)
    text = plain if columns.of_text is None else columns.of_text.fill({columns.text: plain}.get)
    values = {columns.text: plain}
    return _Parsed(text, row_id, reason, values, _prefix(columns, values.get))


def _jsonl_row(file: InputFile, columns: Columns, offset: int, line: bytes) -> _Parsed:
    source, reason = _decode(line)
    default = None if columns.id else f"{file.relative}@{offset}"
    if reason or not source.strip():
        return _Parsed(source, default, reason or EMPTY_TEXT)
    try:
        row = json.loads(source)
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets
        row = None
    return _object_row(columns, row, default, source)


def _object_row(columns: Columns, row: Any, default: str | None, source: str | None = None) -> _Parsed:
    """The row of a JSON value; `default` is its id where no column has it, `source` the JSON, if that is at hand."""

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
    prefix = _prefix(columns, lambda name: value_as_text(value_at(row, name)))
    if not all(map(is_utf8, prefix)):
        return rejected(row_id, NOT_UTF8)
    return _Parsed(text, row_id, reason, kept, prefix)


def _object_text(columns: Columns, row: dict[str, Any]) -> Any:
    """The text of a JSON object, of any type where a column has it."""
    if columns.of_text is None:
        return value_at(row, columns.text)
    return columns.of_text.fill(lambda name: value_as_text(value_at(row, name)))


def _csv_row(columns: Columns, places: dict[str, int], row: list[str], default: str | None) -> _Parsed:
    """The row of CSV values; an empty one is null."""
    kept = {name: row[places[name]] or None for name in columns.keep}
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
    return _Parsed(text, row_id, None, kept, prefix)


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
