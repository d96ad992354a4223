"""Models that are broken, another one, or that make vectors nobody can use."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    rejects_of,
    rows_of,
    sentences,
    vectors_of,
    write_lines,
    write_parquet,
)
from helpers.tiny_models import save_tiny_model
from safetensors.torch import load_file, save_file


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


ALL = ("--max-rejects", 1)


@pytest.fixture
def glob(inputs: Path) -> Path:
    """A file of five rows."""
    return write_lines(inputs / "a.txt", sentences(5))


@pytest.mark.parametrize("broken", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_broken_model_folder(
    run: Run, glob: Path, store: Path, tmp_path: Path, broken: str
) -> None:
    folder = save_tiny_model("bert", tmp_path / "broken")
    os.truncate(folder / broken, 20)
    outcome = run("embed", "--input", glob, "--store", store, "--model", folder, *ALL)
    outcome.failed(2, folder, broken.split(".")[0])
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()


def test_workers_with_another_model_write_nothing(
    embed: Run, glob: Path, store: Path, tmp_path: Path
) -> None:
    other = save_tiny_model("bert", tmp_path / "other", num_hidden_layers=2)
    embed(glob, "--worker-model", other).failed(2, other, "another space", "weights")
    assert manifest_of(store) is None
    assert not files_in(store, "embeddings")


def test_rows_whose_vector_is_not_finite_are_rejected_alone(
    run: Run, store: Path, inputs: Path, tmp_path: Path
) -> None:
    texts = ["a man", "a dog was eating", "the cat", "dog"]
    folder = save_tiny_model("bert", tmp_path / "nan")
    weights = load_file(folder / "model.safetensors")
    dog = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["dog"]
    weights["embeddings.word_embeddings.weight"][dog] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    path = write_parquet(inputs / "a.parquet", texts, n=[1, 2, 3, 4])
    how = ("embed", "--input", path, "--store", store, "--model", folder, "--keep-columns", "n")
    run(*how, "--max-rejects", 0).failed(3, "2 of 4 rows rejected")
    run(*how, *ALL).ok()
    check_ledger(store, 2, 2)
    assert {row["id"]: row["n"] for row in rows_of(store)} == {"a.parquet#0": 1, "a.parquet#2": 3}
    assert [(row["row"], row["reason"], row["excerpt"]) for row in rejects_of(store)] == [
        (1, "non-finite vector", texts[1]), (3, "non-finite vector", texts[3])
    ]  # fmt: skip
    assert np.isfinite(list(vectors_of(store).values())).all()
