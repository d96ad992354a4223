"""Opened segments: positions, deleted rows, a part with some of the rows, decoded vectors."""

from pathlib import Path

import numpy as np
import pytest
from helpers.index_data import open_cut, trained, unit_vectors

from sentence_beam.transforms.index.index_parts import Coarse, Part

DIM, ROWS = 8, 60
VECTORS = unit_vectors(ROWS, DIM)
KEEP = np.arange(ROWS) % 3 > 0
KINDS = ("Flat", "SQ8", "IVF4,Flat", "IVF4,SQ8")


def opened(folder: Path, kind: str, keep: np.ndarray | None = KEEP) -> list[Part]:
    """Two segments, of 25 and 35 rows."""
    return list(open_cut(folder, trained(kind, "ip", DIM), VECTORS, [25], keep).parts)


def all_lists(segment: Part, queries: int) -> Coarse | None:
    """Every list for each query."""
    if not segment.has_lists:
        return None
    lists = np.tile(np.arange(segment.index.nlist), (queries, 1))
    return Coarse(np.zeros(lists.shape, np.float32), lists)


def test_lists_are_cut_by_rank_and_by_query() -> None:
    whole = Coarse(np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(12).reshape(3, 4))
    part = Coarse.cut(whole.scores, whole.lists, 1, 3)
    assert part.lists.tolist() == [[1, 2], [5, 6], [9, 10]]
    assert part.lists.flags.c_contiguous
    assert whole.of(np.array([2, 0])).lists.tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert whole.of(np.arange(3)) is whole


@pytest.mark.parametrize("kind", KINDS)
def test_deleted_rows_are_neither_counted_nor_found(tmp_path: Path, kind: str) -> None:
    first, second = opened(tmp_path, kind)
    assert [first.live, second.live] == [KEEP[:25].sum(), KEEP[25:].sum()]
    assert first.live_positions.tolist() == np.flatnonzero(KEEP[:25]).tolist()
    places = np.flatnonzero(KEEP[25:])
    assert second.live_positions.tolist() == (places | 1 << 32).tolist()
    assert second.positions(np.array([-1, 3])).tolist() == [-1, 3 | 1 << 32]
    _, found = second.top_k(VECTORS[:4], ROWS, all_lists(second, 4))
    for row in found:
        assert sorted(row[row >= 0].tolist()) == second.live_positions.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_has_the_wanted_rows_that_are_not_deleted(tmp_path: Path, kind: str) -> None:
    first, _ = opened(tmp_path, kind)
    part = first.only([np.arange(25) < 10])
    assert part.live_positions.tolist() == np.flatnonzero(KEEP[:10]).tolist()
    assert first.live == KEEP[:25].sum()
    nothing = first.only([np.zeros(25, bool)])
    gains, found = nothing.top_k(VECTORS[:2], 3, all_lists(nothing, 2))
    assert found.tolist() == [[-1] * 3] * 2
    assert gains.shape == (2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_decoded_vectors_are_those_of_the_live_rows(tmp_path: Path, kind: str) -> None:
    first, _ = opened(tmp_path, kind)
    decoded = first.decoded()
    assert decoded is not None
    positions, vectors = decoded
    assert positions.tolist() == first.live_positions.tolist()
    apart = np.abs(vectors - VECTORS[:25][KEEP[:25]])  # codes end at the range of the training rows
    assert np.median(apart) < 0.01
    assert apart.max() < 0.2


def test_a_segment_counts_the_live_rows_of_its_lists(tmp_path: Path) -> None:
    first, _ = opened(tmp_path, "IVF4,Flat")
    assert first.lists.sizes.sum() == 25
    assert first.count_matches().sum() == KEEP[:25].sum()
    whole, _ = opened(tmp_path, "IVF4,Flat", None)
    assert whole.bits is None
    assert whole.count_matches().tolist() == whole.lists.sizes.tolist()
