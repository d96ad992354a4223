"""CountChanges: rows added, changed and deleted since the last snapshot; 16 bytes a row of changed units travel."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.store.changes import Changes, Side, buckets_for, count_changes, differing, read_side
from transforms.store.commit import Run
from transforms.store.manifest import read_manifest
from transforms.store.records import Problem, UnitRecord

KNOWN = "known"


@dataclass(frozen=True)
class Unknown:
    """Changes that cannot be counted, since an old shard is damaged or gone."""


@dataclass(frozen=True)
class Shard:
    """A shard to read, of `size` bytes, and into how many buckets of ids its rows go."""

    path: str
    size: int
    is_new: bool
    buckets: int


class CountChanges(beam.PTransform):
    """Everything known of a run, units and problems among it -> Changes to sum up, or Unknown.

    Where the run is to fail nothing is read.
    """

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, known: beam.PCollection) -> beam.PCollection:
        chosen = (
            known
            | "OneKey" >> beam.Map(lambda item: (None, item))
            | "Together" >> beam.GroupByKey()
            | "Choose" >> beam.FlatMap(choose, self._run).with_outputs(KNOWN, main="shards")
        )
        counted = (
            chosen.shards
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMap(hash_shard)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.Map(count)
        )
        return (chosen[KNOWN], counted) | "Changes" >> beam.Flatten()


def choose(grouped: tuple[None, Iterable[Any]], run: Run) -> Iterator[Any]:
    """Shards that one of the two snapshots has and the other has not; on the `known` output what needs no reading."""
    found = list(grouped[1])
    units = list({item.unit: item for item in found if isinstance(item, UnitRecord)}.values())
    if any(isinstance(item, Problem) for item in found):
        return
    if run.previous is None:
        yield TaggedOutput(KNOWN, Changes(added=sum(unit.rows for unit in units)))
        return
    yield TaggedOutput(KNOWN, Changes())
    try:
        previous = read_manifest(run.root, run.previous)
    except SentenceBeamError:
        previous = None
    if previous is None:
        yield TaggedOutput(KNOWN, Unknown())
        return
    old, new = differing(previous.units, units), differing(units, previous.units)
    buckets = buckets_for(sum(unit.rows for unit in (*old, *new)))
    for shards, is_new in ((old, False), (new, True)):
        yield from (Shard(storage.join(run.root, unit.path or ""), unit.bytes, is_new, buckets) for unit in shards)


def hash_shard(shard: Shard) -> Iterator[tuple[int, Side | Unknown]]:
    """The hashes of a shard's rows, by bucket."""
    try:
        yield from read_side(shard.path, shard.is_new, shard.buckets, shard.size)
    except SentenceBeamError:
        yield 0, Unknown()


def count(bucket: tuple[int, Iterable[Side | Unknown]]) -> Changes | Unknown:
    """The changes within a bucket."""
    sides = list(bucket[1])
    known = [side for side in sides if isinstance(side, Side)]
    return count_changes(known) if len(known) == len(sides) else Unknown()


def total(found: Iterable[Any]) -> Changes | None:
    """All changes of a run; None where they are not known."""
    counted = [item for item in found if isinstance(item, (Changes, Unknown))]
    known = [item for item in counted if isinstance(item, Changes)]
    return sum(known, Changes()) if known and len(known) == len(counted) else None
