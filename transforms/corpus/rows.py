"""Rows: a span read, checked and cut into units. Bad rows are set aside with a reason, never dropped."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms import storage
from transforms.corpus.files import InputFile, check_unchanged, is_utf8
from transforms.corpus.lines import read_lines
from transforms.corpus.spans import BYTES_PER_TOKEN, TOKENS_PER_ROW, Span, parquet_file
from transforms.errors import SentenceBeamError, first_line

READ_ROWS = 8192
MOST = 1.25  # times a unit's tokens: two neighbours of that together are one unit, and what is left makes no tiny shard
EXCERPT = 80

NULL_TEXT = "null text"
EMPTY_TEXT = "empty text"
NULL_ID = "null id"
NOT_UTF8 = "not UTF-8"
KEPT_NOT_UTF8 = "kept column not UTF-8"
NOT_JSON = "not a JSON object"
TEXT_NOT_STRING = "text is not a string"
ID_NOT_STRING = "id is neither string nor integer"


@dataclass(frozen=True)
class Columns:
    """The columns of the input with text and id (None: made from path and position), and those carried along."""

    text: str = "text"
    id: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def wanted(self) -> list[str]:
        """The names of all these columns, each once."""
        return list(dict.fromkeys([self.text, *([self.id] if self.id else []), *self.keep]))


@dataclass(frozen=True)
class Rejected:
    """A row that is not embedded; `row` is its number (Parquet) or the byte offset of its line in `file`."""

    id: str | None
    row: int
    reason: str
    excerpt: str
    file: str


@dataclass(frozen=True)
class UnitRows:
    """The rows of one unit in order; all columns hold the good rows only.

    [start, stop) is their part of `file`. For a unit that is a bucket, `file` is None, [start, stop) has the number of
    the bucket, and `files` has the file of each row.
    """

    name: str
    file: InputFile | None
    start: int
    stop: int | None
    ids: list[str]
    texts: list[str]
    positions: list[int]
    kept: pa.Table | None
    rejects: list[Rejected]
    files: list[str] | None = None

    @property
    def read(self) -> int:
        """The number of rows read, good and rejected."""
        return len(self.ids) + len(self.rejects)

    @property
    def relative(self) -> str:
        """The relative path of the file, "" for rows of several files."""
        return self.file.relative if self.file else ""

    def file_of(self, row: int) -> str:
        """The relative path of the file that a row is from."""
        return self.files[row] if self.files is not None else self.relative


@dataclass
class _Rows:
    """Rows on their way into a unit, column by column; `reasons` is None for a row that is good so far."""

    positions: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    kept: list[pa.Table] = field(default_factory=list)

    def slice(self, start: int, stop: int) -> "_Rows":
        """Rows [start, stop) of a block (which has one kept table at most)."""
        part = [column[start:stop] for column in (self.positions, self.texts, self.ids, self.reasons)]
        return _Rows(*part, [table.slice(start, stop - start) for table in self.kept])  # type: ignore[arg-type, call-arg]

    def extend(self, other: "_Rows") -> None:
        """Append another run of rows."""
        for name in self.__dataclass_fields__:
            getattr(self, name).extend(getattr(other, name))


_Block = tuple[_Rows, np.ndarray]  # rows and their sizes in bytes


def read_span(span: Span, columns: Columns, unit_tokens: int) -> Iterator[UnitRows]:
    """The span's units in order; at least one, if only an empty one.

    Each has a quarter more than `unit_tokens` at most, or is one row that is larger.
    A unit is named like the span, with `.0`, `.1`, ... where there are several. Memory holds two units at most.
    Raises SentenceBeamError naming a file that cannot be read, InputChangedError one that changed.
    """
    blocks = _parquet_blocks(span, columns) if span.file.format == "parquet" else _line_blocks(span, columns)
    pieces = _cut(blocks, unit_tokens)
    previous, held = next(pieces, (_Rows(), 0.0))
    number, start = 0, span.start
    for piece, tokens in pieces:
        if held + tokens <= MOST * unit_tokens:
            previous.extend(piece)
            held += tokens
            continue
        yield _unit(span, f"{span.name}.{number}", (start, piece.positions[0]), previous)
        previous, held, number, start = piece, tokens, number + 1, piece.positions[0]
    name = f"{span.name}.{number}" if number else span.name
    yield _unit(span, name, (start, span.stop), previous)


def _cut(blocks: Iterator[_Block], unit_tokens: int) -> Iterator[tuple[_Rows, float]]:
    """Runs of rows of at most `unit_tokens` (estimated), or of one row that is larger, and their tokens."""
    current, used = _Rows(), 0.0
    for block, sizes in blocks:
        cost = sizes / BYTES_PER_TOKEN + TOKENS_PER_ROW
        total = np.cumsum(cost)
        start = 0
        while start < len(total):
            spent = total[start - 1] if start else 0.0
            stop = int(np.searchsorted(total, spent + unit_tokens - used, side="right"))
            if stop == start and not current.positions:
                stop += 1
            current.extend(block.slice(start, stop))
            used += (total[stop - 1] if stop else 0.0) - spent
            if stop < len(total):
                yield current, used
                current, used = _Rows(), 0.0
            start = stop
    if current.positions:
        yield current, used


def _unit(span: Span, name: str, bounds: tuple[int, int | None], rows: _Rows) -> UnitRows:
    faults = _faults(rows)
    if not faults:
        kept = pa.concat_tables(rows.kept) if rows.kept else None
        return UnitRows(name, span.file, *bounds, rows.ids, rows.texts, rows.positions, kept, [])  # type: ignore[arg-type]
    rejects = [
        Rejected(rows.ids[i], rows.positions[i], reason, (rows.texts[i] or "")[:EXCERPT], span.file.relative)
        for i, reason in faults.items()
    ]
    good = [i for i in range(len(rows.ids)) if i not in faults]
    kept = pa.concat_tables(rows.kept).take(pa.array(good, pa.int64())) if rows.kept else None
    ids, texts, positions = ([column[i] for i in good] for column in (rows.ids, rows.texts, rows.positions))
    return UnitRows(name, span.file, *bounds, ids, texts, positions, kept, rejects)  # type: ignore[arg-type]


def _faults(rows: _Rows) -> dict[int, str]:
    """What is wrong with the rows that are not good, in their order."""
    columns = zip(rows.reasons, rows.texts, rows.ids, strict=True)
    found = [i for i, (why, text, id_) in enumerate(columns) if why or id_ is None or not text or text.isspace()]
    return {i: rows.reasons[i] or _fault(rows.texts[i], rows.ids[i]) for i in found}


def _fault(text: str | None, row_id: str | None) -> str:
    if text is None:
        return NULL_TEXT
    return NULL_ID if row_id is None else EMPTY_TEXT


def _parquet_blocks(span: Span, columns: Columns) -> Iterator[_Block]:
    check_unchanged(span.file)
    position, left = span.start, span.rows or 0
    with parquet_file(span.file) as parquet:
        try:
            names, threads = columns.wanted, storage.threads_may_read(span.file.path)
            for batch in parquet.iter_batches(READ_ROWS, list(span.row_groups), names, use_threads=threads):
                batch = batch.slice(0, left)
                if batch.num_rows:
                    yield _parquet_rows(span.file, columns, batch, position)
                position, left = position + batch.num_rows, left - batch.num_rows
        except (pa.ArrowException, OSError) as error:
            check_unchanged(span.file)  # one that is being written over looks corrupt
            raise SentenceBeamError(
                f"{span.file.path} cannot be read ({first_line(error)}); replace the file"
            ) from error
    check_unchanged(span.file)


def _parquet_rows(file: InputFile, columns: Columns, batch: pa.RecordBatch, position: int) -> _Block:
    text = batch.column(columns.text)
    text = text.cast(pa.large_string()) if not pa.types.is_large_string(text.type) else text
    n = batch.num_rows
    positions = list(range(position, position + n))
    texts, reasons = _decoded(text)
    if columns.id:
        ids, id_reasons = _decoded(batch.column(columns.id).cast(pa.large_string()))
        reasons = _first(reasons, id_reasons)
    else:
        ids = [f"{file.relative}#{p}" for p in positions]
    for name in columns.keep:
        reasons = _first(reasons, _kept_faults(batch.column(name)))
    sizes = pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    kept = [_without_views(batch.select(list(columns.keep)))] if columns.keep else []
    return _Rows(positions, texts, ids, reasons or [None] * n, kept), sizes


_Reasons = list[str | None] | None  # None: nothing against any row


def _first(reasons: _Reasons, others: _Reasons) -> _Reasons:
    """The first reason against each row."""
    if reasons is None or others is None:
        return reasons or others
    return [a or b for a, b in zip(reasons, others, strict=True)]


def _kept_faults(column: pa.Array) -> _Reasons:
    """Reasons against kept values that no reader of the shard could decode."""
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


def _without_views(batch: pa.RecordBatch) -> pa.Table:
    """View types as the plain ones: Arrow cannot take rows of them, and few readers of shards know them."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in batch.schema]
    return pa.Table.from_batches([batch]).cast(pa.schema(fields))


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


def _line_blocks(span: Span, columns: Columns) -> Iterator[_Block]:
    parse = _jsonl_row if span.file.format == "jsonl" else _text_row
    for block in read_lines(span.file, span.start, span.stop):
        rows, kept = _Rows(), []
        for offset, line in block:
            text, row_id, reason, values = parse(span.file, columns, offset, line)
            rows.positions.append(offset)
            rows.texts.append(text)
            rows.ids.append(row_id)
            rows.reasons.append(reason)
            kept.append(values)
        if columns.keep and block:
            rows.kept.append(_string_table(columns.keep, kept))
        yield rows, np.array([len(line) for _, line in block], np.int64)


def _string_table(names: tuple[str, ...], rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})


_Parsed = tuple[str | None, str | None, str | None, dict[str, Any]]


def _text_row(file: InputFile, columns: Columns, offset: int, line: bytes) -> _Parsed:
    text, reason = _decode(line)
    return text, f"{file.relative}@{offset}", reason, {columns.text: text}


def _jsonl_row(file: InputFile, columns: Columns, offset: int, line: bytes) -> _Parsed:
    source, reason = _decode(line)
    default = None if columns.id else f"{file.relative}@{offset}"
    if reason or not source.strip():
        return source, default, reason or EMPTY_TEXT, {}
    try:
        row = json.loads(source)
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets
        row = None
    if not isinstance(row, dict):
        return source[:EXCERPT], default, NOT_JSON, {}
    row_id, reason = _json_id(row.get(columns.id)) if columns.id else (default, None)
    text = row.get(columns.text)
    if text is not None and not isinstance(text, str):
        return source[:EXCERPT], row_id, TEXT_NOT_STRING, {}
    if not is_utf8(text) or not is_utf8(row_id):
        return source[:EXCERPT], default, NOT_UTF8, {}
    kept = {name: _as_text(row.get(name)) for name in columns.keep}
    if not all(map(is_utf8, kept.values())):
        return source[:EXCERPT], row_id, KEPT_NOT_UTF8, {}
    return text, row_id, reason, kept


def _json_id(value: Any) -> tuple[str | None, str | None]:
    if value is None:
        return None, NULL_ID
    if isinstance(value, str):
        return value, None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    return None, ID_NOT_STRING


def _as_text(value: Any) -> str | None:
    """A kept JSON value: strings as they are, anything else as compact JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
