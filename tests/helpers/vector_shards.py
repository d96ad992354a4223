"""Shards with given vectors, without any model."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms.space import row_hash


def write_shard(path: Path, pooled: np.ndarray, start: int = 0, normalized: bool = True) -> str:
    """A shard of these pooled vectors, rows named by their number from `start`; gives its path."""
    norm = np.linalg.norm(pooled.astype(np.float64), axis=1).astype(np.float32)
    embedding = (pooled / norm[:, None] if normalized else pooled).astype(pooled.dtype)
    ids = [str(start + i) for i in range(len(pooled))]
    columns = {
        "id": pa.array(ids),
        "embedding": pa.FixedSizeListArray.from_arrays(
            pa.array(embedding.reshape(-1)), pooled.shape[1]
        ),
        "norm": pa.array(norm),
        "row_hash": pa.array([row_hash(f"text {i}") for i in ids], pa.binary(16)),
    }
    pq.write_table(pa.table(columns), path, row_group_size=13)
    return str(path)


def write_shards(
    folder: Path, pooled: np.ndarray, count: int, normalized: bool = True
) -> list[str]:
    """The vectors in so many shards."""
    starts = [len(pooled) * i // count for i in range(count + 1)]
    return [
        write_shard(
            folder / f"{count}-{i}.parquet",
            pooled[starts[i] : starts[i + 1]],
            starts[i],
            normalized,
        )
        for i in range(count)
    ]
