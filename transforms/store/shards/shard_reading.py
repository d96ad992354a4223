"""Reading embedding shards: whole, by row groups or by rows, with their vectors decoded."""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import (
    as_matrix,
    make_index_array,
    make_vector_column,
)
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line, refuse_damage
from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS
from sentence_beam.transforms.store.shards.precision import Coding
from sentence_beam.transforms.store.shards.shard_bytes import ROW_GROUP_ROWS
from sentence_beam.transforms.store.shards.shard_columns import PIECE_COLUMNS, make_own_schema

FETCHED_WHOLE = 16 << 20
# Errors of parsing damaged bytes. The engine retries after errors of a remote storage's client.
OF_BYTES = (
    pa.ArrowException, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError,
    ArithmeticError, RecursionError, MemoryError,
)  # fmt: skip

AnyTable = TypeVar("AnyTable", pa.RecordBatch, pa.Table)


@dataclass(frozen=True)
class ShardInfo:
    """The footer of a shard.

    `ranges` is the digest of its bounds (int8 and uint8), `pieces` the places of its rows in
    documents that were cut.
    """

    rows: int
    space_id: str
    ranges: str | None
    counts: dict[str, Any]
    schema: pa.Schema
    pieces: pa.Table | None = None


def inspect_shard(data: bytes) -> ShardInfo:
    """Return a shard's footer, once every page has passed its checksum.

    Raises SentenceBeamError for other bytes.
    """
    # pyarrow looks at the end alone, other readers at the start too
    if not data.startswith(b"PAR1"):
        raise SentenceBeamError("not an embedding shard (no magic bytes at its start)")
    with refuse_damage("not an embedding shard"):
        parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        table = parquet.read(use_threads=False)
        metadata = parquet.schema_arrow.metadata or {}
        space = json.loads(metadata[b"space"])
        counts = json.loads(metadata[b"counts"])
        ranges = json.loads(metadata[b"ranges"])["digest"] if b"ranges" in metadata else None
        schema = parquet.schema_arrow.remove_metadata()
        if not _are_counts(counts):
            raise ValueError("its counts are none")
        pieces = table.select(PIECE_COLUMNS) if "piece" in schema.names else None
        return ShardInfo(parquet.metadata.num_rows, space["id"], ranges, counts, schema, pieces)


def _are_counts(counts: Any) -> bool:
    """Return whether some JSON of a shard's metadata counts how its rows were made."""
    return (
        isinstance(counts, dict)
        and {"rows", "read", "rejected", "tokens", "truncated", "lost"}
        <= counts.keys()
        <= {*KEPT_COUNTS, *WORK_COUNTS, "documents"}
        and all(type(value) is int and value >= 0 for value in counts.values())
    )


@contextlib.contextmanager
def open_shard(
    path: str, size: int | None = None, *, whole: bool = False
) -> Iterator[pq.ParquetFile]:
    """Yield a shard, opened for reading.

    If `size` (in bytes) is given, the storage is not asked for it. `whole` says that most of the
    shard will be read: if its size is given and ordinary, one request fetches it. Raises
    SentenceBeamError naming the shard if it is missing or damaged.
    """
    try:
        source: Any = _open_remote(path, size, whole) if not storage.is_local(path) else path
        with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            _check_types(parquet.schema_arrow)
            yield parquet
    except OF_BYTES as error:
        reason = first_line(error)
        raise SentenceBeamError(
            f"{path} cannot be read ({reason}); sentence-beam verify lists the damage, remove the"
            " file and embed makes it again"
        ) from error


def _open_remote(path: str, size: int | None, whole: bool) -> Any:
    """Return a remote shard as a file for pyarrow."""
    if size is None:
        return storage.storage_of(path).open(path)
    if whole and size <= FETCHED_WHOLE:
        return pa.BufferReader(storage.read_bytes(path))
    entry = storage.Entry(path, size, checksum="", version="")
    return storage.storage_of(path).open(path, entry)


def _check_types(schema: pa.Schema) -> None:
    """Raise ValueError for a column of another type than shards have."""
    embedding = schema.field("embedding").type
    if not pa.types.is_fixed_size_list(embedding):
        raise ValueError(f"its column embedding is {embedding}, not vectors")
    for field in make_own_schema(embedding, "piece" in schema.names):
        if field.name in schema.names and schema.field(field.name).type != field.type:
            raise ValueError(
                f"its column {field.name} is {schema.field(field.name).type}, not {field.type}"
            )


def read_shard(path: str, columns: list[str], size: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield blocks of at most one row group with the named columns, in row order.

    `embedding` is decoded to float32 vectors. `size` (in bytes) is given if most of the shard will
    be read.
    """
    with open_shard(path, size, whole=True) as parquet:
        decode = make_decoder(parquet.schema_arrow, path, columns)
        for group in range(parquet.num_row_groups):
            threads = storage.threads_may_read(path)
            for batch in parquet.iter_batches(
                ROW_GROUP_ROWS, [group], columns, use_threads=threads
            ):
                yield decode(batch)


def read_wanted(path: str, wanted: np.ndarray, columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows that bool [rows] marks, as `read_shard` does.

    Row groups without such rows are not read.
    """
    with open_shard(path) as parquet:
        decode = make_decoder(parquet.schema_arrow, path, columns)
        start = 0
        for group in range(parquet.num_row_groups):
            here = wanted[start : start + parquet.metadata.row_group(group).num_rows]
            start += len(here)
            if here.any():
                table = parquet.read_row_group(
                    group, columns, use_threads=storage.threads_may_read(path)
                )
                yield decode(table.filter(pa.array(here)))


def make_decoder(
    schema: pa.Schema, path: str, columns: list[str]
) -> Callable[[AnyTable], AnyTable]:
    """Return the function that decodes the column `embedding` of a shard's rows to float32."""
    kind = schema.field("embedding").type.value_type if "embedding" in columns else pa.float32()
    # the latter is of another's making
    if kind == pa.float32() or (kind == pa.float16() and not schema.metadata):
        return lambda rows: rows
    return functools.partial(_decode, Coding.from_shard(schema.metadata, path))


def _decode(coding: Coding, rows: AnyTable) -> AnyTable:
    column = rows.column("embedding")
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return rows.set_column(
        rows.schema.get_field_index("embedding"),
        "embedding",
        make_vector_column(coding.decode(whole)),
    )


def read_checked(path: str, sha256: str | None, columns: list[str] | None = None) -> pa.Table:
    """Return the named columns that a shard has (None: all), once its sha256 was checked.

    Raises SentenceBeamError if the shard is missing or changed.
    """
    with _failing_in_a_line(path):
        data = storage.read_bytes(path)
    _compare(path, hashlib.sha256(data).hexdigest(), sha256)
    parquet = pq.ParquetFile(pa.BufferReader(data))
    names = parquet.schema_arrow.names
    if columns is not None:
        names = [name for name in columns if name in names]
    return parquet.read(names, use_threads=False)


def check_shard(path: str, sha256: str | None, checksum: str = "") -> None:
    """Raise SentenceBeamError if a shard is missing or has another sha256.

    `checksum` is the storage's for the shard that was written, "" if it has none. While the storage
    still reports the same, nothing is read.
    """
    with _failing_in_a_line(path):
        entry = storage.storage_of(path).stat(path) if checksum else None
        if entry is not None and entry.checksum == checksum:
            return
        digest = storage.sha256_of(path)[0]
    _compare(path, digest, sha256)


@contextlib.contextmanager
def _failing_in_a_line(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SentenceBeamError(f"{path} is missing; run embed, which makes it again") from error
    except OSError as error:
        raise SentenceBeamError(f"{path} cannot be read ({first_line(error)})") from error


def _compare(path: str, digest: str, wanted: str | None) -> None:
    if digest != wanted:
        mend = "remove it and run embed, which makes it again"
        raise SentenceBeamError(f"{path} was changed after it was written (sha256 differs); {mend}")


def take_rows(path: str, rows: np.ndarray, columns: list[str], size: int | None = None) -> pa.Table:
    """Return rows int64 [m] of one shard, in the given order; `embedding` as float32 vectors.

    Only the row groups that hold them are read. `size` is that of the shard in bytes, if known.
    """
    with open_shard(path, size) as parquet:
        decode = make_decoder(parquet.schema_arrow, path, columns)
        sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        group = np.searchsorted(starts, rows, side="right") - 1
        wanted = np.unique(group)
        table = parquet.read_row_groups(
            wanted.tolist(), columns, use_threads=storage.threads_may_read(path)
        )
        offsets = np.cumsum([0, *(sizes[g] for g in wanted[:-1])])
        places = rows - starts[group] + offsets[np.searchsorted(wanted, group)]
        return decode(table.take(make_index_array(places)))


def list_pooled_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a shard that give its pooled vectors."""
    return ["pooled"] if "pooled" in schema.names else ["embedding", "norm"]


def is_narrow(path: str) -> bool:
    """Return whether a shard's pooled vectors come from a 16-bit column."""
    with open_shard(path) as parquet:
        schema = parquet.schema_arrow
        return schema.field(list_pooled_columns(schema)[0]).type.value_type == pa.float16()


def compute_pooled_vectors(batch: pa.RecordBatch, normalized: bool) -> np.ndarray:
    """Return pooled vectors float32 [n, p] of a block that has `list_pooled_columns`.

    Without a column `pooled` they are the embeddings, times their `norm` if the space is
    `normalized`.
    """
    if "pooled" in batch.schema.names:
        return as_matrix(batch.column("pooled")).astype(np.float32, copy=False)
    embedding = as_matrix(batch.column("embedding")).astype(np.float32, copy=False)
    if not normalized:
        return embedding
    norm = batch.column("norm").to_numpy(zero_copy_only=False)
    return embedding * norm.astype(np.float32, copy=False)[:, None]


def read_pooled(
    path: str, normalized: bool, columns: tuple[str, ...] = ()
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Yield (pooled vectors float32 [n, p], block with the other columns), in row order."""
    with open_shard(path) as parquet:
        names = list_pooled_columns(parquet.schema_arrow)
    for batch in read_shard(path, [*columns, *names]):
        yield compute_pooled_vectors(batch, normalized), batch
