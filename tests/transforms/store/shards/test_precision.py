"""Stored types: codes never wrap, stand for the nearest value, and are packed as others pack
them.

Covers transforms/store/shards/vector_files.py.
"""

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.space.identity import PRECISIONS
from sentence_beam.transforms.store.shards.precision import (
    CODES,
    RANGED,
    Ranges,
    compute_code_width,
    count_vector_bytes,
    dequantize,
    keep_ranges,
    quantize,
    read_kept_ranges,
)

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SMALL = st.floats(-4, 4, width=32)


DIMS = st.integers(1, 20)


def matrices(values=FLOATS, dims=DIMS):
    """float32 [n, d]."""
    shapes = st.tuples(st.integers(1, 8), dims)
    return shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=values))


@st.composite
def with_ranges(draw):
    """Vectors, and the ranges of others that lie elsewhere."""
    vectors = draw(matrices())
    return vectors, Ranges.from_vectors(
        draw(hnp.arrays(np.float32, vectors.shape, elements=FLOATS))
    )


@settings(max_examples=examples(200), deadline=None)
@given(given=with_ranges(), precision=st.sampled_from(RANGED))
def test_codes_never_wrap(given, precision):
    vectors, ranges = given
    codes = quantize(vectors, precision, ranges).astype(int) - np.iinfo(CODES[precision]).min
    assert ((codes == 0) | (vectors > ranges.low)).all()
    assert ((codes == 255) | (vectors < ranges.high) | (ranges.low == ranges.high)).all()
    order = np.argsort(vectors, axis=0)
    assert (np.diff(np.take_along_axis(codes, order, axis=0), axis=0) >= 0).all()


@settings(max_examples=examples(200), deadline=None)
@given(vectors=matrices(), precision=st.sampled_from(RANGED))
def test_codes_stand_for_values_within_half_a_step(vectors, precision):
    ranges = Ranges.from_vectors(vectors)
    found = dequantize(quantize(vectors, precision, ranges), precision, vectors.shape[1], ranges)
    rounding = np.maximum(np.abs(ranges.low), np.abs(ranges.high)) * np.finfo(np.float32).eps
    assert (np.abs(found.astype(np.float64) - vectors) <= 0.5 * ranges.step + rounding).all()
    assert ((ranges.low <= found) & (found <= ranges.high)).all()


@settings(max_examples=examples(200), deadline=None)
@given(given=with_ranges(), precision=st.sampled_from(PRECISIONS))
def test_a_stored_vector_is_stored_as_it_is(given, precision):
    vectors, ranges = given
    codes = quantize(vectors, precision, ranges)
    assert codes.dtype == CODES[precision]
    assert codes.shape == (len(vectors), compute_code_width(precision, vectors.shape[1]))
    floats = 0 if precision == "float32" else vectors.nbytes
    assert len(vectors) * count_vector_bytes(precision, vectors.shape[1]) == codes.nbytes + floats
    back = dequantize(codes, precision, vectors.shape[1], ranges)
    assert back.dtype == np.float32
    assert np.isfinite(back).all()
    assert np.array_equal(quantize(back, precision, ranges), codes)


@settings(max_examples=examples(100), deadline=None)
@given(vectors=matrices(), cuts=st.lists(st.integers(0, 8), max_size=3), seed=st.integers(0, 9))
def test_ranges_are_the_same_from_any_parts_in_any_order(vectors, cuts, seed):
    parts = [Ranges.from_vectors(part) for part in np.split(vectors, sorted(cuts))]
    merged = Ranges.empty(vectors.shape[1])
    for part in np.random.default_rng(seed).permutation(len(parts)):
        merged = merged.merge(parts[part])
    assert merged.digest == Ranges.from_vectors(vectors).digest
    assert np.array_equal(merged.low, vectors.min(axis=0))
    back = Ranges.from_bytes(merged.to_bytes(), "ranges.json")
    assert (back.digest, back.low.dtype) == (merged.digest, np.dtype(np.float32))
    assert np.array_equal(back.high, vectors.max(axis=0))


@settings(max_examples=examples(50), deadline=None)
@given(vectors=matrices())
def test_halves_are_the_nearest_ones_and_saturate(vectors):
    halves = quantize(vectors, "float16").astype(np.float64)
    with np.errstate(over="ignore"):
        nearest = vectors.astype(np.float16).astype(np.float64)
    assert np.array_equal(halves, np.clip(nearest, -65504, 65504))


def test_a_component_without_a_range_keeps_its_value():
    vectors = np.array([[0.25, 1], [0.25, 2]], np.float32)
    ranges = Ranges.from_vectors(vectors)
    for precision in RANGED:
        codes = quantize(np.vstack([vectors, [[9, 9]]]).astype(np.float32), precision, ranges)
        assert np.array_equal(dequantize(codes[:2], precision, 2, ranges), vectors)


def test_halves_of_a_step_go_to_the_even_code():
    ranges = Ranges(np.zeros(1, np.float32), np.full(1, 255, np.float32))
    values = np.array([[0.5], [1.5], [2.5], [253.5], [-7], [300]], np.float32)
    assert quantize(values, "uint8", ranges)[:, 0].tolist() == [0, 2, 2, 254, 0, 255]
    assert quantize(values, "int8", ranges)[:, 0].tolist() == [-128, -126, -126, 126, -128, 127]


def test_signs_are_bits_and_zero_is_not_above_zero():
    vectors = np.array([[1, -1, 0, 1e-30, -0.0, 2, -2, 3, 4]], np.float32)
    assert quantize(vectors, "ubinary").tolist() == [[0b10010101, 0b10000000]]
    assert quantize(vectors, "binary").tolist() == [[0b10010101 - 128, 0]]
    for precision in ("binary", "ubinary"):
        signs = dequantize(quantize(vectors, precision), precision, 9)
        assert signs.tolist() == [[1, -1, -1, 1, -1, 1, -1, 1, 1]]


@settings(max_examples=examples(25), deadline=None)
@given(vectors=matrices(SMALL, dims=st.sampled_from([8, 16, 24])))
def test_codes_are_those_of_sentence_transformers_but_for_rounding(vectors):
    quantization = pytest.importorskip("sentence_transformers.util.quantization")
    for precision in ("binary", "ubinary"):
        theirs = quantization.quantize_embeddings(vectors, precision)
        assert np.array_equal(quantize(vectors, precision), theirs)
        assert CODES[precision] == theirs.dtype
    vectors = np.vstack(
        [vectors, vectors[:1] + np.linspace(1, 2, vectors.shape[1], dtype=np.float32)]
    )
    ranges = Ranges.from_vectors(vectors)
    bounds = np.stack([ranges.low, ranges.high])
    for precision in RANGED:
        with np.errstate(invalid="ignore"):
            theirs = quantization.quantize_embeddings(vectors, precision, ranges=bounds)
        ours = quantize(vectors, precision, ranges)
        assert ours.dtype == theirs.dtype
        inside = vectors < ranges.high  # theirs may wrap at the bound
        assert np.abs(ours.astype(int) - theirs)[inside].max(initial=0) <= 1


def test_changed_ranges_are_noticed():
    data = Ranges.from_vectors(np.eye(3, dtype=np.float32)).to_bytes()
    for wrong in (data.replace(b"1.0", b"2.0", 1), b"{}", b"[1]", b"\xff"):
        with pytest.raises(SentenceBeamError, match=r"ranges.json holds no ranges"):
            Ranges.from_bytes(wrong, "ranges.json")


def test_damaged_ranges_are_written_again(tmp_path, space):
    ranges = Ranges.from_vectors(np.ones((2, 4), np.float32))
    entry = keep_ranges(str(tmp_path), ranges, space)
    path = tmp_path / entry.path
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    with pytest.raises(SentenceBeamError, match="restore it"):
        read_kept_ranges(str(tmp_path), entry)
    assert keep_ranges(str(tmp_path), ranges, space) == entry
    assert path.read_bytes() == data
