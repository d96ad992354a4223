"""Commit: everything a run found out, to one key, and one conditional write."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam

from transforms.beam.changes import CountChanges, total
from transforms.beam.quantize import RangesRecord
from transforms.store import storage
from transforms.store.commit import Snapshot, finish
from transforms.store.duplicates import id_hashes, repeated
from transforms.store.records import Problem, UnitRecord
from transforms.store.results import Result


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
    """Units, problems and whatever else is known of a run -> its one Result, once it is on record."""

    def __init__(self, snapshot: Snapshot):
        super().__init__()
        self._snapshot = snapshot

    def expand(self, parts: Any) -> beam.PCollection:
        # A run without a single unit must commit too, and grouping nothing gives nothing.
        start = parts[0].pipeline | "Start" >> beam.Create([None])
        known = (start, *parts) | "All" >> beam.Flatten()
        changes = known | "Changes" >> CountChanges(self._snapshot)
        return (
            (known, changes)
            | "AndChanges" >> beam.Flatten()
            | "OneKey" >> beam.Map(lambda item: (None, item))
            | "Together" >> beam.GroupByKey()
            | "Finish" >> beam.Map(commit_together, self._snapshot)
        )


def commit_together(grouped: tuple[None, Iterable[Any]], snapshot: Snapshot) -> Result:
    """Sort what came in and finish the run."""
    found = list(grouped[1])
    index = next((item for item in found if isinstance(item, IndexRecord)), None)
    for item in found:
        if isinstance(item, RangesRecord):
            snapshot = replace(snapshot, ranges=item.data)
    result = finish(
        snapshot,
        [item for item in found if isinstance(item, UnitRecord)],
        [item for item in found if isinstance(item, Problem)],
        index.data if index else None,
        sum(item.rows for item in found if isinstance(item, DuplicateIds)),
        total(found),
    )
    for path in index.scratch if index else ():
        storage.storage_of(path).delete(path)
    return result


class CountDuplicateIds(beam.PTransform):
    """Units -> DuplicateIds; eight bytes a row travel, packed by bucket."""

    def __init__(self, root: str):
        super().__init__()
        self._root = root

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        return (
            units
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMap(hash_ids, self._root)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.Map(lambda bucket: DuplicateIds(repeated(bucket[1])))
        )


def hash_ids(unit: UnitRecord, root: str) -> Iterator[tuple[int, bytes]]:
    """The packed id hashes of a unit's shard, by bucket."""
    if unit.path is not None:
        yield from id_hashes(storage.join(root, unit.path))
