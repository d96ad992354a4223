"""The upkeep of an index from run to run: when to compact it, and when to retrain it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_DELETED = 0.2  # of a segment's rows
MOST_DELTAS = 20
MOST_IN_DELTAS = 0.1  # of all rows
# Of an index by lists:
AT_ONCE = 0.05  # of the ranges that a run writes again, if their mean wear is not above twice that
MOST_WAITING = 0.3  # of all rows in deltas; with more, all ranges are written again
MOST_SPENT = 0.5  # of a delta's rows that are deleted
NEWEST = 1 << 31  # above the numbers of all segments
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


@dataclass(frozen=True)
class RangeMerge:
    """The segments of an index by lists that a run writes again, and the reason in one line.

    `ranges` take the rows that deltas have of their lists; `deltas` become one delta. If it is
    `everything`, all rows go into ranges, also the run's new ones.
    """

    ranges: tuple[int, ...] = ()
    deltas: tuple[int, ...] = ()
    everything: bool = False
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


def choose_merge(parts: Sequence[SegmentRows], new_rows: int, most_rows: int) -> RangeMerge:
    """Choose the ranges and deltas to write again in a run with `new_rows` new rows.

    The wear of a range is the share of its rows that waits for it in deltas, or half the share that
    is deleted, whichever is more. The most worn ranges are written again until the mean is
    `MOST_IN_DELTAS`, and those that are `worn`: at most a twentieth in a run, or more if the mean
    is higher. So steady edits cost each run about the same. If all ranges are to be written again,
    all rows go into ranges. Deltas are joined if they are spent, or if there are too many of at
    most half of `most_rows`, the rows of a full segment: then the smaller half.
    """
    ranges = [part for part in parts if not part.delta]
    deltas = [part for part in parts if part.delta]
    waiting = sum(part.live for part in deltas) + new_rows
    if waiting > MOST_WAITING * (sum(part.live for part in parts) + new_rows):
        reason = f"more than {MOST_WAITING:.0%} of the rows in delta segments"
        return RangeMerge(everything=True, why=reason)
    if len(ranges) == 1:  # would take the new rows too
        deltas_and_new = [*deltas, SegmentRows(NEWEST, True, new_rows, new_rows)]
    else:
        deltas_and_new = deltas
    chosen = _most_worn(ranges, deltas_and_new)
    why: list[str] = []
    if chosen:
        why.append(f"the most worn ranges ({len(chosen)} of {len(ranges)})")
    if chosen and len(chosen) == len(ranges):
        return RangeMerge(everything=True, why=why[0])
    joined, reasons = _joined_deltas(deltas, new_rows, most_rows)
    return RangeMerge(tuple(sorted(chosen)), tuple(sorted(joined)), why="; ".join(why + reasons))


def _joined_deltas(
    deltas: list[SegmentRows], new_rows: int, most_rows: int
) -> tuple[set[int], list[str]]:
    """Return the numbers of the deltas that become one, and the reasons."""
    why = []
    joined = {part.number for part in deltas if part.rows - part.live > MOST_SPENT * part.rows}
    if joined:
        why.append(f"more than {MOST_SPENT:.0%} of the rows deleted in {len(joined)} deltas")
    small = sorted((part.live, part.number) for part in deltas if 2 * part.live <= most_rows)
    if len(small) > 1 and len(small) + (new_rows > 0) > MOST_DELTAS:
        why.append(f"more than {MOST_DELTAS} delta segments")
        joined.update(number for _, number in small[: 1 + len(small) // 2])
    return joined, why


def _most_worn(ranges: list[SegmentRows], deltas: list[SegmentRows]) -> list[int]:
    """Return the numbers of the ranges to write again."""
    if not ranges:
        return []
    rows = np.array([part.rows for part in ranges], np.float64)
    deleted = rows - [part.live for part in ranges]
    wear = np.maximum(deleted * (MOST_IN_DELTAS / MOST_DELETED), _waiting_rows(ranges, deltas))
    mean = wear.sum() / rows.sum()
    most = math.ceil(len(ranges) * max(AT_ONCE, mean * AT_ONCE / MOST_IN_DELTAS))
    chosen: list[int] = []
    # of equally worn ranges the one first that was not written for longest
    for place in sorted(range(len(ranges)), key=lambda n: (-wear[n] / rows[n], ranges[n].number)):
        if (mean > MOST_IN_DELTAS or ranges[place].worn) and len(chosen) < most:
            mean -= wear[place] / rows.sum()
            chosen.append(ranges[place].number)
    return chosen


def _waiting_rows(ranges: list[SegmentRows], deltas: list[SegmentRows]) -> np.ndarray:
    """Return the rows that wait for each range in deltas, by estimate, float64 [ranges].

    A range has taken its rows of the deltas that are older than itself, which have lower numbers.
    The rest of a delta is spread over the older ranges by their rows.
    """
    numbers = np.array([part.number for part in ranges])
    rows = np.array([part.rows for part in ranges], np.float64)
    waiting = np.zeros(len(ranges))
    for delta in deltas:
        older = numbers < delta.number
        if older.any():
            waiting += older * rows * (delta.live / rows[older].sum())
    return waiting


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
