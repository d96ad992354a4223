"""Many queries at once, list by list: the same rows as by the search."""

from pathlib import Path

import numpy as np
import pytest
from helpers.index_data import FACTORIES, open_cut, small_integers, trained, unit_vectors

from sentence_beam.transforms.index import TrainedIndex
from sentence_beam.transforms.index.by_lists import scan, search_coarse
from sentence_beam.transforms.index.index_parts import Coarse
from sentence_beam.transforms.index.segment_search import SegmentedIndex

DIM = 8


def by_lists(
    index: SegmentedIndex, start: bytes, queries: np.ndarray, k: int, nprobe: int
) -> tuple[np.ndarray, ...]:
    """Scores, segments and rows."""
    lists = TrainedIndex.from_bytes(start)
    coarse: Coarse | None = (
        search_coarse(lists, queries, nprobe) if hasattr(lists.index, "nlist") else None
    )
    gains, positions = scan(index.parts, queries, k, coarse, lists)
    there = positions >= 0
    return gains, np.where(there, positions >> 32, -1), np.where(there, positions & 0xFFFFFFFF, -1)


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("factory", [*FACTORIES, "IVF4,SQfp16"])
def test_the_rows_are_those_of_the_search(tmp_path: Path, factory: str, metric: str) -> None:
    vectors, start = unit_vectors(700, DIM), trained(factory, metric, DIM)
    keep = np.arange(len(vectors)) % 3 > 0
    index = open_cut(tmp_path, start, vectors, [250, 260], keep)
    queries = unit_vectors(90, DIM, seed=3)
    gains, segment, row = by_lists(index, start, queries, 6, 2)
    found = index.search(queries, 6, nprobe=2, least=1)
    np.testing.assert_allclose(gains if metric == "ip" else -gains, found.scores, rtol=0, atol=1e-5)
    same = (segment == found.segment) & (row == found.row)
    assert same.mean() > 0.999


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_ties_are_settled_by_the_row_however_many_there_are(tmp_path: Path, metric: str) -> None:
    vectors, start = small_integers(900, 3, seed=1), trained("IVF4,Flat", metric, 3)
    index = open_cut(tmp_path, start, vectors, [300])
    queries = small_integers(40, 3, seed=2)
    _, segment, row = by_lists(index, start, queries, 9, 2)
    found = index.search(queries, 9, nprobe=2, least=1)
    np.testing.assert_array_equal(segment, found.segment)
    np.testing.assert_array_equal(row, found.row)


def test_a_query_has_the_same_scores_in_any_company(tmp_path: Path) -> None:
    vectors, start = unit_vectors(2000, 33), trained("IVF4,SQ8", "ip", 33)
    index, queries = open_cut(tmp_path, start, vectors, []), unit_vectors(300, 33, seed=5)
    together = by_lists(index, start, queries, 10, 2)
    alone = by_lists(index, start, queries[17:18], 10, 2)
    for crowd, one in zip(together, alone, strict=True):
        np.testing.assert_array_equal(crowd[17], one[0])
