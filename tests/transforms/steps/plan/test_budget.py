"""Files beyond the budget of a run: which wait, what the store has of them, and what it says.

Covers transforms/steps/plan/budget.py.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_jsonl
from helpers.plans import handed_out, ids_in, job_of, night
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.base.errors import name_keywords
from sentence_beam.transforms.steps.options.from_snapshot import record_plan
from sentence_beam.transforms.steps.plan.grouped_files import find_max_bits
from sentence_beam.transforms.store.counts import NONE_PENDING
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.recorded_plan import count_pending, read_plan
from sentence_beam.transforms.store.runs.run_result import Result
from sentence_beam.transforms.store.verification import faults
from sentence_beam.transforms.store.verify_tables import find_count_faults

ALONE = 60  # rows of a file that shares no unit


def rows_of(name: str, rows: int, edit: int = 0) -> list[dict[str, str]]:
    return [
        {"id": f"{name}-{row}-{edit}", "text": f"text {name} {row} {edit}"} for row in range(rows)
    ]


class Two:
    """A folder, and two stores of it: one with a budget, one without."""

    def __init__(self, folder: Path):
        self.folder = folder / "in"
        self.budgeted = folder / "budgeted"
        self.plain = folder / "plain"
        self.number = 0

    def write(self, name: str, rows: int, edit: int = 0) -> None:
        write_jsonl(self.folder / f"{name}.jsonl", rows_of(name, rows, edit))

    def night(self, budget: int | None, **values: Any) -> Result:
        """A night of the store with a budget, and the same one of the other."""
        self.number += 1
        glob = self.folder / "*.jsonl"
        values = {"max_deletes": 1.0, **values}
        assert night(self.plain, glob, number=self.number, **values).message == "committed"
        return night(self.budgeted, glob, number=self.number, budget=budget, **values)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def manifest_of(store: Path) -> Manifest:
    manifest = read_manifest(str(store))
    assert manifest is not None
    return manifest


def shards_of(store: Path) -> list[tuple[Any, ...]]:
    return [(unit["unit"], unit["path"], unit["rows"], unit["read"]) for unit in units_of(store)]


def cut_files_of(store: Path) -> list[dict[str, Any]]:
    """The files of a store; how an empty one would be cut is chosen when it has rows."""
    files = files_of(store)
    return [file if file["size"] else {**file, "cut": None} for file in files]


@pytest.mark.parametrize("seed", range(3))
def test_a_random_history(tmp_path: Path, seed: int) -> None:
    go(Two(tmp_path), random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 60))
def test_more_random_histories(tmp_path: Path, seed: int) -> None:
    go(Two(tmp_path), random.Random(seed))


def waiting_in(store: Path) -> list[str]:
    """The names of the pending files of a store."""
    return [
        file["path"].removesuffix(".jsonl")
        for file in files_of(store)
        if file["pending_bytes"] is not None
    ]


def test_files_are_taken_by_name_and_at_least_one(two: Two) -> None:
    for name in "abcd":
        two.write(name, ALONE)
    glob = two.folder / "*.jsonl"
    waits = night(two.budgeted, glob, number=1, budget=1)
    assert waits.budget == {"tokens": 1, "expected": waits.budget["expected"], "runs": 3}
    assert waiting_in(two.budgeted) == ["b", "c", "d"]
    size = sum((two.folder / f"{name}.jsonl").stat().st_size for name in "bcd")
    assert waits.pending is not None
    assert (waits.pending.files, waits.pending.bytes) == (3, size)
    assert waits.pending.tokens == 3 * waits.budget["expected"]
    assert waits.input is not None
    assert waits.input["files"] == 4
    assert not waits.input["empty"]
    # made-up vectors say 3 tokens a row, so the second run expects 180 of each file
    two.write("c", 2 * ALONE)
    assert night(two.budgeted, glob, number=2, budget=360).budget == {
        "tokens": 360, "expected": 180, "runs": 2,
    }  # fmt: skip
    assert waiting_in(two.budgeted) == ["c", "d"]  # though d would fit
    assert night(two.budgeted, glob, number=3, budget=1000).pending == NONE_PENDING
    assert len(ids_in(two.budgeted)) == 5 * ALONE


def test_a_file_that_is_as_the_store_has_it_or_gone_waits_no_longer(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    two.night(None)
    for name in "abc":
        two.write(name, ALONE, 1)
    two.night(1)
    assert waiting_in(two.budgeted) == ["b", "c"]
    assert {row_id[-2:] for row_id in ids_in(two.budgeted) if row_id[0] in "bc"} == {"-0"}
    two.write("b", ALONE)
    (two.folder / "c.jsonl").unlink()
    two.write("d", ALONE)
    two.night(1)
    assert waiting_in(two.budgeted) == []
    assert shards_of(two.budgeted) == shards_of(two.plain)


def test_deleted_files_leave_in_any_case_and_the_gate_counts_them_alone(two: Two) -> None:
    for name in "abcde":
        two.write(name, ALONE)
    glob = two.folder / "*.jsonl"
    values = {"budget": 1, "id_column": None}
    night(two.budgeted, glob, number=1, id_column=None)
    for name in "bcd":
        two.write(name, ALONE, 1)
    two.write("f", ALONE)
    (two.folder / "a.jsonl").unlink()
    assert night(two.budgeted, glob, number=2, max_deletes=0.1, **values).exit_code == 3
    assert night(two.budgeted, glob, number=3, max_deletes=0.2, **values).exit_code == 0
    assert waiting_in(two.budgeted) == ["c", "d", "f"]
    assert manifest_of(two.budgeted).rows.written == 4 * ALONE


def test_small_files_wait_in_their_groups(two: Two) -> None:
    for number in range(40):
        two.write(f"s{number:02d}", 3)
    two.night(None)
    groups = {file["path"]: file["group"] for file in files_of(two.budgeted)}
    assert len(set(groups.values())) == 1
    two.write("s05", 3, 1)
    two.write("new", 3)
    two.write("alone", ALONE)
    two.night(1)
    assert waiting_in(two.budgeted) == ["new", "s05"]
    assert len(ids_in(two.budgeted)) == 120 + ALONE
    (two.folder / "s06.jsonl").unlink()
    two.write("big", ALONE)
    two.night(1)  # the deleted file's rows are in the group's units, so it is read
    assert waiting_in(two.budgeted) == ["big"]
    assert not [row_id for row_id in ids_in(two.budgeted) if row_id.startswith("s06")]


def test_groups_have_the_bits_of_all_files_though_none_is_taken_yet(two: Two) -> None:
    two.write("a", ALONE)
    for number in range(300):
        two.write(f"t{number:03d}", 3)
    two.night(1)
    assert (group_bits_of(two.budgeted), group_bits_of(two.plain)) == (None, 3)
    assert manifest_of(two.budgeted).group_bits == 3
    for number in range(20, 300):
        (two.folder / f"t{number:03d}.jsonl").unlink()
    two.night(10**6)
    assert manifest_of(two.budgeted).group_bits is None
    assert group_bits_of(two.budgeted) == 3
    assert shards_of(two.budgeted) == shards_of(two.plain)


def test_groups_that_are_cut_into_more_are_taken_without_their_new_files(two: Two) -> None:
    for number in range(30):
        two.write(f"s{number:02d}", 3)
    two.night(None)
    for number in range(300):
        two.write(f"t{number:03d}", 3)
    two.write("s07", 3, 1)
    two.night(1)
    assert (group_bits_of(two.budgeted), len(waiting_in(two.budgeted))) == (3, 300)
    two.night(1)
    assert 200 < len(waiting_in(two.budgeted)) < 300
    two.night(10**6)
    assert shards_of(two.budgeted) == shards_of(two.plain)


def group_bits_of(store: Path) -> int | None:
    return find_max_bits(manifest_of(store).read_files())


def test_renamed_files_do_not_wait(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    two.night(None, id_column=None)
    for name in "abc":
        (two.folder / f"{name}.jsonl").rename(two.folder / f"z{name}.jsonl")
    two.write("d", ALONE)
    two.write("e", ALONE)
    two.night(1, id_column=None, max_deletes=0.0)
    assert waiting_in(two.budgeted) == ["e"]


def test_rows_that_a_renamed_file_has_taken_over_are_not_kept_twice(two: Two) -> None:
    two.write("b", ALONE)
    two.night(None)
    (two.folder / "b.jsonl").rename(two.folder / "c.jsonl")
    two.night(None)  # c has shards that are named after b
    (two.folder / "c.jsonl").rename(two.folder / "d.jsonl")
    two.write("c", ALONE, 1)
    two.write("a", ALONE)
    two.night(1)
    assert waiting_in(two.budgeted) == ["c"]
    assert not list(faults(manifest_of(two.budgeted)))
    assert len(ids_in(two.budgeted)) == 2 * ALONE
    two.night(1)
    assert shards_of(two.budgeted) == shards_of(two.plain)


def test_a_file_whose_shard_is_damaged_does_not_wait(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    two.night(None)
    two.write("a", ALONE, 1)
    two.write("c", ALONE, 1)
    (shard,) = [unit["path"] for unit in units_of(two.budgeted) if unit["file"] == "c.jsonl"]
    (two.budgeted / shard).unlink()
    assert two.night(1).message == "committed"
    assert waiting_in(two.budgeted) == ["a"]


def test_a_run_that_appends_leaves_pending_files_alone(two: Two) -> None:
    two.write("a", ALONE)
    two.write("b", ALONE)
    glob = two.folder / "*.jsonl"
    night(two.budgeted, glob, number=1)
    for name in "abc":
        two.write(name, ALONE, 1)
    night(two.budgeted, glob, number=2, budget=1)
    assert waiting_in(two.budgeted) == ["b", "c"]
    two.write("d", ALONE)
    before = manifest_of(two.budgeted).pending
    added = night(two.budgeted, two.folder / "d.jsonl", number=3, budget=1, append=True)
    assert (added.message, added.pending) == ("committed", before)
    assert added.budget is not None
    assert added.budget["runs"] == 2
    named = night(two.budgeted, two.folder / "b.jsonl", number=4, append=True)
    assert named.message == "committed"
    assert waiting_in(two.budgeted) == ["c"]
    assert len(ids_in(two.budgeted)) == 3 * ALONE


def test_a_run_that_appends_reads_a_pending_file_whose_group_it_reads(two: Two) -> None:
    for number in range(20):
        two.write(f"s{number:02d}", 3)
    glob = two.folder / "*.jsonl"
    night(two.budgeted, glob, number=1)
    two.write("a", ALONE)
    two.write("s04", 3, 1)
    night(two.budgeted, glob, number=2, budget=1)
    assert waiting_in(two.budgeted) == ["s04"]
    two.write("s05", 3, 1)
    result = night(two.budgeted, two.folder / "s05.jsonl", number=3, append=True)
    assert (result.message, result.pending) == ("committed", NONE_PENDING)


def test_a_file_that_cannot_be_read_is_not_pending(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    glob = two.folder / "*.jsonl"
    night(two.budgeted, glob, number=1)
    for name in "abcd":
        two.write(name, ALONE, 1)
    night(two.budgeted, glob, number=2, budget=1)
    assert waiting_in(two.budgeted) == ["b", "c", "d"]
    for name in "bd":
        (two.folder / f"{name}.jsonl").unlink()
        (two.folder / f"{name}.jsonl").symlink_to(two.folder / "nothing")
    result = night(two.budgeted, glob, number=3, budget=10**6, max_bad_files=2)
    assert (result.message, result.pending) == ("committed", NONE_PENDING)
    assert {row_id[0] + row_id[-2:] for row_id in ids_in(two.budgeted)} == {"a-1", "b-0", "c-1"}


def test_changed_files_may_not_wait_where_every_row_changes(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    glob = two.folder / "*.jsonl"
    night(two.budgeted, glob, number=1)
    (two.folder / "d.jsonl").touch()
    for name in "bcde":
        two.write(name, ALONE, 1)
    failed = night(two.budgeted, glob, number=2, budget=1, keep_columns=("text",))
    assert name_keywords(failed.message).startswith(
        "keep_columns would change in every row, and 1 file beyond budget 1 would stay as before:"
        " say budget none with it, or wait"
    )
    two.write("c", ALONE)
    assert night(two.budgeted, glob, number=3, budget=1, keep_columns=("text",)).exit_code == 0
    assert waiting_in(two.budgeted) == ["d", "e"]  # of which no row could be as before


def test_the_choice_on_record_holds(two: Two) -> None:
    for name in "bc":
        two.write(name, ALONE)
    job = job_of(two.budgeted, two.folder / "*.jsonl", number=1, budget=1, retried=True)
    (first,) = handed_out(job)
    two.write("a", ALONE)
    assert handed_out(job) == [first]
    plan = read_plan(job.root, job.run.id)
    assert [span.file.relative for span in first] == ["b.jsonl"]
    assert plan.pending.files == 1
    assert plan.notes.budget is not None
    assert len(plan.notes.budget.waiting) == 1


def test_verify_compares_what_waits_with_the_list_of_files(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    night(two.budgeted, two.folder / "*.jsonl", number=1, budget=1)
    manifest = manifest_of(two.budgeted)
    other = replace(manifest, pending=replace(manifest.pending, files=3))
    (fault,) = find_count_faults(other)
    assert fault.startswith("files: 2 pending (")
    assert "the manifest says 3 pending (" in fault


def test_a_run_without_input_keeps_what_is_pending(two: Two) -> None:
    for name in "abc":
        two.write(name, ALONE)
    two.night(1)
    manifest = manifest_of(two.budgeted)
    record_plan(manifest, "next")
    plan = read_plan(str(two.budgeted), "next")
    assert plan.pending == manifest.pending
    assert (plan.notes.budget, plan.notes.group_bits) == (None, manifest.group_bits)


def go(two: Two, rng: random.Random) -> None:
    files: dict[str, tuple[int, int]] = {}
    held: dict[str, set[str]] = {}
    count = 0
    for _ in range(rng.randint(3, 7)):
        for _ in range(rng.choice([0, 1, 3, 25])):
            count += 1
            name = f"{rng.randrange(1000):03d}-{count}"
            files[name] = (rng.choice([0, 1, 3, ALONE, 200]), 0)
            two.write(name, *files[name])
        for name in list(files):
            what = rng.random()
            if what < 0.1:
                files[name] = (rng.choice([0, 1, 3, ALONE]), files[name][1] + 1)
                two.write(name, *files[name])
            elif what < 0.2:
                del files[name]
                (two.folder / f"{name}.jsonl").unlink()
        if not files:
            continue
        result = two.night(rng.choice([1, 50, 1000, 10**9]))
        assert result.message == "committed", result.message
        held = check(two, files, held)
    for _ in range(100):
        if not manifest_of(two.budgeted).pending.files:
            break
        assert two.night(500).message == "committed"
        held = check(two, files, held)
    assert shards_of(two.budgeted) == shards_of(two.plain)
    assert cut_files_of(two.budgeted) == cut_files_of(two.plain)


def check(
    two: Two, files: Mapping[str, tuple[int, int]], held: Mapping[str, set[str]]
) -> dict[str, set[str]]:
    """Check that the rows of each file are those of the last snapshot or of the input."""
    manifest = manifest_of(two.budgeted)
    assert not list(faults(manifest))
    table = manifest.read_files()
    assert count_pending(table) == manifest.pending
    waiting = {row["path"] for row in table.to_pylist() if row["pending_bytes"] is not None}
    now: dict[str, set[str]] = {}
    for row_id in ids_in(two.budgeted):
        now.setdefault(row_id.rpartition("-")[0].rpartition("-")[0], set()).add(row_id)
    for name, made in files.items():
        path = f"{name}.jsonl"
        wanted = {row["id"] for row in rows_of(name, *made)}
        if path in waiting:
            assert now.get(name, set()) == held.get(name, set())
        else:
            assert now.get(name, set()) == wanted
    assert set(now) <= set(files)
    return now
