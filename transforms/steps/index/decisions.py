"""The decisions about a run's index: its kind; whether it stays, is updated, or is trained."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import (
    DamagedIndexError,
    DataGateError,
    SentenceBeamError,
)
from sentence_beam.transforms.base.pairing import group_by_size
from sentence_beam.transforms.base.values import memory_bytes
from sentence_beam.transforms.index import IndexPlan, choose_index, index_kinds
from sentence_beam.transforms.index.budgets import (
    SAMPLE,
    Budgets,
    Tried,
    base_plan,
    best,
    held_bytes,
    kinds,
    try_kinds,
)
from sentence_beam.transforms.index.index_spec import AUTO
from sentence_beam.transforms.index.metric_vectors import scored_by
from sentence_beam.transforms.index.sizes import step_bytes
from sentence_beam.transforms.index.upkeep import Fit, drifted, imbalance, resized
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.steps.index import index_build, index_recall, scratch, update
from sentence_beam.transforms.steps.index.index_build import IndexJob, TrainingGroup
from sentence_beam.transforms.steps.index.index_folder import (
    SEGMENT_ROWS,
    ShardRows,
    closeness_of,
    layout_of,
)
from sentence_beam.transforms.steps.index.index_recall import DEEP, K, Measurement
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
    ChoiceEntry,
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    TriedEntry,
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
ORDINARY_RAM = 3_000_000_000  # of a worker without a hint
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
        yield from _work(run, fact.settled, requested)
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.from_error(error))


def _work(
    run: Run, settled: Settled, requested: RequestedIndex
) -> Iterator[RowsToRead | TrainingGroup]:
    shards, checksums = _shards_of(settled, run.root)
    rows = sum(rows for _, rows, _ in shards)
    before = last_with_index(run)
    request, lack = _buildable(requested, rows)
    metric = metric_of(request, run, before)
    unit = run.space.normalize or metric == "cosine"
    job = IndexUpdateJob(run.root, run.id, run.space.dim, metric)
    why = lack or requested.retrain or why_retrain(run, before, request, rows)
    if before is not None and before.index is not None and why is None:
        index = _renamed(before.index, metric, request)
        changes = _update(before, index, shards, request, unit)
        added = {path: checksums[path] for path in changes.added_shards}
        changes = replace(changes, checksums=added, erased=requested.erased)
        yield from _followed(job, changes)
        return
    work = IndexJob(
        run.root, run.id, plan_of(request, rows, run.space.dim, scored_by(metric), unit), rows,
        request, metric, why or "", _builds(before), unit,
        required=not requested.remembered and request.target_recall is not None,
    )  # fmt: skip
    yield from index_build.begin(work, shards)


def _builds(before: Manifest | None) -> int:
    """Return the number of builds of an index with the next one."""
    if before is None or before.index is None:
        return 1
    return 1 + before.index.trained.times


def _followed(job: IndexUpdateJob, changes: IndexUpdate) -> Iterator[RowsToRead | TrainingGroup]:
    """Yield the rows to read for an update, or the groups to build of if a file is damaged.

    Those of segments are looked at when these are read.
    """
    for entry in (changes.current.trained, changes.current.queries):
        damage = _damage(job, entry)
        if damage is not None:
            yield from build_again(job, changes, damage)
            return
    yield from ((job, *read) for read in update.begin(job, changes))


def _damage(job: IndexUpdateJob, entry: IndexFileEntry) -> str | None:
    """Return the line for a file of an index that is missing or was changed; None if it is not."""
    try:
        index_files.check(job.folder.stored(entry.path), entry.sha256)
    except DamagedIndexError as error:
        return job.folder.relative(error)
    return None


def _shards_of(settled: Settled, root: str) -> tuple[list[ShardRows], dict[str, str]]:
    """Return the shards in order of their paths, and the storage's checksum of each by path."""
    shards: list[ShardRows] = []
    checksums: dict[str, str] = {}
    columns = ["path", "rows", "sha256", "checksum"]
    units = read_table(root, "units", settled.units, columns)
    for unit in units.filter(units.column("path").is_valid()).to_pylist():
        shards.append((unit["path"], unit["rows"], unit["sha256"].hex()))
        checksums[unit["path"]] = unit["checksum"] or ""
    return sorted(shards), checksums


def _buildable(requested: RequestedIndex, rows: int) -> tuple[IndexRequest, str | None]:
    """Return the request, and why a remembered one became `auto`: it needs more rows."""
    lack = requested.request.spec.lack_of_rows(rows)
    if lack is None or not requested.remembered:
        return requested.request, None
    return replace(requested.request, index=AUTO), f"{lack}; from now on it is as auto chooses"


def _renamed(index: IndexEntry, metric: str, request: IndexRequest) -> IndexEntry:
    """Return an index under another metric that ranks its rows alike, as it is remembered."""
    remembered = replace(index.request, metric=request.metric)
    return replace(index, metric=metric, request=remembered)


def _update(
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


def metric_of(request: IndexRequest, run: Run, before: Manifest | None) -> str:
    """Return the metric of a run's index: requested, the last index's, or remembered.

    `before` is the last snapshot with an index. The store may have been given another metric since,
    without an index.
    """
    if request.metric != "auto":
        return request.metric
    if before is not None and before.index and before.options.metric in (None, run.options.metric):
        return before.metric
    return run.options.metric or "cosine"


def _compared_alike(a: str, b: str, space: Space) -> bool:
    """Return whether two metrics rank the rows of a space alike.

    Over rows of length 1, inner product is the cosine.
    """
    return a == b or (space.normalize and {a, b} == {"cosine", "ip"})


def last_with_index(run: Run) -> Manifest | None:
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


def why_retrain(run: Run, before: Manifest | None, request: IndexRequest, rows: int) -> str | None:
    """Return why the quantizer of the last index does not serve a run, in one line.

    Returns None if it does, "" if there is none.
    """
    current = before.index if before else None
    if before is None or current is None:
        return ""
    return (
        _other_vectors(run, before)
        or _other_index(run, before, request, current, rows)
        or resized(current.trained.corpus, rows)
    )


def _other_vectors(run: Run, before: Manifest) -> str | None:
    """Return why the vectors of a run are not those of the last index."""
    if before.space.id != run.space.id:
        return "the vectors are of another space"
    if before.generation != run.generation:
        return "everything was embedded again"
    if before.ranges != run.ranges:
        return "the vectors are stored between other bounds"
    return None


def _other_index(
    run: Run, before: Manifest, request: IndexRequest, current: IndexEntry, rows: int
) -> str | None:
    """Return why a request is not for the kind of the current index."""
    metric = metric_of(request, run, before)
    if request.kind != current.request.kind:
        return "another index was asked for"
    if not _compared_alike(metric, current.metric, before.space):
        return "another index was asked for"
    if request.spec.is_automatic and current.factory == "Flat" and rows >= index_kinds.FLAT_BELOW:
        return f"{rows:,} rows; Flat is for less than {index_kinds.FLAT_BELOW:,}"
    return None


def buckets_to_match(
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
    budgets = budgets_of(changes.request)
    again = current.trained
    work = IndexJob(
        job.root, job.run, job.plan(changes), changes.rows, changes.request, job.metric, why,
        1 + again.times, changes.unit, again=again, choice=current.choice,
    )  # fmt: skip
    if trains or budgets.choose or _damage(job, again) is not None:
        plan = plan_of(changes.request, changes.rows, job.dim, changes.metric, changes.unit)
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
        entry, why = _measured(job, built)
    if why is not None:
        yield from build_again(job, job.update(), why, trains=True)
    else:
        yield RunFact(index=IndexRecord(entry))


def _measured(job: IndexUpdateJob, built: list[SegmentBuild]) -> tuple[IndexEntry, str | None]:
    """Return the index with recall measured again, and why to train instead, if at all."""
    changes = job.update()
    folder = job.folder
    current = changes.current
    of_lists = [
        outcome for outcome in built if outcome.segment and outcome.segment.kind != HELD_OUT
    ]
    kept = [outcome.segment for outcome in of_lists if outcome.kept and outcome.segment]
    written = [outcome.segment for outcome in of_lists if not outcome.kept and outcome.segment]
    measured = index_recall.measured_kept(folder, job.known_queries(), changes.asking, kept)
    measured = measured.with_written(folder, sorted(written, key=lambda segment: segment.number))
    fresh = [folder.take(scratch.fresh(segment.number)) for segment in written]
    is_new = np.concatenate([np.empty(0, np.int64), *fresh])
    target = changes.request.target
    near, changed = index_recall.recall_at(current, target, measured, K, is_new)
    deep = (
        index_recall.recall_at(current, target, measured, DEEP, is_new)[0]
        if current.recall_100
        else None
    )
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
        layout=layout_of(plan),
    )
    then = current.trained
    before = Fit(then.imbalance, then.closeness, then.recall)
    sizes = measured.rows_of_lists(plan.nlist)
    now = Fit(imbalance(sizes), closeness_of([*kept, *written]), None)
    if near is not None:
        now = replace(now, recall=near.value, high=near.high)
    return entry, drifted(before, now, changes.metric)


def _leave_known(job: IndexUpdateJob, measured: Measurement) -> IndexFileEntry:
    """Write what the next run is to know: of queries whose neighbours and answers are settled."""
    folder = job.folder
    queries = measured.known(folder.take(scratch.TEXTS), folder.take(scratch.CROWDED))
    asking = job.update().asking
    settled = measured.exact.at(K).settled
    settled &= measured.found.settled(asking.nprobes[0], K)
    queries = queries.of(np.flatnonzero(settled))
    return IndexFileEntry(*folder.write(queries.to_bytes(), "queries"))


def budgets_of(request: IndexRequest) -> Budgets:
    """Return the budgets of an index request."""
    return Budgets(request.target, request.max_bytes_per_row, request.max_latency_ms)


def plan_of(request: IndexRequest, rows: int, dim: int, metric: str, unit: bool) -> IndexPlan:
    """Return the plan to train; if kinds are to be compared, with the lists of all of them.

    Raises OptionError if no allowed index can be built of so many rows, or is small enough.
    """
    budgets = budgets_of(request)
    if not budgets.choose:
        return choose_index(rows, dim, request.spec, metric=metric, unit=unit)
    if request.index != AUTO:
        choose_index(rows, dim, request.spec, metric=metric, unit=unit)
    return base_plan(kinds(request.spec, rows, dim, metric, unit, budgets), rows)


def largest(request: IndexRequest, rows: int, dim: int) -> IndexPlan:
    """Return the plan of a request; if kinds are to be compared, the one that holds most."""
    budgets = budgets_of(request)
    if request.index == AUTO and not budgets.choose:
        return choose_index(rows, dim)
    return kinds(request.spec, rows, dim, "ip", True, budgets)[0]


def least_ram(request: IndexRequest, rows: int, dim: int, min_ram: str | None = None) -> str | None:
    """Return the memory that the steps of an index need, for Beam; None if any worker has it.

    A store without rows, or with too few for the index, needs none. `--min-ram` may ask for more.
    """
    if not rows or request.spec.lack_of_rows(rows):
        return min_ram
    needed = step_bytes(largest(request, rows, dim), rows)
    if needed <= ORDINARY_RAM or (min_ram is not None and memory_bytes(min_ram) >= needed):
        return min_ram
    return f"{-(-needed // 10**9)}GB"


def choose_kind(
    job: IndexJob, trained: bytes, sample: np.ndarray, queries: np.ndarray, tuning: np.ndarray
) -> tuple[IndexJob, bytes]:
    """Return the job with its kind of index, and the trained index of that kind, as bytes.

    `trained` is the index of the job's plan, `sample` float32 [m, dim] of its rows. Raises
    DataGateError if no kind serves the budgets and one is `required`.
    """
    request = job.request
    budgets = budgets_of(request)
    base = job.plan
    if not budgets.choose:
        why = "asked for by name"
        if request.spec.is_automatic:
            why = f"{request.index}, for {job.rows:,} rows"
        return replace(job, choice=ChoiceEntry(why, held_bytes(base))), trained
    plans = kinds(request.spec, job.rows, base.dim, base.metric, job.unit, budgets)
    few = np.ascontiguousarray(sample[:: max(1, -(-len(sample) // SAMPLE))])
    tried = try_kinds(plans, trained, few, queries, tuning, job.rows, budgets)
    kind, reached = best(tried, budgets)
    share = f"finds {kind.recall or 0:.3f} of the 10 nearest among a sample of {len(few):,} rows"
    if job.required and not reached:
        costs = f"{kind.row_bytes:,} bytes a row, {kind.query_bytes:,} a query"
        raise DataGateError(
            f"--target-recall {budgets.target:g}: no index reaches {budgets}; the best,"
            f" {kind.plan.factory} ({costs}), {share}; ask for less, or allow more"
        )
    why = _why_kind(kind, len(tried), budgets)
    if not reached:
        kinds_tried = _kinds_tried(len(tried))
        why = f"{kinds_tried} within its bytes, none reaching {budgets}; it {share}"
    choice = ChoiceEntry(why, kind.row_bytes, kind.query_bytes, tuple(map(_entry, tried)))
    return replace(job, plan=kind.plan, choice=choice, most_lists=kind.most_lists), kind.trained


def _kinds_tried(count: int) -> str:
    return "the only kind" if count == 1 else f"of {count} kinds"


def _why_kind(kind: Tried, count: int, budgets: Budgets) -> str:
    if kind.plan.factory == "Flat":
        return f"exact, for {budgets}"
    reason = f"{_kinds_tried(count)} for {budgets}"
    return reason if count == 1 else f"{reason}, the one that finds most"


def _entry(kind: Tried) -> TriedEntry:
    return TriedEntry(
        kind.plan.factory,
        kind.row_bytes,
        kind.query_bytes,
        kind.nprobe,
        kind.recall,
        kind.recall_100,
    )
