"""Which segments an update of an index keeps, rewrites and adds, from made-up counts.

Covers transforms/steps/index/update.py.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentence_beam.transforms.steps.index import files, scratch, update_decision
from sentence_beam.transforms.steps.index.update import HELD_OUT, IndexUpdate, IndexUpdateJob
from sentence_beam.transforms.steps.index.update_decision import TargetSegment, decide
from sentence_beam.transforms.steps.index.update_rows import BucketMatch
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import (
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    SegmentEntry,
    TrainedEntry,
)

pytest.importorskip("faiss")

NEW = 10  # rows, more than these updates add if they merge segments
FILE = layout.index_file("0" * 64, "faiss")


def segment(number: int, kind: str = "base", rows: int = 1000, deleted: int = 0) -> SegmentEntry:
    """A segment whose files do not exist."""
    return SegmentEntry(number, kind, rows, deleted, FILE, "", 0, FILE, "")


class Update:
    """An update of made-up segments, and what is decided for it."""

    def __init__(self, root: Path, segments: list[SegmentEntry], **changed: Any):
        rows = sum(one.live for one in segments)
        current = IndexEntry(
            segments=tuple(segments),
            factory="IVF4,SQ8",
            metric="ip",
            request=IndexRequest("IVF4,SQ8"),
            recall=None,
            nprobe=1,
            rerank=0,
            rows=rows,
            trained=TrainedEntry(FILE),
            queries=IndexFileEntry(FILE),
        )
        update = IndexUpdate(
            current=current,
            request=IndexRequest("IVF4,SQ8", merge=changed.pop("merge_asked", False)),
            shards=[("embeddings/a.parquet", rows + NEW, None)],
            added=[["embeddings/a.parquet"], ["embeddings/b.parquet"]],
            removed=[],
            buckets=2,
            merge=False,
            unit=True,
        )
        update = replace(update, **changed)
        self.job = IndexUpdateJob(str(root), "run2", 16, "ip")
        self.job.folder.put(scratch.PLAN, json.dumps(update.to_json()).encode())
        self.numbers = [one.number for one in segments]

    def match(
        self,
        deleted: dict[int, int] | None = None,
        new: tuple[int, int] = (0, 0),
        moved: int = 0,
        held: int = 0,
        crowded: tuple[str, ...] = (),
    ) -> tuple[IndexUpdateJob, BucketMatch]:
        """The counts of one bucket."""
        gone = dict.fromkeys(self.numbers, 0) | (deleted or {})
        return self.job, BucketMatch(gone, dict(enumerate(new)), moved, held, crowded)

    def decide(self, *matches: tuple[IndexUpdateJob, BucketMatch]) -> list[TargetSegment]:
        """The segments of the updated index."""
        found = list(decide(list(matches)))
        assert all(job == self.job for job, _ in found)
        return [target for _, target in found]

    @property
    def change(self) -> dict[str, Any]:
        """The change that later steps and the history read."""
        found = self.job.folder.parsed(scratch.DECISION, json.loads)
        assert isinstance(found["targets"], list)
        return found["change"]


@pytest.fixture(autouse=True)
def crowded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The crowded texts that are left for the queries, which need files of an index."""
    left: list[list[str]] = []
    monkeypatch.setattr(
        update_decision, "leave_queries", lambda job, update, texts: left.append(texts)
    )
    return left


def kept(number: int, kind: str = "base") -> TargetSegment:
    """A segment whose file stays."""
    return TargetSegment(number, kind, (number,), rewrite=False)


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
        TargetSegment(5, HELD_OUT, (5,), rewrite=False),
    ]
    assert update.change == {
        "what": "followed", "why": "", "added": 12, "deleted": 9, "moved": 3,
    }  # fmt: skip
    assert crowded == [["aa", "bb"]]


def test_a_segment_without_rows_goes(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2), segment(3, HELD_OUT, 20)])
    assert update.decide(update.match({2: 600, 3: 20}), update.match({2: 400})) == [kept(1)]


def test_a_worn_segment_is_rewritten_and_new_rows_stay_apart(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1, deleted=100), segment(2), segment(3, deleted=200)])
    found = update.decide(update.match({1: 101}, (7, 0)))
    assert found == [
        kept(2),
        kept(3),
        TargetSegment(4, "base", (1,)),
        TargetSegment(5, "delta", (), (0,)),
    ]
    assert update.change["what"] == "compacted"
    assert update.change["why"] == "more than 20% of the rows deleted in 1 segments"


def test_many_new_rows_are_packed_with_the_deltas(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2, "delta", 60), segment(3, "delta", 20)])
    found = update.decide(update.match({2: 5}, (0, 60)))
    assert found == [kept(1), TargetSegment(4, "base", (2, 3), (1,))]
    assert update.change["what"] == "compacted"
    assert update.change["added"] == 60


def test_one_large_delta_becomes_a_base_segment_as_it_is(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2, "delta", 300)])
    assert update.decide(update.match()) == [kept(1), kept(2)]
    assert update.change == {
        "what": "followed", "why": "", "added": 0, "deleted": 0, "moved": 0,
    }  # fmt: skip


def test_one_delta_with_new_rows_is_rewritten(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2, "delta", 300)])
    found = update.decide(update.match(new=(1, 0)))
    assert found == [kept(1), TargetSegment(3, "base", (2,), (0,))]


def test_large_segments_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SEGMENT_ROWS", 1500)
    update = Update(tmp_path, [segment(number, rows=1000, deleted=300) for number in (1, 2, 3)])
    assert update.decide(update.match(new=(10, 1600))) == [
        TargetSegment(4, "base", (1, 2)),
        TargetSegment(5, "base", (3,), (0,)),
        TargetSegment(6, "base", (), (1,)),
    ]


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


def test_one_segment_is_made_of_all(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2), segment(3, HELD_OUT, 5)], merge=True)
    found = update.decide(update.match(new=(1, 1)))
    assert found == [
        *(TargetSegment(number, "base", (number - 3,), listed=True) for number in (4, 5)),
        *(TargetSegment(number, "base", (), (number - 6,), listed=True) for number in (6, 7)),
        TargetSegment(3, HELD_OUT, (3,), rewrite=False),
    ]
    assert update.change["why"] == "one segment was asked for"


def test_one_segment_and_new_rows_are_merged_but_one_range_alone_stays(tmp_path: Path) -> None:
    update = Update(tmp_path / "a", [segment(1)], merge=True)
    assert update.decide(update.match(new=(1, 0))) == [
        TargetSegment(2, "base", (1,), listed=True),
        TargetSegment(3, "base", (), (0,), listed=True),
    ]
    update = Update(tmp_path / "b", [replace(segment(1), lists=(0, 4))], merge=True)
    assert update.decide(update.match()) == [kept(1)]


def test_an_index_that_was_asked_for_as_one_segment_is_compacted_as_one(tmp_path: Path) -> None:
    update = Update(
        tmp_path / "a", [segment(1), segment(2), segment(3, deleted=300)], merge_asked=True
    )
    assert update.decide(update.match(new=(1, 0))) == [
        *(TargetSegment(number, "base", (number - 3,), listed=True) for number in (4, 5, 6)),
        TargetSegment(7, "base", (), (0,), listed=True),
    ]
    update = Update(tmp_path / "b", [segment(1), segment(2)], merge_asked=True)
    assert update.decide(update.match(new=(1, 0))) == [
        kept(1),
        kept(2),
        TargetSegment(3, "delta", (), (0,)),
    ]


def test_a_segment_with_one_row_is_rewritten(tmp_path: Path) -> None:
    update = Update(tmp_path, [segment(1), segment(2)])
    found = update.decide(update.match({2: 999}))
    assert found == [kept(1), TargetSegment(3, "base", (2,))]
