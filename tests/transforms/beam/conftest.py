"""A tiny model."""

from pathlib import Path

import pytest
from helpers.tiny_models import save_tiny_model


@pytest.fixture(scope="module", autouse=True)
def _cached_beam_options(cached_beam_options: None) -> None:
    """Many small pipelines."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return save_tiny_model("bert", tmp_path_factory.mktemp("models") / "tiny")
