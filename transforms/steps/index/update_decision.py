"""The decision of an index update: segments that stay, are rewritten, or take new rows."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

from sentence_beam.transforms.base.pairs import group_by_size
from sentence_beam.transforms.index.upkeep import (
    Compaction,
    RangeMerge,
    SegmentRows,
    choose_merge,
    compaction,
)
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.files import most_rows
from sentence_beam.transforms.steps.index.update import DELTA, HELD_OUT, IndexUpdate, IndexUpdateJob
from sentence_beam.transforms.steps.index.update_recall import leave_queries
from sentence_beam.transforms.steps.index.update_rows import BucketMatch
from sentence_beam.transforms.store.index_entries import ChangeEntry

BASE = "base"


@dataclass(frozen=True)
class TargetSegment:
    """A segment of the updated index: its current segments and groups with new rows.

    If it is not to be rewritten it is its only source, whose file stays. If it is `listed`, it is
    no segment: its rows go into ranges of lists. `lists` are runs [first, stop) of a merge of some
    ranges: a delta gives the rows of these lists to ranges, and keeps the others.
    """

    number: int
    kind: str
    sources: tuple[int, ...]
    groups: tuple[int, ...] = ()
    rewrite: bool = True
    listed: bool = False
    lists: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Targets:
    """The segments of an updated index whose files stay, those to write, and why they are merged.

    The latter have no numbers yet.
    """

    kept: list[TargetSegment]
    written: list[TargetSegment]
    why: str = ""


@dataclass(frozen=True)
class RowSource:
    """The rows of a segment that is rewritten, or the new rows of a group."""

    rows: int
    segment: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class MatchedRows:
    """The counts of all matched buckets.

    `deleted` rows by segment, `new` rows of the lists by group, rows that `moved`, and new rows
    that are `held` out.
    """

    deleted: dict[int, int]
    new: dict[int, int]
    moved: int = 0
    held: int = 0

    @classmethod
    def of(cls, update: IndexUpdate, matches: Sequence[BucketMatch]) -> "MatchedRows":
        """Return the sums over the buckets of an update."""
        groups = range(len(update.added))
        return cls(
            deleted={
                number: sum(match.deleted.get(number, 0) for match in matches)
                for number in update.segments
            },
            new={group: sum(match.new.get(group, 0) for match in matches) for group in groups},
            moved=sum(match.moved for match in matches),
            held=sum(match.held for match in matches),
        )

    @property
    def groups(self) -> list[int]:
        """The groups that have new rows."""
        return [group for group, rows in self.new.items() if rows]


@dataclass(frozen=True)
class Decision:
    """The segments of an updated index, and its change for the manifest."""

    targets: tuple[TargetSegment, ...]
    change: ChangeEntry

    def to_bytes(self) -> bytes:
        """Return the decision as its file's bytes, JSON."""
        targets = [asdict(target) for target in self.targets]
        decision = {"targets": targets, "change": self.change.to_json()}
        return json.dumps(decision, sort_keys=True).encode()


def decide(
    matches: list[tuple[IndexUpdateJob, BucketMatch]],
) -> Iterator[tuple[IndexUpdateJob, TargetSegment]]:
    """Yield the segments of the updated index, each to be built.

    Leaves the queries, and the decision with the counts of the change.
    """
    job = matches[0][0]
    found = [match for _, match in matches]
    update = job.update()
    limit = most_rows(job.plan(update), update.rows, update.merge or update.request.merge)
    decision = decision_of(update, MatchedRows.of(update, found), limit)
    if job.repaired and update.current.change is not None:
        why = "; ".join(filter(None, [update.current.change.why, decision.change.why]))
        decision = replace(decision, change=replace(decision.change, why=why))
    leave_queries(job, update, sorted({text for match in found for text in match.crowded}))
    job.folder.put(scratch.DECISION, decision.to_bytes())
    yield from ((job, target) for target in decision.targets)


def decision_of(update: IndexUpdate, rows: MatchedRows, limit: int) -> Decision:
    """Return the segments of the updated index, of at most `limit` rows each.

    1. A segment without live rows is removed.
    2. Of an index by lists, `choose_merge` names the ranges to write again, which take the rows
       that deltas have of their lists, and the deltas to join. New rows become delta segments. If
       all is merged, all rows go into ranges, also the new ones.
    3. Of any other index, `compaction` says which segments are worn (a fifth of their rows deleted)
       or deltas that have piled up. They are packed in order into new base segments, together with
       the new rows if the compaction takes these in; otherwise new rows become delta segments. A
       segment that would be rewritten alone, and for no deleted rows, stays: it is a base segment
       from now on. If one segment is requested, all rows go into ranges of lists.
    4. The other segments stay as files. Each new segment gets a new number.
    5. The held-out segment is rewritten as a whole if rows join it: it is small, and every search
       scans it.
    """
    parts = _live_parts(update, rows)
    if update.is_by_lists:
        found = _targets_by_lists(update, parts, rows, limit)
    else:
        found = _targets_by_rows(update, parts, rows, limit)
    numbered = [
        replace(target, number=number)
        for number, target in enumerate(found.written, start=1 + max(update.segments))
    ]
    targets = [*found.kept, *numbered]
    change = ChangeEntry(
        what="followed",
        why="",
        added=sum(rows.new.values()) + rows.held,
        deleted=sum(rows.deleted.values()),
        moved=rows.moved,
    )
    if any(target.sources for target in found.written):
        change = replace(change, what="compacted", why=found.why)
    return Decision((*targets, *_held_out_target(update, rows, targets)), change)


def _live_parts(update: IndexUpdate, rows: MatchedRows) -> list[SegmentRows]:
    """Return the segments of the lists that keep live rows."""
    parts = []
    for number, segment in update.segments.items():
        live = segment.live - rows.deleted[number]
        if segment.kind != HELD_OUT and live > 0:
            parts.append(SegmentRows(number, segment.kind == DELTA, segment.rows, live))
    return parts


def _targets_by_lists(
    update: IndexUpdate, parts: list[SegmentRows], rows: MatchedRows, limit: int
) -> Targets:
    """Return the segments of an index by lists."""
    due = _range_merge(update, parts, sum(rows.new.values()), limit)
    if due.everything:
        return Targets([], _all_listed(parts, rows), due.why)
    lists = _lists_of_ranges(update, parts)
    moved = tuple(sorted(lists[number] for number in due.ranges))
    deltas = [part for part in parts if part.delta]
    joined = [RowSource(part.live, part.number) for part in deltas if part.number in due.deltas]
    written = [_listed_segment(number, (lists[number],)) for number in due.ranges]
    if moved:
        written += [_listed_segment(part.number, moved) for part in deltas]
    written += [replace(target, lists=moved) for target in _packed(DELTA, joined, limit)]
    written += _packed(DELTA, _new_sources(rows), limit)
    return Targets(_kept_by_lists(parts, due, moved), written, due.why)


def _kept_by_lists(
    parts: list[SegmentRows], due: RangeMerge, moved: tuple[tuple[int, int], ...]
) -> list[TargetSegment]:
    """Return the segments whose files stay; deltas give away the rows of the lists `moved`."""
    kept = []
    for part in parts:
        if part.delta and part.number not in due.deltas:
            target = TargetSegment(part.number, DELTA, (part.number,), rewrite=False, lists=moved)
            kept.append(target)
        elif not part.delta and part.number not in due.ranges:
            kept.append(TargetSegment(part.number, BASE, (part.number,), rewrite=False))
    return kept


def _range_merge(
    update: IndexUpdate, parts: list[SegmentRows], new_rows: int, limit: int
) -> RangeMerge:
    """Return what to write again of an index by lists; all if the request is for that."""
    if update.merge and (new_rows or not update.is_merged):
        return RangeMerge(everything=True, why="one segment was asked for")
    due = choose_merge(parts, new_rows, limit)
    if due.why and update.request.merge:
        return RangeMerge(everything=True, why=due.why)
    return due


def _lists_of_ranges(update: IndexUpdate, parts: list[SegmentRows]) -> dict[int, tuple[int, int]]:
    """Return the lists whose rows each range takes: its own, and those up to the next range."""
    found = [(update.segments[part.number].lists, part.number) for part in parts if not part.delta]
    ranges = sorted((lists[0], number) for lists, number in found if lists)
    firsts = [0, *(first for first, _ in ranges[1:]), update.current.spec.lists]
    return {
        number: (first, stop)
        for (_, number), first, stop in zip(ranges, firsts[:-1], firsts[1:], strict=True)
    }


def _all_listed(parts: list[SegmentRows], rows: MatchedRows) -> list[TargetSegment]:
    """Return all rows as those that go into ranges, segment by segment and group by group."""
    groups = [TargetSegment(0, BASE, (), (group,), listed=True) for group in rows.groups]
    return [*(_listed_segment(part.number) for part in parts), *groups]


def _listed_segment(number: int, lists: tuple[tuple[int, int], ...] = ()) -> TargetSegment:
    return TargetSegment(0, BASE, (number,), listed=True, lists=lists)


def _targets_by_rows(
    update: IndexUpdate, parts: list[SegmentRows], rows: MatchedRows, limit: int
) -> Targets:
    """Return the segments of an index whose base is cut by rows, or that has no lists."""
    due = _compaction(update, parts, sum(rows.new.values()))
    if _into_ranges(update, parts, due):
        return Targets([], _all_listed(parts, rows), due.why)
    rewritten = _rewritten_parts(parts, due, rows)
    kept = [_kept_target(update, part.number, due) for part in parts if part not in rewritten]
    into_base = [RowSource(part.live, part.number) for part in rewritten]
    into_deltas = _new_sources(rows)
    if due.with_new:
        into_base += into_deltas
        into_deltas = []
    written = [*_packed(BASE, into_base, limit), *_packed(DELTA, into_deltas, limit)]
    return Targets(kept, written, due.why)


def _compaction(update: IndexUpdate, parts: list[SegmentRows], new_rows: int) -> Compaction:
    """Return the segments to rewrite; all if one segment is wanted and there is a reason."""
    due = compaction(parts, new_rows)
    everything = frozenset(part.number for part in parts)
    if update.merge and (new_rows or not update.is_merged):
        return Compaction(everything, True, "one segment was asked for")
    if due.why and update.request.merge:
        return replace(due, numbers=everything, with_new=True)
    return due


def _into_ranges(update: IndexUpdate, parts: list[SegmentRows], due: Compaction) -> bool:
    """Return whether all rows go into ranges of lists, as they are all merged."""
    merges_all = bool(due.numbers) and due.with_new and len(due.numbers) == len(parts)
    return update.has_lists and merges_all and (update.merge or update.request.merge)


def _rewritten_parts(
    parts: list[SegmentRows], due: Compaction, rows: MatchedRows
) -> list[SegmentRows]:
    """Return the segments to rewrite; none if that is one alone, and not for deleted rows."""
    rewritten = [part for part in parts if part.number in due.numbers]
    with_new = due.with_new and rows.groups
    if len(rewritten) == 1 and not rewritten[0].worn and not with_new:
        return []
    return rewritten


def _kept_target(update: IndexUpdate, number: int, due: Compaction) -> TargetSegment:
    """Return a segment whose file stays."""
    kind = update.segments[number].kind
    if number in due.numbers:
        kind = BASE
    return TargetSegment(number, kind, (number,), rewrite=False)


def _new_sources(rows: MatchedRows) -> list[RowSource]:
    """Return the new rows of each group."""
    return [RowSource(rows.new[group], group=group) for group in rows.groups]


def _packed(kind: str, sources: list[RowSource], limit: int) -> list[TargetSegment]:
    """Return the segments to write of some rows, of at most `limit` rows each."""
    targets = []
    for packed in group_by_size(sources, attrgetter("rows"), limit):
        segments = tuple(item.segment for item in packed if item.segment is not None)
        groups = tuple(item.group for item in packed if item.group is not None)
        targets.append(TargetSegment(0, kind, segments, groups))
    return targets


def _held_out_target(
    update: IndexUpdate, rows: MatchedRows, others: list[TargetSegment]
) -> list[TargetSegment]:
    """Return the held-out segment, if it has rows."""
    current = update.held_out
    if current is None:
        if not rows.held:
            return []
        number = 1 + max([*update.segments, *(target.number for target in others)])
        return [TargetSegment(number, HELD_OUT, ())]
    if not rows.held and current.live <= rows.deleted[current.number]:
        return []
    return [TargetSegment(current.number, HELD_OUT, (current.number,), rewrite=rows.held > 0)]
