"""Units of floats written again in whole numbers, between bounds fitted on all of them.

Ranges travel, vectors do not: every shard is read once for its ranges, and once more to be
rewritten.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.reused_vectors import make_stored_vectors
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.shards.precision import Ranges, keep_ranges
from sentence_beam.transforms.store.shards.shard_reading import read_shard
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore, read_written


@dataclass(frozen=True)
class Measured:
    """Ranges of some shards (None: of no row), or why they are not known."""

    ranges: Ranges | None = None
    problem: Problem | None = None

    def merge(self, other: "Measured") -> "Measured":
        """Return the ranges of both together, or a problem of one."""
        if self.ranges is None or other.ranges is None:
            ranges = self.ranges or other.ranges
        else:
            ranges = self.ranges.merge(other.ranges)
        return Measured(ranges, self.problem or other.problem)


def measure(unit: UnitRecord, root: str) -> Measured:
    """Return the ranges of a unit's vectors."""
    if unit.path is None:
        return Measured()
    try:
        batches = read_shard(storage.join(root, unit.path), ["embedding"])
        ranges = (Ranges.from_vectors(as_matrix(batch.column(0))) for batch in batches)
        return Measured(reduce(Ranges.merge, ranges))
    except SentenceBeamError as error:
        return Measured(problem=Problem.from_error(error))


def keep(measured: Measured, run: Run) -> Iterator[RunFact | Problem]:
    """Write the ranges into the store; yield the fact for the manifest, or the problem."""
    if measured.problem is not None:
        yield measured.problem
    elif measured.ranges is not None:
        yield RunFact(ranges=keep_ranges(run.root, measured.ranges, run.space))


def quantize_unit(unit: UnitRecord, run: Run, ranges: Ranges | None) -> UnitRecord:
    """Write a unit of floats between the ranges; its record keeps its counts."""
    store = UnitStore(run.root, run.space, ranges, run.id, run.form)
    prepared, rows = read_written(run.root, unit, store, run.generation)
    counts = UnitCounts.from_record(unit)
    made = store.finished(prepared)
    if made is None:
        floats = make_stored_vectors(rows, replace(store.space, precision="float32"), final=True)
        made = store.write(prepared, floats, [], counts)
    return replace(made, **vars(counts), run=unit.run, measures=unit.measures)
