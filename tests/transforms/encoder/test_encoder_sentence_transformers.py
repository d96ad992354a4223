"""Directories in sentence-transformers layout give what sentence-transformers gives.

Covers transforms/space/st_layers.py.
Covers transforms/space/st_modules.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import HIDDEN, TEXTS, edit_json
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.exported_model import Export, write_export
from sentence_beam.transforms.space import AUTO, resolve_model, resolve_space

LONG = [*TEXTS, "  a dog  ", "the " * 60, "A Dog IS Riding"]
PROMPTS = {"query": "a red dog ", "empty": ""}
OTHERS = ("roberta", "mpnet", "xlnet")


def _save(folder: Path, base: Path, *after: torch.nn.Module, **model: object) -> Path:
    torch.manual_seed(3)
    SentenceTransformer(modules=[st.Transformer(str(base)), *after], device="cpu", **model).save(
        str(folder)
    )
    return folder


def _pooling(mode="mean", **settings: object) -> torch.nn.Module:
    return st.Pooling(HIDDEN, mode, **settings)


def _dense(**settings: object) -> torch.nn.Module:
    return st.Dense(HIDDEN, 10, **settings)


def _same(folder: Path, **encode: object) -> None:
    expected = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(
        LONG, **encode
    )
    found = Encoder.load(str(folder), dtype="float32", device="cpu", **encode).encode(LONG)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


STACKS = {
    "mean": lambda: [_pooling()],
    "cls-normalize": lambda: [_pooling("cls"), st.Normalize()],
    "all-modes": lambda: [
        _pooling(("weightedmean", "lasttoken", "cls", "max", "mean_sqrt_len_tokens", "mean"))
    ],
    "dense": lambda: [_pooling("max"), _dense()],
    "dense-gelu-no-bias": lambda: [
        _pooling(),
        _dense(bias=False, activation_function=torch.nn.GELU()),
        st.Normalize(),
    ],
    "normalize-dense": lambda: [_pooling(), st.Normalize(), _dense(activation_function=None)],
    "layer-norm": lambda: [_pooling(), st.LayerNorm(HIDDEN), st.Dropout(0.2), st.Normalize()],
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(
    "family", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_modules(tiny, tmp_path, family, stack):
    _same(_save(tmp_path / "model", tiny[family], *STACKS[stack]()))


@pytest.mark.parametrize("family", OTHERS)
def test_modules_of_another_family(tiny, tmp_path, family):
    _same(_save(tmp_path / "model", tiny[family], *STACKS["all-modes"](), st.Normalize()))


@pytest.mark.parametrize(
    ("family", "mode", "include"),
    [
        ("bert", "cls", True),
        ("bert", "mean", True),
        ("bert", "mean", False),
        ("bert", "max", False),
        ("bert", "weightedmean", False),
        ("xlnet", "mean_sqrt_len_tokens", False),
        ("xlnet", "lasttoken", False),
        pytest.param("bert", "cls", False, marks=pytest.mark.slow),
        pytest.param("bert", "max", True, marks=pytest.mark.slow),
        pytest.param("bert", "weightedmean", True, marks=pytest.mark.slow),
        pytest.param("xlnet", "mean_sqrt_len_tokens", True, marks=pytest.mark.slow),
        pytest.param("xlnet", "lasttoken", True, marks=pytest.mark.slow),
    ],
)
def test_prompts_counted_or_not(tiny, tmp_path, family, mode, include):
    folder = tmp_path / "model"
    _save(folder, tiny[family], _pooling(mode, include_prompt=include), prompts=PROMPTS)
    _same(folder, prompt_name="query")
    if mode == "mean":
        _same(folder)
        _same(folder, prompt="the big ")


def test_default_prompt_is_used_and_can_be_emptied(tiny, tmp_path):
    folder = _save(
        tmp_path / "m", tiny["bert"], _pooling(), prompts=PROMPTS, default_prompt_name="query"
    )
    _same(folder)
    _same(folder, prompt="")
    with pytest.raises(OptionError, match="document, empty, query"):
        Encoder.load(str(folder), prompt_name="passage")


def test_older_pooling_config(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], _pooling(("max", "mean")))
    config = folder / "1_Pooling" / "config.json"
    edit_json(config, pooling_mode=None, embedding_dimension=None, word_embedding_dimension=HIDDEN)
    edit_json(
        config,
        pooling_mode_mean_tokens=True,
        pooling_mode_max_tokens=True,
        pooling_mode_cls_token=False,
    )
    _same(folder)
    assert [part["name"] for part in Encoder.load(str(folder)).space.pooler["parts"]] == [
        "max",
        "mean",
    ]


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


def _static(folder: Path, **settings: object) -> torch.nn.Module:
    torch.manual_seed(5)
    return st.StaticEmbedding(
        Tokenizer.from_file(str(folder / "tokenizer.json")), embedding_dim=HIDDEN, **settings
    )


TOKENS = [text for text in LONG if text.strip()]


def _same_on_routes(folder: Path, **encode: object) -> None:
    """Rows as documents and queries as queries, and both as sentence-transformers has them."""
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = Encoder.load(str(folder), dtype="float32", device="cpu", **encode)
    for route, expected in (("document", theirs.encode_document), ("query", theirs.encode_query)):
        wanted = expected(TOKENS, **encode)
        assert (
            np.abs(ours.encode(TOKENS, route=route) - wanted).max() <= 2e-5 * np.abs(wanted).max()
        )
    assert np.array_equal(ours.encode(TOKENS), ours.encode(TOKENS, route="document"))
    assert np.array_equal(ours.encode("dog", route="query"), ours.encode(["dog"], route="query")[0])


@pytest.mark.parametrize(
    "after", [[], [st.Normalize], [lambda: st.Dense(HIDDEN, 10), st.Normalize]], ids=len
)
def test_static_embeddings(tiny, tmp_path, after):
    model = SentenceTransformer(
        modules=[_static(tiny["bert"]), *(make() for make in after)], device="cpu"
    )
    model.save(str(tmp_path))
    found = Encoder.load(str(tmp_path), device="cpu").encode(TOKENS)
    expected = model.encode(TOKENS)
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


def test_static_embeddings_as_model2vec_writes_them(tiny, tmp_path):
    _static(tiny["bert"]).save(str(tmp_path))
    rows = load_file(tmp_path / "model.safetensors")["embedding.weight"]
    shuffled = torch.randperm(len(rows))
    tensors = {"embeddings": rows, "mapping": shuffled, "weights": torch.rand(len(rows))}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "modules.json").write_text(
        json.dumps(
            [
                {
                    "idx": 0,
                    "name": "0",
                    "path": ".",
                    "type": "sentence_transformers.models.StaticEmbedding",
                }
            ]
        )
    )
    expected = st.StaticEmbedding.load(str(tmp_path))
    vectors = expected(expected.preprocess(TOKENS))["sentence_embedding"].detach().numpy()
    assert np.allclose(Encoder.load(str(tmp_path), device="cpu").encode(TOKENS), vectors, atol=1e-6)


def test_static_embeddings_have_no_states_and_one_precision(tiny, tmp_path):
    SentenceTransformer(modules=[_static(tiny["bert"])], device="cpu").save(str(tmp_path))
    assert Encoder.load(str(tmp_path), device="cpu").space.dtype == "float32"
    with pytest.raises(OptionError, match="float32 alone"):
        Encoder.load(str(tmp_path), dtype="bfloat16", device="cpu")
    with pytest.raises(OptionError, match="table of token embeddings; use auto or static"):
        Encoder.load(str(tmp_path), pooler="cls", device="cpu")
    with pytest.raises(OptionError, match="text 1: '' has no token"):
        Encoder.load(str(tmp_path), device="cpu").encode(["dog", ""])


ROUTES = {
    "a table for queries": lambda base: [
        Router.for_query_document([_static(base)], [st.Transformer(str(base)), _pooling()]),
        st.Normalize(),
    ],
    "one transformer, a layer for each": lambda base: [
        st.Transformer(str(base)),
        _pooling(),
        Router(
            {"query": [st.Dense(HIDDEN, 10)], "document": [st.Dense(HIDDEN, 10)]},
            allow_empty_key=False,
        ),
    ],
    "mapped by name": lambda base: [
        Router(
            {"small": [_static(base)], "large": [st.Transformer(str(base)), _pooling("cls")]},
            route_mappings={("query", None): "small", ("document", "text"): "large"},
        )
    ],
}


@pytest.mark.parametrize("modules", ROUTES)
def test_routes(tiny, tmp_path, modules):
    torch.manual_seed(3)
    SentenceTransformer(modules=ROUTES[modules](tiny["bert"]), device="cpu").save(str(tmp_path))
    _same_on_routes(tmp_path)
    documents, queries = (
        resolve_space(resolve_model(str(tmp_path), route=name)) for name in ("document", "query")
    )
    assert documents.id != queries.id
    assert Encoder.load(str(tmp_path), dtype="float32", device="cpu").space.id == documents.id


def test_routes_that_are_not_there_are_named(tiny, tmp_path):
    torch.manual_seed(3)
    router = Router({"question": [st.Dense(HIDDEN, 10)], "doc": [st.Dense(HIDDEN, 10)]})
    SentenceTransformer(
        modules=[st.Transformer(str(tiny["bert"])), _pooling(), router], device="cpu"
    ).save(str(tmp_path))
    encoder = Encoder.load(str(tmp_path), device="cpu")
    assert encoder.encode(TOKENS, route="question").shape == (len(TOKENS), 10)
    with pytest.raises(OptionError, match="no route for 'query'; its routes: question, doc"):
        encoder.encode(TOKENS, route="query")
    plain = Encoder.load(str(tiny["bert"]), device="cpu")
    assert np.array_equal(plain.encode(TOKENS, route="query"), plain.encode(TOKENS))
    with pytest.raises(OptionError, match="route 'image'"):
        plain.encode(TOKENS, route="image")


@pytest.mark.parametrize(
    ("mode", "put_out"),
    [
        ("mean", True),
        ("cls", False),
        pytest.param("mean", False, marks=pytest.mark.slow),
        pytest.param("cls", True, marks=pytest.mark.slow),
    ],
)
def test_weighted_layers_where_the_transformer_puts_them_out(tiny, tmp_path, mode, put_out):
    weights = torch.nn.Parameter(torch.tensor([1.0, 5.0, 2.0]))
    mix = st.WeightedLayerPooling(HIDDEN, num_hidden_layers=3, layer_start=1, layer_weights=weights)
    folder = _save(tmp_path / "model", tiny["bert"], mix, _pooling(mode), st.Normalize())
    edit_json(folder / "config.json", output_hidden_states=put_out)
    _same(folder)
    space = resolve_space(resolve_model(str(folder)))
    assert ("mix" in space.pooler) == put_out
    edit_json(folder / "config.json", output_hidden_states=None)
    plain = _save(tmp_path / "plain", tiny["bert"], _pooling(mode), st.Normalize())
    assert (
        resolve_space(resolve_model(str(folder))).pooled_id
        == resolve_space(resolve_model(str(plain))).pooled_id
    )


def test_modules_that_cannot_be_are_refused_by_name(tmp_path):
    SentenceTransformer(modules=[st.BoW(["dog", "cat"])], device="cpu").save(str(tmp_path))
    with pytest.raises(OptionError, match="BoW.*none of Transformer"):
        Encoder.load(str(tmp_path))


def test_an_export_of_static_embeddings_gives_the_same_vectors(tiny, tmp_path):
    SentenceTransformer(modules=[_static(tiny["bert"]), st.Normalize()], device="cpu").save(
        str(tmp_path / "model")
    )
    files = resolve_model(str(tmp_path / "model"))
    encoder = Encoder.load(str(tmp_path / "model"), truncate_dim=5, device="cpu")
    (tmp_path / "export").mkdir()
    unfit = write_export(Export(files, encoder.space, AUTO, None), tmp_path / "export")
    assert "more than a transformer" in str(unfit)
    again = Encoder.load(str(tmp_path / "export"), device="cpu")
    assert np.array_equal(again.encode(TOKENS), encoder.encode(TOKENS))
