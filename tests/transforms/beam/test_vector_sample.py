"""The sample of a store's vectors: the same rows whatever the shards, exactly as many as wanted."""

import numpy as np
import pytest
from helpers.vector_shards import write_shards

from transforms.beam.fit import parts_of
from transforms.beam.sample import SampleJob, leave_sample, take_sample

ROWS = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)


def sample(folder, shards: int, want: int) -> np.ndarray:
    """The sample of `ROWS` in so many shards."""
    paths = write_shards(folder, ROWS, shards, normalized=False)
    job = SampleJob(f"{folder}/sample-{shards}-{want}", want, len(ROWS), normalized=False)
    return take_sample([leave_sample(part, job) for part in parts_of(paths)][::-1], want)


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
    assert take_sample([], 5).shape == (0, 0)


@pytest.mark.parametrize(("shards", "parts"), [(0, 0), (1, 1), (63, 63), (64, 64), (1000, 64)])
def test_parts_hold_every_shard_once_in_order(shards, parts):
    names = [f"s{i:04d}" for i in range(shards)]
    found = parts_of(names)
    assert len(found) == parts
    assert [number for number, _ in found] == list(range(parts))
    assert [name for _, part in found for name in part] == names
    assert all(part for _, part in found)
