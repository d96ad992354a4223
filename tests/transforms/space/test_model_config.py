"""config.json and tokenizer_config.json: sizes that a model can have, and no code of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.model_config import (
    is_causal_language_model,
    read_config,
    read_tokenizer_config,
)

SOUND = {
    "model_type": "bert",
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
}


def _read(folder: Path, **changes: Any) -> dict[str, Any]:
    values = {name: value for name, value in {**SOUND, **changes}.items() if value != "removed"}
    (folder / "config.json").write_text(json.dumps(values))
    return read_config(folder)


def _read_tokenizer(folder: Path, **values: Any) -> dict[str, Any]:
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return read_tokenizer_config(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": "24"}, "hidden_size is not a whole number from 1"),
        ({"hidden_size": 24.0}, "hidden_size is not"),
        ({"hidden_size": True}, "hidden_size is not"),
        ({"num_attention_heads": 0}, "num_attention_heads is not"),
        ({"num_attention_heads": 5}, "5 attention heads do not divide the width 24"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is not"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is not a whole number from 1 to 1000"),
        ({"vocab_size": 2**40}, "vocab_size is not"),
        ({"pad_token_id": "0"}, "pad_token_id is not a whole number"),
        ({"max_position_embeddings": "512"}, "max_position_embeddings is not a whole number"),
        ({"model_type": ["bert"]}, "model_type is not a string"),
        ({"model_type": "removed"}, "no model_type"),
        ({"auto_map": 3}, "auto_map is not an object"),
    ],
    ids=str,
)
def test_a_size_that_no_model_has_is_one_line(tmp_path, changes, words):
    with pytest.raises(OptionError, match=rf"config\.json: {words}") as caught:
        _read(tmp_path, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_position_embeddings": None},
        {"max_position_embeddings": -1},
        {"pad_token_id": None},
        {"num_attention_heads": [2, 4]},
        {"model_type": "qwen3", "num_attention_heads": 5},
        {"auto_map": {}},
        {"auto_map": None},
    ],
    ids=str,
)
def test_what_some_family_has_is_taken(tmp_path, changes):
    assert _read(tmp_path, **changes).items() >= changes.items()


@pytest.mark.parametrize("kind", ["AutoModel", "AutoConfig", "AutoModelForTextEncoding"])
@pytest.mark.parametrize("name", ["modeling_own.Model", "owner/code--modeling_own.Model"])
def test_code_of_its_own_is_named(tmp_path, kind, name):
    with pytest.raises(OptionError) as caught:
        _read(tmp_path, auto_map={kind: name})
    assert f"config.json: auto_map names {name}, code of the model's own" in str(caught.value)
    assert "transformers' bert" in str(caught.value)


def test_code_for_another_task_is_never_used(tmp_path):
    assert _read(tmp_path, auto_map={"AutoModelForSequenceClassification": "own.Model"})


@pytest.mark.parametrize(
    "named",
    [
        {"AutoTokenizer": ["tokenization_own.Own", None]},
        {"AutoTokenizer": [None, "tokenization_own.Own"]},
        {"AutoTokenizer": "tokenization_own.Own"},
        ["tokenization_own.Own", None],
    ],
    ids=str,
)
def test_a_tokenizer_of_its_own_is_named(tmp_path, named):
    with pytest.raises(OptionError, match=r"tokenizer_config\.json: auto_map names token.*Own"):
        _read_tokenizer(tmp_path, auto_map=named)


@pytest.mark.parametrize("length", ["64", 12.5, 64.0, 0, -1, True, [64]], ids=str)
def test_a_length_that_no_text_has_is_one_line(tmp_path, length):
    with pytest.raises(OptionError, match="model_max_length is not a whole number from 1"):
        _read_tokenizer(tmp_path, model_max_length=length)


@pytest.mark.parametrize("length", [64, None, 1e30, 10**30])
def test_a_length_may_be_missing_or_without_a_limit(tmp_path, length):
    assert _read_tokenizer(tmp_path, model_max_length=length) == {"model_max_length": length}


@pytest.mark.parametrize(
    ("config", "is_causal"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, True),
        ({"architectures": ["Qwen2ForCausalLM"], "is_causal": False}, False),
        ({"architectures": ["Qwen2Model"]}, False),
        ({"architectures": ["BertForMaskedLM", "XForCausalLM"]}, False),
        ({"architectures": []}, False),
        ({"architectures": None}, False),
        ({"architectures": "XForCausalLM"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_models_that_continue_texts(config, is_causal):
    assert is_causal_language_model(config) == is_causal
