"""One pass over a store's shards: moments by laws of the combiner, a sample by hash, and what is
refused.

Covers transforms/steps/fit/gathered_vectors.py.
"""

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that
from helpers.vector_shards import write_shard, write_shards

from sentence_beam.transforms.beam.fit import Gather
from sentence_beam.transforms.beam.graph import MergeAll
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.steps.fit.gathered_vectors import (
    Gathered,
    GatherJob,
    gather,
    take_sample,
)
from sentence_beam.transforms.steps.fit.store_fit import divide_shards

pytestmark = pytest.mark.usefixtures("plain_beam")

ROWS = (np.random.default_rng(0).normal(size=(500, 6)) * 3 + 5).astype(np.float32)


def job_of(
    folder: Path, name: str = "s", want: int = 50, normalized: bool = False, whole: bool = True
) -> GatherJob:
    """A job that leaves its sample in the folder."""
    return GatherJob(f"{folder}/{name}", want, len(ROWS), normalized, whole)


def gathered(shards: list[str], job: GatherJob) -> Gathered:
    """All shards, part by part, merged by the combiner."""
    merge = MergeAll(Gathered())
    return merge.extract_output(
        merge.merge_accumulators([gather(part, job) for part in divide_shards(shards)])
    )


def same(a: Moments | None, b: Moments | None, within: float = 1e-12) -> None:
    """Check that two moments are equal up to rounding."""
    assert a is not None
    assert b is not None
    assert a.n == b.n
    assert np.abs(a.mean - b.mean).max() <= within * np.abs(b.mean).max()
    assert np.abs(a.m2 - b.m2).max() <= within * np.abs(b.m2).max()


@pytest.mark.parametrize("normalized", [True, False])
def test_one_shard_and_fifty_give_numpys_covariance(tmp_path, normalized):
    job = job_of(tmp_path, normalized=normalized)
    one = gathered(write_shards(tmp_path, ROWS, 1, normalized), job).moments
    fifty = gathered(write_shards(tmp_path, ROWS, 50, normalized), job).moments
    same(fifty, one)
    expected = np.cov(ROWS.astype(np.float64).T)
    # a stored unit vector times its norm is rounded to float32
    within = 1e-6 if normalized else 1e-12
    assert np.abs(one.covariance(sample=True) - expected).max() <= within * np.abs(expected).max()


def test_accumulators_merge_in_any_grouping(tmp_path):
    job, merge = job_of(tmp_path), MergeAll(Gathered())
    parts = [
        gather(part, job)
        for part in divide_shards(write_shards(tmp_path, ROWS, 7, normalized=False))
    ]
    whole, nothing = Moments.from_rows(ROWS), merge.create_accumulator()
    groupings = [
        parts,
        parts[::-1],
        [merge.merge_accumulators(parts[:3]), nothing, merge.merge_accumulators(parts[3:])],
    ]
    for grouping in groupings:
        found = merge.merge_accumulators(grouping)
        same(found.moments, whole, 1e-6)
        assert sorted(found.samples) == sorted(path for part in parts for path in part.samples)
    one_by_one = nothing
    for part in parts:
        one_by_one = merge.add_input(one_by_one, part)
    same(one_by_one.moments, whole, 1e-6)
    assert merge.merge_accumulators([nothing, nothing]) == Gathered()


def test_in_a_pipeline(tmp_path):
    shards, job = write_shards(tmp_path, ROWS, 9, normalized=False), job_of(tmp_path)
    with beam.Pipeline("FnApiRunner") as pipeline:
        found = pipeline | beam.Create(divide_shards(shards)) | Gather(job)
        assert_that(found, lambda items: same(items[0].moments, Moments.from_rows(ROWS)))


def test_float16_shards_are_summed_wide(tmp_path):
    shards = write_shards(tmp_path, ROWS.astype(np.float16), 3, normalized=False)
    expected = np.cov(ROWS.astype(np.float16).astype(np.float64).T, ddof=0)
    assert (
        np.abs(gathered(shards, job_of(tmp_path)).moments.covariance() - expected).max()
        <= 1e-12 * expected.max()
    )


def sample(folder: Path, shards: int, want: int) -> np.ndarray:
    """The sample of `ROWS` in so many shards."""
    job = job_of(folder, f"{shards}-{want}", want, whole=False)
    found = gathered(write_shards(folder, ROWS, shards, normalized=False), job)
    assert found.moments is None
    return take_sample(found, want)


@pytest.mark.parametrize("want", [1, 50, 499, 500, 1000])
def test_the_same_rows_in_the_same_order_from_any_number_of_shards(tmp_path, want):
    one = sample(tmp_path, 1, want)
    assert len(one) == min(want, 500)
    for shards in (3, 50):
        assert (sample(tmp_path, shards, want) == one).all()


def test_a_larger_sample_begins_with_a_smaller_one(tmp_path):
    assert (sample(tmp_path, 3, 100)[:20] == sample(tmp_path, 3, 20)).all()


def test_rows_are_drawn_evenly(tmp_path):
    drawn = {row.tobytes() for row in sample(tmp_path, 3, 250)}
    first_half = sum(row.tobytes() in drawn for row in ROWS[:250])
    assert 95 <= first_half <= 155  # four deviations


def test_nothing_sampled():
    assert take_sample(Gathered(), 5).shape == (0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("whole", [True, False])
def test_a_vector_that_is_not_finite_is_named(tmp_path, bad, whole):
    rows = ROWS[:300].copy()
    rows[137, 2] = bad
    shards = write_shards(tmp_path, rows, 3, normalized=False)
    problem = gathered(shards, job_of(tmp_path, whole=whole)).problem
    assert problem.message.startswith(f"{shards[1]}: the vector of row 37 is not finite")


def test_a_damaged_shard_is_a_problem(tmp_path):
    good = write_shard(tmp_path / "a.parquet", ROWS)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing")
    found = gathered(
        [good, str(tmp_path / "b.parquet"), str(tmp_path / "none.parquet")], job_of(tmp_path)
    )
    assert "b.parquet cannot be read" in found.problem.message
    assert found.moments is None


@pytest.mark.parametrize(("shards", "parts"), [(0, 0), (1, 1), (63, 63), (64, 64), (1000, 64)])
def test_parts_hold_every_shard_once_in_order(shards, parts):
    names = [f"s{i:04d}" for i in range(shards)]
    found = divide_shards(names)
    assert len(found) == parts
    assert [number for number, _ in found] == list(range(parts))
    assert [name for _, part in found for name in part] == names
    assert all(part for _, part in found)
