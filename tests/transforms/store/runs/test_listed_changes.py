"""Changes and diffs against a plain count of both snapshots' rows, whatever the rows and however
they are cut.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers.examples import examples
from helpers.snapshots import night, numbered, run_name, units_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs import changed_rows, listed_changes
from sentence_beam.transforms.store.runs.changed_rows import Changes, SnapshotShard
from sentence_beam.transforms.store.runs.listed_changes import SCHEMA, diff
from sentence_beam.transforms.store.tables.unit_rows import find_differing_parts

Rows = list[tuple[str, str]]


def counted(root: str, buckets: int) -> Changes:
    """Changes from the first night to the second, as the pipeline counts them."""
    old, new = (open_store(root, run_name(number)).manifest for number in (0, 1))
    found: dict[int, list[bytes]] = {}
    for units, is_new in zip(
        find_differing_parts(root, old.units, new.units), (False, True), strict=True
    ):
        for unit in units.to_pylist():
            shard = SnapshotShard(unit["path"], unit["bytes"], is_new)
            block = changed_rows.read_block(root, [shard], ())
            for bucket, rows in changed_rows.by_bucket(block, buckets):
                found.setdefault(bucket, []).append(rows)
    parts = (changed_rows.find_changed_rows(changed_rows.unpacked(rows)) for rows in found.values())
    return sum(map(changed_rows.count_changes, parts), Changes())


def listed(root: str) -> pa.Table:
    """All tables of a diff in one."""
    tables = list(
        diff(open_store(root, run_name(0)).manifest, open_store(root, run_name(1)).manifest)
    )
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "ü"]), st.sampled_from(["x", "y", "z"])), max_size=8
)
snapshots = st.lists(rows, min_size=1, max_size=3)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(old=snapshots, new=snapshots, buckets=st.sampled_from([1, 3]))
def test_changes_are_those_of_the_multisets(
    tmp_path_factory: pytest.TempPathFactory, old: list[Rows], new: list[Rows], buckets: int
) -> None:
    root = str(tmp_path_factory.mktemp("store"))
    night(root, 0, *old)
    night(root, 1, *new)
    before, after = (Counter(row for unit in units for row in unit) for units in (old, new))
    lost, came = before - after, after - before
    lost_ids, came_ids = (Counter(row_id for row_id, _ in rows.elements()) for rows in (lost, came))
    changes = counted(root, buckets)
    assert changes.deleted == sum((lost_ids - came_ids).values())
    assert changes.added == sum((came_ids - lost_ids).values())
    assert changes.changed == sum((lost_ids & came_ids).values())

    table = listed(root).to_pylist()
    assert Counter(row["change"] for row in table) == Counter(
        {name: count for name, count in vars(changes).items() if count}
    )
    hashes = {text: row_hashes([text])[0] for text in ("x", "y", "z")}
    for side, multiset in (("old_row_hash", lost), ("new_row_hash", came)):
        assert Counter((row["id"], row[side]) for row in table if row[side] is not None) == Counter(
            {(row_id, hashes[text]): n for (row_id, text), n in multiset.items()}
        )


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Two nights of three units; of the second unit one row is another, one is gone, and one has
    come.
    """
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9), numbered(20, 25))
    night(root, 1, numbered(0, 5), {**numbered(6, 10), "r7": "another"}, numbered(20, 25))
    return root


def test_a_diff_says_what_became_of_each_id(root: str) -> None:
    found = listed(root)
    assert found.schema == SCHEMA
    assert [(row["id"], row["change"]) for row in found.to_pylist()] == [
        ("r5", "deleted"), ("r7", "changed"), ("r9", "added"),
    ]  # fmt: skip
    old, new = row_hashes(["text 7", "another"])
    assert (found["old_row_hash"][1].as_py(), found["new_row_hash"][1].as_py()) == (old, new)
    assert (found["new_row_hash"][0].as_py(), found["old_row_hash"][2].as_py()) == (None, None)


def test_what_both_snapshots_have_is_not_read(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    original = changed_rows.read_shard
    monkeypatch.setattr(
        changed_rows, "read_shard", lambda path, *rest: read.append(path) or original(path, *rest)
    )
    listed(root)
    assert len(read) == 2
    same = open_store(root, run_name(1)).manifest
    assert not list(diff(same, same))
    assert len(read) == 2


def test_buckets_bound_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path / "store")
    night(root, 0, *(numbered(100 * place, 100 * place + 100) for place in range(4)))
    night(root, 1, *(numbered(100 * place, 100 * place + 100, "other") for place in range(4)))
    monkeypatch.setattr(listed_changes, "LISTED_ROWS", 100)
    sizes = [table.num_rows for table in diff(*_both(root))]
    assert sum(sizes) == 400
    assert len(sizes) == 8
    assert max(sizes) < 100
    assert set(listed(root)["change"].to_pylist()) == {"changed"}


def _both(root: str) -> tuple[Manifest, Manifest]:
    return open_store(root, run_name(0)).manifest, open_store(root, run_name(1)).manifest


def test_rows_that_swap_their_texts_are_changed(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, {"a": "x", "b": "y"})
    night(root, 1, {"a": "y", "b": "x"})
    assert counted(root, 1) == Changes(changed=2)


def test_hashes_spread_over_buckets(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 1000))
    (unit,) = units_of(root)
    block = changed_rows.read_block(root, [SnapshotShard(unit["path"], unit["bytes"], True)], ())
    sizes = [len(changed_rows.unpacked([rows])) for _, rows in changed_rows.by_bucket(block, 4)]
    assert sum(sizes) == 1000
    assert np.ptp(sizes) < 200
