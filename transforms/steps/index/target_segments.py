"""The segments of an updated index: which stay, and which are written, by counts alone."""

from dataclasses import dataclass, replace
from operator import attrgetter

from sentence_beam.transforms.base.pairing import group_by_size
from sentence_beam.transforms.index.upkeep import REWRITTEN, IndexRows, choose_upkeep
from sentence_beam.transforms.steps.index.update import BASE, DELTA, HELD_OUT, IndexUpdate
from sentence_beam.transforms.steps.index.update_rows import MatchedRows
from sentence_beam.transforms.store.index_entries import ChangeEntry

KEPT = "kept"
WRITTEN = "written"
LISTED = "listed"
SAME_RANGE = "same range"


@dataclass(frozen=True)
class TargetSegment:
    """A segment of the updated index: its current segments and groups with new rows.

    It is WRITTEN, or KEPT: it is its only source then, whose file stays. If it is LISTED, it is no
    segment: its rows go into ranges of lists. SAME_RANGE: they go into a range with the lists of
    its only source.
    """

    number: int
    kind: str
    sources: tuple[int, ...]
    groups: tuple[int, ...] = ()
    work: str = WRITTEN


@dataclass(frozen=True)
class RowSource:
    """The live rows of a segment, or the new rows of a group."""

    rows: int
    segment: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class Decision:
    """The segments of an updated index, and its change for the manifest."""

    targets: tuple[TargetSegment, ...]
    change: ChangeEntry


def decide_segments(update: IndexUpdate, rows: MatchedRows, limit: int) -> Decision:
    """Return the segments of the updated index, of at most `limit` rows each.

    1. A segment without live rows is removed.
    2. `choose_upkeep` says whether all is written again. If not, the new rows become a delta, with
       the rows of the other deltas if these are joined; the other segments stay as files.
    3. Of these, one that has an erased row is written again alone.
    4. Each new segment gets a new number.
    5. The held-out segment is rewritten as a whole if rows join it or are erased: it is small, and
       every search scans it.
    """
    live = _count_live_rows(update, rows)
    upkeep = choose_upkeep(_count_rows(update, rows, live))
    again = []
    if upkeep.what == REWRITTEN:
        again = list(live)
    elif upkeep.joins:
        again = _select_deltas(update, live)
    sources = [RowSource(live[number], number) for number in again]
    sources += [RowSource(count, group=group) for group, count in rows.new.items() if count]
    if upkeep.what == REWRITTEN:
        written = _pack_base(update, sources, limit)
    else:
        written = _pack(DELTA, sources, limit)
    others = [number for number in live if number not in again]
    erased = _find_erased(update, rows)
    written += [_rewrite_alone(update, number) for number in others if number in erased]
    targets = [
        TargetSegment(number, update.segments[number].kind, (number,), work=KEPT)
        for number in others
        if number not in erased
    ]
    for number, target in enumerate(written, start=1 + max(update.segments)):
        targets.append(replace(target, number=number))
    change = ChangeEntry(
        what=upkeep.what,
        why=upkeep.why,
        added=sum(rows.new.values()) + rows.held,
        deleted=sum(rows.deleted.values()),
        moved=rows.moved,
    )
    return Decision((*targets, *_target_held_out(update, rows, targets)), change)


def _count_live_rows(update: IndexUpdate, rows: MatchedRows) -> dict[int, int]:
    """Return the live rows of the segments that keep any, without the held-out one, by number."""
    live_rows = {}
    for number, segment in update.segments.items():
        live = segment.live - rows.deleted[number]
        if segment.kind != HELD_OUT and live > 0:
            live_rows[number] = live
    return live_rows


def _find_erased(update: IndexUpdate, rows: MatchedRows) -> set[int]:
    """Return the numbers of the segments that have erased rows.

    A run that erases rows deletes no others.
    """
    if update.erased is None:
        return set()
    return {*update.erased.segments, *(number for number, count in rows.deleted.items() if count)}


def _select_deltas(update: IndexUpdate, live: dict[int, int]) -> list[int]:
    """Return the numbers of the deltas among some segments."""
    return [number for number in live if update.segments[number].kind == DELTA]


def _count_rows(update: IndexUpdate, rows: MatchedRows, live: dict[int, int]) -> IndexRows:
    """Return the rows of the updated index; `live` are those of its segments, by number."""
    new = sum(rows.new.values())
    deltas = _select_deltas(update, live)
    return IndexRows(
        live=sum(live.values()) + new,
        in_deltas=sum(live[number] for number in deltas) + new,
        deleted=sum(update.segments[number].rows - live[number] for number in live),
        deltas=len(deltas) + (new > 0),
    )


def _pack_base(update: IndexUpdate, sources: list[RowSource], limit: int) -> list[TargetSegment]:
    """Return all rows as base segments, or as those that go into ranges of lists."""
    if not update.current.spec.lists:
        return _pack(BASE, sources, limit)
    alone = (_pack(BASE, [source], limit)[0] for source in sources)
    return [replace(target, work=LISTED) for target in alone]


def _pack(kind: str, sources: list[RowSource], limit: int) -> list[TargetSegment]:
    """Return the segments to write of some rows, of at most `limit` rows each."""
    targets = []
    for packed in group_by_size(sources, attrgetter("rows"), limit):
        segments = tuple(item.segment for item in packed if item.segment is not None)
        groups = tuple(item.group for item in packed if item.group is not None)
        targets.append(TargetSegment(0, kind, segments, groups))
    return targets


def _rewrite_alone(update: IndexUpdate, number: int) -> TargetSegment:
    """Return a segment with the live rows of another, or a range with its lists."""
    segment = update.segments[number]
    work = WRITTEN if segment.lists is None else SAME_RANGE
    return TargetSegment(0, segment.kind, (number,), work=work)


def _target_held_out(
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
    work = WRITTEN if rows.held or current.number in _find_erased(update, rows) else KEPT
    return [TargetSegment(current.number, HELD_OUT, (current.number,), work=work)]
