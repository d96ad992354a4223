"""BuildIndex: written units -> one index in segments that share a quantizer, with its recall measured.

An index that stands already follows what has changed (`Follow`); where it cannot, or serves no longer, a new one is
trained and built (`Anew`).
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from transforms import storage
from transforms.beam.commit import IndexRecord
from transforms.errors import SentenceBeamError
from transforms.index import choose as index_choice
from transforms.index.upkeep import resized
from transforms.space import Space
from transforms.steps import index_build, index_update, index_update_rows, index_update_segments
from transforms.steps.index_files import SEGMENT_ROWS, packed
from transforms.steps.index_update import Night, NightJob, begin
from transforms.steps.job import IndexRequest
from transforms.steps.matching import BUCKET_ROWS
from transforms.store.commit import Run, settle
from transforms.store.lease import kept_alive
from transforms.store.manifest import Manifest, index_files, read_manifest
from transforms.store.records import Problem, UnitRecord

DONE = "done"
ANEW = "anew"
SNAPSHOTS_BACK = 32  # how far to look for an index to follow, where snapshots without one came between


class BuildIndex(beam.PTransform):
    """Units and problems of a run -> an IndexRecord for its manifest, or the Problem that keeps it from being built.

    Where the run is to fail anyway, or nothing has changed since the last snapshot, nothing is built. `merge` makes one
    segment of an index that has several.
    """

    def __init__(self, run: Run, request: IndexRequest | None = None, merge: bool = False):
        super().__init__()
        self._run, self._request, self._merge = run, request or IndexRequest(), merge

    def expand(self, known: Any) -> beam.PCollection:
        chosen = (
            known
            | "All" >> beam.Flatten()
            | "OneKey" >> beam.Map(to_one_key)
            | "Together" >> beam.GroupByKey()
            | "Choose"
            >> beam.FlatMap(choose, self._run, self._request, self._merge).with_outputs(DONE, ANEW, main="reads")
        )
        followed = chosen.reads | "Follow" >> Follow()
        built = (chosen[ANEW], followed[ANEW]) | "Anew" >> Anew()
        return (chosen[DONE], followed[DONE], built) | "Index" >> beam.Flatten()


class Follow(beam.PTransform):
    """What a night has to read -> on `done` the IndexRecord, on `anew` the groups of an index that is to be built."""

    def expand(self, reads: beam.PCollection) -> Any:
        decided = (
            reads
            | "SpreadReads" >> beam.Reshuffle()
            | "Read" >> beam.Map(read)
            | "Reads" >> beam.GroupByKey()
            | "Buckets" >> beam.FlatMap(buckets).with_outputs(ANEW, main="buckets")
        )
        weighed = (
            decided.buckets
            | "SpreadBuckets" >> beam.Reshuffle()
            | "Match" >> beam.Map(match)
            | "Matched" >> beam.GroupByKey()
            | "Decide" >> beam.FlatMap(decide)
            | "SpreadTargets" >> beam.Reshuffle()
            | "Write" >> beam.Map(write)
            | "Written" >> beam.GroupByKey()
            | "Weigh" >> beam.FlatMap(weigh).with_outputs(ANEW, main=DONE)
        )
        return {DONE: weighed[DONE], ANEW: (decided[ANEW], weighed[ANEW]) | "ToAnew" >> beam.Flatten()}


class Anew(beam.PTransform):
    """Groups of shards -> the IndexRecord of an index trained and built over them."""

    def expand(self, groups: Any) -> beam.PCollection:
        return (
            groups
            | "Groups" >> beam.Flatten()
            | "SpreadSample" >> beam.Reshuffle()
            | "Sample" >> beam.Map(sample)
            | "Samples" >> beam.GroupByKey()
            | "Train" >> beam.FlatMap(train)
            | "SpreadBuild" >> beam.Reshuffle()
            | "Build" >> beam.Map(build)
            | "Segments" >> beam.GroupByKey()
            | "Evaluate" >> beam.Map(evaluate)
        )


def working(job: Any) -> AbstractContextManager[None]:
    """While a step of a job works, which may be longer than a lease lasts, its run is alive."""
    return kept_alive(job.root, job.run)


def to_one_key(item: Any) -> tuple[None, Any]:
    """Everything together."""
    return None, item


def choose(
    grouped: tuple[None, Iterable[UnitRecord | Problem]], run: Run, request: IndexRequest, merge: bool
) -> Iterator[Any]:
    """What there is to do: reads of a night that is followed, groups to build anew, or what needs neither."""
    found = list(grouped[1])
    units = [item for item in found if isinstance(item, UnitRecord)]
    problems = [item for item in found if isinstance(item, Problem)]
    try:
        units = settle(run, units, problems)[1]
        yield from _chosen(run, units, request, merge)
    except SentenceBeamError as error:
        yield TaggedOutput(DONE, Problem.of(error))


def _chosen(run: Run, units: list[UnitRecord], request: IndexRequest, merge: bool) -> Iterator[Any]:
    shards = [(unit.path, unit.rows) for unit in units if unit.path]
    job = NightJob(run.root, run.id, Space.from_json(run.space).dim)
    before = standing_index(run)
    why = why_anew(run, before, request, sum(rows for _, rows in shards))
    if why is not None or before is None:
        for work in index_build.begin(job, shards, request, why or "", after=False):
            yield TaggedOutput(ANEW, work)
        return
    night = _night(before, shards, request, merge)
    if night.came or night.went or (merge and sum(s.kind != "held-out" for s in night.segments.values()) > 1):
        yield from ((job, *read) for read in begin(job, night))
    else:
        yield TaggedOutput(DONE, IndexRecord(before.data["index"]))


def _night(before: Manifest, shards: list[tuple[str, int]], request: IndexRequest, merge: bool) -> Any:
    old = {unit.path: unit.rows for unit in before.units if unit.path}
    new = dict(shards)
    came = [shard for shard in shards if shard[0] not in old]
    went = sorted(set(old) - set(new))
    rows = max(sum(n for _, n in came), sum(old[path] for path in went))
    pieces = packed(came, lambda shard: shard[1], SEGMENT_ROWS)
    return Night(
        standing=before.data["index"],
        request=asdict(request),
        shards=shards,
        came=[[path for path, _ in piece] for piece in pieces],
        went=went,
        buckets=1 + rows // BUCKET_ROWS,
        merge=merge,
    )


def standing_index(run: Run) -> Manifest | None:
    """The last snapshot that has an index, if it is not long ago."""
    earlier = run.previous
    for _ in range(SNAPSHOTS_BACK):
        try:
            manifest = read_manifest(run.root, earlier) if earlier else None
        except SentenceBeamError:
            return None
        if manifest is None or manifest.data["index"]:
            return manifest
        earlier = manifest.data["previous"]
    return None


def why_anew(run: Run, before: Manifest | None, request: IndexRequest, rows: int) -> str | None:
    """Why the index of an earlier snapshot cannot follow this one, in one line; None where it can, "" without one."""
    if before is None:
        return ""
    standing = before.data["index"]
    if before.space.id != run.space["id"]:
        return "the vectors are of another space"
    if before.data.get("generation", 0) != run.generation:
        return "everything was embedded anew"
    if before.data.get("ranges") != run.ranges:
        return "the vectors are stored between other bounds"
    if replace(request, merge=False) != replace(IndexRequest(**standing["request"]), merge=False):
        return "another index was asked for"
    if "queries" not in standing:
        return "the last one was built by an earlier version"
    if request.index in ("auto", "compact") and standing["factory"] == "Flat" and rows >= index_choice.FLAT_BELOW:
        return f"{rows:,} rows; Flat is for less than {index_choice.FLAT_BELOW:,}"
    return _damage(run.root, standing) or resized(standing["trained"]["corpus"], rows)


def _damage(root: str, index: dict[str, Any]) -> str | None:
    """Which file of an index is not there, is of another size, or, where it is needed as a whole, has other bytes."""
    sizes = {segment["path"]: segment["bytes"] for segment in index["segments"]}
    whole = {index[name]["path"]: index[name]["sha256"] for name in ("trained", "queries")}
    for name, _ in index_files(index):
        path = storage.join(root, name)
        entry = storage.storage_of(root).stat(path)
        if entry is None or entry.size != sizes.get(name, entry.size):
            return f"{name} is missing or cut short"
        if name in whole and hashlib.sha256(storage.read_bytes(path)).hexdigest() != whole[name]:
            return f"{name} is damaged"
    return None


def read(work: tuple[Any, str, int]) -> tuple[None, Any]:
    """Read one piece of shards that came, or the locator of one segment."""
    with working(work[0]):
        return to_one_key((work[0], index_update_rows.read(*work)))


def buckets(grouped: tuple[None, Iterable[tuple[Any, str | None]]]) -> Iterator[Any]:
    """The buckets to match; or, where a file of the index is damaged, the groups to build anew."""
    works = list(grouped[1])
    job, damaged = works[0][0], sorted(path for _, path in works if path)
    if damaged:
        yield from _anew(job, f"{damaged[0]} is damaged")
        return
    yield from ((job, bucket) for bucket in range(job.night().buckets))


def _anew(job: Any, why: str) -> Iterator[Any]:
    night = job.night()
    shards = [(path, rows) for path, rows in night.shards]
    for work in index_build.begin(job, shards, IndexRequest(**night.request), why, after=True):
        yield TaggedOutput(ANEW, work)


def match(work: tuple[Any, int]) -> tuple[None, Any]:
    """Match the rows of one bucket."""
    with working(work[0]):
        return to_one_key((work[0], index_update_rows.match(*work)))


def decide(grouped: tuple[None, Iterable[tuple[Any, Any]]]) -> Iterator[tuple[Any, Any]]:
    """The segments of tonight, each to be written or left."""
    works = list(grouped[1])
    job = works[0][0]
    yield from ((job, target) for target in index_update_segments.decide(job, [found for _, found in works]))


def write(work: tuple[Any, Any]) -> tuple[None, Any]:
    """Write what has changed of one segment."""
    with working(work[0]):
        return to_one_key((work[0], index_update_segments.build(*work)))


def weigh(grouped: tuple[None, Iterable[tuple[Any, Any]]]) -> Iterator[Any]:
    """The index of tonight; or, where its quantizer serves no longer, the groups to build anew."""
    works = list(grouped[1])
    job = works[0][0]
    with working(job):
        entry, why = index_update_segments.weigh(job, [built for _, built in works])
    if why:
        yield from _anew(job, why)
    else:
        yield IndexRecord(entry, tuple(index_update.scratch_files(job)))


def sample(work: tuple[Any, Any]) -> tuple[None, Any]:
    """Sample one group."""
    with working(work[0]):
        index_build.sample_group(*work)
    return to_one_key(work)


def train(grouped: tuple[None, Iterable[tuple[Any, Any]]]) -> Iterator[tuple[Any, Any, Any]]:
    """Train once, then hand every group out again with what was trained."""
    works = list(grouped[1])
    job, groups = works[0][0], [group for _, group in works]
    with working(job):
        trained = index_build.train_all(job, groups)
    yield from ((job, trained, group) for group in groups)


def build(work: tuple[Any, Any, Any]) -> tuple[None, Any]:
    """Build one segment."""
    with working(work[0]):
        return to_one_key((*work, index_build.build_group(*work)))


def evaluate(grouped: tuple[None, Iterable[tuple[Any, Any, Any, Any]]]) -> IndexRecord:
    """Measure recall over all segments."""
    works = list(grouped[1])
    job, trained = works[0][0], works[0][1]
    built = [segment for *_, segment in works if segment is not None]
    scratch = index_build.scratch_files(job, [group for _, _, group, _ in works])
    with working(job):
        return IndexRecord(index_build.evaluate(job, trained, built), tuple(scratch))
