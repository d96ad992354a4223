"""Fit a store's calibration and the quantizer of its index again, after rows were erased.

The calibration is fitted by the steps of `fit`, applied by those of `recalibrate`, and the index
trained by those of `index`: each is a run of its own, which holds the store's lease.
"""

import time
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import engines
from sentence_beam.pipelines.common.writing import writing
from sentence_beam.pipelines.fit import fit_store
from sentence_beam.pipelines.index import index_store
from sentence_beam.pipelines.recalibrate import recalibrate_store
from sentence_beam.transforms import storage
from sentence_beam.transforms.beam import BuildIndex
from sentence_beam.transforms.steps.fit.jobs import calibration_job
from sentence_beam.transforms.steps.forget.fits import RunStart, refit_receipt
from sentence_beam.transforms.steps.forget.snapshots import kept_snapshots
from sentence_beam.transforms.steps.options.index import IndexOptions, RecalibrateOptions
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.calibrations import kept_calibration
from sentence_beam.transforms.store.forgetting.receipts import stale_fits
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.result import now
from sentence_beam.transforms.store.runs.run_ids import new_run
from sentence_beam.transforms.store.sealed_json import to_bytes
from sentence_beam.transforms.store.vacuum import find_rubbish, remove

WHY = "rows were erased"
OUTPUT = "refit"


def check_engine(root: str, beam_options: PipelineOptions) -> None:
    """Raise OptionError if nobody waits for the jobs, or their workers cannot reach the store."""
    engines.check_waits(beam_options, "--refit")
    engines.check_shared(beam_options, store=root)


def refit(root: str, beam_options: PipelineOptions, drop_history: bool) -> dict[str, Any] | None:
    """Fit again what was fitted with rows that were erased since, and return the receipt.

    None if there is nothing. With `drop_history` the earlier snapshots, which have the fits of
    before, are removed. The answers of watched queries do not end the runs: these were asked for.
    """
    begun = RunStart(new_run(root), now())
    stale = stale_fits(root)
    before = open_store(root).manifest
    if before.space.calibration in stale:
        _refit_calibration(root, begun.run, beam_options)
    manifest = open_store(root).manifest
    if manifest.index is not None and manifest.index.trained.sha256 in stale:
        index_store(IndexOptions(root, accept_answers=True), beam_options, _trained_again)
        manifest = open_store(root).manifest
    if drop_history:
        with writing(root, new_run(root), beam_options):
            remove(find_rubbish(root, 1, None, time.time()))
    if not stale:
        return None
    kept = kept_snapshots(manifest, only_current=False)
    receipt = refit_receipt(begun, before, manifest, kept)
    path = storage.join(root, layout.receipt(begun.run))
    storage.storage_of(path).put_if_absent(path, to_bytes(receipt))
    return receipt


def _refit_calibration(root: str, run: str, beam_options: PipelineOptions) -> None:
    """Fit a store's calibration again by its method, and apply it, if it is another one now."""
    store = open_store(root)
    calibration = kept_calibration(root, store.space)
    assert calibration is not None
    folder = storage.join(root, layout.RUNS, run)
    try:
        with writing(root, run, beam_options):
            job = calibration_job(store, calibration.spec, None, OUTPUT, folder)
            found = fit_store(store, job, beam_options)
        if found["digest"] != calibration.digest:
            options = RecalibrateOptions(root, calibration=folder, accept_answers=True)
            recalibrate_store(options, beam_options)
    finally:
        storage.delete_below(folder)


def _trained_again(manifest: Manifest, run: Run) -> BuildIndex:
    assert manifest.index is not None
    return BuildIndex(run, manifest.index.request, remembered=True, retrain=WHY)
