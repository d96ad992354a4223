"""A night's segments: new rows as a delta, rows that went or moved in the locators, compaction, recall. No Beam here.

A segment's file is never written again. Where segments are compacted, their codes are copied into a new one.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from transforms import storage
from transforms.arrow import as_hashes, as_keys, as_matrix
from transforms.index import Candidates, ExactNeighbours, SegmentFile, train
from transforms.index.choose import plan_for
from transforms.index.recall import recall_among, recall_of
from transforms.index.segment import SegmentWriter, flat_vectors
from transforms.index.upkeep import Compaction, Fit, SegmentRows, compaction, drifted, imbalance
from transforms.steps import held_out, matching
from transforms.steps.index_files import (
    K,
    Segment,
    closeness_of,
    entry_of,
    leave_recall,
    most_rows,
    packed,
    take_recall,
)
from transforms.steps.index_update import HELD_OUT, Night, NightJob, Standing
from transforms.steps.index_update_rows import Matched
from transforms.store import locators
from transforms.store.shards import take_rows

BLOCK_ROWS = 10_000


@dataclass(frozen=True)
class Target:
    """A segment of tonight: standing segments and pieces with new rows that make it.

    Where it is not to be rewritten it is its only source, whose file stays.
    """

    number: int
    kind: str
    sources: tuple[int, ...]
    pieces: tuple[int, ...] = ()
    rewrite: bool = True


@dataclass(frozen=True)
class Built:
    """A segment of tonight as it stands; its local rows from `first_new` on are new."""

    segment: Segment
    first_new: int


def decide(job: NightJob, found: list[Matched]) -> list[Target]:
    """The segments of tonight; left behind for their building: the queries, and the counts for the manifest."""
    night = job.night()
    nulled = {number: sum(m.nulled[number] for m in found) for number in night.segments}
    new = {piece: sum(m.new[piece] for m in found) for piece in range(len(night.came))}
    held = sum(m.held for m in found)
    parts = [
        SegmentRows(segment.number, segment.kind == "delta", segment.rows, segment.live - nulled[segment.number])
        for segment in night.segments.values()
        if segment.kind != HELD_OUT and segment.live > nulled[segment.number]
    ]
    due = _due(night, parts, sum(new.values()))
    targets = _targets(job, night, parts, due, new)
    targets += _held_out_target(night, nulled, held, 1 + max([*night.segments, *(t.number for t in targets)]))
    _leave_queries(job, night, sorted({text for m in found for text in m.crowded}))
    compacted = any(target.rewrite and target.sources and target.kind != HELD_OUT for target in targets)
    change = {
        "what": "compacted" if compacted else "followed",
        "why": due.why if compacted else "",
        "added": sum(new.values()) + held,
        "deleted": sum(nulled.values()),
        "moved": sum(m.moved for m in found),
    }
    decision = {"targets": [asdict(target) for target in targets], "change": change}
    job.folder.put("decision.json", json.dumps(decision, sort_keys=True).encode())
    return targets


def _due(night: Night, parts: list[SegmentRows], new_rows: int) -> Compaction:
    """What to rewrite tonight; all segments where one segment is wanted and there is a reason."""
    due, everything = compaction(parts, new_rows), frozenset(part.number for part in parts)
    if night.merge and len(parts) + (new_rows > 0) > 1:
        return Compaction(everything, True, "one segment was asked for")
    return replace(due, numbers=everything, with_new=True) if due.why and night.request["merge"] else due


def _targets(
    job: NightJob, night: Night, parts: list[SegmentRows], due: Compaction, new: dict[int, int]
) -> list[Target]:
    """The segments but for the held-out one: those that stay, then those that are written."""
    limit = most_rows(job.plan(night), night.rows, night.merge or night.request["merge"])
    together = [part for part in parts if part.number in due.numbers]
    came = [piece for piece, rows in new.items() if rows]
    if len(together) == 1 and not together[0].worn and not (due.with_new and came):
        together = []  # a lone delta: it is a base by now
    stay = [part for part in parts if part not in together]
    targets = [_as_it_is(night, part, due) for part in stay]
    mixed: list[SegmentRows | int] = [*together, *(came if due.with_new else [])]
    rest: list[SegmentRows | int] = [] if due.with_new else [*came]

    def size(item: SegmentRows | int) -> int:
        return item.live if isinstance(item, SegmentRows) else new[item]

    written = [("base", group) for group in packed(mixed, size, limit)]
    written += [("delta", group) for group in packed(rest, size, limit)]
    for number, (kind, group) in enumerate(written, start=1 + max(night.segments)):
        sources = tuple(item.number for item in group if isinstance(item, SegmentRows))
        targets.append(Target(number, kind, sources, tuple(item for item in group if isinstance(item, int))))
    return targets


def _as_it_is(night: Night, part: SegmentRows, due: Compaction) -> Target:
    kind = "base" if part.number in due.numbers else night.segments[part.number].kind
    return Target(part.number, kind, (part.number,), rewrite=False)


def _held_out_target(night: Night, nulled: dict[int, int], held: int, number: int) -> list[Target]:
    """The held-out segment: as a whole again with new rows, since it is small; none where it would be empty."""
    standing = night.held_out
    pieces = tuple(range(len(night.came))) if held else ()
    if standing is not None and (held or standing.live > nulled[standing.number]):
        return [Target(standing.number, HELD_OUT, (standing.number,), pieces, rewrite=bool(held))]
    return [Target(number, HELD_OUT, (), pieces)] if held else []


def _leave_queries(job: NightJob, night: Night, crowded: list[str]) -> None:
    """Leave the held-out texts to report on: vectors, hashes, and their places among the known ones (-1: none).

    A text whose neighbours are not known is left out, until there are so many that all rows are read for them.
    """
    known, folder = job.known(night), job.folder
    new_crowded = np.frombuffer(bytes.fromhex("".join(crowded)), np.uint8).reshape(-1, 16)
    all_crowded = np.concatenate([known.crowded, new_crowded])
    vectors, hashes = _held_out_rows(job, night)
    keys, first = np.unique(as_keys(hashes), return_index=True)
    first = first[~np.isin(keys, as_keys(all_crowded))]
    first = first[held_out.reporting_half(hashes[first])]
    place = _places(as_keys(hashes[first]), as_keys(known.texts))
    if np.count_nonzero(place < 0) <= held_out.UNMEASURED * len(first):
        first, place = first[place >= 0], place[place >= 0]
    folder.leave("queries.npy", vectors[first])
    folder.leave("texts.npy", hashes[first])
    folder.leave("known.npy", place)
    folder.leave("crowded.npy", all_crowded)


def _places(wanted: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Place of each key among ascending distinct ones, -1 where it is not there."""
    place = np.searchsorted(ordered, wanted)
    there = place < len(ordered)
    there[there] = ordered[place[there]] == wanted[there]
    return np.where(there, place, -1)


def _held_out_rows(job: NightJob, night: Night) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and hashes of the rows that were held out before tonight and still are."""
    if night.held_out is None:
        return np.empty((0, job.dim), np.float32), np.empty((0, 16), np.uint8)
    standing = Standing(job, night, night.held_out)
    with storage.on_local_disk(job.folder.stored(night.held_out.path)) as path:
        vectors = flat_vectors(path)
    hashes = as_hashes(standing.table.column("row_hash").combine_chunks())
    return vectors[standing.keep], hashes[standing.keep]


def build(job: NightJob, target: Target) -> Built:
    """Write what has changed of a segment, and leave what it says of the queries."""
    night = job.night()
    sources = [Standing(job, night, night.segments[number]) for number in target.sources]
    return _rewritten(job, night, target, sources) if target.rewrite else _kept(job, night, target, sources[0])


def _kept(job: NightJob, night: Night, target: Target, standing: Standing) -> Built:
    """A segment whose file stays; its locator too, if none of its rows moved or went."""
    segment = replace(standing.segment, kind=target.kind)
    if standing.touched:
        segment = job.folder.located(segment, standing.table)
    if target.kind != HELD_OUT:
        numbers = np.where(standing.keep, np.arange(segment.rows), -1)
        exact = _known_neighbours(job, night, target.number, {target.number: numbers}, lambda: standing.table)
        keep = standing.keep if segment.deleted else None
        _leave_recall(job, night, segment, exact, keep)
    return Built(segment, segment.rows)


def _rewritten(job: NightJob, night: Night, target: Target, sources: list[Standing]) -> Built:
    """A new segment: the live rows of its sources by their codes, then new rows."""
    writer, numbers = SegmentWriter(_empty(job, night, target)), {}
    for source in sources:
        numbers[source.segment.number] = np.where(source.keep, np.cumsum(source.keep) - 1 + writer.rows, -1)
        with storage.on_local_disk(job.folder.stored(source.segment.path)) as path:
            writer.copy(SegmentFile(path, source.keep), source.segment.closeness)
    first_new = writer.rows
    copied = locators.concat([source.table.filter(pa.array(source.keep)) for source in sources])
    locator = locators.LocatorBuilder([copied] if len(copied) else [])
    held = target.kind == HELD_OUT
    exact = None if held else _known_neighbours(job, night, target.number, numbers, lambda: copied)
    for vectors in _new_vectors(job, _new_rows(job, night, target.pieces, held), locator):
        if exact is not None:
            exact.add(vectors, (target.number << 32) + writer.rows)
        writer.add(vectors)
    segment = job.folder.segment(target.number, target.kind, writer.to_bytes(), locator.table(), writer.closeness)
    if exact is not None:
        _leave_recall(job, night, segment, exact, None)
    return Built(segment, first_new)


def _leave_recall(
    job: NightJob, night: Night, segment: Segment, exact: ExactNeighbours, keep: np.ndarray | None
) -> None:
    """Leave what the segment says of the queries, searched as the index is."""
    depth, nprobe = night.standing["rerank"] or K, max(1, night.standing["nprobe"])
    leave_recall(job.folder, segment, exact, keep, depth, [nprobe])


def _empty(job: NightJob, night: Night, target: Target) -> bytes:
    """The index without rows that a segment starts from."""
    if target.kind == HELD_OUT:
        return train(plan_for("Flat", 0, job.dim, night.metric), np.empty((0, job.dim), np.float32))
    return storage.read_bytes(job.folder.stored(night.standing["trained"]["path"]))


def _new_rows(job: NightJob, night: Night, pieces: tuple[int, ...], held: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Shards with their new rows, ascending int64, in the pieces' order: those held out, or the others."""
    for piece in pieces:
        found = [matching.from_bytes(job.folder.read(f"new-{b}.arrow"), piece) for b in range(night.buckets)]
        table = pa.concat_tables(found)
        shard, row, out = (table.column(name).to_numpy() for name in ("shard", "row", "held"))
        for number in np.unique(shard[out == held]):
            yield night.came_shards[number], np.sort(row[(shard == number) & (out == held)])


def _new_vectors(
    job: NightJob, new: Iterator[tuple[str, np.ndarray]], locator: locators.LocatorBuilder
) -> Iterator[np.ndarray]:
    """Vectors of new rows, float32 [n, d], many shards' in a block; their places are added to the locator."""
    waiting: list[np.ndarray] = []
    for shard, rows in new:
        found = take_rows(job.folder.stored(shard), rows, ["id", "row_hash", "embedding"]).combine_chunks()
        ids, hashes, vectors = (column.chunk(0) for column in found.columns)
        locator.add(shard, rows, ids, hashes)
        waiting.append(as_matrix(vectors))
        if sum(map(len, waiting)) >= BLOCK_ROWS:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _known_neighbours(
    job: NightJob, night: Night, target: int, numbers: dict[int, np.ndarray], locator: Callable[[], pa.Table]
) -> ExactNeighbours:
    """The queries' true neighbours among rows that the index had before tonight.

    `numbers` maps local rows of standing segments to local rows of the target, -1 for deleted ones; `locator` gives the
    target's locator as far as these rows go. For queries whose neighbours are not known all those rows are read.
    """
    queries, place = job.folder.take("queries.npy"), job.folder.take("known.npy")
    exact = ExactNeighbours(queries, K, night.metric)
    gains, positions, bound = (array.copy() for array in exact.lists())
    known, had = job.known(night), np.flatnonzero(place >= 0)
    theirs, bound[had] = known.positions[place[had]], known.bound[place[had]]
    for number, local in numbers.items():
        here = (theirs >= 0) & (theirs >> 32 == number)
        here[here] = local[theirs[here] & 0xFFFFFFFF] >= 0
        query, column = np.nonzero(here)
        gains[had[query], column] = known.gains[place[had]][query, column]
        positions[had[query], column] = local[theirs[here] & 0xFFFFFFFF] | target << 32
    unknown = np.flatnonzero(place < 0)
    if len(unknown):
        found = _search(job, ExactNeighbours(queries[unknown], K, night.metric), locator(), target)
        gains[unknown], positions[unknown], bound[unknown] = found.lists()
    return ExactNeighbours.of_lists(queries, K, night.metric, gains, positions, bound)


def _search(job: NightJob, exact: ExactNeighbours, locator: pa.Table, target: int) -> ExactNeighbours:
    """Neighbours among all live rows of a locator, read from their shards."""
    shards, names = locators.shards_of(locator)
    row = locator.column("row").to_numpy()
    for number, name in enumerate(names):
        local = np.flatnonzero(shards == number)
        if len(local):
            vectors = take_rows(job.folder.stored(name), row[local], ["embedding"]).column(0).combine_chunks()
            exact.add(as_matrix(vectors), local + (target << 32))
    return exact


def weigh(job: NightJob, built: list[Built]) -> tuple[dict[str, Any], str | None]:
    """The manifest's `index` entry, with recall measured again; and why to train anew instead, if at all."""
    night, folder = job.night(), job.folder
    built = sorted(built, key=lambda b: b.segment.number)
    segments = [b.segment for b in built]
    listed = [segment for segment in segments if segment.kind != HELD_OUT]
    exact, found, sizes = take_recall(folder, folder.take("queries.npy"), night.metric, listed)
    recall, changed = _measured(night, exact, found, built)
    path, sha256 = folder.write(_known_now(job, exact).to_bytes(), "parquet")
    entry = {
        **night.standing,
        "request": night.request,
        "rows": sum(segment.live for segment in segments),
        "segments": [entry_of(segment) for segment in segments],
        "queries": {"path": path, "sha256": sha256},
        "recall": recall,
        "recall_changed": changed,
        "change": json.loads(folder.read("decision.json"))["change"],
    }
    then, high = night.standing["trained"], recall["high"] if recall else None
    before = Fit(then["imbalance"], then["closeness"], then["recall"])
    now = Fit(imbalance(sizes), closeness_of(listed), recall["value"] if recall else None, high)
    return entry, drifted(before, now, night.metric)


def _measured(
    night: Night, exact: ExactNeighbours, found: Candidates | None, built: list[Built]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Recall as the index is searched, over all rows and over tonight's."""
    if found is None:
        return None, None
    positions = found.positions(found.nprobes[0])
    recall, changed = recall_of(exact, positions), recall_among(exact, positions, _new_positions(built))
    asked = {"nprobe": found.nprobes[0], "rerank": night.standing["rerank"], "target": night.request["target_recall"]}
    return {**recall, **asked} if recall else None, changed


def _known_now(job: NightJob, exact: ExactNeighbours) -> held_out.Known:
    """The queries that can be measured with the next night too."""
    settled = exact.settled
    gains, positions, bound = (array[settled] for array in exact.lists())
    texts = job.folder.take("texts.npy")[settled]
    return held_out.Known(texts, gains, positions, bound, job.folder.take("crowded.npy"))


def _new_positions(built: list[Built]) -> Callable[[np.ndarray], np.ndarray]:
    """Which positions are rows that came tonight; the segments are in the order of their numbers."""
    numbers, first = np.array([(b.segment.number, b.first_new) for b in built]).T

    def is_new(positions: np.ndarray) -> np.ndarray:
        place = np.clip(np.searchsorted(numbers, positions >> 32), 0, len(numbers) - 1)
        return (positions & 0xFFFFFFFF) >= first[place]

    return is_new
