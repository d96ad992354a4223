"""Models that are broken, absent, another one, or that make vectors nobody can use."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no tokenizer": (
        lambda folder: [path.unlink() for path in folder.glob("tokenizer*")],
        "tokenizer",
    ),
    "config cut short": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "be'),
        "config.json",
    ),
    "tokenizer cut short": (
        lambda folder: (folder / "tokenizer.json").write_text('{"version"'),
        "tokenizer",
    ),
    "weights cut short": (
        lambda folder: os.truncate(folder / "model.safetensors", 20_000),
        "safetensors",
    ),
    "weights of no bytes": (
        lambda folder: os.truncate(folder / "model.safetensors", 0),
        "model.safetensors",
    ),
    "pickle only": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "safetensors",
    ),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_model_folder(
    run: Run, glob: Path, store: Path, tmp_path: Path, broken: str
) -> None:
    folder = save_tiny_model("bert", tmp_path / "broken")
    damage, named = BREAKS[broken]
    damage(folder)
    outcome = run("embed", "--input", glob, "--store", store, "--model", folder, *ALL)
    assert outcome.status in (1, 2)
    outcome.failed(outcome.status, folder, named)
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()


def test_a_model_that_is_nowhere(run: Run, glob: Path, store: Path, tmp_path: Path) -> None:
    run("embed", "--input", glob, "--store", store, "--model", tmp_path / "none").failed(
        2, tmp_path / "none"
    )
    run("embed", "--input", glob, "--store", store, "--model", "no-one/no-model").failed(
        2, "no-one/no-model"
    )
    assert not store.exists()


@pytest.mark.parametrize("name", ["minilm", ""], ids=["minilm", "folder"])
def test_a_revision_is_refused_where_there_are_none(
    run: Run, glob: Path, store: Path, model: Path, name: str
) -> None:
    named = name or str(model)
    outcome = run(
        "embed", "--input", glob, "--store", store, "--model", named, "--revision", "main"
    )
    outcome.failed(2, "--revision main", named, "leave it out")
    assert not store.exists()


def test_workers_with_another_model_write_nothing(
    embed: Run, glob: Path, store: Path, tmp_path: Path
) -> None:
    other = save_tiny_model("bert", tmp_path / "other", num_hidden_layers=2)
    embed(glob, "--worker-model", other).failed(2, other, "another space", "weights")
    assert manifest_of(store) is None
    assert not files_in(store, "embeddings") if (store / "embeddings").exists() else True


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
        word = json.loads((tmp_path / "nan" / "tokenizer.json").read_text())["model"]["vocab"][
            "dog"
        ]
        weights["embeddings.word_embeddings.weight"][word] = float("nan")

    folder = _spoilt_model(tmp_path / "nan", spoil)
    write_parquet(inputs / "a.parquet", texts, n=[1, 2, 3, 4])
    arguments = (
        "--input",
        inputs / "*",
        "--store",
        store,
        "--model",
        folder,
        "--keep-columns",
        "n",
    )
    run("embed", *arguments, "--max-rejects", 0).failed(3, "2 of 4 rows rejected")
    run("embed", *arguments, *ALL).ok()
    check_ledger(store, 2, 2)
    assert [(row["id"], row["n"]) for row in rows_of(store)] == [
        ("a.parquet#0", 1),
        ("a.parquet#2", 3),
    ]
    assert [(row["row"], row["reason"], row["excerpt"]) for row in rejects_of(store)] == [
        (1, "non-finite vector", texts[1]), (3, "non-finite vector", texts[3])
    ]  # fmt: skip
    assert all(math.isfinite(x) for vector in vectors_of(store).values() for x in vector)


def test_a_model_of_nan_is_named_as_such(run: Run, glob: Path, store: Path, tmp_path: Path) -> None:
    name = "encoder.layer.0.attention.self.query.weight"
    folder = _spoilt_model(tmp_path / "nan", lambda weights: weights[name].fill_(float("nan")))
    run("embed", "--input", glob, "--store", store, "--model", folder, *ALL).failed(
        2, folder, "NaN", name
    )
    assert manifest_of(store) is None


def test_zero_vectors_are_rejected(run: Run, store: Path, inputs: Path, tmp_path: Path) -> None:
    def spoil(weights: dict[str, Any]) -> None:
        last = max(
            name.removesuffix(".weight")
            for name in weights
            if name.endswith("output.LayerNorm.weight")
        )
        weights[f"{last}.weight"].zero_()
        weights[f"{last}.bias"].zero_()

    folder = _spoilt_model(tmp_path / "zero", spoil)
    write_parquet(inputs / "a.parquet", sentences(4))
    run("embed", "--input", inputs / "*", "--store", store, "--model", folder, *ALL).ok()
    check_ledger(store, 0, 4)
    assert {row["reason"] for row in rejects_of(store)} == {"zero vector"}
    run("embed", "--input", inputs / "*", "--store", store, *ALL).ok()
    check_ledger(store, 0, 4)
