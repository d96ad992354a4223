"""Weights whose names begin with what a wrapper left there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.families import save_family
from helpers.tiny_models import TEXTS, save_tiny_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.weight_names import find_prefix, refuse_prefix
from sentence_beam.transforms.space import resolve_model

WITH_WORDS = [text for text in TEXTS if text]
Weights = dict[str, Tensor]
PREFIXES = {
    "bert": "0.auto_model.",
    "roberta": "module.",
    "t5": "_orig_mod.",
    "modernbert": "module._orig_mod.0.model.",
    "distilbert": "encoder.",
}


def _rename(folder: Path, change: Callable[[Weights], Weights]) -> None:
    path = folder / "model.safetensors"
    changed = {name: value.clone() for name, value in change(load_file(path)).items()}
    save_file(changed, path, {"format": "pt"})


def _under(prefix: str) -> Callable[[Weights], Weights]:
    return lambda weights: {prefix + name: value for name, value in weights.items()}


def _vectors(folder: Path) -> np.ndarray:
    return Encoder.load(str(folder), dtype="float32", device="cpu").encode(WITH_WORDS)


@pytest.mark.parametrize("family", PREFIXES)
def test_weights_under_one_prefix_are_read(tmp_path: Path, family: str) -> None:
    folder = save_tiny_model(family, tmp_path)
    expected = _vectors(folder)
    _rename(folder, _under(PREFIXES[family]))
    assert np.abs(_vectors(folder) - expected).max() <= 1e-6


def test_experts_under_a_prefix_are_read(tmp_path: Path) -> None:
    """transformers joins their weights when it loads them."""
    save_family("qwen2_moe", tmp_path)
    expected = Encoder.load(str(tmp_path), dtype="float32", device="cpu").encode("a b c")
    _rename(tmp_path, _under("module.model."))
    found = Encoder.load(str(tmp_path), dtype="float32", device="cpu").encode("a b c")
    assert np.abs(found - expected).max() <= 1e-6


def _with_other_parts(weights: Weights) -> Weights:
    """A state dict of sentence-transformers: the transformer, and a layer after the pooling."""
    return {**_under("0.auto_model.")(weights), "2.linear.weight": torch.zeros(4, 4)}


def _with_a_head(weights: Weights) -> Weights:
    return {**_under("module.bert.")(weights), "module.cls.predictions.bias": torch.zeros(4)}


def _some(weights: Weights) -> Weights:
    return {("module." * ("layer.1." in name)) + name: value for name, value in weights.items()}


@pytest.mark.parametrize("change", [_with_other_parts, _with_a_head, _some])
def test_other_weights_beside_those_under_the_prefix_are_left_out(
    tmp_path: Path, change: Callable[[Weights], Weights]
) -> None:
    folder = save_tiny_model("bert", tmp_path)
    expected = _vectors(folder)
    _rename(folder, change)
    assert np.abs(_vectors(folder) - expected).max() <= 1e-6


def _copies(weights: Weights) -> Weights:
    return {**_under("query.")(weights), **_under("document.")(weights)}


def _lacking(weights: Weights) -> Weights:
    kept = {name: value for name, value in weights.items() if "layer.1.output.dense" not in name}
    return _under("module.")(kept)


def _others(_: Weights) -> Weights:
    return {"a.b": torch.zeros(2)}


UNREAD = {
    "two copies": (_copies, "lack 53 of the model's tensors, as embeddings.LayerNorm.bias"),
    "some are missing": (
        _lacking,
        "lack 2 of the model's tensors, as encoder.layer.1.output.dense.bias",
    ),
    "of another model": (_others, "lack 53 of the model's tensors, as embeddings.LayerNorm.bias"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_weights_that_would_be_random_are_refused(tmp_path: Path, kind: str) -> None:
    change, said = UNREAD[kind]
    folder = save_tiny_model("bert", tmp_path)
    _rename(folder, change)
    with pytest.raises(OptionError, match=f"{said}, which would be random"):
        _vectors(folder)


def test_an_adapter_among_weights_under_a_prefix_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_model("bert", tmp_path)
    _rename(
        folder,
        lambda weights: _under("module.")(
            {**weights, "encoder.layer.0.attention.self.query.lora_A.weight": torch.zeros(2, 2)}
        ),
    )
    with pytest.raises(OptionError, match="lora_A.weight, which this version of transformers"):
        _vectors(folder)


def test_the_prefix_that_serves_most_is_found() -> None:
    names = {"layers.0.norm.weight", "module.layers.0.norm.weight", "module.norm.weight"}
    assert find_prefix(names, ["layers.0.norm.weight", "norm.weight"]) == "module."
    assert find_prefix(names, ["embedding.weight"]) is None
    assert find_prefix(names, []) is None


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_what_sentence_transformers_reads_is_not_refused(tmp_path: Path, prefix: str) -> None:
    folder = save_tiny_model("bert", tmp_path)
    _rename(folder, _under(prefix))
    refuse_prefix(folder, resolve_model(str(folder)).weights, AutoModel.from_pretrained(folder))


@pytest.mark.parametrize("prefix", ["module.", "module.bert.", "0.auto_model."])
def test_what_sentence_transformers_would_leave_out_is_refused(tmp_path: Path, prefix: str) -> None:
    folder = save_tiny_model("bert", tmp_path)
    model = AutoModel.from_pretrained(folder)
    _rename(folder, _under(prefix))
    with pytest.raises(OptionError, match=f"begin with '{prefix}', which sentence-transformers"):
        refuse_prefix(folder, resolve_model(str(folder)).weights, model)
