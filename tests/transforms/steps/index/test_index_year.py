"""A year of nights of an index by lists, decided on made-up counts."""

from unittest.mock import patch

from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.index_year import Year
from sentence_beam.transforms.index import IndexSpec, choose, choose_index
from sentence_beam.transforms.index.upkeep import MOST_DELTAS, MOST_IN_DELTAS
from sentence_beam.transforms.steps.index.files import SEGMENT_ROWS

ROWS = 2_000_000
PLAN = choose_index(ROWS, 96, IndexSpec.parse("IVF512,SQ8"))


@settings(max_examples=examples(2, few=1), deadline=None)
@given(ranges=st.integers(20, 60), seed=st.integers(0, 99))
def test_no_night_of_a_year_costs_twice_the_mean(ranges: int, seed: int) -> None:
    with patch.object(choose, "RANGE_BYTES", ROWS * PLAN.spec.row_bytes(96) // ranges):
        nights = list(Year(PLAN, ROWS, 0.01, seed).nights(365))
    mean = sum(night.rows for night in nights) / len(nights)
    assert max(night.rows for night in nights) <= 2 * mean
    assert mean <= 0.12 * ROWS
    for night in nights:
        assert night.waiting <= 1.5 * MOST_IN_DELTAS
        # as many that are more than half full, and a night's
        assert night.deltas <= MOST_DELTAS + 2 * night.waiting * ROWS / SEGMENT_ROWS + 1
        assert night.ranges <= 2 * ranges
    assert sum(night.written for night in nights) > 5 * ranges  # each some times
