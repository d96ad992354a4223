"""Reranking of hits by a cross-encoder, which reads query and text together (arXiv:1908.10084)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.search.hits import Hit, Hits

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

RERANKED = 100  # hits of a query that are scored, or k if that is more


def rerank_hits(
    scorer: "PairScorer",
    queries: Sequence[str],
    hits: Hits,
    described: list[list[Hit]],
    text_field: str,
    k: int,
) -> tuple[Hits, list[list[Hit]]]:
    """Return the k hits of each query that a cross-encoder scores highest, best first.

    `described` are the hits with their fields. Each hit gets its score as `rerank` and keeps the
    `score` of the search.
    """
    if not described:
        return hits, described
    pair_queries: list[str] = []
    pair_texts: list[str] = []
    for query, rows in zip(queries, described, strict=True):
        pair_queries += [query] * len(rows)
        pair_texts += [str(hit[text_field] or "") for hit in rows]
    scores = scorer.scores(pair_queries, pair_texts)
    ends = np.cumsum([len(rows) for rows in described])
    orders = []
    ordered = []
    for rows, part in zip(described, np.split(scores, ends[:-1]), strict=True):
        order = np.argsort(-part, kind="stable")[:k].tolist()
        orders.append(order)
        ordered.append(
            [_add_score(rows[at], rank, float(part[at])) for rank, at in enumerate(order, 1)]
        )
    return hits.at(orders, k), ordered


def _add_score(hit: Hit, rank: int, score: float) -> Hit:
    """Return a hit with its new rank and the cross-encoder's score after its own score."""
    own = {name: value for name, value in hit.items() if name not in ("rank", "score")}
    return Hit({"rank": rank, "score": hit["score"], "rerank": score, **own})
