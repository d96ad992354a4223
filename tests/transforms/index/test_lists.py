"""Lists read many at once are those that faiss has, in a mapped file and in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.index_data import build_segment, trained, unit_vectors

from sentence_beam.transforms.index import TrainedIndex
from sentence_beam.transforms.index.lists import ListMemory, ListTable
from sentence_beam.transforms.index.segment import read_segment

pytest.importorskip("faiss")

DIM = 16
KINDS = ("IVF4,Flat", "IVF4,SQ8", "IVF4,RaBitQ")


def same_lists(lists: ListMemory, index: Any) -> None:
    """The lists have what faiss returns list by list."""
    assert lists.sizes.tolist() == [index.invlists.list_size(number) for number in range(4)]
    numbers = np.array([3, 0, 2])
    ones = [lists.one(number) for number in numbers.tolist()]
    np.testing.assert_array_equal(lists.codes(numbers), np.concatenate([one[0] for one in ones]))
    np.testing.assert_array_equal(lists.ids(numbers), np.concatenate([one[1] for one in ones]))


@pytest.mark.parametrize("rows", [1, 3, 400])
@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_a_file_are_those_that_faiss_has(tmp_path: Path, kind: str, rows: int) -> None:
    path = tmp_path / "segment.faiss"
    path.write_bytes(build_segment(trained(kind, "ip", DIM), [unit_vectors(rows, DIM)]))
    index = read_segment(path)
    lists = ListMemory(index)
    same_lists(lists, index)
    every = np.arange(4)
    assert sorted(lists.ids(every).tolist()) == list(range(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_lists_in_memory_are_those_that_faiss_has(kind: str) -> None:
    whole = TrainedIndex.from_bytes(trained(kind, "ip", DIM))  # owns the index
    same_lists(ListMemory(whole.index), whole.index)
    whole.index.add(unit_vectors(400, DIM))
    same_lists(ListMemory(whole.index), whole.index)


def test_lists_of_a_table_are_where_its_caller_says() -> None:
    trained_index = TrainedIndex.from_bytes(trained("IVF4,SQ8", "ip", DIM))
    index = trained_index.make_empty_copy()
    table = ListTable(index)
    rows = np.arange(5)
    codes = np.arange(5 * DIM, dtype=np.uint8)
    data = np.concatenate([codes, rows.view(np.uint8)])
    table.resize(slice(2, 4), np.array([5, 0]))
    table.place(np.array([2]), np.array([data.ctypes.data]))
    same_lists(table, index)
    assert table.ids(np.array([2])).tolist() == rows.tolist()
    assert table.codes(np.array([2])).reshape(-1).tolist() == codes.tolist()


def test_an_index_without_lists_has_none(tmp_path: Path) -> None:
    (tmp_path / "flat").write_bytes(build_segment(trained("Flat", "ip", DIM), [np.eye(DIM)]))
    assert ListMemory(read_segment(tmp_path / "flat")).sizes.tolist() == []
