"""Columns of Arrow as arrays of numpy, and back, however they are cut."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.arrow_arrays import (
    as_hashes,
    as_keys,
    as_matrix,
    get_hash_prefixes,
    make_hash_column,
    make_vector_column,
)

HASHES = st.lists(st.binary(min_size=16, max_size=16), max_size=20)


@given(HASHES, st.integers(0, 20), st.integers(0, 20))
def test_hashes_come_back_from_a_column_a_slice_and_chunks(
    hashes: list[bytes], start: int, length: int
) -> None:
    column = pa.array(hashes, pa.binary(16))
    assert as_hashes(column).tobytes() == b"".join(hashes)
    part = column.slice(min(start, len(hashes)), length)
    assert as_hashes(part).tobytes() == b"".join(part.to_pylist())
    chunked = pa.chunked_array([column.slice(0, start), part], pa.binary(16))
    assert as_hashes(chunked).tobytes() == b"".join(chunked.to_pylist())
    assert make_hash_column(as_hashes(part)).equals(part)


@given(HASHES)
def test_keys_and_prefixes_sort_as_the_hashes_do(hashes: list[bytes]) -> None:
    array = as_hashes(pa.array(hashes, pa.binary(16)))
    assert [hashes[i] for i in np.argsort(as_keys(array), kind="stable")] == sorted(hashes)
    assert get_hash_prefixes(array).tolist() == [int.from_bytes(item[:8], "big") for item in hashes]


def test_vectors_come_back_from_a_column_and_a_slice() -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = make_vector_column(vectors)
    assert np.array_equal(as_matrix(column), vectors)
    assert np.array_equal(as_matrix(column.slice(1, 2)), vectors[1:3])
    assert as_matrix(column.slice(4)).shape == (0, 3)
