"""The rotation before codes of a few bits: the same bits for a row in any block, and what it is
for.
"""

from pathlib import Path

import numpy as np
import pytest
from helpers.index_data import open_cut, trained, unit_vectors
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.index import choose_index, train
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.rotation import Rotation


@given(
    rows=st.integers(1, 40),
    dim=st.integers(1, 70),
    power=st.integers(-30, 30),
    seed=st.integers(0, 99),
)
def test_a_row_is_turned_alike_in_any_block_and_keeps_its_products(
    rows: int, dim: int, power: int, seed: int
) -> None:
    rotation = Rotation.from_dim(dim)
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(
        np.float32
    ) * np.float32(10.0**power)
    turned = rotation.apply(vectors)
    for cut in (vectors[::-1], vectors[-1:], np.concatenate([vectors] * 3)):
        np.testing.assert_array_equal(
            rotation.apply(cut)[0], turned[0 if len(cut) == 3 * rows else -1]
        )
    scale = float(np.linalg.norm(vectors[0].astype(np.float64))) or 1.0
    unit, before = turned.astype(np.float64) / scale, vectors.astype(np.float64) / scale
    np.testing.assert_allclose(unit @ unit[0], before @ before[0], rtol=1e-4, atol=1e-4)


def test_a_zero_row_stays_zero() -> None:
    assert not Rotation.from_dim(8).apply(np.zeros((2, 8), np.float32)).any()


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_codes_of_a_bit_serve_vectors_whose_components_differ(metric: str, tmp_path: Path) -> None:
    vectors = unit_vectors(3000, 64) * np.arange(1, 65, dtype=np.float32) ** -1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    start = train(
        choose_index(len(vectors), 64, IndexSpec.parse("IVF4,RaBitQ"), metric=metric),
        vectors,
    )
    found = open_cut(tmp_path, start, vectors, [1000]).search(vectors[:200], 40, nprobe=4)
    nearest = np.argsort(-(vectors[:200] @ vectors.T), axis=1)[:, :10]
    rows = np.array([0, 1000])[found.segment] + found.row
    hits = [
        len(set(mine) & set(true))
        for mine, true in zip(rows.tolist(), nearest.tolist(), strict=True)
    ]
    assert np.mean(hits) / 10 > 0.9


def test_other_codes_are_not_turned() -> None:
    assert len(trained("IVF4,SQ8", "ip", 64)) < 64 * 64 * 4 < len(trained("IVF4,RaBitQ", "ip", 64))
