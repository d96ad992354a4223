"""Task scores by hand."""

import math

import numpy as np
import pytest

from transforms.calibration.quality import cosines, spearman
from transforms.evaluation.sts import Subset, geometry, score_task


def subsets(sizes: list[int]) -> tuple[list[Subset], np.ndarray]:
    """Random pairs in subsets of these sizes, and vectors."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(50, 8)).astype(np.float32)
    return [
        Subset(f"f{i}", generator.uniform(0, 5, n), generator.integers(0, 50, n), generator.integers(0, 50, n))
        for i, n in enumerate(sizes)
    ], vectors


def test_all_is_one_correlation_and_means_average_the_files() -> None:
    parts, vectors = subsets([10, 30, 20])
    union, mean, wmean, *each = score_task(parts, vectors)
    own = [100 * spearman(cosines(vectors[s.first], vectors[s.second]), s.gold) for s in parts]
    assert [score.spearman for score in each] == own
    assert mean.spearman == pytest.approx(np.mean(own))
    assert wmean.spearman == pytest.approx((10 * own[0] + 30 * own[1] + 20 * own[2]) / 60)
    joined = np.concatenate([cosines(vectors[s.first], vectors[s.second]) for s in parts])
    assert union.spearman == pytest.approx(100 * spearman(joined, np.concatenate([s.gold for s in parts])))
    assert [s.n for s in (union, mean, wmean, *each)] == [60, 60, 60, 10, 30, 20]
    assert [s.subset for s in (union, mean, wmean, *each)] == ["all", "mean", "wmean", "f0", "f1", "f2"]


def test_one_file_scores_the_same_under_every_name() -> None:
    parts, vectors = subsets([25])
    assert len({round(score.spearman, 9) for score in score_task(parts, vectors)}) == 1


def test_equal_golds_are_undefined() -> None:
    part, vectors = subsets([5])
    assert math.isnan(score_task([Subset("x", np.ones(5), part[0].first, part[0].second)], vectors)[0].spearman)


def test_geometry_of_equal_pairs() -> None:
    rows = np.arange(4)
    found = geometry([Subset("x", np.full(4, 5.0), rows, rows)], np.ones((4, 3)))
    assert found.alignment == 0
    assert found.uniformity == pytest.approx(0)
    assert found.mean_cosine == pytest.approx(1)
