"""Each kind of model folder in folders.md gives sentence-transformers' vectors, or one line.

Covers transforms/space/st_configs.py.
Covers transforms/space/st_layers.py.
Covers transforms/space/st_modules.py.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.families import save_family
from helpers.tiny_models import HIDDEN, TEXTS, edit_json
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer
from torch.nn.modules import activation as torch_activations

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.load import load_layers
from sentence_beam.transforms.space import resolve_model, resolve_space
from sentence_beam.transforms.space.st_layers import ACTIVATIONS, read_layers

PAGE = Path(__file__).with_name("folders.md")
TOKENS = [text for text in TEXTS if text] + ["A Dog IS red", "the " * 60]
EQUAL = "equal"


def _rows() -> dict[str, str]:
    """Return the second column of the page's table of folders by the first."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: result for name, result in rows if name not in ("folder", "---")}


ROWS = _rows()


def _save(folder: Path, *modules: torch.nn.Module, **model: object) -> None:
    SentenceTransformer(modules=list(modules), device="cpu", **model).save(str(folder))


def _saved(*after: Callable[[], torch.nn.Module]) -> Callable[[Path, Path], None]:
    """Return a builder: the base with these modules."""

    def build(folder: Path, base: Path) -> None:
        torch.manual_seed(3)
        _save(folder, st.Transformer(str(base)), *(make() for make in after))

    return build


def _pooling(mode: object = "mean") -> torch.nn.Module:
    return st.Pooling(HIDDEN, mode)


def _cls() -> torch.nn.Module:
    return _pooling("cls")


def _dense(**settings: object) -> Callable[[], torch.nn.Module]:
    return lambda: st.Dense(HIDDEN, 10, **settings)


def _edited(
    file: str, *after: Callable[[], torch.nn.Module], **changes: object
) -> Callable[[Path, Path], None]:
    """Return a builder: the base with these modules, a CLS pooling by default, and an edit."""

    def build(folder: Path, base: Path) -> None:
        _saved(*(after or (_cls, _dense(), st.Normalize)))(folder, base)
        edit_json(folder / file, **changes)

    return build


def _listed(edit: Callable[[list[dict]], object]) -> Callable[[Path, Path], None]:
    """Return a builder: Transformer, Pooling (cls), Dense, Normalize; its modules.json edited."""

    def build(folder: Path, base: Path) -> None:
        _saved(_cls, _dense(), st.Normalize)(folder, base)
        path = folder / "modules.json"
        listed = json.loads(path.read_text())
        path.write_text(json.dumps(edit(listed) or listed))

    return build


def _typed(name: str, place: int = 0) -> Callable[[Path, Path], None]:
    return _listed(lambda listed: listed[place].update(type=name))


def _placed(path: str) -> Callable[[Path, Path], None]:
    return _listed(lambda listed: listed[1].update(path=path))


def _written(file: str, text: str) -> Callable[[Path, Path], None]:
    def build(folder: Path, base: Path) -> None:
        _saved(_cls, _dense(), st.Normalize)(folder, base)
        (folder / file).write_text(text)

    return build


def _without(*names: str) -> Callable[[Path, Path], None]:
    def build(folder: Path, base: Path) -> None:
        _saved(_cls, _dense(), st.Normalize)(folder, base)
        for name in names:
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    return build


def _plain(folder: Path, base: Path) -> None:
    shutil.copytree(base, folder)


def _plain_causal(folder: Path, base: Path) -> None:
    folder.mkdir()
    save_family("qwen2", folder)
    edit_json(folder / "config.json", architectures=["Qwen2ForCausalLM"])


def _in_shards(folder: Path, base: Path) -> None:
    _saved(_cls)(folder, base)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards: dict[str, dict[str, torch.Tensor]] = {"a.safetensors": {}, "b.safetensors": {}}
    for place, (name, tensor) in enumerate(weights.items()):
        shards[sorted(shards)[place % 2]][name] = tensor
    for name, tensors in shards.items():
        save_file(tensors, folder / name, {"format": "pt"})
    index = {key: name for name, tensors in shards.items() for key in tensors}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )


def _lost_shard(folder: Path, base: Path) -> None:
    _in_shards(folder, base)
    (folder / "b.safetensors").unlink()


def _older_pooling(folder: Path, base: Path) -> None:
    _saved(_cls)(folder, base)
    path = folder / "1_Pooling" / "config.json"
    path.write_text(
        json.dumps({"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True})
    )


def _mixed(folder: Path, base: Path) -> None:
    weights = torch.nn.Parameter(torch.tensor([1.0, 5.0, 2.0]))
    mix = st.WeightedLayerPooling(HIDDEN, num_hidden_layers=3, layer_start=1, layer_weights=weights)
    _save(folder, st.Transformer(str(base)), mix, _pooling())
    edit_json(folder / "config.json", output_hidden_states=True)


def _mix_of_other_layers(folder: Path, base: Path) -> None:
    _mixed(folder, base)
    edit_json(folder / "1_WeightedLayerPooling" / "config.json", layer_start=2)


def _in_own_folder(folder: Path, base: Path) -> None:
    _saved(_cls)(folder, base)
    own = folder / "0_Transformer"
    own.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file() and path.name not in (
            "modules.json",
            "config_sentence_transformers.json",
        ):
            path.rename(own / path.name)
    path = folder / "modules.json"
    listed = json.loads(path.read_text())
    listed[0]["path"] = "0_Transformer"
    path.write_text(json.dumps(listed))


def _static(base: Path) -> torch.nn.Module:
    torch.manual_seed(5)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    return st.StaticEmbedding(tokenizer, embedding_dim=HIDDEN)


def _static_folder(folder: Path, base: Path) -> None:
    _save(folder, _static(base), st.Normalize())


def _static_then_pooling(folder: Path, base: Path) -> None:
    _save(folder, _static(base), _pooling())


def _routed(folder: Path, base: Path) -> None:
    routes = [_static(base)], [st.Transformer(str(base)), _cls()]
    _save(folder, Router.for_query_document(*routes), st.Normalize())


def _model2vec(folder: Path, base: Path) -> None:
    from model2vec import StaticModel

    vectors = _static(base).embedding.weight.detach().numpy()
    mapping = np.arange(len(vectors))[::-1].copy()
    weights = np.linspace(0.5, 1, len(vectors))
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    model = StaticModel(vectors, tokenizer, normalize=True, weights=weights, token_mapping=mapping)
    model.save_pretrained(folder)


def _head_alone(folder: Path, base: Path) -> None:
    """A BERT without safetensors, as folders of 2020 are."""
    _saved(_cls)(folder, base)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cross_encoder(folder: Path, base: Path) -> None:
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(base), device="cpu", num_labels=1).save(str(folder))


def _multi_vector(folder: Path, base: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    MultiVectorEncoder(str(base), device="cpu").save(str(folder))


def _sparse(folder: Path, base: Path) -> None:
    from sentence_transformers import SparseEncoder

    SparseEncoder(str(base), device="cpu").save(str(folder))


def _own_code(folder: Path, base: Path) -> None:
    _saved(_cls)(folder, base)
    edit_json(
        folder / "config.json",
        auto_map={"AutoConfig": "configuration_own.Config", "AutoModel": "modeling_own.Model"},
    )
    (folder / "modeling_own.py").write_text("raise SystemExit('run')")


TRANSFORMER = "sentence_bert_config.json"
POOLING = "1_Pooling/config.json"
DENSE = "2_Dense/config.json"
TEXT_STATES = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
MODULES: dict[str, Callable[[Path, Path], None]] = {
    "transformers' layout": _plain,
    "transformers' layout, a causal language model": _plain_causal,
    "weights in several files": _in_shards,
    "weights in several files, one missing": _lost_shard,
    "weights as `pytorch_model.bin` alone": _head_alone,
    "Pooling with several modes": _saved(lambda: _pooling(("weightedmean", "lasttoken", "max"))),
    "Pooling with the older booleans": _older_pooling,
    "Dense, LayerNorm, Dropout, Normalize": _saved(
        _cls, lambda: st.LayerNorm(HIDDEN), lambda: st.Dropout(0.2), _dense(), st.Normalize
    ),
    "Normalize and Dropout without their folders": _without("3_Normalize"),
    "Dense with an activation from elsewhere": _edited(DENSE, activation_function="own.Swish"),
    "Dense with `use_residual`": _edited(DENSE, use_residual=True),
    "Dense of another width than the pooling's": _edited(DENSE, in_features=12),
    "Dense whose weights have another shape": _edited(DENSE, out_features=12),
    "WeightedLayerPooling": _mixed,
    "WeightedLayerPooling with weights for other layers": _mix_of_other_layers,
    "Transformer in a folder of its own": _in_own_folder,
    "Router, Asym": _routed,
    "StaticEmbedding": _static_folder,
    "StaticEmbedding with a Pooling": _static_then_pooling,
    "model2vec's layout, with modules.json": _model2vec,
    "`max_seq_length`, `do_lower_case`": _edited(TRANSFORMER, max_seq_length=7, do_lower_case=True),
    "`tokenizer_args` with `model_max_length`": _edited(
        TRANSFORMER, tokenizer_args={"model_max_length": 6}, max_seq_length=9
    ),
    "`truncate_dim`": _edited("config_sentence_transformers.json", _cls, _dense(), truncate_dim=5),
    "path `1_Pooling\\`, `./1_Pooling` or `1_Pooling/`": _placed("./1_Pooling/"),
    "modules.json with `idx` out of order": _listed(
        lambda listed: [{**entry, "idx": 9 - place} for place, entry in enumerate(listed)]
    ),
    "a path that leaves the folder": _placed("../1_Pooling"),
    "a folder in other letters than its path": _placed("1_pooling"),
    "a module's config.json is missing": _without(POOLING),
    "a module's config.json is empty": _written(POOLING, ""),
    "a module's config.json is `{}`": _written(POOLING, "{}"),
    "a misspelt setting": _edited(POOLING, pooling_mode_cls_tokens=True),
    "modules.json lists nothing": _written("modules.json", "[]"),
    "Transformer without a Pooling": _listed(lambda listed: [listed[0], listed[3]]),
    "two Poolings": _saved(_cls, _pooling),
    "Pooling before Transformer": _listed(lambda listed: [listed[1], listed[0]]),
    "Dense before Pooling": _listed(lambda listed: [listed[place] for place in (0, 2, 1, 3)]),
    "two modules of one name": _listed(lambda listed: listed[2].update(name="1")),
    "a module of code in the folder": _typed("custom_st.Transformer"),
    "`models.BERT` and others of sentence-transformers 0.x": _typed(
        "sentence_transformers.models.BERT"
    ),
    "BoW, WordEmbeddings, WordWeights, CLIPModel": _typed("sentence_transformers.models.BoW"),
    "a CrossEncoder": _cross_encoder,
    "a SparseEncoder": _sparse,
    "a MultiVectorEncoder": _multi_vector,
    "`auto_map` in config.json": _own_code,
    "`auto_map` in tokenizer_config.json": _edited(
        "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_own.Own", None]}
    ),
    "`query_length` and other settings of several vectors": _edited(TRANSFORMER, query_length=16),
    "Transformer that returns the tanh pooler": _edited(
        TRANSFORMER,
        modality_config={"text": {"method": "forward", "method_output_name": "pooler_output"}},
    ),
    "`model_args` that change the model": _edited(TRANSFORMER, config_args={"hidden_act": "relu"}),
    "a JSON file that is cut off": _written("config.json", '{"model_type": "bert", "hidden'),
    "a JSON file with a key twice": _written(
        TRANSFORMER, '{"max_seq_length":9,"max_seq_length":7}'
    ),
    "a JSON file with NaN": _written(TRANSFORMER, '{"max_seq_length": NaN}'),
    "a JSON file with a byte order mark": _written(TRANSFORMER, '\ufeff{"max_seq_length": 9}'),
    "a setting of another type": _edited(TRANSFORMER, max_seq_length=12.5),
    "heads that do not divide the width": _edited("config.json", num_attention_heads=5),
    "no `model_type`": _edited("config.json", model_type=None),
}


def test_the_page_has_the_kinds_that_are_tried():
    assert sorted(ROWS) == sorted(MODULES)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tiny: dict[str, Path], tmp_path: Path) -> Path:
    MODULES[request.param](tmp_path / "model", tiny["bert"])
    return tmp_path / "model"


def _named(is_equal: bool) -> list[str]:
    return [name for name, result in ROWS.items() if result.startswith(EQUAL) == is_equal]


@pytest.mark.parametrize("folder", _named(is_equal=True), indirect=True)
def test_vectors_are_sentence_transformers_own(folder: Path) -> None:
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    expected = theirs.encode_document(TOKENS)
    found = Encoder.load(str(folder), dtype="float32", device="cpu").encode(TOKENS)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("folder", "words"),
    [(name, re.findall("`([^`]+)`", ROWS[name])) for name in _named(is_equal=False)],
    indirect=["folder"],
    ids=str,
)
def test_the_others_are_one_line_before_anything_is_embedded(
    folder: Path, words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        resolve_space(resolve_model(str(folder)))
    line = str(caught.value)
    assert "\n" not in line
    assert words
    assert all(word in line for word in words), line


@pytest.mark.parametrize("path", ["1_Pooling\\", "./1_Pooling", "1_Pooling/", ".\\1_Pooling"])
def test_all_spellings_of_a_path(tiny, tmp_path, path):
    _placed(path)(tmp_path / "model", tiny["bert"])
    _saved(_cls, _dense(), st.Normalize)(tmp_path / "usual", tiny["bert"])
    usual, found = (resolve_space(resolve_model(str(tmp_path / n))) for n in ("usual", "model"))
    assert found.id == usual.id


@pytest.mark.parametrize(
    "path", ["..", "/1_Pooling", "1_Pooling/../1_Pooling", "C:\\1_Pooling", ""]
)
def test_no_path_leaves_the_folder(tiny, tmp_path, path):
    shutil.copytree(tiny["bert"], tmp_path / "1_Pooling")
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": HIDDEN}))
    _placed(path or "a\0b")(tmp_path / "model", tiny["bert"])
    with pytest.raises(OptionError, match=r"modules\.json: path .* leaves the model's folder"):
        resolve_model(str(tmp_path / "model"))


OLD = ("ALBERT", "BERT", "CamemBERT", "DistilBERT", "RoBERTa", "T5", "XLMRoBERTa", "XLNet")
OTHERS = (
    "BoW",
    "WordEmbeddings",
    "WordWeights",
    "CLIPModel",
    "sparse_encoder.models.SpladePooling",
)


@pytest.mark.parametrize("name", [*OLD, *OTHERS])
def test_modules_that_are_not_computed_are_named(tiny, tmp_path, name):
    _typed(f"sentence_transformers.models.{name}")(tmp_path / "model", tiny["bert"])
    with pytest.raises(OptionError, match=f"{name}' is"):
        resolve_model(str(tmp_path / "model"))


def test_an_older_layout_runs_once_its_type_is_written_anew(tiny, tmp_path):
    """As the line about `models.BERT` says."""
    _typed("sentence_transformers.models.Transformer")(tmp_path / "model", tiny["bert"])
    _saved(_cls, _dense(), st.Normalize)(tmp_path / "usual", tiny["bert"])
    usual, found = (resolve_space(resolve_model(str(tmp_path / n))) for n in ("usual", "model"))
    assert found.id == usual.id


def test_every_activation_of_torch_that_keeps_the_width_and_needs_no_argument():
    needs_more = {"GLU", "MultiheadAttention", "Softmax2d", "Threshold"}
    assert {*torch_activations.__all__, "Identity"} - needs_more == set(ACTIVATIONS)


@pytest.mark.filterwarnings("ignore:Implicit dimension")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(tmp_path, name):
    activation = getattr(torch.nn, name)()
    if name == "PReLU":
        torch.nn.init.constant_(activation.weight, -0.7)
    st.Dense(HIDDEN, 10, activation_function=activation).save(str(tmp_path))
    vectors = 3 * torch.randn(9, HIDDEN)
    theirs = st.Dense.load(str(tmp_path)).eval()
    expected = theirs({"sentence_embedding": vectors})["sentence_embedding"]
    layers = read_layers(tmp_path, [("Pooling", tmp_path), ("Dense", tmp_path)])["layers"]
    assert torch.allclose(load_layers(layers, torch.device("cpu"))(vectors), expected, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["os.system", "torch.nn.GLU", "torch.nn.functional.gelu", "torch.hub.load", "GELU"]
    + ["transformers.activations.NewGELUActivation", "torch.nn.modules.linear.Linear"],
)
def test_nothing_else_is_an_activation(tiny, tmp_path, name):
    _edited(DENSE, activation_function=name)(tmp_path / "model", tiny["bert"])
    with pytest.raises(OptionError, match=rf"2_Dense/config\.json: activation '{re.escape(name)}'"):
        resolve_model(str(tmp_path / "model"))


def test_unknown_words_and_long_texts_of_model2vec_are_as_sentence_transformers_has_them(
    tiny, tmp_path
):
    """model2vec itself leaves unknown words out, and what is beyond 512 tokens; see the page."""
    from model2vec import StaticModel

    _model2vec(tmp_path / "model", tiny["bert"])
    own = StaticModel.from_pretrained(tmp_path / "model")
    ours = Encoder.load(str(tmp_path / "model"), device="cpu")
    known = ["the red dog", "a cat in the park"]
    assert np.allclose(ours.encode(known), own.encode(known), atol=1e-6)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    others = ["the zebra", "the dog " * 300 + "cat " * 300]
    assert np.allclose(ours.encode(others), theirs.encode(others), atol=1e-6)
    assert not np.allclose(ours.encode(others), own.encode(others), atol=1e-3)
    shorter = Encoder.load(str(tmp_path / "model"), device="cpu", max_tokens=512)
    assert np.allclose(shorter.encode(others[1]), own.encode(others[1]), atol=1e-6)


@pytest.mark.parametrize(
    ("family", "name"), [("bert", "max_position_embeddings"), ("roberta", "vocab_size")]
)
def test_weights_of_another_shape_than_config_json_says_are_named(tiny, tmp_path, family, name):
    folder = shutil.copytree(tiny[family], tmp_path / "model")
    edit_json(folder / "config.json", **{name: 200})
    with pytest.raises(
        OptionError, match=r"weights have .*embeddings.*config\.json of \[200, 24\]"
    ):
        Encoder.load(str(folder), device="cpu")
