"""What an update of an index reads grows with the rows that changed, and not with their square."""

from pathlib import Path

import pytest
from helpers.nights import Nights, run_steps

from transforms import storage
from transforms.beam import IndexRequest
from transforms.steps.index import (
    build as index_build,
)
from transforms.steps.index import (
    files as index_files,
)
from transforms.steps.index import (
    held_out,
    matching,
)
from transforms.steps.index import (
    update_recall as index_update_recall,
)
from transforms.steps.index import (
    work as index_work,
)
from transforms.store.index_files import locators

pytest.importorskip("faiss")

ROWS = 200  # of a file


def collection(files: int, night: int) -> dict[str, list[tuple[str, str]]]:
    """Rows of which, from night to night, a third has another text."""
    return {
        f"f{file}": [
            (f"{file}-{row}", f"{'abcd'[row % 4]} {file} {row} {night if row % 3 == 0 else ''}")
            for row in range(ROWS)
        ]
        for file in range(files)
    }


def read_by(root: Path, files: int) -> tuple[int, int]:
    """The bytes of the store, shards' vectors aside, and the reads of an update in which a third of
    the rows changed.
    """
    nights, total, reads = Nights(root), 0, 0
    nights.commit(collection(files, 0), IndexRequest("IVF4,SQ8"))
    run, units = nights.begin(collection(files, 1))
    whole, some, digest = storage.read_bytes, storage.read_range, storage.sha256_of

    def counted(size: int) -> None:
        nonlocal total, reads
        total += size
        reads += 1

    def read_bytes(path: str) -> bytes:
        data = whole(path)
        counted(len(data))
        return data

    def read_range(path: str, start: int, stop: int) -> bytes:
        data = some(path, start, stop)
        counted(len(data))
        return data

    def sha256_of(path: str) -> tuple[str, int]:
        found = digest(path)
        counted(found[1])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "read_bytes", read_bytes)
        patch.setattr(storage, "read_range", read_range)
        patch.setattr(storage, "sha256_of", sha256_of)
        record = run_steps(run, units, IndexRequest("IVF4,SQ8"))
    assert record.index.entry.change.what != "trained"
    assert record.index.entry.change.added == files * 67
    return total, reads


def test_bytes_and_reads_grow_as_the_rows_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "BUCKET_ROWS", ROWS)
    monkeypatch.setattr(index_work, "BUCKET_ROWS", ROWS)
    monkeypatch.setattr(index_work, "SEGMENT_ROWS", 2 * ROWS)
    monkeypatch.setattr(index_files, "SEGMENT_ROWS", 2 * ROWS)
    monkeypatch.setattr(held_out, "HELD_OUT", 40)
    # what measuring recall takes is no matter of rows
    for module in (index_build, index_files, index_update_recall):
        monkeypatch.setattr(module, "DEEP", index_files.K)
    monkeypatch.setattr(locators, "GROUP_ROWS", 100)
    found = [read_by(tmp_path / str(files), files) for files in (8, 16, 32)]
    once, twice, four = (total for total, _ in found)
    assert twice < 2.3 * once
    # parts of some ten rows each, whose frames count; with each file read whole it is 17
    assert four < 5 * once
    # buckets and groups grow together, and no bucket asks every group
    reads = [count for _, count in found]
    assert reads[2] < 4.5 * reads[0]
