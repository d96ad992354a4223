"""Embedding shards and reject files: Parquet that pandas, DuckDB, Polars and pyarrow read as it is."""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.errors import OptionError, SentenceBeamError
from transforms.space import Space
from transforms.store import storage
from transforms.store.corpus import Rejected, UnitRows

ROW_GROUP_ROWS = 25_000
OWN_COLUMNS = ("id", "embedding", "norm", "row_hash", "tokens", "truncated", "pooled", "piece")
REJECTS_SCHEMA = pa.schema(
    [("id", pa.string()), ("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("excerpt", pa.string())]
)


@dataclass(frozen=True)
class Vectors:
    """What the encoder gave for the rows of a unit.

    `embedding` float32 [n, d], `norm` float32 [n] (length of the pooled vector), `pooled` float32 [n, p] where the
    pooled vector cannot be had from those two, `tokens` int32 [n] before truncation, `truncated` bool [n], `lost`
    int32 [n] tokens cut off.
    """

    embedding: np.ndarray
    norm: np.ndarray
    tokens: np.ndarray
    truncated: np.ndarray
    lost: np.ndarray
    pooled: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Vectors":
        """The given rows, in the given order."""
        pooled = None if self.pooled is None else self.pooled[rows]
        return Vectors(
            self.embedding[rows], self.norm[rows], self.tokens[rows], self.truncated[rows], self.lost[rows], pooled
        )

    @classmethod
    def concat(cls, parts: "Sequence[Vectors]") -> "Vectors":
        """The rows of all parts (one at least, of one space), in order."""
        names = [name for name, column in vars(parts[0]).items() if column is not None]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def check_keep_columns(keep: tuple[str, ...]) -> None:
    """Refuse kept columns that a shard already has under that name."""
    for name in keep:
        if name in OWN_COLUMNS:
            raise OptionError(
                f"--keep-columns {name}: every shard has a column {name} of its own; rename it in the input"
            )


def schema_of(space: Space, kept: pa.Schema) -> pa.Schema:
    """The schema of a store's shards, without file metadata."""
    own: list[tuple[str, pa.DataType]] = [
        ("id", pa.string()),
        ("embedding", pa.list_(pa.float32(), space.dim)),
        ("norm", pa.float32()),
        ("row_hash", pa.binary(16)),
        ("tokens", pa.int32()),
        ("truncated", pa.bool_()),
    ]
    return pa.schema([*own, *((field.name, field.type) for field in kept)])


def unit_digest(space: Space, rows: UnitRows, hashes: list[bytes], generation: int = 0) -> str:
    """16 hex digits over space, schema and the ordered rows (id, row hash, kept values; rejected ones with reason).

    `generation` counts how often the store was embedded anew: what is made anew must not bear the old name.
    """
    kept = rows.kept.schema.remove_metadata() if rows.kept is not None else pa.schema([])
    identity = [space.id, str(schema_of(space, kept)), *([generation] if generation else [])]
    digest = hashlib.sha256(json.dumps(identity).encode())
    for row_id, row_hash in zip(rows.ids, hashes, strict=True):
        name = row_id.encode()
        digest.update(b"%d:%b%b" % (len(name), name, row_hash))
    if rows.kept is not None:
        for column in rows.kept.columns:
            digest.update(repr(_without_times(column).to_pylist()).encode())
    for reject in rows.rejects:
        digest.update(json.dumps(list(asdict(reject).values())).encode())
    return digest.hexdigest()[:16]


def _without_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as integers: Python's own end with the year 9999 and with microseconds."""
    if not pa.types.is_temporal(column.type):
        return column
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())


def shard_bytes(space: Space, rows: UnitRows, hashes: list[bytes], vectors: Vectors, counts: dict[str, int]) -> bytes:
    """The bytes of a unit's shard; `counts` (how the rows were made) go into the file's metadata."""
    kept = rows.kept if rows.kept is not None else pa.table({})
    columns: list[Any] = [
        pa.array(rows.ids, pa.string()),
        fixed_size(vectors.embedding),
        pa.array(vectors.norm, pa.float32()),
        pa.array(hashes, pa.binary(16)),
        pa.array(vectors.tokens, pa.int32()),
        pa.array(vectors.truncated, pa.bool_()),
        *kept.columns,
    ]
    schema = schema_of(space, kept.schema)
    if vectors.pooled is not None:
        columns.append(fixed_size(vectors.pooled))
        schema = schema.append(pa.field("pooled", columns[-1].type))
    metadata = {"space": json.dumps(space.to_json(), sort_keys=True), "counts": json.dumps(counts, sort_keys=True)}
    return _parquet(pa.table(columns, schema=schema.with_metadata(metadata)), vector_columns=("embedding", "pooled"))


def fixed_size(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """float32 [n, d] as an Arrow column, not copied."""
    flat = np.ascontiguousarray(vectors, np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.shape[1])


def _parquet(table: pa.Table, vector_columns: tuple[str, ...] = ()) -> bytes:
    """Vectors plain (they do not compress, and every reader maps them fast), everything else zstd."""
    sink = io.BytesIO()
    vectors = [name for name in vector_columns if name in table.column_names]
    compression = {name: "zstd" for name in _leaves(table.schema)}
    compression.update({f"{name}.list.element": "none" for name in vectors})
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=False,
        compression=compression,
        write_page_checksum=True,
        write_statistics=[name for name in table.column_names if name not in vectors],
    )
    return sink.getvalue()


def _leaves(schema: pa.Schema) -> list[str]:
    """Parquet paths of all leaf columns, found by writing an empty table."""
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    leaves = pq.ParquetFile(sink).schema
    return [leaves.column(i).path for i in range(len(leaves))]


def rejects_bytes(rows: UnitRows, rejects: list[Rejected]) -> bytes:
    """The bytes of a unit's reject file."""
    values = [
        {"id": r.id, "file": rows.file.relative, "row": r.row, "reason": r.reason, "excerpt": r.excerpt}
        for r in rejects
    ]
    return _parquet(pa.Table.from_pylist(values, schema=REJECTS_SCHEMA))


@dataclass(frozen=True)
class ShardInfo:
    """What a shard's own footer says of it."""

    rows: int
    space_id: str
    counts: dict[str, Any]
    schema: pa.Schema


def inspect_shard(data: bytes) -> ShardInfo:
    """A shard's footer, once every page has passed its checksum. Raises SentenceBeamError for other bytes."""
    if not data.startswith(b"PAR1"):  # pyarrow looks at the end alone, other readers at the start too
        raise SentenceBeamError("not an embedding shard (no magic bytes at its start)")
    try:
        parquet = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        parquet.read()
        metadata = parquet.schema_arrow.metadata or {}
        space, counts = json.loads(metadata[b"space"]), json.loads(metadata[b"counts"])
        return ShardInfo(parquet.metadata.num_rows, space["id"], counts, parquet.schema_arrow.remove_metadata())
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise SentenceBeamError(f"not an embedding shard ({error})") from error


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[pq.ParquetFile]:
    """A shard to read from. Raises SentenceBeamError naming it where it is missing or damaged."""
    try:
        source = path if storage.is_local(path) else storage.storage_of(path).open(path)
        with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SentenceBeamError(
            f"{path} cannot be read ({reason}); sentence-beam verify lists the damage, embed makes lost shards again"
        ) from error


def read_shard(path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Blocks of at most one row group with the named columns, in row order."""
    with open_shard(path) as parquet:
        for group in range(parquet.num_row_groups):
            yield from parquet.iter_batches(ROW_GROUP_ROWS, row_groups=[group], columns=columns)


def read_checked(path: str, sha256: str | None, columns: list[str]) -> pa.Table:
    """Those of the named columns that a shard has, once its bytes have proved to be the ones that were written.

    Raises SentenceBeamError where the shard is missing or changed.
    """
    try:
        with storage.storage_of(path).open(path) as f:
            data = f.read()
    except OSError as error:
        raise SentenceBeamError(f"{path} cannot be read ({error})") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise SentenceBeamError(f"{path} was changed after it was written (sha256 differs)")
    parquet = pq.ParquetFile(pa.BufferReader(data))
    return parquet.read([name for name in columns if name in parquet.schema_arrow.names])


def as_matrix(column: pa.FixedSizeListArray) -> np.ndarray:
    """A vector column as float32 [n, d], not copied where Arrow allows."""
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)


def as_hashes(column: pa.FixedSizeBinaryArray) -> np.ndarray:
    """A row_hash column as uint8 [n, 16]."""
    if not len(column):
        return np.empty((0, 16), np.uint8)
    start = column.offset * 16
    return np.frombuffer(column.buffers()[1], np.uint8)[start : start + 16 * len(column)].reshape(-1, 16)
