"""Hits in the order of a cross-encoder, which reads the query and the text of each together
(arXiv:1908.10084).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from transforms.search.hits import Hit, Hits

if TYPE_CHECKING:
    from transforms.encoder.pair_scorer import PairScorer

RERANKED = 100  # hits of a query that are scored, or as many as are asked for


def reranked(
    scorer: "PairScorer",
    queries: Sequence[str],
    hits: Hits,
    found: list[list[Hit]],
    text: str,
    k: int,
) -> tuple[Hits, list[list[Hit]]]:
    """The k hits of each query that a cross-encoder gives the highest scores, best first.

    Each hit has its score under `rerank`; its `score` stays that of the search. `text` is the field
    of a hit's text.
    """
    if not found:
        return hits, found
    asked = [query for query, rows in zip(queries, found, strict=True) for _ in rows]
    texts = [str(hit[text] or "") for rows in found for hit in rows]
    scores = scorer.scores(asked, texts)
    ends = np.cumsum([len(rows) for rows in found])
    of_queries = np.split(scores, ends[:-1])
    orders = [np.argsort(-part, kind="stable")[:k].tolist() for part in of_queries]
    ordered = [
        [_with_score(rows[at], rank, float(part[at])) for rank, at in enumerate(order, 1)]
        for rows, part, order in zip(found, of_queries, orders, strict=True)
    ]
    return hits.at(orders, k), ordered


def _with_score(hit: Hit, rank: int, score: float) -> Hit:
    """A hit with its new rank and, behind its own score, that of the cross-encoder."""
    own = {name: value for name, value in hit.items() if name not in ("rank", "score")}
    return Hit({"rank": rank, "score": hit["score"], "rerank": score, **own})
