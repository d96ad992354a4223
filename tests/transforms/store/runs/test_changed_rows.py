"""Files of changed rows: a diff that reads them says what a diff of the shards says."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.examples import examples
from helpers.nights import Files, Nights
from helpers.settled import settled
from helpers.snapshots import run_name
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.steps.commit import count_changes
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs import changed_rows, listed_changes
from sentence_beam.transforms.store.runs.changed_rows import BLOCK, Changes
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.vacuum import find_rubbish, remove
from sentence_beam.transforms.store.verification import faults

FIRST = {"a": [("1", "x"), ("2", "y"), ("3", "z")], "b": [("4", "u")]}
SECOND = {"a": [("1", "x"), ("2", "other"), ("5", "v")], "b": [("4", "u")]}
THIRD = {"a": [("1", "x"), ("2", "y"), ("5", "w")], "c": [("4", "u"), ("6", "x")]}


def listed(old: Manifest, new: Manifest) -> list[dict]:
    """All rows of a diff, sorted."""
    rows = [row for table in listed_changes.diff(old, new) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def of_shards(old: Manifest, new: Manifest) -> list[dict]:
    """The same of two snapshots whose runs recorded nothing."""
    return listed(replace(old, changes=None), replace(new, changes=None))


rows = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=5)
histories = st.lists(
    st.dictionaries(st.sampled_from("pq"), rows, min_size=1), min_size=2, max_size=4
)


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(histories)
def test_recorded_changes_are_those_of_the_shards(
    tmp_path_factory: pytest.TempPathFactory, history: list[Files]
) -> None:
    nights = Nights(tmp_path_factory.mktemp("store"))
    made = [nights.commit_counted(files) for files in history]
    for old in made:
        for new in made:
            assert listed(old, new) == of_shards(old, new)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    nights = Nights(tmp_path / "store", run_name=run_name)
    for files in (FIRST, SECOND, THIRD):
        nights.commit_counted(files)
    return nights


def test_a_diff_reads_no_shard_if_the_changes_are_recorded(nights: Nights) -> None:
    last = nights.manifest
    first = open_store(str(nights.root), run_name(1)).manifest
    for path in (nights.root / "embeddings").iterdir():
        path.unlink()
    found = [(row["id"], row["change"]) for row in listed(first, last)]
    assert sorted(found) == [("3", "deleted"), ("5", "added"), ("6", "added")]


def test_a_diff_reads_shards_if_a_file_is_damaged(nights: Nights) -> None:
    last = nights.manifest
    before = open_store(str(nights.root), last.previous).manifest
    assert last.changes is not None
    expected = of_shards(before, last)
    (nights.root / last.changes.files[0].path).write_bytes(b"PAR1")
    assert listed(before, last) == expected
    assert any("changed rows" in fault for fault in faults(last))


def test_vacuum_keeps_changes_since_a_kept_snapshot(nights: Nights) -> None:
    last = nights.manifest
    before = open_store(str(nights.root), last.previous).manifest
    assert last.changes is not None
    assert before.changes is not None
    remove(find_rubbish(str(nights.root), 2, 0.0, 4e9))
    left = {str(path.relative_to(nights.root)) for path in nights.root.rglob("changes-*")}
    assert left == {file.path for file in last.changes.files}
    assert not list(faults(before))
    remove(find_rubbish(str(nights.root), 1, 0.0, 4e9))
    assert not list(nights.root.rglob("changes-*"))
    assert not list(faults(last))


def test_a_row_with_other_values_is_listed_and_not_counted() -> None:
    text = b"t" * 16
    columns = [["1", "1"], [text, text], [7, 8], [-1, 1], ["old", "new"]]
    block = pa.table([pa.array(c, f.type) for c, f in zip(columns, BLOCK, strict=True)], BLOCK)
    found = changed_rows.find_changed_rows(block)
    assert found.to_pylist() == [
        {"id": "1", "old_row_hash": text, "new_row_hash": text, "shard": "new"}
    ]
    assert changed_rows.count_changes(found) == Changes()


def test_equal_rows_of_a_unit_do_not_travel(nights: Nights) -> None:
    run, units = nights.begin({**THIRD, "a": [("1", "x"), ("2", "y"), ("5", "another")]})
    blocks = []
    for element in count_changes.list_rows_to_count(settled(run, units), run, ids=False):
        found = count_changes.read_by_bucket(element, run.key)
        blocks += [value for (what, _), value in found if what == count_changes.CHANGES]
    assert changed_rows.unpacked(blocks).column("id").to_pylist() == ["5", "5"]


def test_changes_that_cannot_be_counted_are_not_recorded(nights: Nights) -> None:
    run, _ = nights.begin(FIRST)
    unknown = [RunFact(changes=Changes()), RunFact(changes_unknown=True)]
    assert count_changes.list_recorded_changes(unknown, run) is None
