"""How far rows lie from those of a fit: sums of parts, against both means in full."""

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.moved import FEW_ROWS, FittedMoments, Moved

WIDTH = 96


def _rows(seed: int, n: int = 4000) -> np.ndarray:
    random = np.random.default_rng(seed)
    mixed = np.random.default_rng(1).normal(size=(WIDTH, WIDTH)) / 10
    return (random.normal(size=(n, WIDTH)) @ mixed * np.logspace(0, 2, WIDTH) + 3).astype(
        np.float32
    )


FITTED = FittedMoments.from_moments(Moments.from_rows(_rows(0)))


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(1, 10**6),
    shift=st.floats(0.3, 3),
    spread=st.floats(0.5, 2),
    units=st.integers(1, 7),
)
def test_distance_and_reach_are_those_of_all_components(seed, shift, spread, units):
    away = shift * np.random.default_rng(seed).normal(size=WIDTH) * FITTED.deviation
    rows = ((_rows(seed) - FITTED.mean) * spread + FITTED.mean + away).astype(np.float32)
    found = Moved.from_sums(FITTED.sums(part) for part in np.array_split(rows, units))
    assert found is not None
    wide = (rows.astype(np.float64) - FITTED.mean) / FITTED.deviation
    distance = np.sqrt(np.mean(wide.mean(axis=0) ** 2))
    assert found.rows == len(rows)
    assert found.distance == pytest.approx(distance, rel=0.5)
    assert found.reach == pytest.approx(np.sqrt(np.mean(wide**2)), rel=1e-3)


def test_the_same_kind_of_rows_is_not_far_and_another_kind_is():
    same, other = (
        Moved.from_sums([FITTED.sums(_rows(5))]),
        Moved.from_sums([FITTED.sums(_rows(5) + 2 * FITTED.deviation)]),
    )
    assert same is not None
    assert other is not None
    assert same.distance < 0.1 < same.to_json()["far"] < other.distance
    assert same.reach == pytest.approx(1, abs=0.05)


def test_of_few_rows_and_of_units_without_sums_nothing_is_said():
    assert Moved.from_sums([]) is None
    assert Moved.from_sums([(), ()]) is None
    assert Moved.from_sums([FITTED.sums(_rows(1, FEW_ROWS - 1)), ()]) is None


def test_what_is_remembered_comes_back():
    back = FittedMoments.from_info(
        {"input_dim": len(FITTED.mean), "fitted_on": {"moments": FITTED.to_json()}}
    )
    assert (back.mean == FITTED.mean).all()
    assert (back.deviation == FITTED.deviation).all()


def test_constant_components_tell_nothing():
    rows = _rows(2)
    rows[:, 3] = 7
    fitted, moved = FittedMoments.from_moments(Moments.from_rows(rows)), rows.copy()
    moved[:, 3] = 8
    found = Moved.from_sums([fitted.sums(moved)])
    assert found is not None
    assert found.distance < 0.1
