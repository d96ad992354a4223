"""The databases that are pushed into."""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from helpers.fixtures import run
from helpers.pushes import Kept, files_of, in_memory

__all__ = ["run"]
_numbers = count(1)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else takes a turn in the same moment."""
    monkeypatch.setattr("transforms.push.turn.SETTLE_SECONDS", 0)


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder that does not wait for the disk."""
    folder = Path(tempfile.mkdtemp(prefix="push-", dir=in_memory()))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["postgresql", "qdrant", "lance"])
def to(request: pytest.FixtureRequest, quick: Path) -> str:
    """A table, of each kind, that is not there yet."""
    if request.param == "postgresql":
        return f"{request.getfixturevalue('pgvector')}#docs_{next(_numbers)}"
    pytest.importorskip({"qdrant": "qdrant_client", "lance": "lancedb"}[request.param])
    return f"{request.param}:{quick}/{request.param}#docs"


@pytest.fixture
def store(quick: Path) -> Kept:
    """A store with nine rows."""
    store = Kept(quick / "store")
    store.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(9)}))
    return store
