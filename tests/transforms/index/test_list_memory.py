"""Lists read many at once are those that faiss has, in a mapped file and in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.index_data import trained, unit_vectors

from sentence_beam.transforms.index import SegmentWriter, TrainedIndex
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.list_memory import memory_of, sizes_before
from sentence_beam.transforms.index.segment import list_arrays, read_segment, sizes_of_lists

faiss = pytest.importorskip("faiss")

DIM = 16
KINDS = ("IVF4,Flat", "IVF4,SQ8", "IVF4,RaBitQ")


def written(folder: Path, kind: str, rows: int) -> tuple[Path, int]:
    """A segment's file with so many rows, and the bytes before its lists."""
    writer = SegmentWriter(trained(kind, "ip", DIM))
    writer.add(unit_vectors(rows, DIM))
    made = writer.finish()
    (folder / "segment.faiss").write_bytes(made.data)
    return folder / "segment.faiss", made.checks.head


def same_lists(index: Any, sizes: np.ndarray) -> None:
    memory = memory_of(index, sizes)
    lists = np.array([3, 0, 2])
    wanted = [list_arrays(load_faiss(), index, number) for number in lists.tolist()]
    np.testing.assert_array_equal(memory.codes(lists), np.concatenate([one[0] for one in wanted]))
    np.testing.assert_array_equal(memory.ids(lists), np.concatenate([one[1] for one in wanted]))


@pytest.mark.parametrize("rows", [1, 3, 400])  # faiss writes the sizes of few lists otherwise
@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_a_file_are_those_that_faiss_has(tmp_path: Path, kind: str, rows: int) -> None:
    path, head = written(tmp_path, kind, rows)
    index = read_segment(load_faiss(), path)
    sizes = sizes_before(path, head, index)
    assert sizes is not None
    assert sizes.tolist() == sizes_of_lists(index).tolist()
    assert sizes.sum() == rows
    same_lists(index, sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_in_memory_are_those_that_faiss_has(kind: str) -> None:
    whole = TrainedIndex.of(trained(kind, "ip", DIM))  # owns the index
    index = whole.index
    same_lists(index, sizes_of_lists(index))
    index.add(unit_vectors(400, DIM))
    same_lists(index, sizes_of_lists(index))


def test_sizes_are_unknown_if_the_lists_do_not_fill_the_file(tmp_path: Path) -> None:
    path, head = written(tmp_path, "IVF4,SQ8", 400)
    index = read_segment(load_faiss(), path)
    assert sizes_before(path, head - 8, index) is None
    path.write_bytes(path.read_bytes() + b"\0")
    assert sizes_before(path, head, index) is None
