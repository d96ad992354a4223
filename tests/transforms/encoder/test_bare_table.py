"""A table of token embeddings without modules.json, as model2vec publishes it."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_models import TEXTS, edit_json, save_tiny_model, tiny_tokenizer
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import resolve_model, resolve_space

WITH_WORDS = [text for text in TEXTS if text]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with a tokenizer and a table of 6 components."""
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer = tiny_tokenizer("bert").backend_tokenizer
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(5).normal(size=(tokenizer.get_vocab_size(), 6))
    save_file({"embeddings": table.astype(np.float32)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("normalize", [True, False])
def test_its_vectors_are_those_of_a_static_embedding(bare: Path, normalize: bool) -> None:
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": 6}
    edit_json(bare / "config.json", **config, normalize=normalize)
    stack = [st.StaticEmbedding.from_model2vec(str(bare)), *[st.Normalize()] * normalize]
    expected = SentenceTransformer(modules=stack, device="cpu").encode(WITH_WORDS)
    encoder = Encoder.load(str(bare), device="cpu")
    assert encoder.space.normalize is normalize
    assert np.allclose(encoder.encode(WITH_WORDS), expected, atol=1e-6)


@pytest.mark.parametrize("config", [None, {"normalize": False}, {"model_type": "model2vec"}])
def test_it_is_the_space_of_the_same_files_with_modules_json(
    bare: Path, config: dict[str, object] | None
) -> None:
    """Also without a config.json, as in the folder of a StaticEmbedding module."""
    if config is not None:
        edit_json(bare / "config.json", **config)
    found = resolve_space(resolve_model(str(bare)))
    module = {"idx": 0, "name": "0", "path": "."}
    module["type"] = "sentence_transformers.models.StaticEmbedding"
    (bare / "modules.json").write_text(json.dumps([module]))
    assert resolve_space(resolve_model(str(bare))).id == found.id


def test_a_transformer_is_no_table(bare: Path, tmp_path: Path) -> None:
    folder = save_tiny_model("bert", tmp_path / "bert")
    edit_json(folder / "config.json", model_type=None)
    with pytest.raises(OptionError, match="config.json: no model_type"):
        resolve_model(str(folder))
    edit_json(bare / "config.json", model_type="bert")
    assert resolve_model(str(bare)).family == "bert"
