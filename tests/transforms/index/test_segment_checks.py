"""Checksums of a segment's file: a search of changed bytes gives the right answer or ends, never a
wrong one.
"""

from pathlib import Path

import numpy as np
import pytest
from helpers.index_data import FACTORIES, trained, unit_vectors

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index import (
    SegmentChecks,
    SegmentedIndex,
    SegmentFile,
    SegmentWriter,
    TrainedIndex,
)

pytest.importorskip("faiss")

DIM = 16
VECTORS, QUERIES = unit_vectors(400, DIM), unit_vectors(3, DIM, seed=1)


@pytest.fixture(params=[*FACTORIES, "IVF4,SQbf16"])
def start(request: pytest.FixtureRequest) -> bytes:
    return trained(request.param, "ip", DIM)


@pytest.fixture
def segment(start: bytes, tmp_path: Path) -> SegmentFile:
    """A segment of 400 rows with its checksums, as they are read back."""
    writer = SegmentWriter(start)
    writer.add(VECTORS)
    made = writer.finish()
    assert made.data == writer.to_bytes()
    path = tmp_path / "segment.faiss"
    path.write_bytes(made.data)
    return SegmentFile(path, None, SegmentChecks.from_text(made.checks.to_text()))


def found(segment: SegmentFile, start: bytes, nprobe: int = 4) -> np.ndarray:
    return (
        SegmentedIndex.open([segment], TrainedIndex.from_bytes(start))
        .search(QUERIES, 5, nprobe=nprobe)
        .row
    )


def test_a_whole_file_passes_in_every_list(segment: SegmentFile, start: bytes) -> None:
    for nprobe in (1, 4):
        np.testing.assert_array_equal(
            found(segment, start, nprobe), found(SegmentFile(segment.path), start, nprobe)
        )


def test_a_changed_byte_is_noticed_wherever_it_is(segment: SegmentFile, start: bytes) -> None:
    path = Path(segment.path)
    data = path.read_bytes()
    for at in [0, 4, 20, *range(33, len(data), 331), len(data) - 1]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(
            DamagedIndexError, match="segment.faiss was changed after it was written"
        ):
            found(segment, start)


@pytest.mark.parametrize("how", ["cut", "longer", "empty"])
def test_another_length_is_noticed(segment: SegmentFile, start: bytes, how: str) -> None:
    path = Path(segment.path)
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-1], "longer": data + b"\0", "empty": b""}[how])
    with pytest.raises(DamagedIndexError, match=r"segment\.faiss"):
        found(segment, start)


def test_lists_that_are_not_searched_are_not_read(tmp_path: Path) -> None:
    writer = SegmentWriter(trained("IVF4,SQ8", "ip", DIM))
    writer.add(VECTORS)
    made = writer.finish()
    path, checks = tmp_path / "segment.faiss", made.checks
    path.write_bytes(made.data[:-1] + bytes([made.data[-1] ^ 1]))
    query = VECTORS[:1]
    answers = []
    for nprobe in range(1, 5):
        try:
            index = SegmentedIndex.open([SegmentFile(path, None, checks)], writer.trained)
            answers.append(index.search(query, 1, nprobe=nprobe).row[0, 0])
        except DamagedIndexError:
            break
    assert answers == [0] * len(answers)
    assert len(answers) < 4
