"""Lists found in two levels if they are many: first coarse cells, then each cell's own lists.

A single k-means over all lists takes time in proportion to rows x lists, and the whole sample in
one place; the lists of a cell take their share of both. Passes over all rows then correct the lists
at the borders of cells: each row moves to the nearest list of the cells near it, and each list to
the middle of its rows.
"""

from __future__ import annotations

import numpy as np

from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.kmeans import kmeans
from sentence_beam.transforms.index.metric_vectors import find_faiss_metric, squared_lengths
from sentence_beam.transforms.index.nearest_row import find_nearest_row

# most lists of one k-means: it then takes as long as adding the rows of such an index
ONE_LEVEL = 8192
COARSE_ROWS = 256  # rows for each cell, by which coarse cells are found
PASSES = 2  # over all rows, after each cell has its lists
# cells whose lists a row is compared with in such a pass; eight take 1.4 times the processor's time
# for all and give the same recall to a hundredth of the rows scanned
_NEAR = 4


def count_cells(lists: int) -> int:
    """Return the number of coarse cells for so many lists; 0 if one k-means can find them."""
    return 0 if lists <= ONE_LEVEL else round(lists**0.5)


def allot_lists(lists: int, rows: np.ndarray) -> np.ndarray:
    """The number of lists of each cell, int64 [cells], in proportion to its rows, int64 [cells].

    A cell never gets more lists than it has rows. A cell with rows gets at least one, if there are
    enough.
    """
    shares = np.zeros(len(rows), np.int64)
    shares[np.argsort(-rows, kind="stable")[:lists]] = 1
    shares = np.minimum(shares, rows)
    while (missing := min(lists, int(rows.sum())) - int(shares.sum())) > 0:
        room = rows - shares
        more = missing * room // room.sum()
        if not more.any():
            more[np.argsort(-room, kind="stable")[:missing]] = 1
        shares = np.minimum(shares + more, rows)
    return shares


def remove_copies(rows: np.ndarray) -> np.ndarray:
    """Return the rows float32 [n, d] without copies of earlier rows, which k-means cannot split."""
    as_bytes = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * 4)))
    _, first = np.unique(as_bytes, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]


def find_nearest(
    rows: np.ndarray, centroids: np.ndarray, metric: str, count: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (greater is nearer) and numbers int64 [n, count] of the nearest centroids."""
    if count == 1:
        best, places = find_nearest_row(rows, centroids, metric)
        return best[:, None], places[:, None]
    scores, numbers = load_faiss().knn(rows, centroids, count, metric=find_faiss_metric(metric))
    if metric != "ip":
        scores = -scores
    return scores, numbers


def find_nearest_of_cells(
    rows: np.ndarray, coarse: np.ndarray, centroids: np.ndarray, bounds: np.ndarray, metric: str
) -> np.ndarray:
    """The number of each row's nearest list among those of the cells near it, int64 [n].

    `coarse` are the cells' centroids; those of a cell's lists are `centroids[bounds[cell] :
    bounds[cell + 1]]`.
    """
    having = np.flatnonzero(np.diff(bounds))
    near = having[find_nearest(rows, coarse[having], metric, min(_NEAR, len(having)))[1]]
    best = np.full(len(rows), -np.inf, np.float32)
    numbers_of_rows = np.zeros(len(rows), np.int64)
    order = np.argsort(near, axis=None, kind="stable")
    ends = np.searchsorted(near.ravel()[order], np.arange(len(coarse) + 1))
    for cell in having:
        some = order[ends[cell] : ends[cell + 1]] // near.shape[1]
        if len(some):
            scores, numbers = find_nearest(
                rows[some], centroids[bounds[cell] : bounds[cell + 1]], metric
            )
            nearer = scores[:, 0] > best[some]
            best[some[nearer]] = scores[nearer, 0]
            numbers_of_rows[some[nearer]] = bounds[cell] + numbers[nearer, 0]
    return numbers_of_rows


def find_lists_of_cell(rows: np.ndarray, lists: int, metric: str) -> np.ndarray:
    """The centroids of a cell's lists, float32 [lists, d]; fewer if it has fewer distinct rows.

    A cell with too many lists for one k-means is divided once more.
    """
    rows = remove_copies(rows)
    if len(rows) <= lists:
        return rows
    cells = count_cells(lists)
    if not cells:
        return kmeans(rows, lists, metric)
    coarse = kmeans(rows[:: max(1, len(rows) // (COARSE_ROWS * cells))], cells, metric)
    cell = find_nearest(rows, coarse, metric)[1][:, 0]
    shares = allot_lists(lists, np.bincount(cell, minlength=cells))
    return np.concatenate(
        [kmeans(rows[cell == c], int(shares[c]), metric) for c in np.flatnonzero(shares)]
    )


def average_lists(
    rows: np.ndarray, numbers: np.ndarray, former: np.ndarray, metric: str
) -> np.ndarray:
    """The middle of the rows of each list, float32 [lists, d], of length 1 for ip.

    A list without rows keeps its `former` centroid. `numbers` int64 [n] are the lists of the rows.
    """
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(former) + 1))
    full = np.flatnonzero(np.diff(ends))
    centres = former.copy()
    if len(full):
        centres[full] = np.add.reduceat(rows[order], ends[full], axis=0) / np.diff(ends)[full, None]
    if metric == "ip":
        lengths = np.sqrt(squared_lengths(centres))[:, None]
        centres = np.where(lengths > 0, centres / np.where(lengths > 0, lengths, 1), former)
    return centres
