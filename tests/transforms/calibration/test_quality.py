"""Scores of embeddings against closed forms, brute force and scipy."""

import math

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sentence_beam.transforms.calibration import quality
from sentence_beam.transforms.calibration.quality import (
    alignment,
    cosines,
    mean_cosine,
    pearson,
    spearman,
    uniformity,
)

FLOATS = st.lists(st.integers(-5, 5), min_size=3, max_size=40)


@settings(max_examples=examples(200), deadline=None)
@given(FLOATS, st.integers(0, 10**6))
def test_correlations_are_scipys_ties_included(values: list[int], seed: int) -> None:
    a = np.array(values, float)
    b = np.random.default_rng(seed).integers(0, 4, len(a)).astype(float)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert math.isnan(spearman(a, b))
        assert math.isnan(pearson(a, b))
        return
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-12)
    assert spearman(np.exp(a), b) == pytest.approx(spearman(a, b))
    assert pearson(3 * a + 1, b) == pytest.approx(pearson(a, b))


def vectors(n: int, d: int = 6, seed: int = 0) -> np.ndarray:
    """Random rows away from the origin."""
    return (np.random.default_rng(seed).normal(size=(n, d)) + 0.5).astype(np.float32)


def test_cosines() -> None:
    x = vectors(5)
    assert cosines(x, 3 * x) == pytest.approx(np.ones(5))
    assert cosines(x, -x) == pytest.approx(-np.ones(5))
    assert cosines(np.zeros((1, 3)), np.ones((1, 3))) == [0]


def test_mean_cosine_is_that_of_all_pairs() -> None:
    x = vectors(30)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    full = u @ u.T
    assert mean_cosine(x) == pytest.approx((full.sum() - np.trace(full)) / (30 * 29), abs=1e-6)
    assert mean_cosine(np.ones((4, 3))) == pytest.approx(1)
    assert mean_cosine(np.eye(5)) == pytest.approx(0)
    assert mean_cosine(np.vstack([x, np.zeros((3, 6))])) == pytest.approx(mean_cosine(x))


def test_uniformity_closed_forms() -> None:
    assert uniformity(np.ones((5, 3)))[0] == pytest.approx(0)
    assert uniformity(np.array([[1.0, 0], [-1, 0]]))[0] == pytest.approx(-8)
    x = vectors(50)
    rotation = np.linalg.qr(vectors(6, 6, 1))[0]
    assert uniformity(7 * x @ rotation)[0] == pytest.approx(uniformity(x)[0], abs=1e-6)
    sphere = np.random.default_rng(0).normal(size=(3000, 400))
    assert uniformity(sphere)[0] == pytest.approx(-4, abs=0.05)


def test_uniformity_by_blocks_and_by_sample_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x = vectors(500)
    exact = uniformity(x)[0]
    monkeypatch.setattr(quality, "BLOCK", 37)
    assert uniformity(x)[0] == pytest.approx(exact, abs=1e-12)
    monkeypatch.setattr(quality, "EXACT_UNIFORMITY_ROWS", 100)
    monkeypatch.setattr(quality, "SAMPLED_PAIRS", 1_000_000)
    sampled, error = uniformity(x)
    assert abs(sampled - exact) < 5 * error + 1e-3
    assert 0 < error < 0.01


def test_alignment() -> None:
    x, y = vectors(4), vectors(4, seed=1)
    gold = np.array([5.0, 4.0, 4.5, 0.0])
    assert alignment(x, x, gold) == 0
    u, v = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    assert alignment(x, y, gold) == pytest.approx((((u - v) ** 2).sum(1))[[0, 2]].mean(), rel=1e-5)
    assert math.isnan(alignment(x, y, np.zeros(4)))
