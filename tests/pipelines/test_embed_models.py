"""Models that are broken, absent, another one, or that make vectors nobody can use."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def _spoilt_model(folder: Path, spoil: Callable[[dict[str, Any]], None]) -> Path:
    save_tiny_model("bert", folder)
    weights = load_file(folder / "model.safetensors")
    spoil(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_rows_whose_vector_is_not_finite_are_rejected_alone(
    run: Run, store: Path, inputs: Path, tmp_path: Path
) -> None:
    texts = ["a man", "a dog was eating", "the cat", "dog"]

    def spoil(weights: dict[str, Any]) -> None:
        tokenizer = json.loads((tmp_path / "nan" / "tokenizer.json").read_text())
        place = tokenizer["model"]["vocab"]["dog"]
        weights["embeddings.word_embeddings.weight"][place] = float("nan")

    folder = _spoilt_model(tmp_path / "nan", spoil)
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


def test_a_model_of_nan_is_named_as_such(run: Run, glob: Path, store: Path, tmp_path: Path) -> None:
    name = "encoder.layer.0.attention.self.query.weight"
    folder = _spoilt_model(tmp_path / "nan", lambda weights: weights[name].fill_(float("nan")))
    run("embed", "--input", glob, "--store", store, "--model", folder, *ALL).failed(
        2, folder, "NaN", name
    )
    assert manifest_of(store) is None


def test_zero_vectors_are_rejected(run: Run, store: Path, inputs: Path, tmp_path: Path) -> None:
    def spoil(weights: dict[str, Any]) -> None:
        last = max(name for name in weights if name.endswith("output.LayerNorm.weight"))
        weights[last].zero_()
        weights[last.replace(".weight", ".bias")].zero_()

    folder = _spoilt_model(tmp_path / "zero", spoil)
    write_parquet(inputs / "a.parquet", sentences(4))
    run("embed", "--input", inputs / "*", "--store", store, "--model", folder, *ALL).ok()
    check_ledger(store, 0, 4)
    assert {row["reason"] for row in rejects_of(store)} == {"zero vector"}
    run("embed", "--input", inputs / "*", "--store", store, *ALL).ok()
    check_ledger(store, 0, 4)
