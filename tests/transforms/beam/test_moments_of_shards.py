"""The combiner of moments over shards: its laws without a runner, and what it refuses."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that
from helpers.vector_shards import write_shard, write_shards

from transforms.beam.moments import Gathered, GatherMoments, gather
from transforms.calibration.moments import Moments

ROWS = (np.random.default_rng(0).normal(size=(300, 6)) * 3 + 5).astype(np.float32)


def gathered(shards: list[str], normalized: bool = True) -> Gathered:
    """All shards by one accumulator."""
    combiner = GatherMoments(normalized)
    return combiner.extract_output(combiner.add_input(combiner.create_accumulator(), tuple(shards)))


def same(a: Moments | None, b: Moments | None, within: float = 1e-12) -> None:
    """Check that two moments are equal up to rounding."""
    assert a is not None
    assert b is not None
    assert a.n == b.n
    assert np.abs(a.mean - b.mean).max() <= within * np.abs(b.mean).max()
    assert np.abs(a.m2 - b.m2).max() <= within * np.abs(b.m2).max()


@pytest.mark.parametrize("normalized", [True, False])
def test_one_shard_and_fifty_give_numpys_covariance(tmp_path, normalized):
    one = gathered(write_shards(tmp_path, ROWS, 1, normalized), normalized)
    fifty = gathered(write_shards(tmp_path, ROWS, 50, normalized), normalized)
    same(fifty.moments, one.moments)
    expected = np.cov(ROWS.astype(np.float64).T)
    within = 1e-6 if normalized else 1e-12  # a stored unit vector times its norm is rounded to float32
    assert np.abs(one.moments.covariance(sample=True) - expected).max() <= within * np.abs(expected).max()


def test_accumulators_merge_in_any_grouping(tmp_path):
    shards, combiner = write_shards(tmp_path, ROWS, 7), GatherMoments(True)
    parts = [combiner.add_input(combiner.create_accumulator(), (shard,)) for shard in shards]
    whole = gathered(shards).moments
    nothing = combiner.create_accumulator()
    same(combiner.merge_accumulators(parts).moments, whole)
    same(combiner.merge_accumulators(parts[::-1]).moments, whole)
    two = [combiner.merge_accumulators(parts[:3]), nothing, combiner.merge_accumulators(parts[3:])]
    same(combiner.merge_accumulators(two).moments, whole)
    assert combiner.merge_accumulators([nothing, nothing]) == Gathered()
    assert combiner.add_input(nothing, ()) == Gathered()


def test_the_combiner_in_a_pipeline(tmp_path):
    shards, whole = write_shards(tmp_path, ROWS, 9), gathered(write_shards(tmp_path, ROWS, 1)).moments
    with beam.Pipeline("FnApiRunner") as pipeline:
        found = (
            pipeline
            | beam.Create([tuple(shards[:4]), tuple(shards[4:5]), tuple(shards[5:])])
            | beam.CombineGlobally(GatherMoments(True))
        )
        assert_that(found, lambda items: same(items[0].moments, whole))


def test_float16_shards_are_summed_wide(tmp_path):
    shards = write_shards(tmp_path, ROWS.astype(np.float16), 3, normalized=False)
    expected = np.cov(ROWS.astype(np.float16).astype(np.float64).T, ddof=0)
    assert np.abs(gathered(shards, normalized=False).moments.covariance() - expected).max() <= 1e-12 * expected.max()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_named(tmp_path, bad):
    rows = ROWS.copy()
    rows[137, 2] = bad
    shards = write_shards(tmp_path, rows, 3, normalized=False)
    problem = gathered(shards, normalized=False).problem
    assert problem.message.startswith(f"{shards[1]}: the vector of row 37 is not finite")
    assert gather(shards[0], False).problem is None


def test_a_damaged_shard_is_a_problem(tmp_path):
    good = write_shard(tmp_path / "a.parquet", ROWS)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing")
    found = gathered([good, str(tmp_path / "b.parquet"), str(tmp_path / "none.parquet")])
    assert "b.parquet cannot be read" in found.problem.message
    assert found.moments is None
