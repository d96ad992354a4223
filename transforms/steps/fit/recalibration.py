"""Written units under another calibration, from their pooled vectors alone: no transformer runs."""

from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DataGateError, cite
from sentence_beam.transforms.calibration import Calibration, check_space
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.steps.embed.final_vectors import Finisher
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.forms import compute_run_form
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord, reused
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.reused_vectors import make_stored_vectors
from sentence_beam.transforms.store.shards.precision import read_kept_ranges, select_fitting
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore, read_written
from sentence_beam.transforms.store.shards.unit_vectors import Vectors


@dataclass(frozen=True)
class RecalibrateJob:
    """A run of `recalibrate`, with the space and the number of units of the last snapshot."""

    run: Run
    old: Space
    units: int


def check_fits(calibration: Calibration | None, manifest: Manifest, named: str) -> None:
    """Raise SpaceMismatchError if a calibration does not fit the snapshot's pooled vectors."""
    if calibration is not None:
        check_space(calibration.info, manifest.space, named)


def make_recalibrating_run(manifest: Manifest, run_id: str, calibration: Calibration | None) -> Run:
    """Return the run that writes the same rows under the calibration (None: without one)."""
    space = _calibrate_space(manifest, calibration)
    chosen = replace(manifest.options, truncate_dim=space.truncate_dim)
    ranges = select_fitting(manifest.ranges, space)
    return replace(
        make_run_like(manifest, run_id, "recalibrate"), space=space, options=chosen, ranges=ranges
    )


def _calibrate_space(manifest: Manifest, calibration: Calibration | None) -> Space:
    if calibration is not None:
        return manifest.space.calibrated(calibration.digest, calibration.dim)
    kept = read_kept_calibration(manifest.root, manifest.space)
    return manifest.space.calibrated(None, kept.info["input_dim"]) if kept else manifest.space


class Recalibration:
    """The units of one run, each written again from its pooled vectors."""

    def __init__(self, job: RecalibrateJob):
        self._run = job.run
        self._old = job.old
        self._units = job.units
        space = job.run.first_space
        ranges = read_kept_ranges(job.run.root, job.run.ranges) if job.run.ranges else None
        form = compute_run_form(space, job.run.generation, job.run.options)
        self._store = UnitStore(job.run.root, space, ranges, job.run.id, form)
        self._finisher = Finisher(space, partial(read_kept_calibration, job.run.root, space))

    def write(self, unit: UnitRecord) -> UnitRecord:
        """Write a unit with the new calibration. Raises DataGateError if a row gets no vector."""
        with progress.stage("recalibrating", self._units, "units"):
            made = self._recalibrate(unit)
            progress.step()
        return made

    def _recalibrate(self, unit: UnitRecord) -> UnitRecord:
        if not unit.path:
            return reused(unit)
        prepared, rows = read_written(self._run.root, unit, self._store, self._run.generation)
        finished = self._store.finished(prepared)
        if finished is not None:
            return reused(finished)
        vectors = self._finish(storage.join(self._run.root, unit.path), rows)
        counts = UnitCounts(
            embedded=0, reused=unit.rows, duplicates=0, moved=self._finisher.moved(vectors)
        )
        return self._store.write(prepared, vectors, [], counts)

    def _finish(self, path: str, rows: pa.RecordBatch) -> Vectors:
        good, vectors = self._finisher.finish(make_stored_vectors(rows, self._old, final=False))
        if len(good) < rows.num_rows:
            lost = next(row for row in range(rows.num_rows) if row not in set(good.tolist()))
            raise DataGateError(
                f"{path}: the calibration makes a zero or non-finite vector of row"
                f" {rows.column('id')[lost]}; embed {cite('calibration')} sets such rows aside"
            )
        return vectors
