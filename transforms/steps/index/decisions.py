"""The decisions about a run's index: whether it stays, is updated, or is trained."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError
from sentence_beam.transforms.base.pairing import group_by_size
from sentence_beam.transforms.index import index_kinds
from sentence_beam.transforms.index.index_spec import AUTO
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric
from sentence_beam.transforms.index.upkeep import Fit, explain_drifted, explain_resized, imbalance
from sentence_beam.transforms.steps.index import index_build, index_recall, scratch, update
from sentence_beam.transforms.steps.index.index_build import IndexJob, TrainingGroup
from sentence_beam.transforms.steps.index.index_folder import (
    SEGMENT_ROWS,
    ShardRows,
    average_closeness,
    choose_layout,
)
from sentence_beam.transforms.steps.index.index_recall import DEEP, K, Measurement
from sentence_beam.transforms.steps.index.kind_choice import choose_plan, make_budgets
from sentence_beam.transforms.steps.index.matching import BUCKET_ROWS
from sentence_beam.transforms.steps.index.segments import SegmentBuild
from sentence_beam.transforms.steps.index.update import (
    HELD_OUT,
    ErasedFromIndex,
    IndexUpdate,
    IndexUpdateJob,
)
from sentence_beam.transforms.steps.index.update_rows import Reading
from sentence_beam.transforms.store.index_entries import (
    ChangeEntry,
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    RecallEntry,
    SegmentEntry,
    TunedRecallEntry,
)
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import IndexRecord, RunFact
from sentence_beam.transforms.store.runs.settled_tables import Settled
from sentence_beam.transforms.store.tables.table_parts import read_table

# how far back to look for an index to update, past snapshots without one
SNAPSHOTS_BACK = 32
# "added" and a group, or "removed" or "standing" and a segment
RowsToRead = tuple[IndexUpdateJob, str, int]


@dataclass(frozen=True)
class RequestedIndex:
    """The request for a run's index, and how it is taken.

    A `remembered` request that the rows are too few for becomes `auto`. `retrain` says why the
    index is trained again, whatever changed; "" if it is not. `erased` is what has to leave the
    index, None for a run that erases no rows.
    """

    request: IndexRequest
    remembered: bool = False
    retrain: str = ""
    erased: ErasedFromIndex | None = None


def choose_work(
    fact: RunFact, run: Run, requested: RequestedIndex
) -> Iterator[RowsToRead | TrainingGroup | RunFact]:
    """Yield the rows to read for an update, the groups to train on, or the problem."""
    if fact.settled is None:
        yield fact
        return
    try:
        yield from _choose_work(run, fact.settled, requested)
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.from_error(error))


def _choose_work(
    run: Run, settled: Settled, requested: RequestedIndex
) -> Iterator[RowsToRead | TrainingGroup]:
    shards, checksums = _read_shards(settled, run.root)
    rows = sum(rows for _, rows, _ in shards)
    before = find_last_with_index(run)
    request, lack = _replace_unbuildable(requested, rows)
    metric = choose_metric(request, run, before)
    unit = run.space.normalize or metric == "cosine"
    job = IndexUpdateJob(run.root, run.id, run.space.dim, metric)
    why = lack or requested.retrain or explain_retrain(run, before, request, rows)
    if before is not None and before.index is not None and why is None:
        # under another metric that ranks the rows alike, as it is remembered
        remembered = replace(before.index.request, metric=request.metric)
        index = replace(before.index, metric=metric, request=remembered)
        changes = _plan_update(before, index, shards, request, unit)
        added = {path: checksums[path] for path in changes.added_shards}
        changes = replace(changes, checksums=added, erased=requested.erased)
        yield from _begin_update(job, changes)
        return
    times = 1 + before.index.trained.times if before and before.index else 1
    work = IndexJob(
        run.root, run.id, choose_plan(request, rows, run.space.dim, choose_scoring_metric(metric), unit), rows,
        request, metric, why or "", times, unit,
        required=not requested.remembered and request.target_recall is not None,
    )  # fmt: skip
    yield from index_build.begin(work, shards)


def _begin_update(
    job: IndexUpdateJob, changes: IndexUpdate
) -> Iterator[RowsToRead | TrainingGroup]:
    """Yield the rows to read for an update, or the groups to build of if a file is damaged.

    Those of segments are looked at when these are read.
    """
    for entry in (changes.current.trained, changes.current.queries):
        damage = _find_damage(job, entry)
        if damage is not None:
            yield from build_again(job, changes, damage)
            return
    yield from ((job, *read) for read in update.begin(job, changes))


def _find_damage(job: IndexUpdateJob, entry: IndexFileEntry) -> str | None:
    """Return the line for a file of an index that is missing or was changed; None if it is not."""
    try:
        index_files.check(job.folder.stored(entry.path), entry.sha256)
    except DamagedIndexError as error:
        return job.folder.relative(error)
    return None


def _read_shards(settled: Settled, root: str) -> tuple[list[ShardRows], dict[str, str]]:
    """Return the shards in order of their paths, and the storage's checksum of each by path."""
    shards: list[ShardRows] = []
    checksums: dict[str, str] = {}
    columns = ["path", "rows", "sha256", "checksum"]
    units = read_table(root, "units", settled.units, columns)
    for unit in units.filter(units.column("path").is_valid()).to_pylist():
        shards.append((unit["path"], unit["rows"], unit["sha256"].hex()))
        checksums[unit["path"]] = unit["checksum"] or ""
    return sorted(shards), checksums


def _replace_unbuildable(requested: RequestedIndex, rows: int) -> tuple[IndexRequest, str | None]:
    """Return the request, and why a remembered one became `auto`: it needs more rows."""
    lack = requested.request.spec.lack_of_rows(rows)
    if lack is None or not requested.remembered:
        return requested.request, None
    return replace(requested.request, index=AUTO), f"{lack}; from now on it is as auto chooses"


def _plan_update(
    before: Manifest, index: IndexEntry, shards: list[ShardRows], request: IndexRequest, unit: bool
) -> IndexUpdate:
    """Return the update that brings the index of a snapshot to these shards."""
    last_shards = before.shards.to_pydict()
    old = dict(zip(last_shards["path"], last_shards["rows"], strict=True))
    new = {path for path, _, _ in shards}
    added = [shard for shard in shards if shard[0] not in old]
    removed = sorted(set(old) - new)
    rows = max(sum(n for _, n, _ in added), sum(old[path] for path in removed))
    groups = group_by_size(added, lambda shard: shard[1], SEGMENT_ROWS)
    return IndexUpdate(
        current=index,
        request=request,
        shards=shards,
        added=[[path for path, _, _ in group] for group in groups],
        removed=removed,
        buckets=1 + rows // BUCKET_ROWS,
        unit=unit,
    )


def choose_metric(request: IndexRequest, run: Run, before: Manifest | None) -> str:
    """Return the metric of a run's index: requested, the last index's, or remembered.

    `before` is the last snapshot with an index. The store may have been given another metric since,
    without an index.
    """
    if request.metric != "auto":
        return request.metric
    if before is not None and before.index and before.options.metric in (None, run.options.metric):
        return before.metric
    return run.options.metric or "cosine"


def find_last_with_index(run: Run) -> Manifest | None:
    """Return the last snapshot that has an index, if it is not long ago."""
    earlier = run.previous
    for _ in range(SNAPSHOTS_BACK):
        try:
            manifest = read_manifest(run.root, earlier) if earlier else None
        except SentenceBeamError:
            return None
        if manifest is None or manifest.index:
            return manifest
        earlier = manifest.previous
    return None


def explain_retrain(
    run: Run, before: Manifest | None, request: IndexRequest, rows: int
) -> str | None:
    """Return why the quantizer of the last index does not serve a run, in one line.

    Returns None if it does, "" if there is none.
    """
    current = before.index if before else None
    if before is None or current is None:
        return ""
    return (
        _explain_other_vectors(run, before)
        or _explain_other_index(run, before, request, current, rows)
        or explain_resized(current.trained.corpus, rows)
    )


def _explain_other_vectors(run: Run, before: Manifest) -> str | None:
    """Return why the vectors of a run are not those of the last index."""
    if before.space.id != run.space.id:
        return "the vectors are of another space"
    if before.generation != run.generation:
        return "everything was embedded again"
    if before.ranges != run.ranges:
        return "the vectors are stored between other bounds"
    return None


def _explain_other_index(
    run: Run, before: Manifest, request: IndexRequest, current: IndexEntry, rows: int
) -> str | None:
    """Return why a request is not for the kind of the current index."""
    metrics = {choose_metric(request, run, before), current.metric}
    # over rows of length 1, inner product is the cosine
    ranks_alike = len(metrics) == 1 or (before.space.normalize and metrics == {"cosine", "ip"})
    if request.kind != current.request.kind or not ranks_alike:
        return "another index was asked for"
    if request.spec.is_automatic and current.factory == "Flat" and rows >= index_kinds.FLAT_BELOW:
        return f"{rows:,} rows; Flat is for less than {index_kinds.FLAT_BELOW:,}"
    return None


def list_buckets_to_match(
    read: list[tuple[IndexUpdateJob, Reading]],
) -> Iterator[tuple[IndexUpdateJob, int] | TrainingGroup | RunFact]:
    """Yield the buckets to match, or what needs none.

    These are the groups of an index to build if a file of the last one is damaged, the last index
    if it stays, or the problem of a damaged shard.
    """
    job = read[0][0]
    problems = [reading.problem for _, reading in read if reading.problem is not None]
    damaged = sorted(reading.damaged for _, reading in read if reading.damaged is not None)
    changes = job.update()
    if problems:
        yield RunFact(problem=min(problems, key=lambda problem: problem.message))
    elif damaged:
        yield from build_again(job, changes, damaged[0])
    elif changes.is_none:
        yield RunFact(index=IndexRecord(changes.current))
    else:
        yield from ((job, bucket) for bucket in range(changes.buckets))


def build_again(
    job: IndexUpdateJob, changes: IndexUpdate, why: str, trains: bool = False
) -> list[TrainingGroup]:
    """Return the groups of an index to be built from all shards, instead of an update.

    It has the same quantizer, unless it `trains` another, or the file of that one is damaged.
    """
    current = changes.current
    budgets = make_budgets(changes.request)
    again = current.trained
    work = IndexJob(
        job.root, job.run, job.plan(changes), changes.rows, changes.request, job.metric, why,
        1 + again.times, changes.unit, again=again, choice=current.choice,
    )  # fmt: skip
    if trains or budgets.choose or _find_damage(job, again) is not None:
        plan = choose_plan(changes.request, changes.rows, job.dim, changes.metric, changes.unit)
        work = replace(work, plan=plan, again=None, choice=None)
    return index_build.begin(work, changes.shards)


def conclude(
    builds: list[tuple[IndexUpdateJob, SegmentBuild]],
) -> Iterator[RunFact | TrainingGroup]:
    """Yield the updated index, or the groups of an index to build in its place.

    The latter if the quantizer no longer fits the rows, or a file of the last index is damaged.
    """
    job = builds[0][0]
    built = [outcome for _, outcome in builds if outcome.segment is not None]
    damaged = sorted(outcome.damaged for _, outcome in builds if outcome.damaged is not None)
    if damaged:
        yield from build_again(job, job.update(), damaged[0])
        return
    with progress.stage("index: measuring recall"):
        entry, why = _measure(job, built)
    if why is not None:
        yield from build_again(job, job.update(), why, trains=True)
    else:
        yield RunFact(index=IndexRecord(entry))


def _measure(job: IndexUpdateJob, built: list[SegmentBuild]) -> tuple[IndexEntry, str | None]:
    """Return the index with recall measured again, and why to train instead, if at all."""
    changes = job.update()
    folder = job.folder
    current = changes.current
    of_lists = [
        outcome for outcome in built if outcome.segment and outcome.segment.kind != HELD_OUT
    ]
    kept = [outcome.segment for outcome in of_lists if outcome.kept and outcome.segment]
    written = [outcome.segment for outcome in of_lists if not outcome.kept and outcome.segment]
    measured = index_recall.measure_kept(folder, job.read_known_queries(), changes.asking, kept)
    measured = measured.add_written(folder, sorted(written, key=lambda segment: segment.number))
    near, changed, deep = _measure_recall(job, measured, written)
    segments = sorted(
        (outcome.segment for outcome in built if outcome.segment),
        key=lambda outcome: outcome.number,
    )
    plan = job.plan(changes)
    entry = replace(
        current,
        request=changes.request,
        rows=sum(segment.live for segment in segments),
        segments=tuple(segments),
        queries=_leave_known(job, measured),
        recall=near,
        recall_changed=changed,
        recall_100=deep,
        change=folder.parsed(scratch.CHANGE, lambda data: ChangeEntry.from_json(json.loads(data))),
        layout=choose_layout(plan),
    )
    then = current.trained
    before = Fit(then.imbalance, then.closeness, then.recall)
    sizes = measured.count_rows_of_lists(plan.nlist)
    now = Fit(imbalance(sizes), average_closeness([*kept, *written]), None)
    if near is not None:
        now = replace(now, recall=near.value, high=near.high)
    return entry, explain_drifted(before, now, changes.metric)


def _measure_recall(
    job: IndexUpdateJob, measured: Measurement, written: list[SegmentEntry]
) -> tuple[TunedRecallEntry | None, RecallEntry | None, TunedRecallEntry | None]:
    """Return recall over all rows, over the new ones, and at the other k if that is measured."""
    current = job.update().current
    target = job.update().request.target
    fresh = [job.folder.take(scratch.fresh(segment.number)) for segment in written]
    is_new = np.concatenate([np.empty(0, np.int64), *fresh])
    near, changed = index_recall.measure_recall_at(current, target, measured, K, is_new)
    if not current.recall_100:
        return near, changed, None
    return near, changed, index_recall.measure_recall_at(current, target, measured, DEEP, is_new)[0]


def _leave_known(job: IndexUpdateJob, measured: Measurement) -> IndexFileEntry:
    """Write what the next run is to know: of queries whose neighbours and answers are settled."""
    folder = job.folder
    queries = measured.known(folder.take(scratch.TEXTS), folder.take(scratch.CROWDED))
    asking = job.update().asking
    settled = measured.exact.at(K).settled
    settled &= measured.found.settled(asking.nprobes[0], K)
    queries = queries.of(np.flatnonzero(settled))
    return IndexFileEntry(*folder.write(queries.to_bytes(), "queries"))
