"""Hashes of ids: the same everywhere, cut into buckets without loss."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus.buckets import split_by_bucket
from sentence_beam.transforms.store.runs.listed_changes import (
    BUCKET_ROWS,
    count_buckets,
    count_repeated,
)
from sentence_beam.transforms.store.shards.id_hashes import hash_ids


def test_an_id_has_the_hash_that_xxh3_defines() -> None:
    assert hash_ids(pa.array([""])).tolist() == [0x2D06800538D394C2]
    assert (
        hash_ids(pa.array(["a", "naïve", "a"])).tolist()[0]
        == hash_ids(pa.array(["x", "a"])).tolist()[1]
    )


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 20))
def test_every_hash_is_in_one_bucket(hashes: list[int], buckets: int) -> None:
    found = dict(split_by_bucket(np.array(hashes, np.uint64) % np.uint64(buckets), buckets))

    assert sorted(i for places in found.values() for i in places.tolist()) == list(
        range(len(hashes))
    )
    for number, places in found.items():
        assert {hashes[i] % buckets for i in places} == {number}
        assert places.tolist() == sorted(places.tolist())


@pytest.mark.parametrize(("rows", "expected"), [(0, 1), (BUCKET_ROWS, 2), (10**10, 10**4 + 1)])
def test_there_are_as_many_buckets_as_rows_want(rows: int, expected: int) -> None:
    assert count_buckets(rows) == expected


@given(st.lists(st.lists(st.integers(0, 5))))
def test_rows_whose_id_came_before_are_counted(parts: list[list[int]]) -> None:
    everything = [i for part in parts for i in part]
    assert count_repeated(np.array(part, np.uint64).tobytes() for part in parts) == len(
        everything
    ) - len(set(everything))
