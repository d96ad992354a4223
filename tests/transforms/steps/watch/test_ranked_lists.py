"""Measures of two ranked lists."""

import pytest

from sentence_beam.transforms.steps.watch.ranked_lists import (
    overlap,
    rank_biased_overlap,
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
