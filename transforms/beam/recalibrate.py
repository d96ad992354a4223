"""Recalibrate: written units -> the same rows under another calibration, from their pooled vectors alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput

from transforms import storage
from transforms.beam.job import PROBLEMS
from transforms.beam.quantize import quantized
from transforms.errors import DataGateError, SentenceBeamError
from transforms.space import Space
from transforms.steps.finish import Output
from transforms.store.calibrations import kept_calibration
from transforms.store.commit import Run
from transforms.store.lease import Renewal
from transforms.store.precision import kept_ranges
from transforms.store.records import Problem, UnitRecord, carried, reused
from transforms.store.reuse import stored_vectors
from transforms.store.shards import Vectors
from transforms.store.units import UnitCounts, UnitStore, read_written


@dataclass(frozen=True)
class RecalibrateJob:
    """One run: the snapshot that it makes, and the space of the one before, as JSON."""

    run: Run
    old: dict[str, Any]


class Recalibrate(beam.PTransform):
    """Units of the last snapshot -> a UnitRecord for each, once it stands in the store; `problems` ends the run."""

    def __init__(self, job: RecalibrateJob):
        super().__init__()
        self._job = job

    def expand(self, units: beam.PCollection) -> Any:
        made = (
            units
            | "Spread" >> beam.Reshuffle()
            | "RecalibrateUnits" >> beam.ParDo(RecalibrateFn(self._job)).with_outputs(PROBLEMS, main="units")
        )
        return quantized(made, self._job.run)


class RecalibrateFn(beam.DoFn):
    """A unit -> the same unit with other final vectors."""

    def __init__(self, job: RecalibrateJob):
        self._job = job

    def setup(self) -> None:
        run = self._job.run
        space = run.first_space
        self._old = Space.from_json(self._job.old)
        ranges = kept_ranges(run.root, run.ranges) if run.ranges else None
        self._store = UnitStore(run.root, space, ranges, run.id)
        self._output = Output(space, partial(kept_calibration, run.root, space.calibration or ""))
        self._renew = Renewal(run.root, run.id)

    def process(self, unit: UnitRecord) -> Iterator[Any]:
        try:
            yield self._recalibrated(unit) if unit.path else carried(unit)
            self._renew()
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.of(error))

    def _recalibrated(self, unit: UnitRecord) -> UnitRecord:
        run = self._job.run
        prepared, rows = read_written(run.root, unit, self._store, run.generation)
        standing = self._store.finished(prepared)
        if standing is not None:
            return reused(standing)
        vectors = self._final(storage.join(run.root, unit.path or ""), rows)
        return self._store.write(prepared, vectors, [], UnitCounts(embedded=0, reused=unit.rows, duplicates=0))

    def _final(self, path: str, rows: pa.RecordBatch) -> Vectors:
        good, vectors = self._output.of(stored_vectors(rows, self._old, final=False))
        if len(good) < rows.num_rows:
            lost = next(row for row in range(rows.num_rows) if row not in set(good.tolist()))
            raise DataGateError(
                f"{path}: the calibration makes a zero or non-finite vector of row {rows.column('id')[lost]}; "
                "embed --calibration sets such rows aside"
            )
        return vectors
