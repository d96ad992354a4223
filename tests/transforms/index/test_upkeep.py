"""When an index is compacted or trained anew."""

import numpy as np
import pytest

from sentence_beam.transforms.index.upkeep import (
    Fit,
    RangeMerge,
    SegmentRows,
    choose_merge,
    compaction,
    drifted,
    imbalance,
    resized,
)


def base(number: int, rows: int = 1000, deleted: int = 0) -> SegmentRows:
    return SegmentRows(number, False, rows, rows - deleted)


def delta(number: int, rows: int = 1, deleted: int = 0) -> SegmentRows:
    return SegmentRows(number, True, rows, rows - deleted)


def test_a_quiet_night_rewrites_nothing() -> None:
    assert not compaction([base(0), base(1, deleted=200), delta(2, 50)], 40).numbers
    assert compaction([], 0).why == ""


def test_a_segment_of_which_a_fifth_is_deleted_is_rewritten_alone() -> None:
    found = compaction([base(0), base(1, deleted=201), delta(2, 10)], 5)
    assert (found.numbers, found.with_new) == ({1}, False)
    assert "20% of the rows deleted in 1 segments" in found.why


def test_deltas_are_put_together_when_they_are_many_or_large() -> None:
    many = compaction([base(0), *(delta(n) for n in range(1, 21))], 1)
    assert (many.numbers, many.with_new) == (set(range(1, 21)), True)
    assert not compaction([base(0), *(delta(n) for n in range(1, 21))], 0).numbers
    large = compaction([base(0), delta(1, 60)], 60)
    assert (large.numbers, large.with_new) == ({1}, True)
    assert "10% of the rows in delta segments" in large.why
    both = compaction([base(0, deleted=300), delta(1, 60)], 60)
    assert both.numbers == {0, 1}
    assert ";" in both.why


def ranges(*deleted: int) -> list[SegmentRows]:
    """Ranges of 1,000 rows."""
    return [base(number, deleted=gone) for number, gone in enumerate(deleted)]


WORN = "the most worn ranges ({} of {})"
FORTY = [0] * 39
MERGES = {
    "nothing to do": ([*ranges(*FORTY, 200), delta(50, 900)], RangeMerge()),
    "a range of which a fifth is deleted": (
        [*ranges(*FORTY, 201), delta(50, 100)],
        RangeMerge((39,), why=WORN.format(1, 40)),
    ),
    "a twentieth at once, the most worn first": (
        ranges(*FORTY[:37], 201, 203, 202),
        RangeMerge((38, 39), why=WORN.format(2, 40)),
    ),
    "more if all are more worn": (
        ranges(*[400] * 20, *[410] * 20),
        RangeMerge((20, 21, 22, 23, 24), why=WORN.format(5, 40)),
    ),
    "a tenth waits in deltas: of equal ranges the oldest first": (
        [*ranges(*FORTY, 0), delta(50, 4001)],
        RangeMerge((0,), why=WORN.format(1, 40)),
    ),
    "a range has taken its rows of older deltas": (
        [*(base(100 + n) for n in range(20)), *ranges(*[0] * 20), delta(50, 4001)],
        RangeMerge((0,), why=WORN.format(1, 40)),
    ),
    "one range": (
        [*ranges(0), delta(50, 101)],
        RangeMerge(everything=True, why=WORN.format(1, 1)),
    ),
    "most rows wait": (
        [*ranges(*FORTY, 0), delta(50, 17_150)],
        RangeMerge(everything=True, why="more than 30% of the rows in delta segments"),
    ),
    "a spent delta": (
        [*ranges(0, 0), delta(50, 100, 50), delta(51, 100, 51)],
        RangeMerge((), (51,), why="more than 50% of the rows deleted in 1 deltas"),
    ),
    "deltas alone": (
        [delta(50, 100)],
        RangeMerge(everything=True, why="more than 30% of the rows in delta segments"),
    ),
    "nothing at all": ([], RangeMerge()),
}


@pytest.mark.parametrize(("parts", "expected"), list(MERGES.values()), ids=list(MERGES))
def test_what_an_index_by_lists_writes_again(
    parts: list[SegmentRows], expected: RangeMerge
) -> None:
    assert choose_merge(parts, 0, 10_000) == expected


def test_a_single_range_takes_the_new_rows_too() -> None:
    assert choose_merge([*ranges(0), delta(50, 60)], 41, 10_000).everything
    assert choose_merge([*ranges(0, 0), delta(50, 160)], 41, 10_000) == RangeMerge()


def test_imbalance() -> None:
    assert imbalance(np.array([5, 5, 5, 5])) == 1
    assert imbalance(np.array([20, 0, 0, 0])) == 4
    assert imbalance(np.array([], np.int64)) is None


@pytest.mark.parametrize(
    ("rows", "why"), [(400, False), (401, True), (25, False), (24, True), (0, True)]
)
def test_four_times_the_rows_or_a_quarter(rows: int, why: bool) -> None:
    assert (resized(100, rows) is not None) == why


@pytest.mark.parametrize(
    ("metric", "now", "said"),
    [
        ("ip", Fit(1.79, 0.571, 0.961, 0.965), None),
        ("ip", Fit(1.2, 0.6, 0.959, 0.965), "recall 0.9590, 0.9700"),
        ("ip", Fit(1.2, 0.6, 0.9, 0.975), None),
        ("ip", Fit(1.81, 0.6, 0.97, 0.98), "imbalance of the lists 1.81"),
        ("ip", Fit(1.2, 0.56, 0.97, 0.98), "inner product with the nearest centroid 0.5600"),
        ("l2", Fit(1.2, 0.68, 0.97, 0.98), None),
        ("l2", Fit(1.2, 0.70, 0.97, 0.98), "squared distance with the nearest centroid"),
        ("ip", Fit(None, None, None), None),
    ],
)
def test_drift(metric: str, now: Fit, said: str | None) -> None:
    why = drifted(Fit(1.2, 0.6, 0.97, 0.98), now, metric)
    assert (why is None) if said is None else (why is not None and said in why)
