"""Which rows of rewritten shards the index has already: matching by text and id, and locators that
follow.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.pairing import pair_rows
from sentence_beam.transforms.steps.index import matching

rows = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), max_size=12)  # (text, id)


def hashes(texts: list[int]) -> pa.Array:
    return pa.array([bytes([37 * text % 256] * 16) for text in texts], pa.binary(16))


def went(items: list[tuple[int, str]]) -> pa.Table:
    columns = [
        hashes([t for t, _ in items]),
        pa.array([i for _, i in items], pa.string()),
        range(len(items)),
    ]
    return pa.table([*columns[:2], pa.array(columns[2], pa.int64())], schema=matching.REMOVED)


def came(items: list[tuple[int, str]]) -> pa.Table:
    n = len(items)
    columns = [hashes([t for t, _ in items]), pa.array([i for _, i in items], pa.string())]
    return pa.table(
        [*columns, pa.array([0] * n, pa.int32()), pa.array(range(n), pa.int64())],
        schema=matching.ADDED,
    )


@given(old=rows, new=rows)
def test_as_many_rows_of_a_text_are_matched_as_can_be_and_by_id_where_it_is_the_same(
    old: list[tuple[int, str]], new: list[tuple[int, str]]
) -> None:
    a, b = pair_rows(went(old), came(new), by="row_hash", first="id")
    assert len(set(a.tolist())) == len(set(b.tolist())) == len(a) == len(b)
    assert all(old[i][0] == new[j][0] for i, j in zip(a, b, strict=True))
    texts = Counter(t for t, _ in old) & Counter(t for t, _ in new)
    assert len(a) == texts.total()
    same = sum(old[i] == new[j] for i, j in zip(a, b, strict=True))
    assert same == (Counter(old) & Counter(new)).total()


@pytest.mark.parametrize("buckets", [1, 2, 7])
def test_buckets_hold_all_rows_of_a_text_and_can_be_read_apart(buckets: int) -> None:
    table = came([(i % 50, f"{i}") for i in range(200)])
    cut = matching.cut_by_bucket(table, buckets)
    data = matching.to_bytes(cut)
    asked: list[int] = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return data[start:stop]

    read = [matching.read(fetch, matching.ADDED, number)[0] for number in range(buckets)]
    # each table once, and where it begins and ends
    assert sum(asked) == len(data) + 8 * (buckets - 1)
    assert [t.to_pylist() for t in matching.read(fetch, matching.ADDED, 0, buckets)] == [
        t.to_pylist() for t in read
    ]
    assert [t.to_pylist() for t in read] == [t.to_pylist() for t in cut]
    assert Counter(i for t in read for i in t.column("id").to_pylist()) == Counter(
        map(str, range(200))
    )
    found = [set(t.column("row_hash").to_pylist()) for t in read]
    assert sum(map(len, found)) == len(set.union(*found)) == 50
    assert all(np.all(np.diff(t.column("row").to_numpy()) > 0) for t in read if len(t))
