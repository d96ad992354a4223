"""Counting changes and repeated ids of made-up snapshots, by list in and list out.

Covers transforms/steps/commit/count_changes.py.
"""

from pathlib import Path
from typing import Any

import pytest
from helpers import eager
from helpers.nights import Nights
from helpers.settled import finish, settled
from helpers.snapshots import parts_of, small_parts, units_of, watch_parts

from sentence_beam.transforms.beam.commit import CountRows
from sentence_beam.transforms.steps.commit import count_changes
from sentence_beam.transforms.steps.commit.count_changes import Counting, list_rows_to_count
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.changed_rows import Changes
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.shards import id_hashes

pytestmark = pytest.mark.usefixtures("plain_beam")

BEFORE = {"a": [("1", "x"), ("2", "y"), ("3", "z")], "b": [("4", "u")]}
AFTER = {"a": [("1", "x"), ("2", "other"), ("5", "v"), ("6", "w")], "b": [("4", "u")]}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


def counted(run: Run, given: list[RunFact], ids: bool = False) -> list[Any]:
    """The changes that were found (None: unknown), or the duplicate ids if these are counted; what
    was given passes.
    """
    found = eager.run(CountRows(run, ids), given)
    assert [fact for fact in found if fact.settled or fact.problem] == given
    if ids:
        return [fact.duplicate_ids for fact in found if fact.duplicate_ids is not None]
    return [fact.changes for fact in found if fact.changes is not None or fact.changes_unknown]


def test_rows_are_counted_against_the_last_snapshot(nights: Nights) -> None:
    nights.commit_without_index(BEFORE)
    run, units = nights.begin(AFTER)
    found = counted(run, [settled(run, [*units, *units])])  # an engine may deliver a unit twice
    assert sum(found, Changes()) == Changes(added=2, changed=1, deleted=1)


def test_every_row_of_a_first_snapshot_is_added(nights: Nights) -> None:
    run, units = nights.begin(BEFORE)
    assert counted(run, [settled(run, units)]) == [Changes(added=4)]


def test_nothing_is_counted_for_a_run_that_is_to_fail(nights: Nights) -> None:
    run, units = nights.begin(BEFORE)
    assert counted(run, [settled(run, units, [Problem("lost", 1)])]) == []


def test_changes_since_a_damaged_shard_are_not_known(nights: Nights) -> None:
    nights.commit_without_index(BEFORE)
    (damaged,) = (u["path"] for u in units_of(nights.root) if u["file"] == "a")
    (nights.root / damaged).write_bytes(b"PAR1")
    run, units = nights.begin(AFTER)
    assert None in counted(run, [settled(run, units)])


def test_ids_are_compared_over_all_units(nights: Nights) -> None:
    run, units = nights.begin(
        {"a": [("1", "x"), ("2", "y"), ("2", "y")], "b": [("2", "z"), ("3", "x")], "c": []}
    )
    found = counted(run, [settled(run, [*units, *units])], ids=True)
    assert sum(found) == 2


def test_of_many_shards_only_those_that_differ_are_read_and_each_once(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = {
        f"f{n}": [(f"{n}-{i}", f"text {i}") for i in range(3)] + [("shared", "s")]
        for n in range(20)
    }
    read: list[str] = []
    call = id_hashes.read_shard
    for module in (id_hashes, count_changes):
        monkeypatch.setattr(
            module, "read_shard", lambda path, *given: (read.append(path), call(path, *given))[1]
        )
    run, units = nights.begin(corpus)
    assert sum(counted(run, [settled(run, units)], ids=True)) == 19
    assert len(read) == 20
    assert finish(run, units, []).exit_code == 0
    for n in range(4):
        corpus[f"f{n}"] = [(f"other-{n}", "another"), ("shared", "s")]
    run, units = nights.begin(corpus)
    read.clear()
    assert sum(counted(run, [settled(run, units)], ids=True)) == 19
    assert len(read) == len({*read}) == 8, "four old ones for the changes, four new ones"
    kept = sorted((nights.root / "ids").glob("*.xxh3"))
    assert len(kept) == 24
    kept[0].write_bytes(kept[0].read_bytes()[:-1])  # cut short
    kept[1].unlink()
    read.clear()
    assert sum(counted(run, [settled(run, units)], ids=True)) == 19
    assert len(read) == len({*read}) <= 10


def test_a_run_ends_where_the_ids_of_a_carried_shard_cannot_be_read(nights: Nights) -> None:
    run, units = nights.begin(BEFORE)
    finish(run, units, [])
    run, units = nights.begin(AFTER)
    (damaged,) = (u["path"] for u in units_of(nights.root) if u["file"] == "b")
    (nights.root / damaged).write_bytes(b"PAR1")
    found = eager.run(CountRows(run, True), [settled(run, units)])
    (problem,) = (fact.problem for fact in found if fact.problem)
    assert problem.exit_code == 1
    assert damaged in problem.message
    assert "remove the file and embed makes it again" in problem.message


def test_parts_that_the_last_manifest_has_too_are_not_read(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = {f"f{n}": [(f"{n}-{i}", f"text {i}") for i in range(3)] for n in range(40)}
    small_parts(monkeypatch)
    nights.commit_without_index(corpus)
    parts = {part["path"] for part in parts_of(nights.root)}
    run, units = nights.begin(corpus)
    fact = settled(run, units)
    read = watch_parts(monkeypatch)
    assert list(list_rows_to_count(fact, run, ids=True))[1:] == [
        Counting(RunFact(changes=Changes())),
        Counting(RunFact(duplicate_ids=0)),
    ]
    assert read == []
    corpus["f7"] = [("7-0", "text 0"), ("7-1", "another")]
    run, units = nights.begin(corpus)
    fact = settled(run, units)
    given = fact.settled
    assert given
    new = {part.path for part in given.units.parts} - parts
    old = parts - {part.path for part in given.units.parts}
    assert 1 <= len(new) < len(parts)
    read.clear()
    found = counted(run, [fact])
    assert sum(found, Changes()) == Changes(changed=1, deleted=1)
    assert sorted(read) == sorted(new | old)


def test_ids_of_the_same_rows_are_not_read_again(nights: Nights) -> None:
    run, units = nights.begin(BEFORE)
    # more than there are: what is on record is what is said again
    finish(run, units, [], duplicate_ids=7)
    again, units = nights.begin(BEFORE)
    assert counted(again, [settled(again, units)], ids=True) == [7]


@pytest.mark.parametrize("content", [b"", b"null", b"[" * 100_000, None])
def test_ids_are_counted_again_where_the_last_count_is_lost(
    nights: Nights, content: bytes | None
) -> None:
    corpus = {"a": [("1", "x"), ("1", "y")]}
    run, units = nights.begin(corpus)
    assert finish(run, units, [], duplicate_ids=1).exit_code == 0
    result = nights.root / "runs" / run.id / "result.json"
    if content is None:
        result.unlink()
    else:
        result.write_bytes(content)
    run, units = nights.begin(corpus)
    assert sum(counted(run, [settled(run, units)], ids=True)) == 1
