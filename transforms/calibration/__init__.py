"""Calibrations, fitted on a collection of vectors, and its figures. Importing needs no torch."""

from sentence_beam.transforms.calibration.calibration import (
    Calibration,
    check_space,
    load_calibration,
)
from sentence_beam.transforms.calibration.calibration_spec import CalibrationSpec, parse_calibration

__all__ = [
    "Calibration",
    "CalibrationSpec",
    "check_space",
    "load_calibration",
    "parse_calibration",
]
