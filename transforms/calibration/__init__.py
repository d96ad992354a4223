"""Calibrations, fitted on a collection of vectors, and figures of such a collection. Importing needs no torch."""

from transforms.calibration.calibration import Calibration, check_space, load_calibration
from transforms.calibration.quality import UnitSum, alignment, cosines, mean_cosine, pearson, spearman, uniformity
from transforms.calibration.spec import CalibrationSpec, parse_calibration

__all__ = [
    "Calibration",
    "CalibrationSpec",
    "UnitSum",
    "alignment",
    "check_space",
    "cosines",
    "load_calibration",
    "mean_cosine",
    "parse_calibration",
    "pearson",
    "spearman",
    "uniformity",
]
