"""Measures against scipy and scikit-learn, with ties and edge cases.

Covers transforms/evaluation/clusterings.py.
Covers transforms/evaluation/correlations.py.
Covers transforms/evaluation/detections.py.
"""

import numpy as np
import pytest
from scipy import stats

from sentence_beam.transforms.evaluation.clusterings import Clusterings
from sentence_beam.transforms.evaluation.correlations import Correlations
from sentence_beam.transforms.evaluation.detections import Detections, best_threshold


def test_correlations_are_scipys() -> None:
    generator = np.random.default_rng(0)
    gold, values = (
        generator.integers(0, 6, 200).astype(float),
        generator.normal(size=(4, 200)).round(1),
    )
    for ranked, expected in ((True, stats.spearmanr), (False, stats.pearsonr)):
        found = Correlations(values, gold, (("a", 80), ("b", 120)), ranked).scores()
        for row, (whole, a, b) in enumerate(zip(found["all"], found["a"], found["b"], strict=True)):
            parts = [
                expected(values[row, part], gold[part]).statistic
                for part in (slice(80), slice(80, None))
            ]
            assert whole == pytest.approx(expected(values[row], gold).statistic, abs=1e-12)
            assert (a, b) == pytest.approx(parts, abs=1e-12)
            assert found["mean"][row] == pytest.approx(np.mean(parts), abs=1e-12)
            assert found["wmean"][row] == pytest.approx(
                np.average(parts, weights=[80, 120]), abs=1e-12
            )


def test_a_subset_without_a_score_is_left_out_of_the_means() -> None:
    gold, values = (
        np.array([1.0, 1.0, 1.0, 1.0, 2.0, 3.0]),
        np.array([[0.1, 0.2, 0.3, 0.1, 0.2, 0.3]]),
    )
    found = Correlations(values, gold, (("flat", 3), ("good", 3))).scores()
    assert np.isnan(found["flat"][0])
    assert (found["good"][0], found["mean"][0], found["wmean"][0]) == (1, 1, 1)


def test_rounding_is_no_correlation() -> None:
    values = np.full((1, 50), 0.1)
    assert np.isnan(
        Correlations(values, np.arange(50.0), (("a", 50),), ranked=False).scores()["all"][0]
    )


def test_detection_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(1)
    labels, values = generator.uniform(size=300) < 0.3, generator.normal(size=(3, 300)).round(1)
    for row in values:
        found = Detections(row[None], labels, "ap").scores()["all"][0]
        assert found == pytest.approx(metrics.average_precision_score(labels, row), abs=1e-12)
        best = max(metrics.f1_score(labels, row >= cut) for cut in np.unique(row))
        assert Detections(row[None], labels, "f1").scores()["all"][0] == pytest.approx(
            best, abs=1e-12
        )
        assert metrics.f1_score(labels, row >= best_threshold(row, labels)) == pytest.approx(
            best, abs=1e-12
        )


def test_v_measure_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(2)
    labels, clusters = generator.integers(0, 4, 100), generator.integers(0, 5, (2, 3, 100))
    clusters[1, 0] = 0
    found = Clusterings(clusters, labels).scores()["all"]
    for row, seeds in zip(found, clusters, strict=True):
        assert row == pytest.approx(
            np.mean([metrics.v_measure_score(labels, seed) for seed in seeds]), abs=1e-12
        )
