"""BuildIndex: written units -> one index in segments that share a quantizer, with its recall measured."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from transforms.beam.commit import IndexRecord
from transforms.beam.job import IndexRequest
from transforms.errors import SentenceBeamError
from transforms.space import Space
from transforms.store import storage
from transforms.store.commit import Snapshot, settle
from transforms.store.manifest import read_manifest
from transforms.store.records import Problem, UnitRecord

DONE = "done"


class BuildIndex(beam.PTransform):
    """Units and problems of a run -> an IndexRecord for its manifest, or the Problem that keeps it from being built.

    Where the run is to fail anyway, or nothing has changed since the last snapshot, nothing is built.
    """

    def __init__(self, snapshot: Snapshot, request: IndexRequest | None = None):
        super().__init__()
        self._snapshot, self._request = snapshot, request or IndexRequest()

    def expand(self, known: Any) -> beam.PCollection:
        planned = (
            known
            | "All" >> beam.Flatten()
            | "OneKey" >> beam.Map(to_one_key)
            | "Together" >> beam.GroupByKey()
            | "Choose" >> beam.FlatMap(choose, self._snapshot, self._request).with_outputs(DONE, main="groups")
        )
        built = (
            planned.groups
            | "SpreadSample" >> beam.Reshuffle()
            | "Sample" >> beam.Map(sample)
            | "Samples" >> beam.GroupByKey()
            | "Train" >> beam.FlatMap(train)
            | "SpreadBuild" >> beam.Reshuffle()
            | "Build" >> beam.Map(build)
            | "Segments" >> beam.GroupByKey()
            | "Evaluate" >> beam.Map(evaluate)
        )
        return (planned[DONE], built) | "Index" >> beam.Flatten()


def to_one_key(item: Any) -> tuple[None, Any]:
    """Everything together."""
    return None, item


def choose(
    grouped: tuple[None, Iterable[UnitRecord | Problem]], snapshot: Snapshot, request: IndexRequest
) -> Iterator[Any]:
    """The job with each of its groups of shards; on the `done` output what needs no building."""
    found = list(grouped[1])
    units = [item for item in found if isinstance(item, UnitRecord)]
    problems = [item for item in found if isinstance(item, Problem)]
    try:
        units = settle(snapshot, units, problems)[1]
        standing = unchanged_index(snapshot, units, request)
        if standing is not None:
            yield TaggedOutput(DONE, IndexRecord(standing))
            return
        yield from plan_groups(snapshot, units, request)
    except SentenceBeamError as error:
        yield TaggedOutput(DONE, Problem.of(error))


def plan_groups(snapshot: Snapshot, units: list[UnitRecord], request: IndexRequest) -> Iterator[Any]:
    """(job, group) for each segment to build."""
    from transforms.beam import segments
    from transforms.index import choose_index

    rows, dim = sum(unit.rows for unit in units), Space.from_json(snapshot.space).dim
    plan = choose_index(rows, dim, request.index, metric=request.metric)
    job = segments.IndexJob(snapshot.root, snapshot.run, plan, rows, request)
    for group in segments.groups(job, units):
        yield job, group


def unchanged_index(snapshot: Snapshot, units: list[UnitRecord], request: IndexRequest) -> dict[str, Any] | None:
    """The last snapshot's index, where it covers exactly these shards and is what was asked for."""
    previous = read_manifest(snapshot.root, snapshot.previous) if snapshot.previous else None
    standing = previous.data["index"] if previous else None
    if previous is None or standing is None or standing["request"] != asdict(request):
        return None
    same = {(u.path, u.sha256) for u in previous.units} == {(u.path, u.sha256) for u in units}
    return standing if same and _stands(snapshot.root, standing) else None


def _stands(root: str, index: dict[str, Any]) -> bool:
    """Whether all files of an index are there."""
    names = [index["trained"]["path"]]
    names += [segment[name] for segment in index["segments"] for name in ("path", "locator")]
    return all(storage.storage_of(root).stat(storage.join(root, name)) for name in names)


def sample(work: tuple[Any, Any]) -> tuple[None, Any]:
    """Sample one group."""
    from transforms.beam import segments

    segments.sample_group(*work)
    return to_one_key(work)


def train(grouped: tuple[None, Iterable[tuple[Any, Any]]]) -> Iterator[tuple[Any, Any, Any]]:
    """Train once, then hand every group out again with what was trained."""
    from transforms.beam import segments

    works = list(grouped[1])
    job, groups = works[0][0], [group for _, group in works]
    trained = segments.train_all(job, groups)
    yield from ((job, trained, group) for group in groups)


def build(work: tuple[Any, Any, Any]) -> tuple[None, Any]:
    """Build one segment."""
    from transforms.beam import segments

    return to_one_key((*work, segments.build_group(*work)))


def evaluate(grouped: tuple[None, Iterable[tuple[Any, Any, Any, Any]]]) -> IndexRecord:
    """Measure recall over all segments."""
    from transforms.beam import segments

    works = list(grouped[1])
    job, trained = works[0][0], works[0][1]
    built = [segment for *_, segment in works if segment is not None]
    scratch = segments.scratch_files(job, [group for _, _, group, _ in works])
    return IndexRecord(segments.evaluate(job, trained, built), tuple(scratch))
