"""The work that a run's index needs: none, an update, or training and building."""

from collections.abc import Iterator
from dataclasses import replace

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.pairs import group_by_size
from sentence_beam.transforms.index import choose as index_choice
from sentence_beam.transforms.index.spec import AUTO
from sentence_beam.transforms.index.upkeep import resized
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.steps.index import build as index_build
from sentence_beam.transforms.steps.index import update as index_update
from sentence_beam.transforms.steps.index.build import TrainingGroup
from sentence_beam.transforms.steps.index.files import SEGMENT_ROWS
from sentence_beam.transforms.steps.index.matching import BUCKET_ROWS
from sentence_beam.transforms.steps.index.repair import repaired
from sentence_beam.transforms.steps.index.update import (
    HELD_OUT,
    IndexUpdate,
    IndexUpdateJob,
    Reading,
    ShardRows,
)
from sentence_beam.transforms.steps.index.update_recall import retrain
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexRequest
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.facts import IndexRecord, RunFact
from sentence_beam.transforms.store.runs.settle import Settled
from sentence_beam.transforms.store.tables.parts import read_table

# how far back to look for an index to update, past snapshots without one
SNAPSHOTS_BACK = 32
# "added" and a group, or "removed" or "standing" and a segment
RowsToRead = tuple[IndexUpdateJob, str, int]


def choose_work(
    fact: RunFact,
    run: Run,
    request: IndexRequest,
    merge: bool,
    remembered: bool = False,
    retrain: str = "",
) -> Iterator[RowsToRead | TrainingGroup | RunFact]:
    """Yield the rows to read for an update, the groups to train on, or the problem.

    A `remembered` request that the rows are too few for becomes `auto`. `retrain` says why the
    index is trained again, whatever changed; "" if it is not.
    """
    if fact.settled is None:
        yield fact
        return
    try:
        yield from _work(run, fact.settled, (request, merge, remembered), retrain)
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.of(error))


def _work(
    run: Run, settled: Settled, how: tuple[IndexRequest, bool, bool], retrained: str
) -> Iterator[RowsToRead | TrainingGroup]:
    request, merge, remembered = how
    shards, checksums = _shards_of(settled, run.root)
    rows = sum(rows for _, rows, _ in shards)
    before = last_with_index(run)
    required = not remembered and request.target_recall is not None
    request, lack = _buildable(request, rows, remembered)
    metric = metric_of(request, run, before)
    unit = run.space.normalize or metric == "cosine"
    job = IndexUpdateJob(run.root, run.id, run.space.dim, metric)
    last = before.index if before else None
    why = lack or retrained or why_retrain(run, before, request, rows)
    if why is None and before is not None and last is not None:
        update = _update(before, _renamed(last, metric, request), shards, request, merge, unit)
        update = replace(update, checksums={path: checksums[path] for path in update.added_shards})
        yield from ((job, *read) for read in index_update.begin(job, update))
        return
    yield from index_build.begin(
        job, shards, request, last, why or "", unit=unit, required=required
    )


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


def _buildable(
    request: IndexRequest, rows: int, remembered: bool
) -> tuple[IndexRequest, str | None]:
    """Return the request, and why a remembered one became `auto`: it needs more rows."""
    lack = request.spec.lack_of_rows(rows)
    if lack is None or not remembered:
        return request, None
    return replace(request, index=AUTO), f"{lack}; from now on it is as auto chooses"


def _renamed(index: IndexEntry, metric: str, request: IndexRequest) -> IndexEntry:
    """Return an index under another metric that ranks its rows alike, as it is remembered."""
    remembered = replace(index.request, metric=request.metric)
    return replace(index, metric=metric, request=remembered)


def _update(
    before: Manifest,
    index: IndexEntry,
    shards: list[ShardRows],
    request: IndexRequest,
    merge: bool,
    unit: bool,
) -> IndexUpdate:
    """Return the update that brings the index of a snapshot to these shards."""
    known = before.shards.to_pydict()
    old = dict(zip(known["path"], known["rows"], strict=True))
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
        merge=merge,
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


def buckets_to_match(
    read: list[tuple[IndexUpdateJob, Reading]],
) -> Iterator[tuple[IndexUpdateJob, int] | TrainingGroup | RunFact]:
    """Yield the buckets to match, or what needs none.

    These are the groups to train on if a file of the index is damaged, the last index if it stays,
    or the problem of a damaged shard. Repaired segments are those of the index from now on.
    """
    job = read[0][0]
    problems = [reading.problem for _, reading in read if reading.problem is not None]
    damaged = sorted(reading.damaged for _, reading in read if reading.damaged is not None)
    update = job.update()
    if problems:
        yield RunFact(problem=min(problems, key=lambda problem: problem.message))
        return
    if damaged:
        yield from retrain(job, damaged[0])
        return
    repairs = [reading.repair for _, reading in read if reading.repair is not None]
    if repairs:
        job, update = repaired(job, update, repairs)
    if update.is_none:
        yield RunFact(index=IndexRecord(update.current))
    else:
        yield from ((job, bucket) for bucket in range(update.buckets))


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
    """Return why the last index cannot be updated, in one line.

    Returns None if it can, "" if there is none.
    """
    current = before.index if before else None
    if before is None or current is None:
        return ""
    return (
        _other_vectors(run, before)
        or _other_index(run, before, request, current, rows)
        or _damage(run.root, current)
        or resized(current.trained.corpus, rows)
    )


def _other_vectors(run: Run, before: Manifest) -> str | None:
    """Return why the vectors of a run are not those of the last index."""
    if before.space.id != run.space.id:
        return "the vectors are of another space"
    if before.generation != run.generation:
        return "everything was embedded anew"
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
    if not current.queries.path:
        return "the last one was built by an earlier version"
    if request.spec.is_automatic and current.factory == "Flat" and rows >= index_choice.FLAT_BELOW:
        return f"{rows:,} rows; Flat is for less than {index_choice.FLAT_BELOW:,}"
    return None


def _damage(root: str, index: IndexEntry) -> str | None:
    """Return the line for the first file of an index that is missing or damaged.

    Files that are read as a whole are compared by sha256, others by size. Those of ranges and other
    segments are looked at later, because each is made again alone, but for the held-out rows.
    """
    alone = {name for one in index.segments if one.kind != HELD_OUT for name in one.files}
    sizes = {segment.path: segment.bytes for segment in index.segments}
    whole = {entry.path: entry.sha256 for entry in (index.trained, index.queries)}
    for name, _ in index.files:
        if name in alone:
            continue
        path = storage.join(root, name)
        entry = storage.storage_of(root).stat(path)
        if entry is None or entry.size != sizes.get(name, entry.size):
            return f"{name} is missing or cut short"
        if name in whole and storage.sha256_of(path)[0] != whole[name]:
            return f"{name} was changed after it was written (sha256 differs)"
    return None
