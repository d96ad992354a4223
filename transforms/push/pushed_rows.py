"""Read the rows of a snapshot for a database, and compute digests to compare them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_digest

from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_bytes import cast_times
from sentence_beam.transforms.store.shards.shard_columns import PUSHED_COLUMNS, list_own_columns
from sentence_beam.transforms.store.shards.shard_files import open_numbered
from sentence_beam.transforms.store.shards.shard_reading import read_shard


def find_columns(manifest: Manifest) -> pa.Schema:
    """Return the columns to push: id, vector (float32), places of pieces, text, kept columns."""
    vector = pa.field("embedding", pa.list_(pa.float32(), manifest.space.dim))
    if not len(manifest.shards):
        return pa.schema([("id", pa.string()), vector])
    with open_numbered(manifest, 0) as shard:
        schema = shard.schema_arrow
    not_pushed = list_own_columns(schema.names) - set(PUSHED_COLUMNS)
    columns = pa.schema([_decode(field) for field in schema if field.name not in not_pushed])
    return columns.set(columns.get_field_index("embedding"), vector)


def _decode(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)


def read_rows(manifest: Manifest, number: int, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the rows of a shard, by its number, in order, in batches.

    Raises SentenceBeamError if the shard's columns have other types.
    """
    shard = manifest.shard(number)
    for batch in read_shard(shard.full_path, columns.names, shard.bytes):
        try:
            yield batch.select(columns.names).cast(columns)
        except (pa.ArrowException, KeyError) as error:
            raise SentenceBeamError(
                f"{shard.full_path}: its kept columns are not those of other shards"
                f" ({first_line(error)}); embed again with the same types in all input files"
            ) from error


def read_chosen(
    manifest: Manifest, number: int, columns: pa.Schema, wanted: np.ndarray
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a shard with these indices, in order, in batches.

    Raises as `read_rows`.
    """
    rows = np.sort(wanted)
    start = 0
    for batch in read_rows(manifest, number, columns):
        chosen = rows[(rows >= start) & (rows < start + batch.num_rows)] - start
        start += batch.num_rows
        if not len(chosen):
            continue
        if len(chosen) < batch.num_rows:
            batch = batch.take(pa.array(chosen))
        yield batch


def compute_digests(rows: pa.RecordBatch) -> list[bytes]:
    """Return a digest of 16 bytes for each row, over all its columns except the keys."""
    names = [name for name in rows.schema.names if name not in ("id", "piece", "embedding")]
    others = [cast_times(pa.chunked_array([rows.column(name)])).to_pylist() for name in names]
    vectors = np.ascontiguousarray(as_matrix(rows.column("embedding")))
    values = list(zip(*others, strict=True)) if others else [()] * rows.num_rows
    return [
        xxh3_128_digest(vector.tobytes() + repr(row).encode())
        for vector, row in zip(vectors, values, strict=True)
    ]
