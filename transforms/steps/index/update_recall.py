"""Recall of an updated index, by held-out texts whose true neighbours are kept."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow import as_hashes, as_keys
from sentence_beam.transforms.index import Candidates, ExactNeighbours, TrainedIndex
from sentence_beam.transforms.index.choose import depth_for
from sentence_beam.transforms.index.recall import recall_among, recall_of
from sentence_beam.transforms.index.segment import flat_vectors
from sentence_beam.transforms.index.upkeep import Fit, drifted, imbalance
from sentence_beam.transforms.steps.index import build as index_build
from sentence_beam.transforms.steps.index import held_out, scratch
from sentence_beam.transforms.steps.index.answers import keep_answers
from sentence_beam.transforms.steps.index.build import TrainingGroup
from sentence_beam.transforms.steps.index.files import (
    DEEP,
    Folder,
    K,
    closeness_of,
    layout_of,
    leave_recall,
    recall_grid,
    take_recall,
)
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.steps.index.listed import ListedSource
from sentence_beam.transforms.steps.index.update import (
    HELD_OUT,
    IndexUpdate,
    IndexUpdateJob,
    SegmentState,
)
from sentence_beam.transforms.store.index_entries import (
    ChangeEntry,
    IndexEntry,
    IndexFileEntry,
    RecallEntry,
    SegmentEntry,
    TunedRecallEntry,
)
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.runs.facts import IndexRecord, RunFact
from sentence_beam.transforms.store.shards.reading import take_rows

IsNew = Callable[[np.ndarray], np.ndarray]  # whether positions int64 are new rows, bool


@dataclass(frozen=True)
class BuiltSegment:
    """A segment of the updated index; its local rows from `first_new` on are new.

    Of a range that `has_new` rows, other rows are new too, whose numbers are in a file. If it was
    `asked` no query, its kept answers stay.
    """

    segment: SegmentEntry
    first_new: int
    has_new: bool = False
    asked: bool = True


@dataclass(frozen=True)
class SegmentBuild:
    """A built segment, rows left by list, or the line that names a damaged file of the last index.

    None of these if there are no rows. `restored` names the damaged files of segments that were
    made again.
    """

    built: BuiltSegment | None = None
    listed: ListedSource | None = None
    damaged: str | None = None
    restored: str | None = None


def leave_queries(job: IndexUpdateJob, update: IndexUpdate, crowded: list[str]) -> None:
    """Leave the held-out texts to report on: vectors, hashes, places among the known ones.

    The place is -1 if a text's neighbours are not known. Such texts are left out, until there are
    so many that all rows are read for them.
    """
    known = job.known_queries(update)
    folder = job.folder
    new_crowded = np.frombuffer(bytes.fromhex("".join(crowded)), np.uint8).reshape(-1, 16)
    all_crowded = np.concatenate([known.crowded, new_crowded])
    vectors, hashes = _held_out_rows(job, update)
    keys, first = np.unique(as_keys(hashes), return_index=True)
    first = first[~np.isin(keys, as_keys(all_crowded))]
    first = first[held_out.reporting_half(hashes[first])]
    place = _places(as_keys(hashes[first]), as_keys(known.texts))
    if np.count_nonzero(place < 0) <= held_out.UNMEASURED * len(first):
        first = first[place >= 0]
        place = place[place >= 0]
    folder.leave(scratch.QUERIES, vectors[first])
    folder.leave(scratch.TEXTS, hashes[first])
    folder.leave(scratch.KNOWN, place)
    folder.leave(scratch.CROWDED, all_crowded)


def _places(wanted: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return the place of each key among ascending distinct ones, -1 if it is missing."""
    place = np.searchsorted(ordered, wanted)
    there = place < len(ordered)
    there[there] = ordered[place[there]] == wanted[there]
    return np.where(there, place, -1)


def _held_out_rows(job: IndexUpdateJob, update: IndexUpdate) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors and hashes of the rows that stay held out in the update."""
    if update.held_out is None:
        return np.empty((0, job.dim), np.float32), np.empty((0, 16), np.uint8)
    state = SegmentState(job, update, update.held_out)
    with job.folder.on_disk(update.held_out) as path:
        vectors = flat_vectors(path)
    hashes = as_hashes(state.table.column("row_hash").combine_chunks())
    return vectors[state.keep], hashes[state.keep]


def leave_segment_recall(
    job: IndexUpdateJob,
    update: IndexUpdate,
    built: tuple[SegmentEntry, TrainedIndex],
    exact: ExactNeighbours,
    keep: np.ndarray | None,
) -> None:
    """Leave a segment's neighbours of the queries, searched with the index's settings."""
    current = update.current
    depth = depth_for(DEEP, current.rerank)
    leave_recall(job.folder, *built, exact, keep, depth, recall_grid(current))


def known_neighbours(
    job: IndexUpdateJob,
    update: IndexUpdate,
    target: int,
    numbers: dict[int, np.ndarray],
    locator: Callable[[], pa.Table],
) -> ExactNeighbours:
    """Return the queries' true neighbours among rows that the index had before.

    `numbers` maps local rows of current segments to local rows of the target, -1 for deleted ones;
    `locator` returns the target's locator for these rows. For queries whose neighbours are not
    known all those rows are read.
    """
    queries = job.folder.take(scratch.QUERIES)
    place = job.folder.take(scratch.KNOWN)
    exact = ExactNeighbours(queries, DEEP, update.metric)
    gains, positions, bound = (array.copy() for array in exact.lists())
    known = job.known_queries(update)
    had = np.flatnonzero(place >= 0)
    theirs = known.positions[place[had]]
    bound[had] = known.bound[place[had]]
    for number, local in numbers.items():
        here = (theirs >= 0) & (theirs >> 32 == number)
        here[here] = local[theirs[here] & 0xFFFFFFFF] >= 0
        query, column = np.nonzero(here)
        gains[had[query], column] = known.gains[place[had]][query, column]
        positions[had[query], column] = local[theirs[here] & 0xFFFFFFFF] | target << 32
    unknown = np.flatnonzero(place < 0)
    if len(unknown):
        found = _search(
            job, ExactNeighbours(queries[unknown], DEEP, update.metric), locator(), target
        )
        gains[unknown], positions[unknown], bound[unknown] = found.lists()
    return ExactNeighbours.of_lists(queries, DEEP, update.metric, gains, positions, bound)


def _search(
    job: IndexUpdateJob, exact: ExactNeighbours, locator: pa.Table, target: int
) -> ExactNeighbours:
    """Return neighbours among all live rows of a locator, read from their shards."""
    shards, names = locators.shards_of(locator)
    row = locator.column("row").to_numpy()
    for number, name in enumerate(names):
        local = np.flatnonzero(shards == number)
        if len(local):
            vectors = (
                take_rows(job.folder.stored(name), row[local], ["embedding"])
                .column(0)
                .combine_chunks()
            )
            exact.add(job.folder.vectors(vectors), local + (target << 32))
    return exact


def conclude(found: list[tuple[IndexUpdateJob, SegmentBuild]]) -> Iterator[RunFact | TrainingGroup]:
    """Yield the updated index, or the groups of an index to train in its place.

    The latter if the quantizer no longer fits the rows, or a file of the last index is damaged.
    """
    job = found[0][0]
    built = [build.built for _, build in found if build.built is not None]
    damaged = sorted(build.damaged for _, build in found if build.damaged is not None)
    if damaged:
        yield from retrain(job, damaged[0])
        return
    with progress.stage("index: measuring recall"):
        entry, why = measure(job, built)
    restored = sorted(build.restored for _, build in found if build.restored is not None)
    if restored and entry.change is not None:
        reasons = "; ".join(filter(None, [*restored, entry.change.why]))
        entry = replace(entry, change=replace(entry.change, why=reasons))
    if why:
        yield from retrain(job, why)
    else:
        yield RunFact(index=IndexRecord(entry))


def retrain(job: IndexUpdateJob, why: str) -> list[TrainingGroup]:
    """Return the groups of an index to be trained and built instead of the update."""
    update = job.update()
    shards = [(path, rows, sha256) for path, rows, sha256 in update.shards]
    return index_build.begin(job, shards, update.request, update.current, why, unit=update.unit)


def measure(job: IndexUpdateJob, built: list[BuiltSegment]) -> tuple[IndexEntry, str | None]:
    """Return the index with recall measured again, and why to retrain instead, if at all."""
    update = job.update()
    folder = job.folder
    built = sorted(built, key=lambda b: b.segment.number)
    segments = [b.segment for b in built]
    listed = [segment for segment in segments if segment.kind != HELD_OUT]
    nlist = job.plan(update).nlist
    exact, found, sizes = take_recall(
        folder, folder.take(scratch.QUERIES), update.metric, listed, nlist
    )
    is_new = _new_positions(folder, built)
    recall, changed = _measured(update, exact.at(K), found, is_new)
    deep = None
    if update.current.recall_100:
        deep = _measured(update, exact, found, is_new)[0]
    entry = replace(
        update.current,
        request=update.request,
        rows=sum(segment.live for segment in segments),
        segments=tuple(_with_answers(job, update, one) for one in built),
        queries=IndexFileEntry(*folder.write(_known_now(job, exact).to_bytes(), "parquet")),
        recall=recall,
        recall_changed=changed,
        recall_100=deep,
        change=folder.parsed(
            scratch.DECISION, lambda data: ChangeEntry.from_json(json.loads(data)["change"])
        ),
        layout=layout_of(segments),
    )
    then = update.current.trained
    before = Fit(then.imbalance, then.closeness, then.recall)
    now = Fit(imbalance(sizes), closeness_of(listed), None)
    if recall is not None:
        now = replace(now, recall=recall.value, high=recall.high)
    return entry, drifted(before, now, update.metric)


def _with_answers(job: IndexUpdateJob, update: IndexUpdate, built: BuiltSegment) -> SegmentEntry:
    """Return a segment; a range that was asked keeps its answers."""
    segment = built.segment
    if not segment.lists or not built.asked:
        return segment
    texts = job.folder.take(scratch.TEXTS)
    every = np.ones(len(texts), bool)
    answers = keep_answers(job.folder, segment, texts, every, recall_grid(update.current))
    return replace(segment, answers=answers)


def _measured(
    update: IndexUpdate, exact: ExactNeighbours, found: Candidates | None, is_new: IsNew
) -> tuple[TunedRecallEntry | None, RecallEntry | None]:
    """Return recall over all rows and over the new ones; None if it cannot be measured."""
    if found is None:
        return None, None
    nprobe = max(1, update.current.nprobe_for(exact.k))
    depth = depth_for(exact.k, update.current.rerank)
    positions = found.positions(nprobe, depth)
    recall = recall_of(exact, positions)
    changed = recall_among(exact, positions, is_new)
    rerank = depth if depth > exact.k else 0
    target = update.request.target
    tuned = None
    if recall:
        tuned = TunedRecallEntry(**recall, nprobe=nprobe, rerank=rerank, target=target)
    if not changed:
        return tuned, None
    return tuned, RecallEntry(**changed)


def _known_now(job: IndexUpdateJob, exact: ExactNeighbours) -> KnownQueries:
    """Return the queries whose true neighbours are known for the next update too."""
    settled = exact.at(K).settled
    gains, positions, bound = (array[settled] for array in exact.lists())
    texts = job.folder.take(scratch.TEXTS)[settled]
    return KnownQueries(texts, gains, positions, bound, job.folder.take(scratch.CROWDED))


def _new_positions(folder: Folder, built: list[BuiltSegment]) -> IsNew:
    """Return a test whether positions are new rows.

    The segments are in the order of their numbers.
    """
    numbers, first = np.array([(b.segment.number, b.first_new) for b in built]).T
    others = [np.empty(0, np.int64)]
    for one in built:
        if one.has_new:
            others.append(folder.take(scratch.fresh(one.segment.number)) | one.segment.number << 32)
    among = np.concatenate(others)

    def is_new(positions: np.ndarray) -> np.ndarray:
        place = np.clip(np.searchsorted(numbers, positions >> 32), 0, len(numbers) - 1)
        return ((positions & 0xFFFFFFFF) >= first[place]) | np.isin(positions, among)

    return is_new
