"""Commit: everything a run found out, to one key, and one conditional write."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from transforms import storage
from transforms.beam.changes import KNOWN, Changes, CountChanges, Unknown, total
from transforms.beam.job import Merge
from transforms.beam.quantize import RangesRecord
from transforms.errors import SentenceBeamError
from transforms.report import report
from transforms.store.changes import buckets_for, differing, id_hashes, repeated
from transforms.store.commit import Run, finish
from transforms.store.manifest import read_manifest
from transforms.store.records import Problem, UnitRecord
from transforms.store.runs import COMMITTED, Result, read_result


@dataclass(frozen=True)
class IndexRecord:
    """The manifest's `index` entry, on its way to the commit; `scratch` are files nobody needs from then on."""

    data: dict[str, Any]
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True)
class DuplicateIds:
    """Rows whose id an earlier row of the snapshot has."""

    rows: int


class Commit(beam.PTransform):
    """Units, problems and whatever else is known of a run -> its one Result, once it is on record.

    Where nobody waits for the job, `raises` makes a failed run a failed job; the result is on record before.
    """

    def __init__(self, run: Run, raises: bool = False):
        super().__init__()
        self._run, self._raises = run, raises

    def expand(self, parts: Any) -> beam.PCollection:
        # A run without a single unit must commit too, and grouping nothing gives nothing.
        start = parts[0].pipeline | "Start" >> beam.Create([None])
        known = (start, *parts) | "All" >> Merge()
        changes = known | "Changes" >> CountChanges(self._run)
        result = (
            known
            | "OneKey" >> beam.Map(lambda item: (None, item))
            | "Together" >> beam.GroupByKey()
            # At the side, since it is made of the collection that it would have to be merged with.
            | "Finish" >> beam.Map(commit_together, self._run, beam.pvalue.AsIter(changes))
        )
        # A stage of its own: what raises is tried again, and the commit should not be.
        return result | "Recorded" >> beam.Reshuffle() | "Raise" >> beam.Map(succeeded) if self._raises else result


def commit_together(grouped: tuple[None, Iterable[Any]], run: Run, changes: Iterable[Changes | Unknown] = ()) -> Result:
    """Sort what came in and finish the run."""
    found = list(grouped[1])
    index = next((item for item in found if isinstance(item, IndexRecord)), None)
    for item in found:
        if isinstance(item, RangesRecord):
            run = replace(run, ranges=item.data)
    result = finish(
        run,
        [item for item in found if isinstance(item, UnitRecord)],
        [item for item in found if isinstance(item, Problem)],
        index.data if index else None,
        _duplicate_ids([item.rows for item in found if isinstance(item, DuplicateIds)], run),
        total(changes),
    )
    if result.status == COMMITTED:
        report.bring_up_to_date(run.root)
    for path in index.scratch if index else ():
        storage.storage_of(path).delete(path)
    return result


def _duplicate_ids(counted: list[int], run: Run) -> int:
    """Their sum; those of the last snapshot where the run left the ids as they were, and so counted none."""
    return sum(counted) if counted or not run.options.get("id_column") else _standing(run)


def _standing(run: Run) -> int:
    last = read_result(run.root, run.previous) if run.previous else None
    return last.duplicate_ids if last else 0


def succeeded(result: Result) -> Result:
    """The result; raises SentenceBeamError where it is a failure."""
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    return result


class CountDuplicateIds(beam.PTransform):
    """Units -> DuplicateIds to sum up; eight bytes a row travel, packed by bucket.

    Nothing is read where the last snapshot has the same rows.
    """

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        chosen = (
            units
            | "OneKey" >> beam.Map(lambda unit: (None, unit))
            | "Together" >> beam.GroupByKey()
            | "Choose" >> beam.FlatMap(choose_ids, self._run).with_outputs(KNOWN, main="shards")
        )
        counted = (
            chosen.shards
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMapTuple(id_hashes)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.Map(lambda bucket: DuplicateIds(repeated(bucket[1])))
        )
        return (chosen[KNOWN], counted) | "Counts" >> Merge()


def choose_ids(grouped: tuple[None, Iterable[UnitRecord]], run: Run) -> Iterator[Any]:
    """(shard, buckets) whose ids are to be counted; on the `known` output what needs no reading."""
    units = list({unit.unit: unit for unit in grouped[1]}.values())
    try:
        previous = read_manifest(run.root, run.previous) if run.previous else None
    except SentenceBeamError:
        previous = None
    if previous and not differing(previous.units, units) and not differing(units, previous.units):
        yield TaggedOutput(KNOWN, DuplicateIds(_standing(run)))
        return
    yield TaggedOutput(KNOWN, DuplicateIds(0))
    buckets = buckets_for(sum(unit.rows for unit in units))
    yield from ((storage.join(run.root, unit.path), buckets) for unit in units if unit.path)
