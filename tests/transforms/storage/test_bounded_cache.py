"""The bounded cache of parts: what it keeps, what goes first, and disks that refuse."""

import os
from pathlib import Path

import pytest
from helpers.faulty_disk import free_bytes

from sentence_beam.transforms.storage.bounded_cache import ROOM, BoundedCache


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's cache, on a disk with room for a cache of 100 bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    free_bytes(monkeypatch, 1000)
    return tmp_path / "sentence-beam" / "parts"


def used(folder: Path, name: str, seconds: int) -> None:
    """Let a file have been used at a time."""
    os.utime(folder / name, (seconds, seconds))


def test_what_was_put_is_there_and_another_process_finds_it(home: Path) -> None:
    cache = BoundedCache("parts")
    assert cache.get("a") is None
    cache.put("a", b"12345")
    assert cache.get("a") == BoundedCache("parts").get("a") == b"12345"


def test_what_was_not_used_for_longest_goes_until_a_tenth_is_free(home: Path) -> None:
    cache = BoundedCache("parts")
    for place, name in enumerate("abcd"):
        cache.put(name, bytes(25))
        used(home, name, 1000 + place)
    assert cache.get("a") is not None, "it counts as used now"
    cache.put("e", bytes(10))
    assert sorted(path.name for path in home.iterdir()) == ["a", "c", "d", "e"]
    assert sum(path.stat().st_size for path in home.iterdir()) <= ROOM * 100


def test_files_of_earlier_processes_count(home: Path) -> None:
    BoundedCache("parts").put("old", bytes(80))
    used(home, "old", 1000)
    BoundedCache("parts").put("new", bytes(30))
    assert [path.name for path in home.iterdir()] == ["new"]


def test_a_file_larger_than_the_cache_is_not_kept(home: Path) -> None:
    cache = BoundedCache("parts")
    cache.put("a", bytes(101))
    assert cache.get("a") is None
    assert not home.exists()


def test_its_bound_is_a_tenth_of_the_free_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BoundedCache("parts")
    cache.put("a", bytes(101))
    cache.put("b", bytes(100))
    assert (cache.get("a"), cache.get("b")) == (None, bytes(100))


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(home: Path) -> None:
    home.parent.mkdir()
    home.write_text("a file in the place of the folder")
    cache = BoundedCache("parts")
    cache.put("a", b"1")
    assert cache.get("a") is None
