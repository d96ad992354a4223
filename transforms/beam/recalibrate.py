"""Recalibrate: written units -> the same rows under another calibration, from their pooled vectors alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput

from transforms.beam.job import PROBLEMS
from transforms.beam.output import Output
from transforms.errors import DataGateError, SentenceBeamError
from transforms.space import Space
from transforms.store import storage
from transforms.store.calibrations import kept_calibration
from transforms.store.commit import Snapshot
from transforms.store.corpus import InputFile, UnitRows
from transforms.store.lease import Renewal
from transforms.store.records import Problem, UnitRecord, carried, reused
from transforms.store.reuse import stored_vectors
from transforms.store.shards import OWN_COLUMNS, Vectors, read_checked, rejects_from_bytes, unit_digest
from transforms.store.units import PreparedUnit, UnitCounts, UnitStore


@dataclass(frozen=True)
class RecalibrateJob:
    """One run: the snapshot that it makes, and the space of the one before, as JSON."""

    snapshot: Snapshot
    old: dict[str, Any]


class Recalibrate(beam.PTransform):
    """Units of the last snapshot -> a UnitRecord for each, once it stands in the store; `problems` ends the run."""

    def __init__(self, job: RecalibrateJob):
        super().__init__()
        self._job = job

    def expand(self, units: beam.PCollection) -> Any:
        return (
            units
            | "Spread" >> beam.Reshuffle()
            | "RecalibrateUnits" >> beam.ParDo(RecalibrateFn(self._job)).with_outputs(PROBLEMS, main="units")
        )


class RecalibrateFn(beam.DoFn):
    """A unit -> the same unit with other final vectors."""

    def __init__(self, job: RecalibrateJob):
        self._job = job

    def setup(self) -> None:
        snapshot = self._job.snapshot
        space = Space.from_json(snapshot.space)
        self._old = Space.from_json(self._job.old)
        self._store = UnitStore(snapshot.root, space)
        self._output = Output(space, partial(kept_calibration, snapshot.root, space.calibration or ""))
        self._renew = Renewal(snapshot.root, snapshot.run)

    def process(self, unit: UnitRecord) -> Iterator[Any]:
        try:
            yield self._recalibrated(unit) if unit.path else carried(unit)
            self._renew()
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.of(error))

    def _recalibrated(self, unit: UnitRecord) -> UnitRecord:
        path = storage.join(self._job.snapshot.root, unit.path or "")
        table = read_checked(path, unit.sha256).combine_chunks()
        prepared = self._prepared(unit, table)
        standing = self._store.finished(prepared)
        if standing is not None:
            return reused(standing)
        vectors = self._final(path, table)
        return self._store.write(prepared, vectors, [], UnitCounts(embedded=0, reused=unit.rows, duplicates=0))

    def _prepared(self, unit: UnitRecord, table: pa.Table) -> PreparedUnit:
        """The unit as its shard and its reject file have it; the texts are not needed any more."""
        kept = table.select([name for name in table.column_names if name not in OWN_COLUMNS])
        file = InputFile("", unit.file, "", "", 0, "", "") if unit.file else None
        rejects = storage.join(self._job.snapshot.root, unit.rejects) if unit.rejects else None
        rows = UnitRows(
            name=unit.unit,
            file=file,
            start=unit.range[0],
            stop=unit.range[1],
            ids=table.column("id").to_pylist(),
            texts=[],
            positions=[],
            kept=kept if kept.num_columns else None,
            rejects=rejects_from_bytes(storage.read_bytes(rejects)) if rejects else [],
        )
        hashes = table.column("row_hash").to_pylist()
        return PreparedUnit(rows, hashes, unit_digest(self._store.space, rows, hashes, self._job.snapshot.generation))

    def _final(self, path: str, table: pa.Table) -> Vectors:
        (batch,) = table.to_batches()
        good, vectors = self._output.of(stored_vectors(batch, self._old, final=False))
        if len(good) < batch.num_rows:
            lost = next(row for row in range(batch.num_rows) if row not in set(good.tolist()))
            raise DataGateError(
                f"{path}: the calibration makes a zero or non-finite vector of row {batch.column('id')[lost]}; "
                "embed --calibration sets such rows aside"
            )
        return vectors
