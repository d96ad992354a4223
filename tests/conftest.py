"""What all tests share: no hub, seeded generators, the folder of reference data."""

import os
import random
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with golden vectors and STS sets; tests that need it are skipped where it is missing."""
    if not SHARED.is_dir():
        pytest.skip(f"reference data folder {SHARED} is not there")
    return SHARED
