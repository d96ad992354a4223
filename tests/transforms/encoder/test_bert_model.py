"""BERT loaded without transformers: the same model, the same tokenizer, or not taken.

Covers transforms/encoder/bert_tokenizer.py.
Covers transforms/encoder/load.py.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_models import save_tiny_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertTokenizer

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.bert_model import BertModel, is_plain_bert, load_bert
from sentence_beam.transforms.encoder.bert_tokenizer import load_bert_tokenizer
from sentence_beam.transforms.encoder.load import load_model, quiet_transformers
from sentence_beam.transforms.space.model_files import resolve_model

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a man is eat ##ing , ! the café n ##ai ##ve"
TEXTS = ["A man is eating!", "Naïve CAFÉ , the 漢字", "", "[MASK] is [SEP]", "eat\u0301ing  \t ,,"]


def _set(path: Path, **values: object) -> None:
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**settings, **values}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model("bert", tmp_path / "bert")


@pytest.mark.parametrize("with_mask", [False, True])
def test_states_are_those_of_transformers(folder: Path, with_mask: bool) -> None:
    files = resolve_model(str(folder))
    assert is_plain_bert(files)
    ours = load_bert(files, torch.float32).eval()
    theirs = AutoModel.from_pretrained(folder).eval()
    inputs = {
        "input_ids": torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]),
        "token_type_ids": torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]]),
    }
    if with_mask:
        inputs["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.inference_mode():
        one = ours(**inputs, output_hidden_states=True)
        other = theirs(**inputs, output_hidden_states=True)
        pooled = ours.pooler(one.last_hidden_state)
    for state, expected in zip(one.hidden_states, other.hidden_states, strict=True):
        torch.testing.assert_close(state, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pooled, other.pooler_output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pooler", ["mean", "cls-tanh", "sbert-wk", "static"])
def test_vectors_have_the_same_bits_by_either_way(
    folder: Path, dtype: str, pooler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a man is eating", "the a a man", "is"] * 4
    plain = Encoder.load(folder, pooler=pooler, dtype=dtype)
    monkeypatch.setattr("sentence_beam.transforms.encoder.load.is_plain_bert", lambda _: False)
    usual = Encoder.load(folder, pooler=pooler, dtype=dtype)
    assert plain.space == usual.space
    np.testing.assert_array_equal(plain.encode(texts), usual.encode(texts))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"embedding_size": 8},
        {"layer_norm_eps": 1},
        {"pad_token_id": 999},
        {"type_vocab_size": 7},
        {"model_type": "roberta"},
    ],
)
def test_another_model_is_left_to_transformers(folder: Path, changes: dict[str, Any]) -> None:
    _set(folder / "config.json", **changes)
    assert not is_plain_bert(resolve_model(str(folder)))


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("cls.predictions.bias", True),
        ("embeddings.position_ids", True),
        ("encoder.layer.0.adapter.weight", False),
        ("encoder.layer.0.output.LayerNorm.gamma", False),
    ],
)
def test_weights_have_to_be_those_of_bert(folder: Path, name: str, is_taken: bool) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, name: torch.zeros(3)}, folder / "model.safetensors")
    assert is_plain_bert(resolve_model(str(folder))) == is_taken


def test_weights_of_a_model_with_heads_are_read_by_their_prefix(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    before = Encoder.load(folder, pooler="mean").encode(["a man"])
    without_pooler = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(
        {f"bert.{key}": value for key, value in without_pooler.items()},
        folder / "model.safetensors",
    )
    assert is_plain_bert(resolve_model(str(folder)))
    np.testing.assert_array_equal(Encoder.load(folder, pooler="mean").encode(["a man"]), before)


def test_attention_is_read_from_transformers_model(folder: Path) -> None:
    files = resolve_model(str(folder))
    device = torch.device("cpu")
    assert isinstance(load_model(files, "float32", device, states_alone=True), BertModel)
    assert not isinstance(load_model(files, "float32", device), BertModel)


@pytest.fixture
def word_pieces(folder: Path) -> Path:
    """The folder with a tokenizer that transformers' `BertTokenizer` saved."""
    for path in folder.glob("*token*"):
        path.unlink()
    vocabulary = {word: number for number, word in enumerate(WORDS.split())}
    BertTokenizer(vocabulary).save_pretrained(folder)
    return folder


def test_the_tokenizer_is_the_one_of_transformers(word_pieces: Path) -> None:
    from transformers import AutoTokenizer

    for name in (str(word_pieces), "minilm"):
        files = resolve_model(name)
        ours = load_bert_tokenizer(files)
        assert ours is not None
        with quiet_transformers():
            theirs = AutoTokenizer.from_pretrained(files.folder)
        ours.tokenizer.no_padding()
        ours.tokenizer.no_truncation()
        theirs.backend_tokenizer.no_padding()
        theirs.backend_tokenizer.no_truncation()
        assert json.loads(ours.tokenizer.to_str()) == json.loads(theirs.backend_tokenizer.to_str())
        assert set(ours.ids.values()) == set(theirs.all_special_ids)
        for text in TEXTS:
            assert ours.tokenizer.encode(text).ids == theirs(text)["input_ids"]


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"}),
        ("tokenizer_config.json", {"unk_token": "[WHAT]"}),
        ("tokenizer_config.json", {"truncation_side": "left"}),
        ("tokenizer_config.json", {"additional_special_tokens": ["[X]"]}),
        ("tokenizer_config.json", {"some_new_setting": 1}),
        ("tokenizer_config.json", {"added_tokens_decoder": {}}),
        ("special_tokens_map.json", {"cls_token": "[SEP]"}),
        ("added_tokens.json", {"[X]": 99}),
        ("tokenizer.json", {"normalizer": None}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("tokenizer.json", {"post_processor": None}),
        ("tokenizer.json", {"added_tokens": []}),
        ("config.json", {"model_type": "electra"}),
    ],
)
def test_another_tokenizer_is_left_to_transformers(
    word_pieces: Path, file: str, changes: dict[str, Any]
) -> None:
    assert load_bert_tokenizer(resolve_model(str(word_pieces))) is not None
    _set(word_pieces / file, **changes)
    assert load_bert_tokenizer(resolve_model(str(word_pieces))) is None


LARGE = ("transformers", "pandas", "torch._dynamo", "scipy")
SEARCH = f"""
import sys
from sentence_beam.transforms.encoder import Encoder
Encoder.load(sys.argv[1]).encode(["a man is eating", "naïve"])
found = [name for name in {LARGE} if name in sys.modules]
assert not found, found
"""


def test_a_query_imports_no_large_package(word_pieces: Path) -> None:
    subprocess.run([sys.executable, "-c", SEARCH, str(word_pieces)], check=True)
