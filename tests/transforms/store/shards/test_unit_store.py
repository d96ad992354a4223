"""Units are written once, found again, and replaced only where they fail their check."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.shards.precision import Coding
from sentence_beam.transforms.store.shards.shard_bytes import make_shard_bytes
from sentence_beam.transforms.store.shards.shard_reading import inspect_shard
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore

COUNTS = UnitCounts(embedded=3, reused=0, duplicates=0, real=15, padded=16)


def files(store: UnitStore) -> dict[str, int]:
    """Files of a store with their inodes: an equal inode is the very same file."""
    root = Path(store.root)
    return {str(p.relative_to(root)): p.stat().st_ino for p in root.rglob("*") if p.is_file()}


def test_a_written_unit_reads_back(unit_store: UnitStore, space: Space) -> None:
    unit = make_unit(space, ["x", "y", "z"], rejects=2)
    record = unit_store.write(unit, make_vectors(3), [], COUNTS)
    root = Path(unit_store.root)

    table = pq.read_table(root / record.path)
    assert table.column_names == ["id", "embedding", "norm", "row_hash", "tokens", "truncated", "n"]
    assert table.column("id").to_pylist() == ["a0", "a1", "a2"]
    assert table.column("embedding").to_pylist()[1] == [5, 6, 7, 8]
    assert table.column("row_hash").to_pylist() == unit.hashes
    assert pq.read_table(root / record.rejects).column("row").to_pylist() == [3, 4]
    assert (record.rows, record.read, record.rejected, record.tokens) == (3, 5, 2, 15)
    assert unit_store.finished(unit) == record


def test_writing_twice_leaves_one_file_and_its_counts(unit_store: UnitStore, space: Space) -> None:
    unit = make_unit(space, ["x", "y", "z"])
    first = unit_store.write(unit, make_vectors(3), [], COUNTS)
    before = files(unit_store)
    other = make_vectors(3)
    other.embedding[:] += 1e-6
    second = unit_store.write(
        unit, other, [], UnitCounts(embedded=3, reused=0, duplicates=0, real=99, padded=99)
    )
    assert (second.sha256, second.real) == (first.sha256, first.real)
    assert files(unit_store)[first.path] == before[first.path]


def test_a_shard_without_sidecar_is_adopted_with_its_counts(
    unit_store: UnitStore, space: Space
) -> None:
    unit = make_unit(space, ["x", "y", "z"], rejects=1)
    record = unit_store.write(unit, make_vectors(3), [], COUNTS)
    (Path(unit_store.root) / unit.sidecar).unlink()
    assert unit_store.finished(unit) == record


@pytest.mark.parametrize("damage", ["cut", "byte", "missing"])
@pytest.mark.parametrize("sidecar", [True, False])
def test_a_damaged_shard_is_not_taken_for_finished_and_is_replaced(
    unit_store: UnitStore, space: Space, damage: str, sidecar: bool
) -> None:
    unit = make_unit(space, ["x", "y", "z"])
    record = unit_store.write(unit, make_vectors(3), [], COUNTS)
    root = Path(unit_store.root)
    if not sidecar:
        (root / unit.sidecar).unlink()
    shard = root / record.path
    data = shard.read_bytes()
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(
            data[:-20] if damage == "cut" else data[:40] + bytes([data[40] ^ 1]) + data[41:]
        )
    assert unit_store.finished(unit) is None
    assert unit_store.write(unit, make_vectors(3), [], COUNTS) == record
    assert shard.read_bytes() == data


def test_a_sidecar_cut_short_is_made_again(unit_store: UnitStore, space: Space) -> None:
    unit = make_unit(space, ["x", "y", "z"])
    record = unit_store.write(unit, make_vectors(3), [], COUNTS)
    path = Path(unit_store.root) / unit.sidecar
    whole = path.read_bytes()
    path.write_bytes(whole[:30])
    assert unit_store.finished(unit) == record
    assert path.read_bytes() == whole


def test_a_unit_without_a_good_row_has_a_sidecar_and_no_shard(
    unit_store: UnitStore, space: Space
) -> None:
    unit = make_unit(space, [], rejects=2)
    record = unit_store.write(unit, make_vectors(0), [], UnitCounts(0, 0, 0))
    assert (record.path, record.rows, record.read) == (None, 0, 2)
    assert unit_store.finished(unit) == record
    assert not (Path(unit_store.root) / "embeddings").exists()


def test_the_digest_covers_space_ids_texts_kept_values_and_rejects(space: Space) -> None:
    base = make_unit(space, ["x", "y"])
    others = [
        make_unit(space, ["x", "z"]),
        make_unit(space, ["y", "x"]),
        make_unit(space, ["x", "y"], rejects=1),
        make_unit(replace(space, normalize=False), ["x", "y"]),
    ]
    assert len({unit.digest for unit in [base, *others]}) == 5
    assert make_unit(space, ["x", "y"]).digest == base.digest


def test_equal_rows_and_vectors_give_equal_bytes(space: Space) -> None:
    unit = make_unit(space, ["x", "y"])
    counts = {"rows": 2, "read": 2, "rejected": 0, "tokens": 9, "truncated": 0, "lost": 0}
    made = [
        make_shard_bytes(Coding(space), unit.rows, unit.hashes, make_vectors(2), counts)
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert inspect_shard(made[0]).space_id == space.id
