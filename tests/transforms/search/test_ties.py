"""Hits with equal scores, in the order of their ids."""

import numpy as np
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.search.hits import Hits
from sentence_beam.transforms.search.ties import find_best_by_id


@given(
    st.lists(st.integers(0, 3), min_size=0, max_size=60),
    st.integers(1, 20),
    st.integers(1, 3),
    st.integers(0, 99),
)
@settings(max_examples=examples(150), deadline=None)
def test_the_best_rows_are_those_with_the_least_ids(
    scores: list[int], k: int, queries: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ids = [str(number) for number in rng.integers(0, 40, len(scores))]
    shards = rng.integers(0, 3, len(scores))
    every = [(-score, ids[row], int(shards[row]), row) for row, score in enumerate(scores)]

    def find(which: np.ndarray, rows: int) -> Hits:
        """The best rows, ties in any order."""
        found = Hits(
            np.full((len(which), rows), -np.inf, np.float32),
            np.full((len(which), rows), -1),
            np.full((len(which), rows), -1),
        )
        for query in range(len(which)):
            order = sorted(rng.permutation(len(scores)).tolist(), key=lambda row: -scores[row])
            for place, row in enumerate(order[:rows]):
                found.scores[query, place] = scores[row]
                found.shard[query, place] = shards[row]
                found.row[query, place] = row
        return found

    best = find_best_by_id(find, queries, k, lambda shard, row: [ids[number] for number in row])
    wanted = [row for *_, row in sorted(every)[:k]]
    for query in range(queries):
        assert best.row[query][: len(wanted)].tolist() == wanted
        assert (best.shard[query][len(wanted) :] == -1).all()
