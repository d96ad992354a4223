"""The order of hits with equal scores: by id as text, then by place in the store.

No layout of an index changes it, and no cut of the rows into segments.
"""

from collections.abc import Callable

import numpy as np

from sentence_beam.transforms.search.hits import Hits

DEEPER = 4  # factor for the rows that are found if those with equal scores go on
# finds some number of rows for some queries, by their numbers int64 [m]
Find = Callable[[np.ndarray, int], Hits]
IdsOf = Callable[[np.ndarray, np.ndarray], list[str]]


def find_best_by_id(find: Find, queries: int, k: int, ids_of: IdsOf) -> Hits:
    """Return the best k rows of each query; of equal scores, those with the least ids.

    `ids_of(shard, row)`, both int64 [m], returns the ids of rows.
    """
    hits = find(np.arange(queries), k + 1)
    best = Hits(*(column[:, :k].copy() for column in hits.columns))
    pending = np.arange(queries)
    while len(pending):
        # rows that were not found may have the score of the k-th
        goes_on = (hits.shard[:, -1] >= 0) & (hits.scores[:, -1] == hits.scores[:, k - 1])
        ended = np.flatnonzero(~goes_on)
        _put(best, pending[ended], Hits(*(column[ended] for column in hits.columns)), ids_of)
        depth = DEEPER * hits.shard.shape[1]
        pending = pending[goes_on]
        if len(pending):
            hits = find(pending, depth)
    return best


def _put(best: Hits, queries: np.ndarray, hits: Hits, ids_of: IdsOf) -> None:
    """Put the first hits of some queries in their final order into `best`."""
    k = best.shard.shape[1]
    order = _order(hits, k, ids_of)
    for target, source in zip(best.columns, hits.columns, strict=True):
        target[queries] = np.take_along_axis(source, order, axis=1)[:, :k]


def _order(hits: Hits, k: int, ids_of: IdsOf) -> np.ndarray:
    """Return the order of each query's hits, int64 [q, any]; only the first k need be right."""
    order = np.tile(np.arange(hits.shard.shape[1]), (len(hits.shard), 1))
    same = (hits.scores[:, 1:] == hits.scores[:, :-1]) & (hits.shard[:, 1:] >= 0)
    for query in np.flatnonzero(same[:, :k].any(axis=1)).tolist():
        group = np.concatenate([[0], np.cumsum(~same[query])])
        tied = np.bincount(group)[group] > 1
        places = np.flatnonzero(tied & (group <= group[k - 1]))
        shard = hits.shard[query][places]
        row = hits.row[query][places]
        keys = zip(group[places].tolist(), ids_of(shard, row), shard.tolist(), row.tolist(),
                   places.tolist(), strict=True)  # fmt: skip
        order[query][places] = [place for *_, place in sorted(keys)]
    return order
