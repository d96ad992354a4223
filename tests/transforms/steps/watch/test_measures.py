"""Measures of two ranked lists, and of one by judgements."""

import math

import numpy as np
import pytest

from sentence_beam.transforms.steps.watch.measures import (
    ndcg,
    overlap,
    paired_interval,
    rank_biased_overlap,
    recall,
)


def test_overlap_counts_copies_apart() -> None:
    assert overlap("aab", "abb") == pytest.approx(2 / 3)
    assert overlap("", "abc") == 1.0


def test_equal_lists_overlap_wholly_at_any_depth() -> None:
    for depth in (1, 3, 10, 40):
        assert rank_biased_overlap(range(depth), range(depth)) == pytest.approx(1.0)
    assert rank_biased_overlap([], []) == 1.0
    assert rank_biased_overlap("abc", "xyz") == 0.0


def test_rank_biased_overlap_is_that_of_its_definition() -> None:
    p = 0.8
    agreements = [0, 2 / 2, 2 / 3]
    expected = agreements[-1] * p**3 + (1 - p) / p * sum(
        agreement * p**rank for rank, agreement in enumerate(agreements, 1)
    )
    assert rank_biased_overlap("abc", "bax", p) == pytest.approx(expected)


def test_a_change_at_the_top_weighs_more_than_one_at_the_end() -> None:
    assert rank_biased_overlap("abcd", "xbcd") < rank_biased_overlap("abcd", "abcx")


def test_ndcg_and_recall_of_a_list() -> None:
    grades = {"a": 2, "b": 1, "c": 0}
    assert ndcg(["a", "b"], grades, 10) == pytest.approx(1.0)
    assert ndcg(["x", "a", "a"], grades, 10) == pytest.approx(
        (2 / math.log2(3)) / (2 + 1 / math.log2(3))
    )
    assert recall(["x", "b", "c"], grades, 3) == 0.5
    assert (ndcg(["a"], {"a": 0}, 1), recall(["a"], {"a": 0}, 1)) == (0.0, 0.0)


def test_the_interval_of_equal_differences_is_a_point() -> None:
    assert paired_interval(np.full(20, -0.25)) == (-0.25, -0.25)
    low, high = paired_interval(np.random.default_rng(1).normal(0.1, 0.05, 400))
    assert low < 0.1 < high
    assert high - low < 0.03
