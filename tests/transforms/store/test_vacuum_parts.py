"""Vacuum and the parts of the tables of snapshots."""

import os
import time
from pathlib import Path

import pytest
from helpers.snapshots import night, numbered, parts_of, small_parts, watch_parts

from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.vacuum import find_rubbish, remove
from sentence_beam.transforms.store.verification import faults

NIGHTS = 4


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four snapshots of nine units in several parts; each has another last unit."""
    small_parts(monkeypatch)
    root = tmp_path / "store"
    for number in range(NIGHTS):
        units = [numbered(2 * n, 2 * n + 2) for n in range(8)]
        night(str(root), number, *units, numbered(50, 52, f"night {number}"))
    for path in root.rglob("*"):
        os.utime(path, (time.time() - 3600,) * 2)
    return root


def named(store: Path, run: str | None = None) -> set[str]:
    manifest = read_manifest(str(store), run)
    assert manifest is not None
    return {part.path for table in (manifest.files, manifest.units) for part in table.parts}


def there(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for path in (store / "manifests/parts").iterdir()}


@pytest.mark.parametrize("keep", [1, 2])
def test_parts_of_kept_snapshots_stay_and_no_others(store: Path, keep: int) -> None:
    runs = [manifest.run for manifest in kept(store, keep)]
    wanted = set().union(*(named(store, run) for run in runs))
    assert wanted < there(store)
    remove(find_rubbish(str(store), keep, None, time.time() + 60))
    assert there(store) == wanted
    for manifest in kept(store, keep):
        assert [line for line in faults(manifest) if "result" not in line] == []


def kept(store: Path, keep: int) -> list:
    found = [read_manifest(str(store))]
    while len(found) < keep:
        found.append(read_manifest(str(store), found[-1].previous))
    return found


def test_a_part_of_several_snapshots_is_read_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = watch_parts(monkeypatch)
    find_rubbish(str(store), NIGHTS, None, time.time())
    assert len(read) == len(set(read))
    shared = {part["path"] for part in parts_of(store)}
    assert shared < set(read) < there(store)
