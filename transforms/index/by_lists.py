"""Search of many queries in segments, list by list: one matrix product for a list's queries.

The results are those of `SegmentedIndex.search` for the same lists, scores up to their last digits.
faiss itself scores codes for which it is as fast (RaBitQ, PQ).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sentence_beam.transforms.index.exact import (
    complete_top_k,
    gains_to_scores,
    longest_row,
    merge_top_k,
    rounding,
    score_pairs,
    start_results,
)
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.index_parts import Coarse, Part, TopK
from sentence_beam.transforms.index.metric_vectors import as_vectors, name_metric, squared_lengths
from sentence_beam.transforms.index.segment import find_nearest_lists
from sentence_beam.transforms.index.trained import TrainedIndex

MARGIN = 8  # candidates beyond k that nearly always settle rounding
PAIRS = 1 << 14  # pairs that are scored again at once
TOGETHER = 512  # queries in a matrix product: they stay in a core's cache


def search_coarse(trained: TrainedIndex, queries: np.ndarray, nprobe: int) -> Coarse:
    """The `nprobe` lists nearest to each query, float32 [q, d], by a trained index."""
    index = trained.index
    turned = trained.turned(as_vectors(queries, index.d, "queries"))
    return Coarse(*find_nearest_lists(index, turned, min(nprobe, index.nlist)))


def scan(
    parts: Sequence[Part],
    queries: np.ndarray,
    k: int,
    coarse: Coarse | None,
    trained: TrainedIndex | None,
) -> TopK:
    """Gains float32 and positions int64 [q, k] of the best rows of some segments.

    Of a segment with lists, the lists of `coarse` are searched; a flat one is searched whole.
    `trained` is the index from which the segments with lists were built; None if all are flat.
    """
    results = [start_results(len(queries), k)]
    queries = as_vectors(queries, queries.shape[1], "queries")
    turned = trained.turned(queries) if coarse is not None and trained is not None else queries
    for part in parts:
        if coarse is None or not part.has_lists:
            results.append(part.top_k(queries, k, None))
        elif _is_linear(part.index):
            results.append(_find_top_k(part, turned, k, coarse))
        else:
            results.append(part.top_k(turned, k, coarse))
    return merge_top_k(results, k)


def _is_linear(index: Any) -> bool:
    """Return whether a code decodes to exactly one vector."""
    return hasattr(index, "sq") or type(index).__name__ == "IndexIVFFlat"


def _find_top_k(part: Part, queries: np.ndarray, k: int, coarse: Coarse) -> TopK:
    """Return the top k of a part; the lists that are read stay in memory meanwhile."""
    if not part.live:
        return start_results(len(queries), k)
    metric = name_metric(part.index)
    with part.held():
        part.check_lists(coarse.lists)
        codes = _Codes(part)

        def scan_rows(which: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            some = queries[which] if len(which) < len(queries) else queries
            lists = coarse.of(which).lists
            rough, places, longest = _find_candidates(codes, some, depth, lists, metric)
            gains, rows = _score_pairs(codes, some, places, metric)
            return gains, rows, rough[:, -1] + rounding(some, longest, metric)

        return complete_top_k(scan_rows, len(queries), k, part.live, MARGIN)


class _Codes:
    """The live rows of a segment, as vectors.

    A row's place counts the rows of all earlier lists, then the earlier rows of its own list.
    """

    def __init__(self, part: Part):
        self.part = part
        self._starts = np.concatenate([[0], np.cumsum(part.lists.sizes)])

    def decode_list(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors float32 [n, d] and places int64 [n] of a list's live rows."""
        codes, rows = self.part.lists.one(number)
        live = np.flatnonzero(self.part.alive(rows))
        return self.part.decode(number, codes[live]), live + self._starts[number]

    def decode_rows(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Vectors float32 [m, d] and positions int64 [m] of rows at places, ascending."""
        vectors = np.empty((len(places), self.part.index.d), np.float32)
        ids = np.empty(len(places), np.int64)
        for number, here in _find_runs(np.searchsorted(self._starts, places, "right") - 1):
            codes, local = self.part.lists.one(number)
            wanted = places[here] - self._starts[number]
            vectors[here] = self.part.decode(number, codes[wanted])
            ids[here] = local[wanted]
        return vectors, self.part.positions(ids)


def _find_runs(sorted_numbers: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Yield each number of an ascending array with the slice of its places."""
    numbers, starts = np.unique(sorted_numbers, return_index=True)
    for number, start, stop in zip(
        numbers.tolist(), starts, [*starts[1:], len(sorted_numbers)], strict=True
    ):
        yield number, slice(start, stop)


def _find_candidates(
    codes: _Codes, queries: np.ndarray, depth: int, lists: np.ndarray, metric: str
) -> tuple[np.ndarray, np.ndarray, float]:
    """Gains float32 by matrix products and places int64 [q, depth], best first.

    The third result is the length of the longest row.
    """
    heap = load_faiss().ResultHeap(len(queries), depth, keep_max=True)
    order = np.argsort(lists, axis=None, kind="stable")
    owners = order // lists.shape[1]  # the query of each list
    longest = 0.0
    taken = np.empty((TOGETHER, queries.shape[1]), np.float32)
    for number, here in _find_runs(lists.reshape(-1)[order]):
        if number < 0:
            continue
        vectors, places = codes.decode_list(number)
        if not len(vectors):
            continue
        longest = max(longest, longest_row(vectors))
        for start in range(here.start, here.stop, TOGETHER):
            members = np.ascontiguousarray(owners[start : min(start + TOGETHER, here.stop)])
            some = np.take(queries, members, axis=0, out=taken[: len(members)], mode="clip")
            gains = some @ vectors.T
            if metric == "l2":
                gains = 2 * gains - squared_lengths(vectors) - squared_lengths(some)[:, None]
            _offer(heap, members, gains, places)
    heap.finalize()
    return heap.D, heap.I, longest


def _offer(heap: Any, members: np.ndarray, gains: np.ndarray, places: np.ndarray) -> None:
    """Put the gains [m, n] of rows at places [n] into the heaps of some queries."""
    pointer = load_faiss().swig_ptr
    gains = np.ascontiguousarray(gains, np.float32)
    places = np.ascontiguousarray(places, np.int64)
    heap.heaps.addn_query_subset_with_ids(
        len(members), pointer(members), len(places), pointer(gains), pointer(places), 0
    )


def _score_pairs(
    codes: _Codes, queries: np.ndarray, places: np.ndarray, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Gains float32 pair by pair, and positions int64 [q, depth], of rows at places; -1 if none.

    No batch changes these gains. Pairs are computed in the order of their rows, so that each row is
    decoded once.
    """
    gains, rows = start_results(*places.shape)
    flat = places.reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat, -1, "right", sorter=order) :]
    for start in range(0, len(order), PAIRS):
        pairs = order[start : start + PAIRS]
        wanted, place = np.unique(flat[pairs], return_inverse=True)
        vectors, local = codes.decode_rows(wanted)
        scores = score_pairs(queries[pairs // places.shape[1]], vectors, place[:, None], metric)
        gains.reshape(-1)[pairs] = gains_to_scores(scores[:, 0], metric)
        rows.reshape(-1)[pairs] = local[place]
    return gains, rows
