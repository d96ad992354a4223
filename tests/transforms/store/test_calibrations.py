"""The copies of calibrations that a store keeps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.calibrations import standard_moments

from sentence_beam.transforms.base.errors import SpaceMismatchError
from sentence_beam.transforms.calibration import Calibration, check_space, parse_calibration
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.calibrations import keep_calibration, read_kept_calibration

TENSORS = {"mean": np.zeros(4), "scale": np.ones(4)}


def fitted_on(space: Space) -> Calibration:
    """A calibration that has the same tensors whatever the space."""
    on = {"space": space.to_json(), "moments": standard_moments(4)}
    return Calibration.make(parse_calibration("standardize"), TENSORS, (4, 4), on, {})


def test_fits_on_two_spaces_with_equal_tensors_share_a_copy(tmp_path: Path, space: Space) -> None:
    spaces = [space, replace(space, max_tokens=32)]
    fits = [fitted_on(one) for one in spaces]
    with pytest.raises(SpaceMismatchError, match="max_tokens differ"):
        check_space(fits[0].info, spaces[1], "the first")
    for fit in fits:
        keep_calibration(str(tmp_path), fit)
    for one, fit in zip(spaces, fits, strict=True):
        kept = read_kept_calibration(str(tmp_path), one.calibrated(fit.digest, 4))
        assert kept is not None
        assert kept.digest == fit.digest
        check_space(kept.info, one, "the copy")


def test_a_space_without_a_calibration_has_no_copy(tmp_path: Path, space: Space) -> None:
    assert read_kept_calibration(str(tmp_path), space) is None
