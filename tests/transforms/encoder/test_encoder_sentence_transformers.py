"""Directories in sentence-transformers layout give what sentence-transformers gives."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import HIDDEN, TEXTS, edit_json
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from transforms.encoder import Encoder
from transforms.errors import OptionError

LONG = [*TEXTS, "  a dog  ", "the " * 60, "A Dog IS Riding"]
PROMPTS = {"query": "a red dog ", "empty": ""}


def _save(folder: Path, base: Path, *after: torch.nn.Module, **model: object) -> Path:
    torch.manual_seed(3)
    SentenceTransformer(modules=[st.Transformer(str(base)), *after], device="cpu", **model).save(str(folder))
    return folder


def _pooling(mode="mean", **settings: object) -> torch.nn.Module:
    return st.Pooling(HIDDEN, mode, **settings)


def _dense(**settings: object) -> torch.nn.Module:
    return st.Dense(HIDDEN, 10, **settings)


def _same(folder: Path, **encode: object) -> None:
    expected = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(LONG, **encode)
    found = Encoder.load(str(folder), dtype="float32", device="cpu", **encode).encode(LONG)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


STACKS = {
    "mean": lambda: [_pooling()],
    "cls-normalize": lambda: [_pooling("cls"), st.Normalize()],
    "all-modes": lambda: [_pooling(("weightedmean", "lasttoken", "cls", "max", "mean_sqrt_len_tokens", "mean"))],
    "dense": lambda: [_pooling("max"), _dense()],
    "dense-gelu-no-bias": lambda: [_pooling(), _dense(bias=False, activation_function=torch.nn.GELU()), st.Normalize()],
    "normalize-dense": lambda: [_pooling(), st.Normalize(), _dense(activation_function=None)],
    "layer-norm": lambda: [_pooling(), st.LayerNorm(HIDDEN), st.Dropout(0.2), st.Normalize()],
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "xlnet"])
def test_modules(tiny, tmp_path, family, stack):
    _same(_save(tmp_path / "model", tiny[family], *STACKS[stack]()))


@pytest.mark.parametrize("family", ["bert", "xlnet"])
@pytest.mark.parametrize("mode", ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_prompts_counted_or_not(tiny, tmp_path, family, mode):
    for include in (True, False):
        folder = tmp_path / str(include)
        _save(folder, tiny[family], _pooling(mode, include_prompt=include), prompts=PROMPTS)
        _same(folder)
        _same(folder, prompt_name="query")
        _same(folder, prompt="the big ")


def test_default_prompt_is_used_and_can_be_emptied(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], _pooling(), prompts=PROMPTS, default_prompt_name="query")
    _same(folder)
    _same(folder, prompt="")
    with pytest.raises(OptionError, match="document, empty, query"):
        Encoder.load(str(folder), prompt_name="passage")


def test_older_pooling_config(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], _pooling(("max", "mean")))
    config = folder / "1_Pooling" / "config.json"
    edit_json(config, pooling_mode=None, embedding_dimension=None, word_embedding_dimension=HIDDEN)
    edit_json(config, pooling_mode_mean_tokens=True, pooling_mode_max_tokens=True, pooling_mode_cls_token=False)
    _same(folder)
    assert [part["name"] for part in Encoder.load(str(folder)).space.pooler["parts"]] == ["max", "mean"]


@pytest.mark.parametrize("settings", [{"max_seq_length": 7}, {"do_lower_case": True}])
def test_older_transformer_config(tiny, tmp_path, settings):
    folder = _save(tmp_path / "m", tiny["bert"], _pooling())
    (folder / "sentence_bert_config.json").unlink()
    edit_json(folder / "sentence_bert_config.json", **{"max_seq_length": 16, **settings})
    _same(folder)
    assert Encoder.load(str(folder)).space.max_tokens == settings.get("max_seq_length", 16)


def test_plain_directory_is_mean_pooled(tiny):
    for family in ("bert", "roberta", "t5", "albert"):
        expected = SentenceTransformer(str(tiny[family]), device="cpu").encode(LONG)
        found = Encoder.load(str(tiny[family]), dtype="float32", device="cpu").encode(LONG)
        assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def test_another_pooler_leaves_the_models_own_modules_out_and_normalises(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], _pooling("max"), _dense())
    encoder = Encoder.load(str(folder), pooler="mean", dtype="float32", device="cpu")
    assert "then" not in encoder.space.pooler
    assert np.allclose(np.linalg.norm(encoder.encode(LONG), axis=1), 1, atol=1e-6)
