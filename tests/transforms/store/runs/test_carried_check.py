"""Which carried shards are read, and what a listing's checksum says of the others."""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import fake_storage
from helpers.snapshots import night, numbered, small_parts, units_of, write_unit
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows, make_row
from sentence_beam.transforms.storage.local import LocalStorage
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import carried_check
from sentence_beam.transforms.store.runs.carried_check import (
    ROUND,
    Checked,
    ShardCheck,
    check_all,
    list_checksums,
    select_carried,
    stride,
)
from sentence_beam.transforms.store.tables.table_columns import make_units_table


@given(st.integers(0, ROUND - 1))
def test_after_a_hundred_runs_every_place_was_read(place: int) -> None:
    start, due = 0, 0
    for _ in range(100):
        due += (place - start) % ROUND < stride(None, start)
        start = (start + stride(None, start)) % ROUND
    assert due >= 1


@pytest.mark.parametrize("shards", [1, 2, 10, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("many", [False, True])
def test_of_few_shards_one_at_least_is_read_in_each_run_and_each_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, many: bool
) -> None:
    if many:
        small_parts(monkeypatch)
    root = str(tmp_path / "store")
    night(root, 0, *(numbered(n, n + 1) for n in range(shards)))
    manifest = open_store(root).manifest
    start, read = 5, Counter[str]()
    for _ in range(shards):
        way = stride(manifest, start)
        states = check_all(root, manifest.units, ShardCheck(root, start, way))
        found = states.filter(states.column("is_read")).column("path").to_pylist()
        assert found
        read.update(found)
        start = (start + way) % ROUND
    assert set(read) == {unit["path"] for unit in units_of(root)}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def unit(root: str) -> UnitRecord:
    """A unit in the store."""
    return write_unit(root, 0, [("a", "x"), ("b", "y")])


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Listings that have checksums, `sum` for every file, and the paths that are read."""
    found: dict[str, Any] = {"sum": "abc", "read": []}

    class Remote(LocalStorage):
        def below(self, folder: str) -> list[storage.Entry]:
            return [replace(entry, checksum=found["sum"]) for entry in super().below(folder)]

    original = storage.sha256_of
    fake_storage.replace_storage(monkeypatch, Remote())
    monkeypatch.setattr(
        carried_check.storage,
        "sha256_of",
        lambda path: (found["read"].append(path), original(path))[1],
    )
    return found


def test_with_a_checksum_in_the_listing_nothing_is_read(
    root: str, unit: UnitRecord, remote: dict[str, Any]
) -> None:
    known = replace(unit, checksum="abc")
    states = ShardCheck(root, stride=ROUND).states(make_units_table([known]))
    assert Checked.from_states(states) == Checked(shards=1, compared=1)
    assert list_checksums(states) == []
    assert remote["read"] == []


def test_a_checksum_that_differs_is_looked_into(
    root: str, unit: UnitRecord, remote: dict[str, Any]
) -> None:
    known = make_units_table([replace(unit, checksum="other")])
    states = ShardCheck(root).states(known)
    assert not Checked.from_states(states).damaged  # its bytes are the same: the store was copied
    assert list_checksums(states) == [{"unit": unit.unit, "checksum": "abc"}]
    assert len(remote["read"]) == 1
    path = Path(root, str(unit.path))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert Checked.from_states(ShardCheck(root).states(known)).damaged == (unit.path,)


def test_a_record_without_a_checksum_gets_one_when_the_shard_was_read(
    root: str, unit: UnitRecord, remote: dict[str, Any]
) -> None:
    known = make_units_table([unit])
    assert list_checksums(ShardCheck(root).states(known)) == []
    states = ShardCheck(root, stride=ROUND).states(known)
    assert not Checked.from_states(states).damaged
    assert list_checksums(states) == [{"unit": unit.unit, "checksum": "abc"}]


def test_the_place_of_a_shard_is_the_hash_of_its_path(root: str, unit: UnitRecord) -> None:
    place = int.from_bytes(hashlib.sha256(str(unit.path).encode()).digest()[:4])
    path = Path(root, str(unit.path))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    known = make_units_table([unit])

    def is_found(start: int, way: int) -> bool:
        return bool(Checked.from_states(ShardCheck(root, start, way).states(known)).damaged)

    assert is_found(place, 1)
    assert not is_found(place + 1, ROUND - 1)
    assert not is_found(place - (ROUND >> 1), ROUND >> 1)


def test_a_shard_outside_the_range_that_is_listed_is_looked_up(
    root: str, unit: UnitRecord, remote: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard of a renamed file has the name of another one."""
    known = make_units_table([replace(unit, unit="0" * 16 + unit.unit[16:])])
    kind = type(storage.storage_of(root))
    monkeypatch.setattr(kind, "lists_ranges", lambda *_: True)
    monkeypatch.setattr(kind, "between", lambda *_: [], raising=False)
    found = Checked.from_states(ShardCheck(root, low="0", high="0" * 20).states(known))
    assert (found.shards, found.damaged) == (1, ())


def test_only_shards_that_a_plan_carries_are_counted(root: str) -> None:
    units = [write_unit(root, place, [(str(place), "x")]) for place in range(2)]
    states = ShardCheck(root).states(make_units_table(units))
    own = InputFile("/in/a.txt", "a.txt", "text", "", 9, "sum", "v")
    other = replace(own, relative="b.txt")
    carried_file = {**make_row(own), "carried": True, "units": 2}
    assert len(select_carried(states, make_planned_rows([carried_file]), "")) == 2
    assert len(select_carried(states, make_planned_rows([OpenedFile(own).row()]), "")) == 0
    renamed = {**make_row(other), "carried": True, "was": "a.txt"}
    assert len(select_carried(states, make_planned_rows([renamed]), "")) == 2
    assert len(select_carried(states, make_planned_rows([]), "some")) == 2


@pytest.mark.parametrize("has_shard", [True, False])
def test_a_file_of_rejected_rows_is_checked_with_its_unit(
    root: str, unit: UnitRecord, has_shard: bool
) -> None:
    path = Path(root, layout.rejects(unit.unit, "0" * 16))
    path.parent.mkdir()
    path.write_bytes(b"rows")
    digest = hashlib.sha256(b"rows").hexdigest()
    relative = str(path.relative_to(root))
    known = replace(unit, rejects=relative, rejects_sha256=digest)
    if not has_shard:
        known = replace(known, path=None, sha256=None, bytes=0, rows=0)
    units = make_units_table([known])
    assert not Checked.from_states(ShardCheck(root, stride=ROUND).states(units)).damaged
    path.write_bytes(b"rowS")
    damaged = (unit.path if has_shard else relative,)
    assert Checked.from_states(ShardCheck(root, stride=ROUND).states(units)).damaged == damaged
    assert not Checked.from_states(ShardCheck(root).states(units)).damaged, "it was not read"
    path.unlink()
    assert Checked.from_states(ShardCheck(root).states(units)).damaged == damaged
