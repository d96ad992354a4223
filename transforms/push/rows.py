"""Read the rows of a snapshot for a database, and compute digests to compare them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_digest

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow import as_matrix
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.shards.columns import PUSHED_COLUMNS, own_columns
from sentence_beam.transforms.store.shards.reading import open_shard, read_shard
from sentence_beam.transforms.store.shards.writing import without_times


def columns_of(manifest: Manifest) -> pa.Schema:
    """Return the columns to push: id, vector (float32), places of pieces, text, kept columns."""
    vector = pa.field("embedding", pa.list_(pa.float32(), manifest.space.dim))
    for unit in manifest.units:
        if unit.path:
            with open_shard(storage.join(manifest.root, unit.path)) as shard:
                schema = shard.schema_arrow
            not_pushed = own_columns(schema.names) - set(PUSHED_COLUMNS)
            columns = pa.schema([_plain(field) for field in schema if field.name not in not_pushed])
            return columns.set(columns.get_field_index("embedding"), vector)
    return pa.schema([("id", pa.string()), vector])


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.field(field.name, kind)


def types_of(columns: pa.Schema) -> dict[str, str]:
    """Return the types of columns by their names."""
    return {field.name: str(field.type) for field in columns}


def read_rows(manifest: Manifest, unit: UnitRecord, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a unit's rows in order, in batches.

    Raises SentenceBeamError if the shard's columns have other types.
    """
    path = storage.join(manifest.root, unit.path or "")
    for batch in read_shard(path, columns.names, unit.bytes):
        try:
            yield batch.select(columns.names).cast(columns)
        except (pa.ArrowException, KeyError) as error:
            raise SentenceBeamError(
                f"{path}: its kept columns are not those of other shards ({first_line(error)}); "
                "embed again with the same types in all input files"
            ) from error


def read_chosen(
    manifest: Manifest, unit: UnitRecord, columns: pa.Schema, wanted: np.ndarray
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a unit with these indices, in order, in batches.

    Raises as `read_rows`.
    """
    rows = np.sort(wanted)
    start = 0
    for batch in read_rows(manifest, unit, columns):
        chosen = rows[(rows >= start) & (rows < start + batch.num_rows)] - start
        start += batch.num_rows
        if not len(chosen):
            continue
        if len(chosen) < batch.num_rows:
            batch = batch.take(pa.array(chosen))
        yield batch


def digests(rows: pa.RecordBatch) -> list[bytes]:
    """Return a digest of 16 bytes for each row, over all its columns except the keys."""
    names = [name for name in rows.schema.names if name not in ("id", "piece", "embedding")]
    others = [without_times(pa.chunked_array([rows.column(name)])).to_pylist() for name in names]
    vectors = np.ascontiguousarray(as_matrix(rows.column("embedding")))
    values = [()] * rows.num_rows
    if others:
        values = list(zip(*others, strict=True))
    return [
        xxh3_128_digest(vector.tobytes() + repr(row).encode())
        for vector, row in zip(vectors, values, strict=True)
    ]
