"""What the campaign shares: commands on a tiny model, how many cases there are to be, and a count
of those that ran.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.cases import TRIED
from helpers.examples import SIZE
from helpers.fixtures import model, one_model, run

__all__ = ["model", "one_model", "run"]


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(plain_beam: None) -> None:
    """Many small pipelines."""


@pytest.fixture(scope="session")
def size() -> float:
    """By what the number of cases of the long form is multiplied."""
    return float(os.environ.get(SIZE, "1"))


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say what was tried, with which result; it is printed when all tests have run."""
    return lambda line: request.node.user_properties.append((TRIED, line))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"
