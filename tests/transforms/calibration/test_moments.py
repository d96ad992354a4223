"""Moments against numpy.cov: any split, any order, single rows, large means, narrow types."""

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.calibration.moments import BATCH_ROWS, Moments


def rows(n: int, d: int = 5, seed: int = 0, shift: float = 3.0) -> np.ndarray:
    """Correlated rows away from the origin."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)) @ generator.normal(size=(d, d)) + shift


def close(a: Moments, b: Moments, relative: float = 1e-12) -> None:
    """Check that two moments are the same up to rounding."""
    assert a.n == b.n
    # deviations of a large mean lose digits
    scale = np.abs(b.m2).max() + b.n * (b.mean @ b.mean) * 1e-4
    assert np.abs(a.mean - b.mean).max() <= relative * (np.abs(b.mean).max() + 1)
    assert np.abs(a.m2 - b.m2).max() <= relative * scale


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 99), st.randoms())
def test_any_split_in_any_order_is_numpys_covariance(sizes, seed, random):
    x = rows(sum(sizes) + 2, seed=seed)
    parts = np.split(x, np.cumsum(sizes))
    random.shuffle(parts)
    total = Moments.empty(5)
    for part in parts:
        total = total.merge(Moments.from_rows(part))
    close(total, Moments(len(x), x.mean(axis=0), np.cov(x.T, ddof=0) * len(x)))
    assert (
        np.abs(total.covariance(sample=True) - np.cov(x.T)).max()
        <= 1e-12 * np.abs(np.cov(x.T)).max()
    )


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30))
def test_merging_is_associative_and_commutative_and_nothing_is_its_identity(a, b, c):
    first, second, third = (
        Moments.from_rows(rows(n, seed=seed)) for seed, n in enumerate((a, b, c))
    )
    close(first.merge(second).merge(third), first.merge(second.merge(third)))
    close(first.merge(second), second.merge(first))
    assert first.merge(Moments.empty(5)) is first
    assert Moments.empty(5).merge(first) is first


def test_single_rows_add_up():
    x, total = rows(50), Moments.empty(5)
    for row in x:
        total = total.merge(Moments.from_rows(row[None]))
    close(total, Moments.from_rows(x))


def test_more_rows_than_one_batch():
    x = rows(2 * BATCH_ROWS + 17)
    close(Moments.from_rows(x), Moments(len(x), x.mean(axis=0), np.cov(x.T, ddof=0) * len(x)))


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e6])
def test_a_constant_added_changes_no_deviation(shift):
    x = rows(500, shift=0.0)
    moved = Moments.from_rows(x + shift)
    assert (
        np.abs(moved.m2 - Moments.from_rows(x).m2).max()
        <= 1e-10 * max(1, shift) * np.abs(moved.m2).max()
    )


def test_it_is_symmetric_and_positive():
    moments = Moments.from_rows(rows(100)).merge(Moments.from_rows(rows(30, seed=1)))
    assert (moments.m2 == moments.m2.T).all()
    assert np.linalg.eigvalsh(moments.m2).min() > 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_rows_are_summed_wide(dtype):
    x = rows(20_000).astype(dtype)
    close(Moments.from_rows(x), Moments.from_rows(x.astype(np.float64)))
    assert Moments.from_rows(x).mean.dtype == np.float64
