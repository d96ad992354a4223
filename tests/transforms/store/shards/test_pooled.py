"""Pooled vectors of a shard, however it holds them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_beam.transforms.store.shards.shard_reading import read_pooled

POOLED = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
NORM = np.linalg.norm(POOLED, axis=1)


def vectors(array: np.ndarray) -> pa.Array:
    """A column of lists of one size, of the array's type."""
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])


@pytest.mark.parametrize(
    ("columns", "normalized", "within"),
    [
        ({"embedding": POOLED / NORM[:, None], "norm": NORM}, True, 1e-6),
        ({"embedding": POOLED, "norm": NORM}, False, 0),
        ({"embedding": POOLED[:, :2], "norm": NORM, "pooled": POOLED}, True, 0),
        ({"embedding": POOLED.astype(np.float16), "norm": NORM}, False, 2e-3),
    ],
)
def test_pooled_vectors_come_from_what_a_shard_has(tmp_path, columns, normalized, within):
    table = pa.table(
        {name: vectors(c) if c.ndim == 2 else pa.array(c) for name, c in columns.items()}
    )
    table = table.append_column("id", pa.array([str(i) for i in range(30)]))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    found = list(read_pooled(str(tmp_path / "a.parquet"), normalized, ("id",)))
    rows = np.concatenate([pooled for pooled, _ in found])
    assert rows.dtype == np.float32
    assert np.abs(rows - POOLED).max() <= within
    assert [i for _, batch in found for i in batch.column("id").to_pylist()] == [
        str(i) for i in range(30)
    ]
