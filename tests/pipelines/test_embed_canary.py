"""Models that move without any option changing, spaces that are required, and what is said of
embedding anew.

Covers transforms/steps/embed/load_encoder.py.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    sentences,
    vectors_of,
    write_bytes,
    write_lines,
)

from sentence_beam.transforms.encoder import Embedded, Encoder
from sentence_beam.transforms.encoder.devices import Passing
from sentence_beam.transforms.steps.embed import load_encoder
from sentence_beam.transforms.steps.options.job import EmbedJob


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Ten rows in each of two files, and the glob that names them."""
    write_lines(inputs / "a.txt", sentences(10))
    write_lines(inputs / "b.txt", sentences(10, 10))
    return inputs / "*"


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """From its call on, what models give is so far (relative to its length) from what they gave."""
    original = load_encoder.load_encoder

    def move(by: float) -> None:
        def load(job: EmbedJob) -> Encoder:
            encoder = original(job)
            finish = encoder.finish

            def other(passing: Passing) -> Embedded:
                found = finish(passing)
                length = np.linalg.norm(found.vectors, axis=1, keepdims=True)
                vectors = found.vectors + by * length * [1, *[0] * 23]
                return replace(found, vectors=vectors.astype(np.float32))

            encoder.finish = other  # type: ignore[method-assign]
            return encoder

        monkeypatch.setattr(load_encoder, "load_encoder", load)

    return move


def test_the_store_keeps_its_canary_and_asks_only_if_it_embeds(
    run: Run, embed: Run, glob: Path, store: Path, moved: Callable[[float], None]
) -> None:
    embed(glob, "--dtype", "float32").ok()
    entry = manifest_of(store)["canary"]
    assert list(files_in(store, "canary")) == [entry["path"]]
    write_lines(glob.parent / "c.txt", sentences(5, 50))
    embed(glob, "--normalize", "--dim", 8).ok()
    run("index", "--store", store).ok()
    run("verify", "--store", store).ok()
    moved(0.5)
    embed(glob).ok()
    check_ledger(store, 25, carried=25)
    embed(glob, "--dim", 6).ok()
    assert check_ledger(store, 25, reused=25)["canary"] == entry


def test_a_model_that_moved_writes_nothing(
    embed: Run, glob: Path, store: Path, moved: Callable[[float], None]
) -> None:
    embed(glob, "--dtype", "float32", "--normalize").ok()
    before, shards = manifest_of(store), files_in(store, "embeddings", "sidecars", "canary")
    write_lines(glob.parent / "a.txt", sentences(12))
    moved(0.01)
    line = embed(glob).failed(
        3, "moved by a cosine distance", "--max-drift 1e-07", before["canary"]["path"]
    )
    assert "--reembed" in line
    assert manifest_of(store) == before
    assert files_in(store, "embeddings", "sidecars", "canary") == shards
    assert not (store / "lease.json").exists()
    embed(glob, "--max-drift", 0.01).ok()
    assert check_ledger(store, 22, embedded=2, reused=10, carried=10)["canary"] == before["canary"]


def test_embedding_anew_begins_a_new_canary(
    embed: Run, glob: Path, store: Path, moved: Callable[[float], None]
) -> None:
    embed(glob, "--dtype", "float32").ok()
    first, vectors = manifest_of(store)["canary"], vectors_of(store)
    moved(0.5)
    out = embed(glob, "--reembed").ok().out
    assert "anew        everything was embedded again, in the same space" in out
    second = check_ledger(store, 20, embedded=20)["canary"]
    assert second != first
    assert vectors_of(store) != vectors
    write_lines(glob.parent / "a.txt", sentences(12))
    embed(glob).ok()
    assert manifest_of(store)["canary"] == second
    out = embed(glob, "--reembed", "--pooler", "max").ok().out
    assert "anew        everything was embedded again, in another space (pooler" in out


def test_a_run_that_was_not_committed_leaves_its_canary(
    embed: Run, inputs: Path, store: Path, moved: Callable[[float], None]
) -> None:
    write_bytes(inputs / "a.txt", b"one\ntwo\n\xff\nthree\n")
    embed(inputs / "*", "--dtype", "float32", "--max-rejects", 0).failed(3, "rejected")
    moved(0.5)
    write_lines(inputs / "a.txt", ["one", "two", "three"])
    embed(inputs / "*", "--dtype", "float32").failed(3, "moved")
    embed(inputs / "*", "--dtype", "float32", "--reembed").ok()
    check_ledger(store, 3, embedded=3)
