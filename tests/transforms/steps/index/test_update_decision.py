"""Which segments an index update keeps, rewrites and adds, decided on made-up counts.

Covers transforms/steps/index/update_rows.py.
"""

from dataclasses import replace

import pytest

from sentence_beam.transforms.steps.index.update import IndexUpdate
from sentence_beam.transforms.steps.index.update_decision import (
    MatchedRows,
    TargetSegment,
    decision_of,
)
from sentence_beam.transforms.steps.index.update_rows import BucketMatch
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexRequest, SegmentEntry

BASE = ("base", 1000, 0)
DELTA = ("delta", 50, 0)
RANGE = ("range", 1000, 0)  # a base segment of some lists
HELD_OUT = ("held-out", 10, 0)
LIMIT = 5000


def update_of(
    *segments: tuple[str, int, int],
    groups: int = 0,
    merge: bool = False,
    always: bool = False,
    factory: str = "IVF4,SQ8",
) -> IndexUpdate:
    """Return an update of an index with segments of this kind, rows and deleted rows.

    `merge` asks for one segment now, `always` for one segment whenever something is rewritten.
    """
    entries = []
    for number, (kind, rows, deleted) in enumerate(segments):
        entry = SegmentEntry(number, kind, rows, deleted, "", "", 0, "", "")
        if kind == "range":
            entry = replace(entry, kind="base", lists=(number, number + 1))
        entries.append(entry)
    layout = "lists" if RANGE in segments else None
    request = IndexRequest(merge=always)
    index = IndexEntry(
        tuple(entries), factory, "ip", request, None, nprobe=1, rerank=0, rows=0, layout=layout
    )
    added = [[f"shard{group}"] for group in range(groups)]
    return IndexUpdate(index, request, [], added, [], buckets=1, merge=merge, unit=True)


def rows_of(
    update: IndexUpdate, deleted: dict[int, int] | None = None, new: tuple[int, ...] = ()
) -> MatchedRows:
    """Return counts with these rows deleted, by segment, and new, by group."""
    every = dict.fromkeys(update.segments, 0)
    return MatchedRows(every | (deleted or {}), dict(enumerate(new)))


def kept(number: int, kind: str = "base") -> TargetSegment:
    """Return a segment whose file stays."""
    return TargetSegment(number, kind, (number,), rewrite=False)


def listed(number: int, source: int, *lists: tuple[int, int]) -> TargetSegment:
    """Return a segment whose rows, or those of some lists, go into ranges of lists."""
    return TargetSegment(number, "base", (source,), listed=True, lists=lists)


def without(number: int, *lists: tuple[int, int]) -> TargetSegment:
    """Return a delta whose file stays, without its rows of some lists."""
    return TargetSegment(number, "delta", (number,), rewrite=False, lists=lists)


CASES = {
    "nothing changed: every file stays": (
        update_of(BASE, DELTA),
        rows_of(update_of(BASE, DELTA)),
        [kept(0), kept(1, "delta")],
        "followed",
    ),
    "new rows become a delta with the next number": (
        update_of(BASE, BASE, groups=1),
        rows_of(update_of(BASE, BASE), new=(7,)),
        [kept(0), kept(1), TargetSegment(2, "delta", (), (0,))],
        "followed",
    ),
    "a group without new rows makes no segment": (
        update_of(BASE, groups=2),
        rows_of(update_of(BASE), new=(0, 9)),
        [kept(0), TargetSegment(1, "delta", (), (1,))],
        "followed",
    ),
    "groups are packed up to the limit": (
        update_of(("base", 100_000, 0), groups=3),
        rows_of(update_of(BASE), new=(3000, 2000, 1)),
        [
            kept(0),
            TargetSegment(1, "delta", (), (0, 1)),
            TargetSegment(2, "delta", (), (2,)),
        ],
        "followed",
    ),
    "a segment without live rows is removed": (
        update_of(BASE, ("base", 40, 10)),
        rows_of(update_of(BASE, BASE), {1: 30}),
        [kept(0)],
        "followed",
    ),
    "a fifth of the rows deleted: the file stays": (
        update_of(BASE, BASE),
        rows_of(update_of(BASE, BASE), {0: 200}),
        [kept(0), kept(1)],
        "followed",
    ),
    "more than a fifth deleted: the segment is rewritten": (
        update_of(BASE, BASE),
        rows_of(update_of(BASE, BASE), {0: 201}),
        [kept(1), TargetSegment(2, "base", (0,))],
        "compacted",
    ),
    "rows deleted in earlier runs count too": (
        update_of(("base", 1000, 150), BASE),
        rows_of(update_of(BASE, BASE), {0: 51}),
        [kept(1), TargetSegment(2, "base", (0,))],
        "compacted",
    ),
    "one segment is requested: all rows go into one": (
        update_of(BASE, DELTA, groups=1, merge=True),
        rows_of(update_of(BASE, DELTA), new=(5,)),
        [listed(2, 0), listed(3, 1), TargetSegment(4, "base", (), (0,), listed=True)],
        "compacted",
    ),
    "one segment is requested and there is one by rows": (
        update_of(BASE, merge=True),
        rows_of(update_of(BASE)),
        [listed(1, 0)],
        "compacted",
    ),
    "one segment is requested and there are ranges": (
        update_of(RANGE, RANGE, merge=True),
        rows_of(update_of(RANGE, RANGE), {0: 5}),
        [kept(0), kept(1)],
        "followed",
    ),
    "one flat segment is requested and there is one": (
        update_of(BASE, merge=True, factory="Flat"),
        rows_of(update_of(BASE)),
        [kept(0)],
        "followed",
    ),
    "one flat segment is requested": (
        update_of(BASE, DELTA, groups=1, merge=True, factory="Flat"),
        rows_of(update_of(BASE, DELTA), new=(5,)),
        [TargetSegment(2, "base", (0, 1), (0,))],
        "compacted",
    ),
    "a worn range is written again alone": (
        update_of(RANGE, RANGE, groups=1),
        rows_of(update_of(RANGE, RANGE), {0: 201}, (5,)),
        [kept(1), listed(2, 0, (0, 1)), TargetSegment(3, "delta", (), (0,))],
        "compacted",
    ),
    "the most worn range takes the rows that deltas have of its lists": (
        update_of(RANGE, RANGE, DELTA, DELTA, factory="IVF9,SQ8"),
        rows_of(update_of(RANGE, RANGE, DELTA, DELTA), {1: 201}),
        [
            kept(0),
            without(2, (1, 9)),
            without(3, (1, 9)),
            listed(4, 1, (1, 9)),
            listed(5, 2, (1, 9)),
            listed(6, 3, (1, 9)),
        ],
        "compacted",
    ),
    "the first range takes the lists before it too": (
        update_of(HELD_OUT, RANGE, RANGE, DELTA),
        rows_of(update_of(HELD_OUT, RANGE, RANGE, DELTA), {1: 300}),
        [
            kept(2),
            without(3, (0, 2)),
            listed(4, 1, (0, 2)),
            listed(5, 3, (0, 2)),
            TargetSegment(0, "held-out", (0,), rewrite=False),
        ],
        "compacted",
    ),
    "a spent delta is written again without the rows of a worn range": (
        update_of(RANGE, RANGE, DELTA),
        rows_of(update_of(RANGE, RANGE, DELTA), {0: 201, 2: 26}),
        [
            kept(1),
            listed(3, 0, (0, 1)),
            listed(4, 2, (0, 1)),
            TargetSegment(5, "delta", (2,), lists=((0, 1),)),
        ],
        "compacted",
    ),
    "half of a delta deleted: its file stays": (
        update_of(RANGE, DELTA),
        rows_of(update_of(RANGE, DELTA), {1: 25}),
        [kept(0), kept(1, "delta")],
        "followed",
    ),
    "a spent delta stays a delta": (
        update_of(RANGE, DELTA),
        rows_of(update_of(RANGE, DELTA), {1: 26}),
        [kept(0), TargetSegment(2, "delta", (1,))],
        "compacted",
    ),
    "a tenth of the rows in deltas: the most worn range, and new rows apart": (
        update_of(RANGE, RANGE, ("delta", 210, 0), groups=1),
        rows_of(update_of(RANGE, RANGE, DELTA), new=(50,)),
        [
            kept(1),
            without(2, (0, 1)),
            listed(3, 0, (0, 1)),
            listed(4, 2, (0, 1)),
            TargetSegment(5, "delta", (), (0,)),
        ],
        "compacted",
    ),
    "one worn range is all: every row goes into ranges": (
        update_of(RANGE, ("delta", 110, 0), groups=1),
        rows_of(update_of(RANGE, DELTA), new=(50,)),
        [listed(2, 0), listed(3, 1), TargetSegment(4, "base", (), (0,), listed=True)],
        "compacted",
    ),
    "deltas of many rows go into all ranges": (
        update_of(RANGE, RANGE, ("delta", 800, 0), groups=1),
        rows_of(update_of(RANGE, RANGE, DELTA), new=(60,)),
        [
            listed(3, 0),
            listed(4, 1),
            listed(5, 2),
            TargetSegment(6, "base", (), (0,), listed=True),
        ],
        "compacted",
    ),
    "an index of one segment stays one when it is compacted": (
        update_of(BASE, BASE, groups=1, always=True),
        rows_of(update_of(BASE, BASE), {0: 201}, (5,)),
        [listed(2, 0), listed(3, 1), TargetSegment(4, "base", (), (0,), listed=True)],
        "compacted",
    ),
}


@pytest.mark.parametrize(
    ("update", "rows", "targets", "what"), list(CASES.values()), ids=list(CASES)
)
def test_segments_of_an_update(
    update: IndexUpdate, rows: MatchedRows, targets: list[TargetSegment], what: str
) -> None:
    decision = decision_of(update, rows, LIMIT)
    assert list(decision.targets) == targets
    assert decision.change.what == what
    assert bool(decision.change.why) == (what == "compacted")


def test_deltas_that_pile_up_become_one_base_segment() -> None:
    update = update_of(BASE, *([("delta", 1, 0)] * 21))
    decision = decision_of(update, rows_of(update), LIMIT)
    assert list(decision.targets) == [kept(0), TargetSegment(22, "base", tuple(range(1, 22)))]


def test_the_smaller_half_of_many_deltas_is_joined() -> None:
    deltas = [("delta", rows, 0) for rows in [9, *range(1, 20), 2501]]
    update = update_of(RANGE, ("range", 99_000, 0), *deltas, groups=1)
    assert decision_of(update, rows_of(update), LIMIT).change.what == "followed"
    found = decision_of(update, rows_of(update, new=(7,)), LIMIT)
    # the first has nine rows; large ones are not counted
    assert TargetSegment(23, "delta", tuple(range(2, 13))) in found.targets
    assert found.change.why == "more than 20 delta segments"


def test_a_delta_that_would_be_rewritten_alone_becomes_a_base_segment_as_it_is() -> None:
    update = update_of(BASE, ("delta", 900, 0))
    decision = decision_of(update, rows_of(update), LIMIT)
    assert list(decision.targets) == [kept(0), kept(1)]
    assert decision.change.what == "followed"


@pytest.mark.parametrize(
    ("held_out", "held", "deleted", "expected"),
    [
        (True, 0, 0, TargetSegment(1, "held-out", (1,), rewrite=False)),
        (True, 0, 9, TargetSegment(1, "held-out", (1,), rewrite=False)),
        (True, 0, 10, None),
        (True, 3, 10, TargetSegment(1, "held-out", (1,))),
        (True, 3, 0, TargetSegment(1, "held-out", (1,))),
        (False, 0, 0, None),
        (False, 3, 0, TargetSegment(2, "held-out", ())),
    ],
)
def test_the_held_out_segment_is_rewritten_if_rows_join_it(
    held_out: bool, held: int, deleted: int, expected: TargetSegment | None
) -> None:
    update = update_of(BASE, HELD_OUT if held_out else BASE)
    rows = replace(rows_of(update), held=held)
    if held_out:
        rows.deleted[1] = deleted
    targets = decision_of(update, rows, LIMIT).targets
    assert next((target for target in targets if target.kind == "held-out"), None) == expected


def test_the_change_counts_all_buckets() -> None:
    update = update_of(BASE, BASE, groups=2)
    matches = [
        BucketMatch({0: 1, 1: 0}, {0: 4, 1: 0}, moved=2, held=1, crowded=()),
        BucketMatch({0: 2, 1: 3}, {0: 1, 1: 6}, moved=5, held=0, crowded=()),
    ]
    change = decision_of(update, MatchedRows.of(update, matches), LIMIT).change
    assert (change.added, change.deleted, change.moved) == (12, 6, 7)
