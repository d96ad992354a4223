"""The canary's vectors: how far they moved, and the file that keeps them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.entries import CanaryEntry
from sentence_beam.transforms.store.runs.canary import TEXTS, Canary, CanaryFile

POOLED = np.random.default_rng(0).standard_normal((len(TEXTS), 6)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> CanaryFile:
    return CanaryFile.from_store(str(tmp_path), "0123456789abcdef" * 4, 2, None)


def test_the_same_vectors_have_not_moved_at_all() -> None:
    assert Canary(TEXTS, POOLED).measure_drift(POOLED.copy()) == 0
    for value in (0, np.nan):  # of a text that the model cannot embed
        lost = np.vstack([POOLED[:-1], np.full((1, 6), value, np.float32)])
        assert Canary(TEXTS, lost).measure_drift(lost.copy()) == 0
    assert abs(Canary(TEXTS, POOLED).measure_drift(POOLED * 3)) < 1e-12


def test_drift_is_the_largest_cosine_distance() -> None:
    moved = POOLED.copy()
    moved[3] *= -1
    assert Canary(TEXTS, POOLED).measure_drift(moved) == pytest.approx(2)
    moved = POOLED.copy()
    moved[5] += np.float32(1e-2) * np.roll(moved[5], 1)
    expected = 1 - moved[5] @ POOLED[5] / np.linalg.norm(moved[5]) / np.linalg.norm(POOLED[5])
    assert Canary(TEXTS, POOLED).measure_drift(moved) == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("lost", [0.0, np.nan, np.inf])
def test_a_vector_that_is_lost_has_moved_beyond_any_bound(lost: float) -> None:
    moved = POOLED.copy()
    moved[0] = lost
    assert Canary(TEXTS, POOLED).measure_drift(moved) == np.inf


def test_the_first_one_kept_stands(file: CanaryFile) -> None:
    assert (file.read(), file.entry()) == (None, None)
    assert file.keep(Canary(TEXTS, POOLED)).measure_drift(POOLED) == 0
    other = file.keep(Canary(("a",), POOLED[:1] + 1))
    assert other.texts == TEXTS
    assert np.array_equal(other.pooled, POOLED)
    data = Path(file.full_path).read_bytes()
    assert file.entry() == CanaryEntry(
        "canary/0123456789abcdef-2.parquet", hashlib.sha256(data).hexdigest()
    )


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_one_that_a_manifest_names_must_be_as_it_was(file: CanaryFile, damage: str) -> None:
    file.keep(Canary(TEXTS, POOLED))
    named = CanaryFile.from_store(file.root, "other", 7, file.entry())
    assert named.read().texts == TEXTS
    path = Path(file.full_path)
    _ = path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(SentenceBeamError, match=damage):
        named.read()
