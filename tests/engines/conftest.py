"""Engines as they are: a Flink cluster in JVMs of its own, which all tests of a session share, and
Prism.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import flink
from helpers.corpora import sentences, write_parquet
from helpers.engines import QUIET, ROOT, Flink
from helpers.tiny_models import save_tiny_model

HOOKS = Path(__file__).with_name("hooks")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return save_tiny_model("bert", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """360 rows in two files, of about fifty units."""
    return write_rows(tmp_path_factory.mktemp("corpus"), 180)


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    """120 rows in two files, of about twenty units."""
    return write_rows(tmp_path_factory.mktemp("few"), 60)


def write_rows(folder: Path, count: int) -> str:
    """Write so many rows into each of two files; the glob."""
    for number, name in enumerate(("a", "b")):
        ids = [f"{name}{n}" for n in range(count)]
        texts = sentences(count, count * number)
        write_parquet(folder / f"{name}.parquet", texts, row_group_size=30, id=ids)
    return str(folder / "*.parquet")


@pytest.fixture(scope="session")
def _flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    reason = flink.missing()
    if reason:
        pytest.skip(reason)
    folder, hooks = tmp_path_factory.mktemp("flink"), tmp_path_factory.mktemp("hooks")
    path = os.pathsep.join([str(HOOKS), str(ROOT)])
    env = {**os.environ, **QUIET, "PYTHONPATH": path, "SENTENCE_BEAM_TEST_HOOKS": str(hooks)}
    with flink.cluster(folder, env) as running:
        yield Flink(running, hooks)


@pytest.fixture
def on_flink(_flink: Flink) -> Flink:
    """The cluster, at rest."""
    _flink.forget()
    return _flink


@pytest.fixture(scope="session")
def prism() -> str:
    """The Prism binary."""
    path = os.environ.get("SENTENCE_BEAM_PRISM", "")
    if not os.path.isfile(path):
        pytest.skip("SENTENCE_BEAM_PRISM names no Prism binary")
    return path
