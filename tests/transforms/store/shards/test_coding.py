"""Shards of every precision: what stands in them, and the vectors that readers get.

Covers transforms/store/shards/shard_reading.py.
Covers transforms/store/shards/shard_bytes.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.space.identity import PRECISIONS
from sentence_beam.transforms.store.shards.precision import RANGED, Coding, Ranges, quantize
from sentence_beam.transforms.store.shards.shard_bytes import compute_unit_digest, make_shard_bytes
from sentence_beam.transforms.store.shards.shard_reading import read_pooled, read_shard
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

TYPES = {
    "float32": pa.list_(pa.float32(), 4),
    "float16": pa.list_(pa.float16(), 4),
    "int8": pa.list_(pa.int8(), 4),
    "uint8": pa.list_(pa.uint8(), 4),
    "binary": pa.list_(pa.int8(), 1),
    "ubinary": pa.list_(pa.uint8(), 1),
}


def unit_vectors() -> Vectors:
    """Three vectors of length 1 and their norms."""
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    norm = np.linalg.norm(vectors, axis=1)
    return replace(make_vectors(3), embedding=vectors / norm[:, None], norm=norm)


def written(tmp_path: Path, space: Space) -> tuple[Path, Vectors, Ranges | None]:
    """A shard of three rows."""
    vectors = unit_vectors()
    ranges = Ranges.from_vectors(vectors.embedding) if space.precision in RANGED else None
    store = UnitStore(str(tmp_path), space, ranges)
    record = store.write(make_unit(space, ["x", "y", "z"]), vectors, [], UnitCounts(3, 0, 0))
    return tmp_path / record.path, vectors, ranges


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_shard_holds_codes_and_gives_vectors(
    tmp_path: Path, space: Space, precision: str
) -> None:
    space = replace(space, precision=precision)
    path, vectors, ranges = written(tmp_path, space)
    table = pq.read_table(path)
    assert table.schema.field("embedding").type == TYPES[precision]
    codes = np.array(table.column("embedding").to_pylist())
    assert np.array_equal(codes, quantize(vectors.embedding, precision, ranges))
    assert ("pooled" in table.column_names) == (precision != "float32")

    (batch,) = read_shard(str(path), ["id", "embedding", "norm"])
    assert batch.schema.names == ["id", "embedding", "norm"]
    found = as_matrix(batch.column("embedding"))
    assert found.dtype == np.float32
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(3), abs=1e-6)
    cosines = (found * vectors.embedding).sum(axis=1)
    assert cosines.min() > {"binary": 0.5, "ubinary": 0.5, "int8": 0.999, "uint8": 0.999}.get(
        precision, 0.999999
    )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_pooled_vectors_are_exact_whatever_the_precision(
    tmp_path: Path, space: Space, precision: str
) -> None:
    for normalize in (True, False):
        space = replace(space, precision=precision, normalize=normalize)
        path, vectors, _ = written(tmp_path / str(normalize), space)
        (pooled, _) = next(iter(read_pooled(str(path), normalize)))
        expected = vectors.embedding * vectors.norm[:, None] if normalize else vectors.embedding
        assert np.abs(pooled - expected).max() <= 1e-6


def test_a_space_that_does_not_normalise_gets_the_steps_own_values(
    tmp_path: Path, space: Space
) -> None:
    space = replace(space, precision="int8", normalize=False)
    path, vectors, ranges = written(tmp_path, space)
    (batch,) = read_shard(str(path), ["embedding"])
    assert (np.abs(as_matrix(batch.column(0)) - vectors.embedding) <= ranges.step / 2 + 1e-6).all()


def test_codes_take_about_a_byte(space: Space) -> None:
    space, rows = replace(space, dim=64, precision="int8"), 2000
    embedding = np.random.default_rng(0).normal(size=(rows, 64)).astype(np.float32)
    counts = np.full(rows, 5, np.int32)
    vectors = Vectors(embedding, np.ones(rows, np.float32), counts, np.zeros(rows, bool), counts)
    unit = make_unit(space, [str(i) for i in range(rows)])
    data = make_shard_bytes(
        Coding(space, Ranges.from_vectors(embedding)), unit.rows, unit.hashes, vectors, {}
    )
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(1)
    assert column.path_in_schema == "embedding.list.element"
    assert column.total_compressed_size < 1.2 * rows * 64


def test_other_ranges_give_another_name(space: Space) -> None:
    space = replace(space, precision="uint8")
    unit = make_unit(space, ["x", "y"])
    names = {compute_unit_digest(space, unit.rows, unit.hashes, 0, ranges) for ranges in (
        None, Ranges.from_vectors(np.eye(4, dtype=np.float32)), Ranges.from_vectors(2 * np.eye(4, dtype=np.float32)))}  # fmt: skip
    assert len(names) == 3


def test_what_is_no_shard_is_refused_by_name(tmp_path: Path, space: Space) -> None:
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"embedding": pa.array([[1]], pa.list_(pa.int8(), 1))}), path)
    with pytest.raises(SentenceBeamError, match="mine.parquet is not an embedding shard"):
        list(read_shard(str(path), ["embedding"]))
    with pytest.raises(SentenceBeamError, match="int8 and its ranges do not go together"):
        Coding(replace(space, precision="int8"))
