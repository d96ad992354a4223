"""Calibrations fitted on a store, without the command."""

from pathlib import Path

import numpy as np

from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.methods import fit_affine
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.moved import FittedMoments
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.shards.shard_reading import read_pooled


def standard_moments(width: int) -> dict[str, str]:
    """Moments in a calibration's `fitted_on`, of rows with means 0 and deviations 1."""
    zeros = np.zeros(width, np.float32)
    return FittedMoments(zeros, zeros + 1).to_json()


def fit_on(store: Path, method: str, folder: Path) -> Path:
    """An affine calibration of a store's pooled vectors, written into a folder."""
    manifest = open_store(str(store)).manifest
    parts = [
        pooled
        for path in manifest.shard_paths
        for pooled, _ in read_pooled(path, manifest.space.normalize)
    ]
    rows, spec = np.concatenate(parts), parse_calibration(method)
    fitted = fit_affine(spec, Moments.from_rows(rows))
    widths = (
        rows.shape[1],
        len(fitted.tensors["kernel"][0]) if "kernel" in fitted.tensors else rows.shape[1],
    )
    fitted_on = {
        "store": str(store),
        "run": manifest.run,
        "space": manifest.space.to_json(),
        "n": len(rows),
        "moments": FittedMoments.from_moments(Moments.from_rows(rows)).to_json(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (
        Calibration.make(spec, fitted.tensors, widths, fitted_on, {}).to_files().items()
    ):
        (folder / name).write_bytes(data)
    return folder
