"""A locator read in parts: the footer first, then groups of rows, each checked."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.index_files.locator_file import LocatorFile

ROWS = 1000


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locators, "GROUP_ROWS", 100)


def table(deleted: int = 0) -> pa.Table:
    builder = locators.LocatorBuilder()
    for shard, rows in (("a", np.arange(0, 950, 2)), ("b", np.arange(525))):
        ids, hashes = [f"{shard}{row}" for row in rows], [f"{row:016}".encode() for row in rows]
        builder.add(shard, rows, pa.array(ids), pa.array(hashes, pa.binary(16)))
    found = locators.add_checks(builder.table(), "some checks")
    gone = np.arange(deleted) * 7
    nowhere = np.full(deleted, -1)
    moves = locators.Moves(
        gone, nowhere.astype(np.int32), nowhere, pa.nulls(deleted, pa.string()), ()
    )
    return locators.moved(found, moves) if deleted else found


def written(root: Path, rows: pa.Table) -> SegmentEntry:
    data = locators.to_bytes(rows)
    sha256 = hashlib.sha256(data).hexdigest()
    path = layout.index_file(sha256, "parquet")
    storage.ensure(f"{root}/{path}", data)
    entry = SegmentEntry(
        0, "base", len(rows), rows.column("shard").null_count, path, sha256, 9, path, sha256
    )
    footer = hashlib.sha256(locators.extract_footer(data)).hexdigest()
    return replace(entry, locator_bytes=len(data), locator_footer=footer)


def test_places_and_deleted_rows_are_those_of_the_table(tmp_path: Path) -> None:
    rows = table(30)
    file = LocatorFile.open(str(tmp_path), written(tmp_path, rows))
    asked = np.random.default_rng(0).permutation(ROWS)[:70]
    names, shard, place = file.places(asked)
    mine = [
        (names[s] if s >= 0 else None, int(r) if s >= 0 else None)
        for s, r in zip(shard, place, strict=True)
    ]
    wanted = [
        (row["shard"], row["row"] if row["shard"] else None)
        for row in rows.take(pa.array(asked)).to_pylist()
    ]
    assert mine == wanted
    np.testing.assert_array_equal(file.keep(), locators.find_live_rows(rows))
    assert file.checks == "some checks"
    assert locators.from_bytes(locators.to_bytes(rows)).equals(rows)


def test_only_the_footer_is_read_to_open_and_only_the_groups_of_the_rows_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sentence_beam.transforms.store.index_files.locator_file.TAIL", 100
    )  # less than the footer, which is read again then
    read: list[int] = []
    original = storage.read_range

    def counted(path: str, start: int, stop: int) -> bytes:
        read.append(stop - start)
        return original(path, start, stop)

    monkeypatch.setattr(storage, "read_range", counted)
    entry = written(tmp_path, table())
    file = LocatorFile.open(str(tmp_path), entry)
    assert len(read) == 2
    read.clear()
    for _ in range(2):
        file.places(np.array([120, 130, 450]))
    assert len(read) == 2
    assert sum(read) < entry.locator_bytes / 4


def test_every_changed_byte_that_is_read_is_noticed(tmp_path: Path) -> None:
    entry = written(tmp_path, table())
    path = tmp_path / entry.locator
    whole = path.read_bytes()
    for at in [*range(4, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(DamagedIndexError, match="was changed after it was written"):
            LocatorFile.open(str(tmp_path), entry).places(np.arange(ROWS))
    path.write_bytes(whole[:-300])
    with pytest.raises(DamagedIndexError, match="was changed after it was written"):
        LocatorFile.open(str(tmp_path), entry)
    path.unlink()
    with pytest.raises(DamagedIndexError, match="is missing"):
        LocatorFile.open(str(tmp_path), entry)
