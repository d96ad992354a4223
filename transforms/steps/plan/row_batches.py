"""Rows of a PCollection as Arrow batches, with sums that do not depend on their order.

A value of a dict or a named row travels as text, because the type of its column is not known before
all rows have been read. Columns of Arrow tables keep their types.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from transforms.base.errors import OptionError, SentenceBeamError
from transforms.corpus import Columns, InputFile, Span, UnitRows
from transforms.corpus.batch_rows import batch_rows
from transforms.corpus.column_types import can_read, is_string, word_for_value
from transforms.corpus.column_values import KEPT_NOT_UTF8, NOT_UTF8, Reasons, first_reasons
from transforms.corpus.columns import can_be_kept, is_id
from transforms.corpus.files import is_utf8
from transforms.corpus.in_memory import with_file_types
from transforms.corpus.nested import column_at, has_value, type_at, value_as_text, value_at
from transforms.corpus.row_blocks import ID_NOT_STRING, NULL_ID, Rows
from transforms.corpus.rows import unit_of
from transforms.corpus.spans import BYTES_PER_TOKEN, estimated_tokens
from transforms.space import row_hashes
from transforms.steps.embed.row_shapes import NoField, faults, no_row
from transforms.steps.options.job import EmbedJob
from transforms.steps.options.rows import NAME, SOURCE
from transforms.store.records import Problem

BATCH_ROWS = 8192
BATCH_BYTES = 8 << 20
NAMES = 50  # of fields, for messages
LANES = 2  # of 64 bits each, in a digest
# The name of a column with the reasons against rows of a batch.
AGAINST = "reason against the row"
PLAIN = frozenset((str, int, float, bool, type(None)))
Row = dict[str, Any]


@dataclass(frozen=True)
class RowsSummary:
    """Sums over rows, the same in any order and in any batches.

    `tokens` are estimated, `size` is the bytes of all texts. `digest` sums hashes of ids, texts and
    kept values, modulo 2**64 each. `words` are the words for the types of values of kept columns
    without a requested type, `types` the types of such columns of Arrow tables. `seen` are the
    fields that options name and some row has, `names` up to 50 of all fields.
    """

    rows: int = 0
    tokens: int = 0
    size: int = 0
    digest: tuple[int, ...] = (0,) * LANES
    words: frozenset[tuple[str, str]] = frozenset()
    types: frozenset[tuple[str, pa.DataType]] = frozenset()
    seen: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    problem: Problem | None = None

    def merge(self, other: "RowsSummary") -> "RowsSummary":
        """Return the sums over the rows of both."""
        lanes = zip(self.digest, other.digest, strict=True)
        problems = [one for one in (self.problem, other.problem) if one is not None]
        return RowsSummary(
            rows=self.rows + other.rows,
            tokens=self.tokens + other.tokens,
            size=self.size + other.size,
            digest=tuple((a + b) % (1 << 64) for a, b in lanes),
            words=self.words | other.words,
            types=self.types | other.types,
            seen=self.seen | other.seen,
            names=frozenset(sorted(self.names | other.names)[:NAMES]),
            problem=min(problems, key=lambda one: (one.exit_code, one.message), default=None),
        )

    @property
    def checksum(self) -> str:
        """The number of rows and their digest, in hex."""
        return f"{self.rows:x}-" + "".join(f"{lane:016x}" for lane in self.digest)

    @property
    def file(self) -> InputFile:
        """The file as which the rows are on record."""
        return InputFile(SOURCE, NAME, "parquet", "", self.size, self.checksum, self.checksum)


@dataclass(frozen=True)
class RowBatch:
    """Rows packed as Arrow IPC, with their sums; without `data`, the problem with them."""

    summary: RowsSummary
    data: bytes = b""


class KeptTypes(NamedTuple):
    """Types of kept columns that were found out: `words` as for `Columns`, `own` by name."""

    words: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, pa.DataType], ...] = ()


class RowBatcher:
    """Collects the rows of a bundle into batches.

    If this process groups the text in memory, it takes no more rows once they have too much text.
    """

    def __init__(self, job: EmbedJob):
        self._job = job
        self._columns = job.columns
        self._rows: list[Row] = []
        self._size = 0
        self._taken = 0

    def add(self, given: Any) -> Iterator[RowBatch]:
        """Take an element; yield batches once enough rows are held, or the problem with it."""
        try:
            if isinstance(given, pa.RecordBatch | pa.Table):
                yield from self._of_table(pa.table(given))
                return
            row = fields_of(given, self._columns)
            self._rows.append(row)
            text = value_at(row, self._columns.text)
            if isinstance(text, str):
                self._size += len(text)
            if len(self._rows) >= BATCH_ROWS or self._size > BATCH_BYTES:
                yield from self.finish()
        except SentenceBeamError as error:
            yield RowBatch(RowsSummary(problem=Problem.of(error)))

    def finish(self) -> Iterator[RowBatch]:
        """Yield the batch of the rows that are still held."""
        rows = self._rows
        self._rows = []
        self._size = 0
        if not rows:
            return
        try:
            yield self._packed(batch_of(rows, self._columns), found_in(rows, self._columns))
        except SentenceBeamError as error:
            yield RowBatch(RowsSummary(problem=Problem.of(error)))

    def _of_table(self, table: pa.Table) -> Iterator[RowBatch]:
        table = with_file_types(table)
        found = found_in_table(table.schema, self._columns)
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            for part in _small(_named_columns(batch, self._columns)):
                yield self._packed(part, found)

    def _packed(self, batch: pa.RecordBatch, found: RowsSummary) -> RowBatch:
        """Return a batch packed, with its sums. Raises OptionError for too much text."""
        summary = summed(batch, found, self._columns)
        self._taken += summary.size
        limit = self._job.text_limit
        if limit is not None and self._taken > limit:
            raise too_much_text(self._taken)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        return RowBatch(summary, sink.getvalue().to_pybytes())


def too_much_text(size: float) -> OptionError:
    """Return the error for more text than this process may group in memory."""
    return OptionError(
        f"the rows are grouped in memory here, and have more than {size / 1e9:,.1f} GB of text, a"
        " quarter of this machine's memory; run the pipeline on a cluster, or write the rows to"
        " files for `sentence-beam embed --partition file`"
    )


def fields_of(given: Any, columns: Columns) -> Row:
    """Return the fields of an element. Raises OptionError if it is not a row."""
    if isinstance(given, Mapping):
        return dict(given)
    if hasattr(given, "_asdict"):
        return dict(given._asdict())
    if isinstance(given, tuple) and len(given) == 2:
        return {columns.id or "": given[0], columns.text: given[1]}
    raise no_row(given)


def batch_of(rows: list[Row], columns: Columns) -> pa.RecordBatch:
    """Return rows as a batch of texts, and a column of reasons against them.

    Raises OptionError for bytes in a column that is kept or part of a template.
    """
    reasons: Reasons = None
    arrays = {}
    if columns.of_text is None:
        found = faults([_value_or_none(row, columns.text) for row in rows], columns.text)
        reasons = [found.get(place) for place in range(len(rows))]
    for name in columns.wanted:
        if name == columns.id:
            texts, against = _ids(rows, name)
        elif name == columns.text and columns.of_text is None:
            texts, against = _texts(rows, name)
        else:
            texts, against = _values(rows, name, name in columns.keep)
        arrays[name] = pa.array(texts, pa.large_string())
        reasons = first_reasons(reasons, against)
    arrays[AGAINST] = pa.array(reasons or [None] * len(rows), pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def _value_or_none(row: Row, name: str) -> Any:
    """Return the value of a field, or the marker of a row without the field."""
    if has_value(row, name):
        return value_at(row, name)
    return NoField


def _texts(rows: list[Row], name: str) -> tuple[list[str | None], Reasons]:
    """Return the values that are texts, in UTF-8; `faults` has the reasons against the others."""
    texts: list[str | None] = []
    for row in rows:
        value = value_at(row, name)
        text = None
        if isinstance(value, str):
            text = _encodable(value)
        texts.append(text)
    return texts, None


def _ids(rows: list[Row], name: str) -> tuple[list[str | None], Reasons]:
    """Return ids as text, and the reasons against those that are neither text nor integers."""
    ids: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows:
        value = _plain(value_at(row, name))
        row_id = None
        reason = None
        if isinstance(value, str):
            row_id = _encodable(value)
            if row_id != value:
                reason = NOT_UTF8
        elif isinstance(value, int) and not isinstance(value, bool):
            row_id = str(value)
        elif value is None:
            reason = NULL_ID
        else:
            reason = ID_NOT_STRING
        ids.append(row_id)
        reasons.append(reason)
    return ids, reasons


def _values(rows: list[Row], name: str, is_kept: bool) -> tuple[list[str | None], Reasons]:
    """Return the values of a field as text, and reasons against them."""
    bad = NOT_UTF8
    if is_kept:
        bad = KEPT_NOT_UTF8
    texts: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows:
        value = _plain(value_at(row, name))
        if isinstance(value, bytes | bytearray | memoryview):
            raise OptionError(
                f"field {name!r} of a row is bytes, not text; decode it, or leave it out"
            )
        text = value_as_text(value)
        reason = None
        if not is_utf8(text):
            reason = bad
            text = _encodable(text or "")
        texts.append(text)
        reasons.append(reason)
    return texts, reasons


def _encodable(text: str) -> str:
    """Return a text with question marks for characters that UTF-8 does not have."""
    if text.isascii() or is_utf8(text):
        return text
    return text.encode("utf8", errors="replace").decode("utf8")


def _plain(value: Any) -> Any:
    """Return a value as a type of Python's own; times of Beam, which JDBC gives, as moments."""
    if type(value) in PLAIN:
        return value
    if hasattr(value, "to_utc_datetime"):
        return value.to_utc_datetime(has_tz=True)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return value


def found_in(rows: list[Row], columns: Columns) -> RowsSummary:
    """Return the fields of rows, and the types of their kept values."""
    names = frozenset(name for row in rows for name in row)
    seen = set()
    words = set()
    for name in columns.wanted:
        if name in names or ("." in name and any(has_value(row, name) for row in rows)):
            seen.add(name)
    for name in (name for name in columns.keep if name not in columns.kinds):
        values = (_plain(value_at(row, name)) for row in rows)
        words |= {(name, word_for_value(value)) for value in values if value is not None}
    named = frozenset(map(str, names))
    return RowsSummary(words=frozenset(words), seen=frozenset(seen), names=named)


def found_in_table(schema: pa.Schema, columns: Columns) -> RowsSummary:
    """Return the columns of a table, and the types of kept ones.

    Raises OptionError for a missing column, or one whose type does not fit its use.
    """
    kinds = {name: type_at(schema, name) for name in columns.wanted}
    required = {name: "keep_columns" for name in columns.keep}
    if columns.of_text is None:
        required[columns.text] = "text"
    if columns.id is not None:
        required[columns.id] = "id"
    for name, option in required.items():
        if kinds[name] is None:
            listed = ", ".join(schema.names) or "none"
            raise OptionError(f"an Arrow table has no column {name!r} ({option}), but {listed}")
    _check_types(kinds, columns)
    types = {
        (name, _decoded_type(kinds[name]))
        for name in columns.keep
        if name not in columns.kinds and not pa.types.is_null(kinds[name])
    }
    seen = frozenset(name for name, kind in kinds.items() if kind is not None)
    return RowsSummary(types=frozenset(types), seen=seen, names=frozenset(schema.names))


def _check_types(kinds: Mapping[str, pa.DataType | None], columns: Columns) -> None:
    """Raise OptionError for a text, an id or a kept column whose type cannot be used."""
    text = kinds.get(columns.text)
    if columns.of_text is None and not _is_null_or(is_string(text), text):
        raise OptionError(
            f"an Arrow table's column {columns.text!r} is {text}, not string; say text='...', or"
            " cast it"
        )
    if columns.id is not None and not _is_null_or(is_id(kinds[columns.id]), kinds[columns.id]):
        raise OptionError(
            f"an Arrow table's column {columns.id!r} is {kinds[columns.id]}; ids must be strings,"
            " integers, UUIDs or bytes of a fixed number (id)"
        )
    for name in columns.keep:
        kind = kinds[name]
        if name in columns.kinds:
            fits = can_read(kind, columns.kinds[name])
        else:
            fits = _is_null_or(can_be_kept(kind), kind)
        if not fits:
            raise OptionError(
                f"an Arrow table's column {name!r} is {kind}, which cannot be kept"
                " (keep_columns); cast it, or leave it out"
            )


def _is_null_or(fits: bool, kind: pa.DataType | None) -> bool:
    """Return whether a type fits, or is that of a column with nulls alone."""
    return fits or (kind is not None and pa.types.is_null(kind))


def _decoded_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return kind


def _named_columns(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Return the columns that options name, nested ones by their dotted names."""
    arrays = {}
    for name in columns.wanted:
        kind = type_at(batch.schema, name)
        if kind is None:
            continue  # a column of a template may be missing
        column = column_at(batch, name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        is_text = name == columns.text and columns.of_text is None
        if pa.types.is_null(column.type) and (is_text or name == columns.id):
            column = column.cast(pa.large_string())
        arrays[name] = column
    return pa.RecordBatch.from_pydict(arrays)


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of a few megabytes."""
    if batch.num_rows < 2 or batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half))
    yield from _small(batch.slice(half))


def summed(batch: pa.RecordBatch, found: RowsSummary, columns: Columns) -> RowsSummary:
    """Return the sums over a batch, with its fields and types, which `found` has."""
    rows = _rows_of(batch, columns)
    unit = unit_of(_span(), "", (0, None), rows)
    sizes = [len(text.encode()) for text in unit.texts]
    tokens = sum(estimated_tokens(size + BYTES_PER_TOKEN - 1, 1) for size in sizes)
    tokens += estimated_tokens(0, len(unit.rejects))
    return replace(
        found,
        rows=batch.num_rows,
        tokens=tokens,
        size=sum(sizes),
        digest=_digest(batch, rows, columns),
    )


def _digest(batch: pa.RecordBatch, rows: Rows, columns: Columns) -> tuple[int, ...]:
    """Return the sums of the halves of the rows' hashes.

    A row's hash is over its id, text, reason, prefix and kept values, these as they came, so that
    it does not change once the types of columns are known.
    """
    kept = [column_at(batch, name) for name in columns.keep]
    reasons = [None] * batch.num_rows
    if AGAINST in batch.schema.names:
        reasons = batch.column(AGAINST).to_pylist()
    prefixes = rows.prefixes or reasons
    parts = zip(
        rows.ids, rows.texts, reasons, prefixes, *(_comparable(one) for one in kept), strict=True
    )
    hashes = b"".join(row_hashes(map(repr, parts)))
    lanes = np.frombuffer(hashes, np.uint64).reshape(-1, LANES)
    return tuple(lanes.sum(axis=0, dtype=np.uint64).tolist())


def _comparable(column: pa.Array) -> list[Any]:
    """Return the values of a column; bytes for strings that are not UTF-8."""
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return [str(value.as_buffer().to_pybytes()) for value in column]
    return found


def unpacked(packed: RowBatch, columns: Columns, types: KeptTypes) -> UnitRows:
    """Return the rows of a batch with kept columns of these types, the rejected ones apart."""
    with pa.ipc.open_stream(packed.data) as reader:
        (batch,) = reader
    rows = _rows_of(batch, replace(columns, types=(*columns.types, *types.words)))
    own = dict(types.own)
    rows.kept = [_with_own_types(table, own) for table in rows.kept]
    return unit_of(_span(), "", (0, None), rows)


def _rows_of(batch: pa.RecordBatch, columns: Columns) -> Rows:
    """Return the rows of a batch, all at position 0: a PCollection has no order."""
    rows, _ = batch_rows(RowsSummary().file, columns, batch, 0)
    rows.positions = [0] * batch.num_rows
    if AGAINST in batch.schema.names:
        against = batch.column(AGAINST).to_pylist()
        rows.reasons = first_reasons(against, rows.reasons) or rows.reasons
    return rows


def _with_own_types(table: pa.Table, own: Mapping[str, pa.DataType]) -> pa.Table:
    """Return kept columns with the types that they have in other batches; these are all null."""
    fields = [field.with_type(own.get(field.name, field.type)) for field in table.schema]
    schema = pa.schema(fields)
    if table.schema.equals(schema):
        return table
    return table.cast(schema)


def _span() -> Span:
    return Span(RowsSummary().file, 0, 0, None)
