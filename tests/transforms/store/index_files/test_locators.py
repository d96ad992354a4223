"""Locator tables: rows that move or go, shards that no row is in any more."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.index_files.locators import LocatorBuilder, Moves


def hash_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def locator(shards: list[str]) -> pa.Table:
    """A row in each of the shards, under the ids 0, 1, ..."""
    builder = LocatorBuilder()
    for number, shard in enumerate(shards):
        builder.add(
            shard,
            np.array([number]),
            pa.array([str(number)]),
            pa.array([hash_of(number)], pa.binary(16)),
        )
    return builder.table()


@given(shards=st.lists(st.sampled_from("abc"), min_size=1, max_size=9), data=st.data())
def test_moved_rows_point_elsewhere_and_the_others_stay(
    shards: list[str], data: st.DataObject
) -> None:
    table = locator(shards)
    expected = table.to_pylist()
    local = data.draw(st.lists(st.integers(0, len(shards) - 1), unique=True), "moved")
    new = data.draw(st.lists(st.integers(-1, 1), min_size=len(local), max_size=len(local)), "to")
    for place, shard in zip(local, new, strict=True):
        gone = {"shard": None, "row": 0}
        expected[place] |= (
            {"shard": "xy"[shard], "row": 90 + place, "id": f"new{place}"} if shard >= 0 else gone
        )
    moves = Moves(
        np.array(local, np.int64),
        np.array(new, np.int32),
        np.array(
            [90 + place if shard >= 0 else 0 for place, shard in zip(local, new, strict=True)],
            np.int64,
        ),
        pa.array(
            [
                f"new{place}" if shard >= 0 else None
                for place, shard in zip(local, new, strict=True)
            ],
            pa.string(),
        ),
        ("x", "y"),
    )
    found = locators.from_bytes(locators.to_bytes(locators.moved(table, moves)))
    assert found.to_pylist() == expected
    numbers, names = locators.list_shards(found)
    assert sorted(names) == sorted({row["shard"] for row in expected} - {None})
    assert [names[n] if n >= 0 else None for n in numbers] == [row["shard"] for row in expected]
    for wanted in ("a", "x"):
        rows = [n for n, row in enumerate(expected) if row["shard"] == wanted]
        assert locators.rows_of(found, {wanted}).tolist() == rows
    keep = locators.find_live_rows(found)
    assert (keep is None) == all(row["shard"] for row in expected)
    assert keep is None or keep.tolist() == [row["shard"] is not None for row in expected]


def test_a_column_can_be_read_alone() -> None:
    data = locators.to_bytes(locator(["a", "b", "a"]))
    table = locators.from_bytes(data, ["shard"])
    assert table.column_names == ["shard"]
    assert locators.rows_of(table, {"a", "c"}).tolist() == [0, 2]
