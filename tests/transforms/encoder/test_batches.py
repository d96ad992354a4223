"""Batches: each text once, longest first, within the budget, on made-up lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.encoder.batches import (
    Batch,
    BatchStats,
    cut_rows,
    plan_alike,
    plan_batches,
)
from sentence_beam.transforms.encoder.tokenize import Tokenized

LENGTHS = st.lists(st.integers(0, 12), max_size=30)
BUDGETS = st.integers(1, 40)


def tokenized(lengths: list[int], types: bool = False) -> Tokenized:
    """Texts of these lengths; each token's id says its text and its place."""
    ids = [100 * text + place for text, length in enumerate(lengths) for place in range(length)]
    offsets = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)
    made = np.array(ids, np.int32)
    counts = np.array(lengths, np.int32)
    masks = np.arange(len(lengths))
    kinds = (made % 2).astype(np.int8) if types else None
    return Tokenized(made, offsets, counts, counts < 0, kinds, masks)


def texts_of(batch: Batch) -> dict[int, list[int]]:
    """The ids of each row of a batch."""
    parts = np.split(batch.ids, batch.offsets[1:-1])
    return {int(row): part.tolist() for row, part in zip(batch.rows, parts, strict=True)}


@given(LENGTHS, BUDGETS, st.booleans())
def test_every_text_with_tokens_is_in_one_batch_within_the_budget(
    lengths: list[int], budget: int, equal: bool
) -> None:
    batches = list(plan_batches(tokenized(lengths, types=True), budget, equal))
    rows = [int(row) for batch in batches for row in batch.rows]
    wanted = [row for row, length in enumerate(lengths) if length]
    assert sorted(rows) == wanted
    assert rows == sorted(rows, key=lambda row: (-lengths[row], row))
    for batch in batches:
        assert len(batch.rows) == 1 or batch.width * len(batch.rows) <= budget
        assert not equal or len(set(batch.lengths.tolist())) == 1
        for row, ids in texts_of(batch).items():
            assert ids == [100 * row + place for place in range(lengths[row])]
        assert batch.types is not None
        assert (batch.types == batch.ids % 2).all()
        assert batch.masks is not None
        assert (batch.masks == batch.rows).all()


@given(LENGTHS, BUDGETS)
def test_alike_batches_have_a_shape_that_only_their_length_decides(
    lengths: list[int], budget: int
) -> None:
    seen = []
    for batch in plan_alike(tokenized(lengths), budget):
        length = batch.width
        assert batch.lengths.tolist() == [length] * max(1, budget // length)
        own = len(batch.rows) - batch.fill
        seen += batch.rows[:own].tolist()
        # fillers are copies of the last text
        assert set(batch.rows[own:].tolist()) <= {int(batch.rows[own - 1])}
        assert batch.ids.reshape(-1, length)[own:].tolist() == [
            batch.ids.reshape(-1, length)[own - 1].tolist()
        ] * (batch.fill)
    assert sorted(seen) == [row for row, length in enumerate(lengths) if length]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), BUDGETS)
def test_halves_are_the_batch(lengths: list[int], budget: int) -> None:
    for batch in (
        *plan_batches(tokenized(lengths), budget),
        *plan_alike(tokenized(lengths), budget),
    ):
        if len(batch.rows) == 1:
            continue
        halves = batch.halves()
        assert [len(half.rows) for half in halves] == [
            (len(batch.rows) + 1) // 2,
            len(batch.rows) // 2,
        ]
        for name in ("rows", "ids", "lengths", "masks"):
            joined = np.concatenate([getattr(half, name) for half in halves])
            np.testing.assert_array_equal(joined, getattr(batch, name))
        assert sum(half.fill for half in halves) == batch.fill


def test_counts_of_tokens_with_and_without_padding() -> None:
    (batch,) = plan_batches(tokenized([2, 5]), 100)
    assert batch.stats(pads=True) == BatchStats(7, 10, 1)
    assert batch.stats(pads=False) == BatchStats(7, 7, 1)
    (filled,) = plan_alike(tokenized([3]), 9)
    assert filled.fill == 2
    assert filled.stats(pads=False) == BatchStats(3, 9, 1)
    assert BatchStats(1, 2, 3, 4) + BatchStats(10, 20, 30, 40) == BatchStats(11, 22, 33, 44)


@pytest.mark.parametrize(
    ("lengths", "budget", "equal", "cuts"),
    [
        ([], 10, False, [0]),
        ([20], 10, False, [0, 1]),
        ([5, 5, 5, 1], 10, False, [0, 2, 4]),
        ([5, 4, 4, 1], 10, True, [0, 1, 3, 4]),
        ([4, 4, 4, 4, 4], 8, True, [0, 2, 4, 5]),
    ],
)
def test_cuts(lengths: list[int], budget: int, equal: bool, cuts: list[int]) -> None:
    assert cut_rows(np.array(lengths, np.int64), budget, equal) == cuts
