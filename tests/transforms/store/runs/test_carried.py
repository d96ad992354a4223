"""Which carried shards are read, and what a listing's checksum says of the others."""

import hashlib
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import fake_storage
from helpers.snapshots import night, numbered, write_unit
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms import storage
from sentence_beam.transforms.storage.local import LocalStorage
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import carried
from sentence_beam.transforms.store.runs.carried import ROUND, CarriedShards, stride


@given(st.floats(1e-3, 1), st.integers(0, ROUND - 1))
def test_after_one_over_the_fraction_runs_every_place_was_read(fraction: float, place: int) -> None:
    start, due = 0, 0
    for _ in range(math.ceil(1 / fraction)):
        due += (place - start) % ROUND < stride(None, start, fraction)
        start = (start + stride(None, start, fraction)) % ROUND
    assert due >= 1


@pytest.mark.parametrize("shards", [1, 2, 10, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("in_parts", [False, True])
def test_of_few_shards_one_at_least_is_read_in_each_run_and_each_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, in_parts: bool
) -> None:
    if in_parts:
        monkeypatch.setattr("sentence_beam.transforms.store.manifest.UNITS_IN_ONE_FILE", 0)
    root = str(tmp_path / "store")
    night(root, 0, *(numbered(n, n + 1) for n in range(shards)))
    manifest = open_store(root).manifest
    start, read = 5, Counter[str]()
    for _ in range(shards):
        way = stride(manifest, start, 0.01)
        found = [
            unit.path
            for unit in manifest.units
            if CarriedShards(root, start, way).check([unit]).read
        ]
        assert found
        read.update(map(str, found))
        start = (start + way) % ROUND
    assert set(read) == set(manifest.rows_of)
    assert stride(manifest, start, 0.0) == 0
    assert stride(manifest, start, 1) == ROUND


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
        carried.storage, "sha256_of", lambda path: (found["read"].append(path), original(path))[1]
    )
    return found


def test_with_a_checksum_in_the_listing_nothing_is_read(
    root: str, unit: UnitRecord, remote: dict[str, Any]
) -> None:
    known = replace(unit, checksum="abc")
    shards = CarriedShards(root, stride=ROUND)
    assert vars(shards.check([known])) == {
        "shards": 1,
        "compared": 1,
        "read": 0,
        "bytes": 0,
        "damaged": (),
    }
    assert shards.current(known) == known
    assert remote["read"] == []


def test_a_checksum_that_differs_is_looked_into(
    root: str, unit: UnitRecord, remote: dict[str, Any]
) -> None:
    known = replace(unit, checksum="other")
    shards = CarriedShards(root)
    assert shards(known)  # its bytes are the same: the store was copied
    assert shards.current(known).checksum == "abc"
    assert len(remote["read"]) == 1
    path = Path(root, str(unit.path))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert CarriedShards(root).check([known]).damaged == (unit.path,)


def test_a_record_without_a_checksum_gets_one_when_the_shard_was_read(
    root: str, unit: UnitRecord, remote: dict[str, Any]
) -> None:
    shards = CarriedShards(root)
    assert shards(unit)
    assert shards.current(unit).checksum is None
    shards = CarriedShards(root, stride=ROUND)
    assert shards(unit)
    assert shards.current(unit).checksum == "abc"


def test_the_place_of_a_shard_is_the_hash_of_its_path(root: str, unit: UnitRecord) -> None:
    place = int.from_bytes(hashlib.sha256(str(unit.path).encode()).digest()[:4])
    path = Path(root, str(unit.path))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert not CarriedShards(root, place, 1)(unit)
    assert CarriedShards(root, place + 1, ROUND - 1)(unit)
    assert CarriedShards(root, place - (ROUND >> 1), ROUND >> 1)(unit)
