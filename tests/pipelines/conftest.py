"""A tiny model, a folder for inputs, a place for a store, and the commands to run on them."""

from pathlib import Path

import pytest
from helpers.commands import Outcome, Run
from helpers.fixtures import model, one_model, run

__all__ = ["model", "one_model", "run"]


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(plain_beam: None) -> None:
    """Many small pipelines; modules about Beam's own runner have a fixture of this name that does
    nothing.
    """


@pytest.fixture(autouse=True)
def _kept_models(one_model: None) -> None:
    """A model is loaded by the first run that has its space; modules whose tests are about loading
    have a fixture of this name that does nothing.
    """


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder for input files."""
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.fixture
def partition() -> str:
    """How `embed` cuts; a module whose tests must hold for both has a fixture of this name with
    both as parameters.
    """
    return "file"


@pytest.fixture
def embed(run: Run, model: Path, store: Path, partition: str) -> Run:
    """`embed` into the test's store with the tiny model: one input or a list of them, then further
    options.
    """
    return _command("embed", run, model, store, partition)


@pytest.fixture
def plan(run: Run, model: Path, store: Path, partition: str) -> Run:
    """`plan` with the same options."""
    return _command("plan", run, model, store, partition)


def _command(name: str, run: Run, model: Path, store: Path, partition: str) -> Run:
    def call(inputs: object, *options: object) -> Outcome:
        globs = inputs if isinstance(inputs, list) else [inputs]
        named = [argument for glob in globs for argument in ("--input", glob)]
        how = () if partition == "file" else ("--partition", partition)
        return run(name, *named, "--store", store, "--model", model, *how, *options)

    return call
