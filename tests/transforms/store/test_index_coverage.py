"""The rows of shards that an index has, as counts and sums."""

import numpy as np
import pyarrow as pa
import pytest

from sentence_beam.transforms.store.index_coverage import Coverage

ROWS = pa.table({"path": ["a", "b", "c", "d"], "rows": [700, 0, 1, 1200]})
PLACES = np.repeat(np.arange(len(ROWS)), ROWS.column("rows"))
NUMBERS = np.concatenate([np.arange(rows) for rows in ROWS.column("rows").to_pylist()])


def in_segments(shards: np.ndarray, rows: np.ndarray) -> Coverage:
    """The coverage of rows that are in seven segments at random."""
    segment = np.random.default_rng(3).integers(0, 7, len(rows))
    found = Coverage()
    for number in range(8):  # the last has none
        mine = segment == number
        found = found.merge(Coverage.from_shards(shards[mine], rows[mine]))
    return found


def test_rows_that_are_in_one_segment_each() -> None:
    assert not list(in_segments(PLACES, NUMBERS).faults(ROWS))
    assert not list(Coverage().faults(ROWS.slice(0, 0)))


@pytest.mark.parametrize(
    ("keep", "add", "line"),
    [
        (slice(3, None), (), "a: 3 rows are not in the index"),
        (slice(None), (5, 9), "a: 2 rows are in the index twice"),
        (slice(1, None), (7,), "a: some rows are in the index twice, and as many are not in it"),
    ],
)
def test_rows_that_are_missing_or_twice(keep: slice, add: tuple[int, ...], line: str) -> None:
    shards = np.concatenate([PLACES[keep], np.zeros(len(add), np.int64)])
    rows = np.concatenate([NUMBERS[keep], np.array(add, np.int64)])
    assert list(in_segments(shards, rows).faults(ROWS)) == [line]


def test_a_shard_that_no_segment_has() -> None:
    others = PLACES != 3
    assert list(in_segments(PLACES[others], NUMBERS[others]).faults(ROWS)) == [
        "d: 1200 rows are not in the index"
    ]
