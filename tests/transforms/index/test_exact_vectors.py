"""The vectors beside a segment's codes: what they keep of a row, and that each row is checked
alone.
"""

import numpy as np
import pytest
from helpers.index_data import unit_vectors
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.exact_vectors import (
    RefineWriter,
    check_rows,
    decode_rows,
    row_type,
)

DIM = 12


def rows_of(writer: RefineWriter) -> np.ndarray:
    return np.frombuffer(writer.to_bytes(), row_type(DIM))


@given(seed=st.integers(0, 99), power=st.integers(-30, 30))
def test_rows_of_any_length_keep_their_direction_and_their_length(seed: int, power: int) -> None:
    vectors = (unit_vectors(20, DIM, seed) * 10.0**power).astype(np.float32)
    writer = RefineWriter(DIM)
    writer.add(vectors[:5])
    writer.add(vectors[5:])
    found = decode_rows(rows_of(writer))
    assert (np.abs(found - vectors).max(axis=1) <= np.abs(vectors).max(axis=1) * 2.0**-11).all()


def test_copied_rows_are_as_if_they_had_been_added() -> None:
    vectors, keep = unit_vectors(20, DIM), np.arange(20) % 3 > 0
    one, two, other = RefineWriter(DIM), RefineWriter(DIM), RefineWriter(DIM)
    one.add(vectors)
    two.add(unit_vectors(4, DIM, 1))
    two.copy(rows_of(one)[keep])
    for block in (unit_vectors(4, DIM, 1), vectors[keep]):
        other.add(block)
    assert two.to_bytes() == other.to_bytes()
    assert RefineWriter(DIM).to_bytes() == b""


def test_a_changed_row_and_a_row_of_another_place_are_noticed() -> None:
    writer, numbers = RefineWriter(DIM), np.arange(20)
    writer.add(unit_vectors(20, DIM))
    whole = writer.to_bytes()
    for at in range(0, len(whole), 7):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(DamagedIndexError, match=r"a\.refine was changed after it was written"):
            check_rows(np.frombuffer(changed, row_type(DIM)), numbers, "a.refine")
    rows = np.frombuffer(whole, row_type(DIM))
    check_rows(rows, numbers, "a.refine")
    with pytest.raises(DamagedIndexError):
        check_rows(rows, numbers[::-1], "a.refine")
