"""Embedding shards and reject files: Parquet that pandas, DuckDB, Polars and pyarrow read as
it is.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms import storage
from transforms.base.arrow import as_hashes, as_matrix, fixed_size, parquet_bytes, table_of
from transforms.base.errors import OptionError, SentenceBeamError, first_line, refuse_damage
from transforms.corpus import Rejected, UnitRows
from transforms.corpus.pieces import PIECES, own_texts
from transforms.space import Space
from transforms.store.entries import TEXT, Options
from transforms.store.records import COUNTS
from transforms.store.shards.precision import Coding, Ranges, embedding_type

ROW_GROUP_ROWS = 25_000
# stays in a core's cache: a fifth faster to write and to read than pages of a megabyte
PAGE_BYTES = 64 << 10
FETCHED_WHOLE = 16 << 20
# What parsing bytes that nobody wrote raises; what a remote storage's client raises is tried again
# by the engine.
OF_BYTES = (
    pa.ArrowException, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError,
    ArithmeticError, RecursionError, MemoryError,
)  # fmt: skip
OWN_COLUMNS = ("id", "embedding", "norm", "row_hash", "tokens", "truncated", "pooled", "piece")
PIECE_COLUMNS = tuple(PIECES.names)  # of shards whose rows are pieces, which `piece` tells
REJECTS_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("excerpt", pa.string()),
    ]
)

AnyTable = TypeVar("AnyTable", pa.RecordBatch, pa.Table)


@dataclass(frozen=True)
class Vectors:
    """What the encoder gave for the rows of a unit.

    `embedding` float32 [n, d], `norm` float32 [n] (length of the pooled vector), `pooled` float32
    [n, p] where the pooled vector cannot be had from those two, `tokens` int32 [n] before
    truncation, `truncated` bool [n], `lost` int32 [n] tokens cut off.
    """

    embedding: np.ndarray
    norm: np.ndarray
    tokens: np.ndarray
    truncated: np.ndarray
    lost: np.ndarray
    pooled: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Vectors":
        """The given rows, in the given order; nothing is copied where these are all rows in their
        order.
        """
        if np.array_equal(rows, np.arange(len(self.norm))):
            return self
        pooled = None if self.pooled is None else self.pooled[rows]
        return Vectors(
            self.embedding[rows],
            self.norm[rows],
            self.tokens[rows],
            self.truncated[rows],
            self.lost[rows],
            pooled,
        )

    @classmethod
    def concat(cls, parts: "Sequence[Vectors]") -> "Vectors":
        """The rows of all parts (one at least, of one space), in order."""
        if len(parts) == 1:
            return parts[0]
        names = [name for name, column in vars(parts[0]).items() if column is not None]
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        )


def pooled_of(vectors: Vectors, normalized: bool) -> np.ndarray:
    """Pooled vectors float32 [n, p] of final ones, which were `normalized` or not."""
    if vectors.pooled is not None:
        return vectors.pooled
    return vectors.embedding * vectors.norm[:, None] if normalized else vectors.embedding


def check_kept(options: Options) -> None:
    """Raise OptionError for kept columns that a shard already has under that name."""
    for name in options.keep_columns:
        if name in OWN_COLUMNS:
            mend = "say --id-column id" if name == "id" else "rename it in the input"
            raise OptionError(
                f"--keep-columns {name}: every shard has a column {name} of its own; {mend}"
            )
    kind = options.keep_types.get(options.text_column, "str")
    if options.keeps_text_column and kind != "str":
        raise OptionError(
            f"--keep-columns {options.text_column}:{kind}: it is the column with the text; leave"
            f" {kind} out"
        )
    if TEXT in options.keep_columns and options.keep_text and not options.keeps_text_column:
        raise OptionError(
            f"--keep-columns {TEXT}: the store keeps what is embedded under that name, which is"
            " another text; say --no-keep-text, or rename the column in the input"
        )


def with_text(rows: UnitRows) -> UnitRows:
    """The rows with their texts among what is kept of them, as the first column; of pieces, what
    they are alone.
    """
    text = pa.table({TEXT: pa.array(own_texts(rows), pa.string())})
    for field, column in (
        zip(rows.kept.schema, rows.kept.columns, strict=True) if rows.kept is not None else ()
    ):
        text = text.append_column(field, column)
    return replace(rows, kept=text)


def own_columns(names: Sequence[str]) -> frozenset[str]:
    """Those of a shard's columns that are not kept ones."""
    return frozenset((*OWN_COLUMNS, *(PIECE_COLUMNS if "piece" in names else ())))


def schema_of(space: Space, kept: pa.Schema, pieces: bool = False) -> pa.Schema:
    """The schema of a store's shards, without file metadata; `pieces` says whether rows are pieces
    of documents.
    """
    own = schema_of_own(embedding_type(space), pieces)
    return pa.schema([*own, *((field.name, field.type) for field in kept)])


def schema_of_own(embedding: pa.DataType, pieces: bool) -> pa.Schema:
    """The columns that every shard has, the vectors of a type, and those of pieces."""
    own: list[tuple[str, pa.DataType]] = [
        ("id", pa.string()),
        ("embedding", embedding),
        ("norm", pa.float32()),
        ("row_hash", pa.binary(16)),
        ("tokens", pa.int32()),
        ("truncated", pa.bool_()),
    ]
    return pa.schema([*own, *(PIECES if pieces else ())])


def unit_digest(
    space: Space,
    rows: UnitRows,
    hashes: list[bytes],
    generation: int = 0,
    ranges: Ranges | None = None,
) -> str:
    """16 hex digits over space, schema and the ordered rows (id, row hash, kept values; rejected
    ones with reason).

    `generation` counts how often the whole store was embedded again: shards that are made again
    must not have their old names. `ranges` are the bounds of an int8 or uint8 precision.
    """
    kept = rows.kept.schema.remove_metadata() if rows.kept is not None else pa.schema([])
    schema = schema_of(space, kept, rows.pieces is not None)
    identity = [space.id, str(schema), *([generation] if generation else [])]
    digest = hashlib.sha256(json.dumps([*identity, *([ranges.digest] if ranges else [])]).encode())
    if rows.ids:
        digest.update(_ids_and_hashes(rows.ids, hashes))
    if rows.pieces is not None:
        places = [
            rows.pieces.column(name).to_numpy() for name in ("piece", "pieces", "start", "end")
        ]
        digest.update(np.stack(places, axis=1).astype("<i4").tobytes())
        digest.update(as_hashes(rows.pieces.column("doc_hash")).tobytes())
    if rows.kept is not None:
        for column in rows.kept.columns:
            digest.update(repr(without_times(column).to_pylist()).encode())
    for line in _rejected(rows):
        digest.update(line.encode())
    return digest.hexdigest()[:16]


def _ids_and_hashes(ids: list[str], hashes: list[bytes]) -> memoryview:
    """The bytes of every row in turn: its id, after its length in bytes and a colon, and its
    hash.
    """
    binary = pa.large_binary()
    names = pa.array(ids, pa.large_string()).cast(binary)
    lengths = pc.binary_length(names).cast(pa.large_string()).cast(binary)
    named = pc.binary_join_element_wise(lengths, names, pa.scalar(b":", binary))
    joined = pc.binary_join_element_wise(named, pa.array(hashes, binary), pa.scalar(b"", binary))
    _, offsets, data = joined.buffers()
    start, stop = np.frombuffer(offsets, np.int64)[[joined.offset, joined.offset + len(joined)]]
    return memoryview(data)[start:stop]


def _rejected(rows: UnitRows) -> list[str]:
    """The part of a digest for rejected rows; their places and their order only where these are in
    one file.
    """
    if rows.file is None:
        return sorted(json.dumps([r.id, r.reason, r.excerpt]) for r in rows.rejects)
    return [json.dumps([r.id, r.row, r.reason, r.excerpt]) for r in rows.rejects]


def without_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as integers, also within lists and structs: Python's own end with the year 9999 and
    with microseconds.
    """
    kind = _without_time(column.type)
    return column if kind == column.type else column.cast(kind)


def _without_time(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(kind.value_field.with_type(_without_time(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_time(field.type)) for field in kind])
    return kind


def shard_bytes(
    coding: Coding, rows: UnitRows, hashes: list[bytes], vectors: Vectors, counts: dict[str, int]
) -> bytes:
    """The bytes of a unit's shard; `counts` (how the rows were made) go into the file's
    metadata.
    """
    kept = rows.kept if rows.kept is not None else pa.table({})
    columns: list[Any] = [
        pa.array(rows.ids, pa.string()),
        coding.encode(vectors.embedding),
        pa.array(vectors.norm, pa.float32()),
        pa.array(hashes, pa.binary(16)),
        pa.array(vectors.tokens, pa.int32()),
        pa.array(vectors.truncated, pa.bool_()),
        *(rows.pieces.select(PIECE_COLUMNS).columns if rows.pieces is not None else ()),
        *kept.columns,
    ]
    schema = schema_of(coding.space, kept.schema, rows.pieces is not None)
    pooled = vectors.pooled if coding.is_exact else pooled_of(vectors, coding.space.normalize)
    if pooled is not None:
        columns.append(fixed_size(pooled))
        schema = schema.append(pa.field("pooled", columns[-1].type))
    metadata = {**coding.metadata, "counts": json.dumps(counts, sort_keys=True)}
    return _parquet(
        pa.table(columns, schema=schema.with_metadata(metadata)),
        vector_columns=("embedding", "pooled"),
    )


def _parquet(table: pa.Table, vector_columns: tuple[str, ...] = ()) -> bytes:
    """Vectors plain (they do not compress, and every reader maps them fast), everything else zstd.

    Vectors of whole numbers are delta-encoded: plain, Parquet has none of less than four bytes.
    """
    vectors = [name for name in vector_columns if name in table.column_names]
    compression = {name: "zstd" for name in _leaves(table.schema.remove_metadata())}
    compression.update({f"{name}.list.element": "none" for name in vectors})
    whole = [
        name for name in vectors if pa.types.is_integer(table.schema.field(name).type.value_type)
    ]
    return parquet_bytes(
        table,
        row_group_size=ROW_GROUP_ROWS,
        data_page_size=PAGE_BYTES,
        use_dictionary=False,
        column_encoding={f"{name}.list.element": "DELTA_BINARY_PACKED" for name in whole},
        compression=compression,
        write_page_checksum=True,
        write_statistics=[name for name in table.column_names if name not in vectors],
    )


@functools.lru_cache(64)
def _leaves(schema: pa.Schema) -> list[str]:
    """Parquet paths of all leaf columns, found by writing an empty table."""
    leaves = pq.ParquetFile(pa.BufferReader(parquet_bytes(schema.empty_table()))).schema
    return [leaves.column(i).path for i in range(len(leaves))]


def rejects_bytes(rejects: list[Rejected]) -> bytes:
    """The bytes of a unit's reject file, in the order of the rows' places."""
    rows = [asdict(reject) for reject in sorted(rejects, key=lambda r: (r.file, r.row))]
    return _parquet(pa.Table.from_pylist(rows, schema=REJECTS_SCHEMA))


def rejects_from_bytes(data: bytes) -> list[Rejected]:
    """The rejected rows of a unit's reject file. Raises SentenceBeamError for bytes of another
    file.
    """
    with refuse_damage("not a reject file"):
        return [Rejected(**row) for row in table_of(data).cast(REJECTS_SCHEMA).to_pylist()]


def read_rejects(path: str, sha256: str | None) -> list[Rejected]:
    """The rows of a reject file. Raises SentenceBeamError where it is missing, or not the one it
    was written as.

    `sha256` is None where that is not known, as of those that version 0.1.0 wrote.
    """
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path}: the reject file is missing; see verify")
    if sha256 not in (None, hashlib.sha256(found[0]).hexdigest()):
        raise SentenceBeamError(
            f"{path}: the reject file was changed after it was written (sha256 differs); see verify"
        )
    try:
        return rejects_from_bytes(found[0])
    except SentenceBeamError as error:
        raise SentenceBeamError(f"{path}: {error}; see verify") from error


@dataclass(frozen=True)
class ShardInfo:
    """What a shard says of itself: `ranges` the digest of its bounds (int8 and uint8), `pieces` the
    places of its rows in documents that were cut."""

    rows: int
    space_id: str
    ranges: str | None
    counts: dict[str, Any]
    schema: pa.Schema
    pieces: pa.Table | None = None


def inspect_shard(data: bytes) -> ShardInfo:
    """A shard's footer, once every page has passed its checksum. Raises SentenceBeamError for other
    bytes.
    """
    # pyarrow looks at the end alone, other readers at the start too
    if not data.startswith(b"PAR1"):
        raise SentenceBeamError("not an embedding shard (no magic bytes at its start)")
    with refuse_damage("not an embedding shard"):
        parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        table = parquet.read()
        metadata = parquet.schema_arrow.metadata or {}
        space, counts = json.loads(metadata[b"space"]), json.loads(metadata[b"counts"])
        ranges = json.loads(metadata[b"ranges"])["digest"] if b"ranges" in metadata else None
        schema = parquet.schema_arrow.remove_metadata()
        if not _are_counts(counts):
            raise ValueError("its counts are none")
        pieces = table.select(PIECE_COLUMNS) if "piece" in schema.names else None
        return ShardInfo(parquet.metadata.num_rows, space["id"], ranges, counts, schema, pieces)


def _are_counts(found: Any) -> bool:
    """Whether some JSON of a shard's metadata says how its rows were made."""
    return (
        isinstance(found, dict)
        and {"rows", "read", "rejected", "tokens", "truncated", "lost"}
        <= found.keys()
        <= {*COUNTS, "documents"}
        and all(type(value) is int and value >= 0 for value in found.values())
    )


@contextlib.contextmanager
def open_shard(path: str, size: int | None = None) -> Iterator[pq.ParquetFile]:
    """A shard, opened for reading. Raises SentenceBeamError naming it where it is missing or
    damaged.

    `size` (in bytes) is given where most of it will be read: a remote shard of ordinary size is
    then fetched in one request.
    """
    try:
        if storage.is_local(path):
            source: Any = path
        elif size is not None and size <= FETCHED_WHOLE:
            source = pa.BufferReader(storage.read_bytes(path))
        else:
            source = storage.storage_of(path).open(path)
        with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            _check_types(parquet.schema_arrow)
            yield parquet
    except OF_BYTES as error:
        reason = first_line(error)
        raise SentenceBeamError(
            f"{path} cannot be read ({reason}); sentence-beam verify lists the damage, remove the"
            " file and embed makes it again"
        ) from error


def _check_types(schema: pa.Schema) -> None:
    """Raise ValueError for a column that is of another type than in any shard."""
    embedding = schema.field("embedding").type
    if not pa.types.is_fixed_size_list(embedding):
        raise ValueError(f"its column embedding is {embedding}, not vectors")
    for field in schema_of_own(embedding, "piece" in schema.names):
        if field.name in schema.names and schema.field(field.name).type != field.type:
            raise ValueError(
                f"its column {field.name} is {schema.field(field.name).type}, not {field.type}"
            )


def read_shard(path: str, columns: list[str], size: int | None = None) -> Iterator[pa.RecordBatch]:
    """Blocks of at most one row group with the named columns, in row order; `embedding` as float32
    vectors.
    """
    with open_shard(path, size) as parquet:
        decode = decoder(parquet.schema_arrow, path, columns)
        for group in range(parquet.num_row_groups):
            threads = storage.threads_may_read(path)
            for batch in parquet.iter_batches(
                ROW_GROUP_ROWS, [group], columns, use_threads=threads
            ):
                yield decode(batch)


def read_wanted(path: str, wanted: np.ndarray, columns: list[str]) -> Iterator[pa.Table]:
    """As `read_shard`, with the rows alone that bool [rows] says are wanted; row groups without any
    are not read.
    """
    with open_shard(path) as parquet:
        decode, start = decoder(parquet.schema_arrow, path, columns), 0
        for group in range(parquet.num_row_groups):
            here = wanted[start : start + parquet.metadata.row_group(group).num_rows]
            start += len(here)
            if here.any():
                table = parquet.read_row_group(
                    group, columns, use_threads=storage.threads_may_read(path)
                )
                yield decode(table.filter(pa.array(here)))


def decoder(schema: pa.Schema, path: str, columns: list[str]) -> Callable[[AnyTable], AnyTable]:
    """The function that decodes the column `embedding` of rows of a shard of this schema into
    float32 vectors.
    """
    kind = schema.field("embedding").type.value_type if "embedding" in columns else pa.float32()
    # the latter is of another's making
    if kind == pa.float32() or (kind == pa.float16() and not schema.metadata):
        return lambda rows: rows
    return functools.partial(_decoded, Coding.of_shard(schema.metadata, path))


def _decoded(coding: Coding, rows: AnyTable) -> AnyTable:
    column = rows.column("embedding")
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return rows.set_column(
        rows.schema.get_field_index("embedding"), "embedding", fixed_size(coding.decode(whole))
    )


def read_checked(path: str, sha256: str | None, columns: list[str] | None = None) -> pa.Table:
    """The named columns that a shard has (None: all of its columns), once its sha256 is the one it
    was written with.

    Raises SentenceBeamError where the shard is missing or changed.
    """
    with _failing_in_a_line(path):
        data = storage.read_bytes(path)
    _compare(path, hashlib.sha256(data).hexdigest(), sha256)
    parquet = pq.ParquetFile(pa.BufferReader(data))
    names = parquet.schema_arrow.names
    return parquet.read(names if columns is None else [name for name in columns if name in names])


def check_shard(path: str, sha256: str | None) -> None:
    """Raise SentenceBeamError where a shard is missing, or its sha256 is not the one it was written
    with.
    """
    with _failing_in_a_line(path):
        found = storage.sha256_of(path)[0]
    _compare(path, found, sha256)


@contextlib.contextmanager
def _failing_in_a_line(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SentenceBeamError(f"{path} is missing; run embed, which makes it again") from error
    except OSError as error:
        raise SentenceBeamError(f"{path} cannot be read ({first_line(error)})") from error


def _compare(path: str, found: str, wanted: str | None) -> None:
    if found != wanted:
        mend = "remove it and run embed, which makes it again"
        raise SentenceBeamError(f"{path} was changed after it was written (sha256 differs); {mend}")


def take_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """Rows int64 [m] of one shard, in the order asked for; `embedding` as float32 vectors.

    Only the row groups that hold them are read.
    """
    with open_shard(path) as parquet:
        decode = decoder(parquet.schema_arrow, path, columns)
        sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        group = np.searchsorted(starts, rows, side="right") - 1
        wanted = np.unique(group)
        table = parquet.read_row_groups(
            wanted.tolist(), columns, use_threads=storage.threads_may_read(path)
        )
        offsets = np.cumsum([0, *(sizes[g] for g in wanted[:-1])])
        return decode(
            table.take(pa.array(rows - starts[group] + offsets[np.searchsorted(wanted, group)]))
        )


def pooled_columns(schema: pa.Schema) -> list[str]:
    """The columns of a shard that give its pooled vectors."""
    return ["pooled"] if "pooled" in schema.names else ["embedding", "norm"]


def is_narrow(path: str) -> bool:
    """Whether a shard's pooled vectors come from a 16-bit column."""
    with open_shard(path) as parquet:
        schema = parquet.schema_arrow
        return schema.field(pooled_columns(schema)[0]).type.value_type == pa.float16()


def pooled_vectors(batch: pa.RecordBatch, normalized: bool) -> np.ndarray:
    """Pooled vectors float32 [n, p] of a block that has `pooled_columns`.

    Without a column `pooled` they are the embeddings, times their `norm` where the space is
    `normalized`.
    """
    if "pooled" in batch.schema.names:
        return as_matrix(batch.column("pooled")).astype(np.float32, copy=False)
    embedding = as_matrix(batch.column("embedding")).astype(np.float32, copy=False)
    if not normalized:
        return embedding
    return (
        embedding
        * batch.column("norm")
        .to_numpy(zero_copy_only=False)
        .astype(np.float32, copy=False)[:, None]
    )


def read_pooled(
    path: str, normalized: bool, columns: tuple[str, ...] = ()
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """(pooled vectors float32 [n, p], block that also has the other named columns), in row
    order.
    """
    with open_shard(path) as parquet:
        names = pooled_columns(parquet.schema_arrow)
    for batch in read_shard(path, [*columns, *names]):
        yield pooled_vectors(batch, normalized), batch
