"""What an update of an index reads grows with the rows that changed, and not with their square."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.nights import Nights, run_steps

from sentence_beam.transforms import storage
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.steps.index import (
    decisions,
    held_out,
    index_build,
    index_recall,
    matching,
)
from sentence_beam.transforms.steps.index import index_folder as files
from sentence_beam.transforms.store.index_files import locators

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


@contextlib.contextmanager
def counted_reads() -> Iterator[list[tuple[str, int]]]:
    """The path and the bytes of each read of the block, shards' vectors aside."""
    reads: list[tuple[str, int]] = []
    whole, some, digest = storage.read_bytes, storage.read_range, storage.sha256_of

    def read_bytes(path: str) -> bytes:
        data = whole(path)
        reads.append((path, len(data)))
        return data

    def read_range(path: str, start: int, stop: int) -> bytes:
        data = some(path, start, stop)
        reads.append((path, len(data)))
        return data

    def sha256_of(path: str) -> tuple[str, int]:
        found = digest(path)
        reads.append((path, found[1]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "read_bytes", read_bytes)
        patch.setattr(storage, "read_range", read_range)
        patch.setattr(storage, "sha256_of", sha256_of)
        yield reads


def read_by(root: Path, count: int) -> tuple[int, int]:
    """The bytes and the reads of an update in which a third of the rows changed."""
    nights = Nights(root)
    nights.commit(collection(count, 0), IndexRequest("IVF4,SQ8"))
    run, units = nights.begin(collection(count, 1))
    with counted_reads() as reads:
        record = run_steps(run, units, IndexRequest("IVF4,SQ8"))
    assert record.index.entry.change.what != "trained"
    assert record.index.entry.change.added == count * 67
    return sum(size for _, size in reads), len(reads)


def test_bytes_and_reads_grow_as_the_rows_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "BUCKET_ROWS", ROWS)
    monkeypatch.setattr(decisions, "BUCKET_ROWS", ROWS)
    monkeypatch.setattr(decisions, "SEGMENT_ROWS", 2 * ROWS)
    monkeypatch.setattr(files, "SEGMENT_ROWS", 2 * ROWS)
    monkeypatch.setattr(held_out, "HELD_OUT", 40)
    # what measuring recall takes is no matter of rows
    for module in (index_build, decisions, index_recall):
        monkeypatch.setattr(module, "DEEP", index_recall.K)
    monkeypatch.setattr(locators, "GROUP_ROWS", 100)
    found = [read_by(tmp_path / str(count), count) for count in (8, 16, 32)]
    once, twice, four = (total for total, _ in found)
    assert twice < 2.3 * once
    # parts of some ten rows each, whose frames count; with each file read whole it is 17
    assert four < 5 * once
    # buckets and groups grow together, and no bucket asks every group
    reads = [count for _, count in found]
    assert reads[2] < 4.5 * reads[0]


def test_files_beside_ranges_are_compared_by_the_checksum_of_the_listing(gs: str) -> None:
    nights = Nights(gs)  # type: ignore[arg-type]
    rows = collection(1, 0)
    request = IndexRequest("IVF4,RaBitQ", range_bytes=2000)
    nights.commit(rows, request)
    assert nights.manifest.index is not None
    ranges = [segment for segment in nights.manifest.index.segments if segment.lists]
    assert len(ranges) > 1
    beside = [one.refine.path for one in ranges if one.refine]
    assert len(beside) == len(ranges)
    run, units = nights.begin(rows)
    with counted_reads() as reads:
        run_steps(run, units, request)
    assert not {f"{gs}/{path}" for path in beside} & {path for path, _ in reads}
    # a file with other bytes has another checksum
    damaged = f"{gs}/{beside[0]}"
    data = bytearray(storage.read_bytes(damaged))
    data[len(data) // 2] ^= 8
    storage.overwrite(damaged, bytes(data))
    again = nights.commit(rows)
    assert again["change"]["what"] == "rewritten"
    assert beside[0] in again["change"]["why"]
