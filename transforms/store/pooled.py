"""Pooled vectors of a shard: what calibrations are fitted on and applied to, without the transformer."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from transforms.store.shards import as_matrix, open_shard, read_shard


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

    Without a column `pooled` they are the embeddings, times their `norm` where the space is `normalized`.
    """
    if "pooled" in batch.schema.names:
        return as_matrix(batch.column("pooled")).astype(np.float32, copy=False)
    embedding = as_matrix(batch.column("embedding")).astype(np.float32, copy=False)
    if not normalized:
        return embedding
    return embedding * batch.column("norm").to_numpy(zero_copy_only=False).astype(np.float32, copy=False)[:, None]


def read_pooled(
    path: str, normalized: bool, columns: tuple[str, ...] = ()
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """(pooled vectors float32 [n, p], block that also has the other named columns), in row order."""
    with open_shard(path) as parquet:
        names = pooled_columns(parquet.schema_arrow)
    for batch in read_shard(path, [*columns, *names]):
        yield pooled_vectors(batch, normalized), batch
