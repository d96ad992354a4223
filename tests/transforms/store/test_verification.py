"""How much of a snapshot a check reads, and what it finds without reading.

Covers transforms/store/verify_files.py.
Covers transforms/store/verify_index.py.
"""

import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import fake_storage
from helpers.nights import Nights
from helpers.snapshots import units_of

from sentence_beam.transforms.store.verification import WHOLE, Extent, faults

CORPUS = {f"f{n}": [(f"{n}-{i}", f"text {n} {i}") for i in range(2)] for n in range(40)}
Read = Callable[[Extent], list[str]]


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """A store of forty shards."""
    made = Nights(tmp_path / "store")
    made.commit_without_index(CORPUS)
    return made


@pytest.fixture
def read(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The shards that a check of the current snapshot reads; it finds no fault."""
    noted = fake_storage.note(monkeypatch, "read_versioned")

    def shards(extent: Extent) -> list[str]:
        noted.clear()
        assert [line for line in faults(nights.manifest, extent) if "canary" not in line] == []
        return sorted(path for _, path in noted if "/embeddings/" in path)

    return shards


def test_every_shard_is_read_once(read: Read) -> None:
    assert set(Counter(read(WHOLE)).values()) == {1}
    assert len(read(WHOLE)) == 40


def test_each_snapshot_has_another_sample_and_in_time_all_are_read(
    nights: Nights, read: Read
) -> None:
    found, sizes = set(), []
    for number in range(12):
        sample = read(Extent(0.3))
        sizes.append(len(sample))
        found |= set(sample)
        nights.commit_without_index({**CORPUS, "g": [(f"{number}", "row")]})
    assert 12 * 6 < sum(sizes) < 12 * 20
    assert len(found) >= 38


def test_shards_that_are_not_read_are_looked_for(nights: Nights) -> None:
    gone, short = (nights.root / unit["path"] for unit in units_of(nights.root)[:2])
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    found = [line for line in faults(nights.manifest, Extent(0.0)) if "embeddings" in line]
    assert [str(gone) in found[0], str(short) in found[1], len(found)] == [True, True, 2]


def test_a_folder_in_place_of_a_file_is_a_fault_of_that_file_alone(nights: Nights) -> None:
    folder, changed = (nights.root / unit["path"] for unit in units_of(nights.root)[:2])
    folder.unlink()
    folder.mkdir()
    changed.write_bytes(b"PAR1")
    found = [line for line in faults(nights.manifest) if "embeddings" in line]
    assert found == [
        f"{folder} is a folder where a file should be; move it away",
        f"{changed}: the shard was changed after it was written (sha256 differs)",
    ]


def test_a_file_that_cannot_be_read_is_a_fault_of_that_file_alone(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, gone = (str(nights.root / unit["path"]) for unit in units_of(nights.root)[:2])
    error = OSError(errno.EIO, "Input/output error", bad)
    Path(gone).unlink()
    fake_storage.refuse(monkeypatch, "read_versioned", error, bad)
    found = [line for line in faults(nights.manifest) if "embeddings" in line]
    assert found[0] == f"{bad}: cannot be read (Input/output error)"
    assert len(found) == 2
