"""Which segments an update of an index keeps, writes and adds, from made-up counts.

Covers transforms/steps/index/segments.py.
Covers transforms/steps/index/target_segments.py.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentence_beam.transforms.steps.index import index_folder, scratch, segments
from sentence_beam.transforms.steps.index.segments import decide
from sentence_beam.transforms.steps.index.target_segments import (
    KEPT,
    LISTED,
    SAME_RANGE,
    TargetSegment,
)
from sentence_beam.transforms.steps.index.update import (
    HELD_OUT,
    ErasedFromIndex,
    IndexUpdate,
    IndexUpdateJob,
)
from sentence_beam.transforms.steps.index.update_rows import MatchedRows
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import (
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    SegmentEntry,
    TrainedEntry,
)

pytest.importorskip("faiss")

FILE = layout.index_file("0" * 64, "faiss")


def segment(number: int, kind: str = "base", rows: int = 1000, deleted: int = 0) -> SegmentEntry:
    """A segment whose files do not exist."""
    return SegmentEntry(number, kind, rows, deleted, FILE, "", 0, FILE, "")


class Update:
    """An update of made-up segments with two groups of new rows, and what is decided for it."""

    def __init__(
        self,
        root: Path,
        parts: list[SegmentEntry],
        factory: str = "IVF4,SQ8",
        erased: ErasedFromIndex | None = None,
    ):
        rows = sum(one.live for one in parts)
        current = IndexEntry(
            segments=tuple(parts),
            factory=factory,
            metric="ip",
            request=IndexRequest(factory),
            recall=None,
            nprobe=1,
            rerank=0,
            rows=rows,
            trained=TrainedEntry(FILE),
            queries=IndexFileEntry(FILE),
        )
        update = IndexUpdate(
            current=current,
            request=IndexRequest(factory),
            shards=[("embeddings/a.parquet", rows, None)],
            added=[["embeddings/a.parquet"], ["embeddings/b.parquet"]],
            removed=[],
            buckets=2,
            unit=True,
            erased=erased,
        )
        self.job = IndexUpdateJob(str(root), "run2", 16, "ip")
        self.job.folder.put(scratch.PLAN, json.dumps(update.to_json()).encode())
        self.numbers = [one.number for one in parts]

    def match(
        self,
        deleted: dict[int, int] | None = None,
        new: tuple[int, int] = (0, 0),
        moved: int = 0,
        held: int = 0,
        crowded: tuple[str, ...] = (),
    ) -> tuple[IndexUpdateJob, MatchedRows]:
        """The counts of one bucket."""
        gone = dict.fromkeys(self.numbers, 0) | (deleted or {})
        return self.job, MatchedRows(gone, dict(enumerate(new)), moved, held, crowded)

    def decide(self, *matches: tuple[IndexUpdateJob, MatchedRows]) -> list[TargetSegment]:
        """The segments of the updated index."""
        found = list(decide(list(matches)))
        assert all(job == self.job for job, _ in found)
        return [target for _, target in found]

    @property
    def change(self) -> dict[str, Any]:
        """The change that later steps and the history read."""
        found: dict[str, Any] = self.job.folder.parsed(scratch.CHANGE, json.loads)
        return found


@pytest.fixture(autouse=True)
def crowded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The crowded texts that are left for the queries, which need files of an index."""
    left: list[list[str]] = []
    monkeypatch.setattr(
        segments, "leave_held_out_queries", lambda job, update, texts: left.append(texts)
    )
    return left


def kept(number: int, kind: str = "base") -> TargetSegment:
    """A segment whose file stays."""
    return TargetSegment(number, kind, (number,), work=KEPT)


def test_few_new_rows_are_a_delta_and_all_else_stays(tmp_path: Path, crowded: list) -> None:
    update = Update(tmp_path, [segment(1), segment(2, "delta", 10), segment(5, HELD_OUT, 20)])
    found = update.decide(
        update.match({1: 3, 5: 1}, (4, 0), moved=2, crowded=("bb", "aa")),
        update.match({1: 4, 2: 1}, (3, 5), moved=1, crowded=("aa",)),
    )
    assert found == [
        kept(1),
        kept(2, "delta"),
        TargetSegment(6, "delta", (), (0, 1)),
        TargetSegment(5, HELD_OUT, (5,), work=KEPT),
    ]
    assert update.change == {
        "what": "followed", "why": "", "added": 12, "deleted": 9, "moved": 3,
    }  # fmt: skip
    assert crowded == [("aa", "bb")]


def test_a_segment_without_rows_goes(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2, rows=50), segment(3, HELD_OUT, 20)])
    assert update.decide(update.match({2: 30, 3: 20}), update.match({2: 20})) == [kept(1)]


@pytest.mark.parametrize(
    ("parts", "deleted", "why"),
    [
        ([segment(1), segment(2, "delta", 50)], {1: 60}, "6 % in deltas and 6 % deleted"),
        ([segment(1), segment(2, "delta", 110, 10)], {}, "10 % in deltas and 1 % deleted"),
        (
            [segment(1, deleted=90), segment(2, "delta", 1)],
            {1: 20},
            "1 % in deltas and 11 % deleted",
        ),
    ],
)
def test_worn_ranges_are_written_again_with_all_deltas_and_new_rows(
    tmp_path: Path, parts: list[SegmentEntry], deleted: dict[int, int], why: str
) -> None:
    ranges = [replace(one, lists=(0, 4)) if one.kind == "base" else one for one in parts]
    update = Update(tmp_path, ranges)
    assert update.decide(update.match(deleted, new=(1, 10))) == [
        TargetSegment(3, "base", (1,), work=LISTED),
        TargetSegment(4, "base", (2,), work=LISTED),
        TargetSegment(5, "base", (), (0,), work=LISTED),
        TargetSegment(6, "base", (), (1,), work=LISTED),
    ]
    assert update.change["what"] == "rewritten"
    assert update.change["why"] == why


def test_segments_with_erased_rows_are_written_again_each_alone(tmp_path: Path) -> None:
    """Those that lose a row in this run, and those of which one was deleted before."""
    parts = [
        replace(segment(1), lists=(0, 2)),
        replace(segment(2, deleted=9), lists=(2, 4)),
        replace(segment(3, deleted=9), lists=(4, 6)),
        segment(4, "delta", 100),
        segment(5, "delta", 100),
        segment(6, HELD_OUT, 20),
    ]
    erased = ErasedFromIndex((2,))
    update = Update(tmp_path, parts, erased=erased)
    assert update.decide(update.match({1: 3, 5: 1, 6: 2})) == [
        kept(3),
        kept(4, "delta"),
        TargetSegment(7, "base", (1,), work=SAME_RANGE),
        TargetSegment(8, "base", (2,), work=SAME_RANGE),
        TargetSegment(9, "delta", (5,)),
        TargetSegment(6, HELD_OUT, (6,)),
    ]
    assert update.change["what"] == "followed"


def test_rows_without_lists_are_written_again_in_segments_of_some_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_folder, "SEGMENT_ROWS", 1500)
    parts = [segment(number, rows=1000, deleted=300) for number in (1, 2, 3)]
    update = Update(tmp_path, parts, "Flat")
    assert update.decide(update.match(new=(10, 1600))) == [
        TargetSegment(4, "base", (1, 2)),
        TargetSegment(5, "base", (3,), (0,)),
        TargetSegment(6, "base", (), (1,)),
    ]
    assert update.change["what"] == "rewritten"


def test_many_deltas_become_one_with_the_new_rows(tmp_path: Path) -> None:
    deltas = [segment(number, "delta", 2) for number in range(1, 21)]
    update = Update(tmp_path, [segment(0), *deltas])
    assert update.decide(update.match({3: 2}, new=(0, 1)))[:1] == [kept(0)]
    assert update.change["why"] == ""
    update = Update(tmp_path / "more", [segment(0), *deltas])
    numbers = tuple(range(1, 21))
    assert update.decide(update.match(new=(0, 1))) == [
        kept(0),
        TargetSegment(21, "delta", numbers, (1,)),
    ]
    assert (update.change["what"], update.change["why"]) == ("followed", "21 deltas became one")


@pytest.mark.parametrize(("deleted", "found"), [(0, 1), (1000, 0)])
def test_held_out_rows_get_a_new_segment_if_none_is_left(
    tmp_path: Path, deleted: int, found: int
) -> None:
    update = Update(tmp_path, [segment(7, rows=1000)])
    targets = update.decide(update.match({7: deleted}, held=2), update.match(held=1))
    assert targets == [kept(7)][:found] + [TargetSegment(8, HELD_OUT, ())]
    assert update.change["added"] == 3


def test_a_new_held_out_segment_is_numbered_after_the_others(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(7)])
    assert update.decide(update.match(new=(3, 0), held=2))[1:] == [
        TargetSegment(8, "delta", (), (0,)),
        TargetSegment(9, HELD_OUT, ()),
    ]


@pytest.mark.parametrize(("deleted", "held"), [(0, 1), (20, 1)])
def test_new_held_out_rows_join_the_segment(tmp_path: Path, deleted: int, held: int) -> None:
    update = Update(tmp_path, [segment(1), segment(2, HELD_OUT, 20)])
    found = update.decide(update.match({2: deleted}, held=held))
    assert found == [kept(1), TargetSegment(2, HELD_OUT, (2,))]
    assert (update.change["what"], update.change["added"]) == ("followed", held)
