"""A small space and an empty store."""

from pathlib import Path

import pytest

from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.shards.unit_store import UnitStore


@pytest.fixture
def space() -> Space:
    """A space of four dimensions."""
    return Space(
        weights="w", tokenizer="t", architecture="bert:x", max_tokens=16, prompt="", pooler={"name": "mean"},
        calibration=None, normalize=True, truncate_dim=None, precision="float32", dtype="float32", dim=4,
    )  # fmt: skip


@pytest.fixture
def unit_store(tmp_path: Path, space: Space) -> UnitStore:
    """An empty store."""
    return UnitStore(str(tmp_path / "store"), space)
