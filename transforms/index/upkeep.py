"""The upkeep of an index from run to run: when to compact it, and when to retrain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_DELETED = 0.2  # of a segment's rows
MOST_DELTAS = 20
MOST_IN_DELTAS = 0.1  # of all rows
RECALL_FALL = 0.01
IMBALANCE_RISE = 1.5
# the same drift of unit vectors, as inner product and as squared distance
CLOSENESS_LOSS = {"ip": 0.05, "l2": 0.15}
GROWTH = 4


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
class SegmentRows:
    """The rows of a segment, live ones and all, and whether it is a delta."""

    number: int
    delta: bool
    rows: int
    live: int

    @property
    def worn(self) -> bool:
        """Whether more than a fifth of its rows are deleted."""
        return self.rows - self.live > MOST_DELETED * self.rows


@dataclass(frozen=True)
class Compaction:
    """The segments to merge into one, and the reason in one line ("" without a merge).

    `with_new` says whether the run's new rows are merged too.
    """

    numbers: frozenset[int] = frozenset()
    with_new: bool = False
    why: str = ""


def imbalance(sizes: np.ndarray) -> float | None:
    """The factor by which a search takes longer than with lists of equal length.

    1.0 is even. None without lists or rows.
    """
    total = float(sizes.sum())
    if not total:
        return None
    return float((sizes.astype(np.float64) ** 2).sum()) * len(sizes) / total**2


def compaction(parts: Sequence[SegmentRows], new_rows: int) -> Compaction:
    """Choose the segments to merge in a run with `new_rows` new rows.

    These are segments with many deleted rows, and deltas if there are too many.
    """
    worn = {part.number for part in parts if part.worn}
    deltas = [part for part in parts if part.delta]
    in_deltas = sum(part.live for part in deltas) + new_rows
    rows = sum(part.live for part in parts) + new_rows
    many = len(deltas) + (new_rows > 0) > MOST_DELTAS
    piled = many or in_deltas > MOST_IN_DELTAS * rows
    why = []
    if worn:
        why.append(f"more than {MOST_DELETED:.0%} of the rows deleted in {len(worn)} segments")
    if many:
        why.append(f"more than {MOST_DELTAS} delta segments")
    elif piled:
        why.append(f"more than {MOST_IN_DELTAS:.0%} of the rows in delta segments")
    numbers = worn
    if piled:
        numbers = worn | {part.number for part in deltas}
    return Compaction(frozenset(numbers), piled, "; ".join(why))


def resized(then: int, now: int) -> str | None:
    """The reason, in one line, why an index for `then` rows does not fit `now` rows, or None."""
    if now > GROWTH * then or now * GROWTH < then:
        return f"{now:,} rows, {then:,} when it was trained"
    return None


def drifted(then: Fit, now: Fit, metric: str) -> str | None:
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
        and _farther(then.closeness, now.closeness, metric)
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


def _farther(then: float, now: float, metric: str) -> bool:
    loss = now - then if metric == "l2" else then - now
    return loss > CLOSENESS_LOSS[metric] * abs(then)
