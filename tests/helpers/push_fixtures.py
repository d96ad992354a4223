"""The databases that are pushed into, and a store."""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from helpers import qdrant
from helpers.pushes import Kept, files_of, in_memory

_numbers = count(1)


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


@pytest.fixture(params=["qdrant", "lance"])
def shared(
    request: pytest.FixtureRequest, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A table that is not there yet, of each kind that takes two pushes at once."""
    pytest.importorskip({"qdrant": "qdrant_client", "lance": "lancedb"}[request.param])
    if request.param == "lance":
        yield f"lance:{quick}/lance#docs"
        return
    monkeypatch.setenv("QDRANT_API_KEY", qdrant.KEY)
    with qdrant.running() as (url, _):
        yield f"qdrant:{url}#docs"


@pytest.fixture
def store(quick: Path) -> Kept:
    """A store with nine rows."""
    store = Kept(quick / "store")
    store.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(9)}))
    return store
