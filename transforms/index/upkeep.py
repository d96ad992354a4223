"""The upkeep of an index from run to run: what to write again, and when to train it again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_WORN = 0.1  # of an index's rows, in deltas or deleted: with more, all are written again
MOST_DELTAS = 20  # with more, they become one
RECALL_FALL = 0.01
IMBALANCE_RISE = 1.5
# the same drift of unit vectors, as inner product and as squared distance
CLOSENESS_LOSS = {"ip": 0.05, "l2": 0.15}
GROWTH = 4
FOLLOWED = "followed"
REWRITTEN = "rewritten"


@dataclass(frozen=True)
class Fit:
    """Measures of how well a trained quantizer fits rows.

    `closeness` is the rows' mean score with their nearest centroid, in the metric's own direction.
    `high` is the upper end of recall's interval. A measure is None without lists; recall also
    without queries.
    """

    imbalance: float | None
    closeness: float | None
    recall: float | None
    high: float | None = None


@dataclass(frozen=True)
class IndexRows:
    """The rows of an index once it has those of a run, without the held-out ones.

    `in_deltas` of the `live` rows are in delta segments, whose number is `deltas`; `deleted` rows
    are still in segments. The run's new rows count as one more delta.
    """

    live: int
    in_deltas: int
    deleted: int
    deltas: int


@dataclass(frozen=True)
class Upkeep:
    """A run's work on an index, FOLLOWED or REWRITTEN, and the reason in one line, if there is one.

    If it is followed, a delta is added; if `joins`, all deltas become one. If it is rewritten, all
    segments are written again.
    """

    what: str
    why: str = ""
    joins: bool = False


def imbalance(sizes: np.ndarray) -> float | None:
    """The factor by which a search takes longer than with lists of equal length.

    1.0 is even. None without lists or rows.
    """
    total = float(sizes.sum())
    if not total:
        return None
    return float((sizes.astype(np.float64) ** 2).sum()) * len(sizes) / total**2


def choose_upkeep(rows: IndexRows) -> Upkeep:
    """Choose what a run does with an index whose rows are then these."""
    every = rows.live + rows.deleted
    if rows.in_deltas + rows.deleted > MOST_WORN * every:
        shares = ((rows.in_deltas, "in deltas"), (rows.deleted, "deleted"))
        why = " and ".join(f"{100 * some / every:.0f} % {where}" for some, where in shares if some)
        return Upkeep(REWRITTEN, why)
    if rows.deltas > MOST_DELTAS:
        return Upkeep(FOLLOWED, f"{rows.deltas} deltas became one", joins=True)
    return Upkeep(FOLLOWED)


def explain_resized(then: int, now: int) -> str | None:
    """The reason, in one line, why an index for `then` rows does not fit `now` rows, or None."""
    if now > GROWTH * then or now * GROWTH < then:
        return f"{now:,} rows, {then:,} when it was trained"
    return None


def explain_drifted(then: Fit, now: Fit, metric: str) -> str | None:
    """The reason, in one line, why a quantizer must be retrained; None if it still fits."""
    if (
        then.recall is not None
        and now.recall is not None
        and has_fallen(then.recall, now.recall, now.high)
    ):
        return f"recall {now.recall:.4f}, {then.recall:.4f} when it was trained"
    if (
        then.imbalance is not None
        and now.imbalance is not None
        and now.imbalance > IMBALANCE_RISE * then.imbalance
    ):
        return (
            f"imbalance of the lists {now.imbalance:.2f}, {then.imbalance:.2f} when it was trained"
        )
    if (
        then.closeness is not None
        and now.closeness is not None
        and _is_farther(then.closeness, now.closeness, metric)
    ):
        what = "inner product" if metric == "ip" else "squared distance"
        return (
            f"{what} with the nearest centroid {now.closeness:.4f}, {then.closeness:.4f} when it"
            " was trained"
        )
    return None


def has_fallen(then: float, now: float, high: float | None) -> bool:
    """Whether recall fell by more than the chance of a few queries."""
    return now < then - RECALL_FALL and (high is None or high < then)


def _is_farther(then: float, now: float, metric: str) -> bool:
    loss = now - then if metric == "l2" else then - now
    return loss > CLOSENESS_LOSS[metric] * abs(then)
