"""What is trained on top of token states: our CNN head, and the CNN and LSTM of
sentence-transformers.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import HIDDEN, TEXTS, edit_json
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.exported_model import Export, write_export
from sentence_beam.transforms.space import AUTO, parse_pooler, resolve_model
from sentence_beam.transforms.training.cnn_module import CNN003


def _save(folder: Path, base: Path, *after: torch.nn.Module) -> Path:
    torch.manual_seed(3)
    SentenceTransformer(modules=[st.Transformer(str(base)), *after], device="cpu").save(str(folder))
    return folder


def _theirs(folder: Path, **settings: object) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True, **settings)


def _ours(folder: Path, **options: object) -> Encoder:
    return Encoder.load(str(folder), dtype="float32", device="cpu", **options)


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return (
        found.shape == expected.shape
        and np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    "after", [[], [st.Normalize], [lambda: st.Dense(HIDDEN, 10), st.Normalize]], ids=len
)
@pytest.mark.parametrize("family", ["bert", "roberta", "xlnet"])
def test_the_cnn_head_is_sentence_transformers_own(tiny, tmp_path, family, after):
    folder = _save(tmp_path / "m", tiny[family], CNN003(HIDDEN), *(make() for make in after))
    encoder = _ours(folder)
    expected = _theirs(folder, trust_remote_code=True).encode(TEXTS)
    assert _close(encoder.encode(TEXTS), expected)
    assert _close(np.stack([encoder.encode(text) for text in TEXTS]), expected)


def test_its_files_need_nothing_of_ours_and_are_written_again_alike(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], CNN003(HIDDEN))
    assert [entry["type"] for entry in json.loads((folder / "modules.json").read_text())][
        1
    ] == "modeling_cnn.CNN003"
    assert json.loads((folder / "1_CNN003" / "config.json").read_text()) == {
        "embedding_dimension": HIDDEN
    }
    _theirs(folder, trust_remote_code=True).save(str(tmp_path / "again"))
    for name in ("modeling_cnn.py", "modules.json", "1_CNN003/model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert "sentence_beam" not in (folder / "modeling_cnn.py").read_text()
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        _theirs(folder)


def test_code_beside_the_model_is_never_run(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], CNN003(HIDDEN))
    expected = _ours(folder).encode(TEXTS)
    (folder / "modeling_cnn.py").write_text("raise SystemExit('run')")
    assert np.array_equal(_ours(folder).encode(TEXTS), expected)


def test_its_weights_belong_to_the_space(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], CNN003(HIDDEN), st.Normalize())
    auto, named, mean = (
        _ours(folder),
        _ours(folder, pooler="cnn"),
        _ours(folder, pooler="mean").space,
    )
    assert named.space.id == auto.space.id
    assert np.array_equal(
        _ours(folder, pooler="cnn+mean").encode(TEXTS).shape, (len(TEXTS), 2 * HIDDEN)
    )
    weights = folder / "1_CNN003" / "model.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(weights).items()}, weights)
    assert {"weights", "pooler"} == set(_ours(folder).space.differences(auto.space))
    assert _ours(folder, pooler="mean").space.id == mean.id


def test_a_model_without_a_cnn_head_or_with_a_damaged_one_is_refused(tiny, tmp_path):
    with pytest.raises(OptionError, match="holds no CNN head"):
        _ours(tiny["bert"], pooler="cnn")
    folder = _save(tmp_path / "m", tiny["bert"], CNN003(HIDDEN))
    weights = folder / "1_CNN003" / "model.safetensors"
    save_file({"network.convs.0.weight": torch.zeros(3)}, weights)
    with pytest.raises(OptionError, match="1_CNN003.* does not fit"):
        _ours(folder)
    weights.unlink()
    with pytest.raises(OptionError, match="1_CNN003 holds no safetensors weights"):
        _ours(folder)
    listed = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(
        json.dumps([listed[0], {**listed[1], "type": "modeling_other.CNN003"}])
    )
    with pytest.raises(OptionError, match="modeling_other.CNN003"):
        _ours(folder)


BEFORE = {
    "cnn": lambda: [st.CNN(HIDDEN, 6, [1, 3, 5])],
    "cnn-cnn": lambda: [st.CNN(HIDDEN, 6), st.CNN(18, 4, [7])],
    "lstm": lambda: [st.LSTM(HIDDEN, 5)],
    "deep-lstm": lambda: [st.LSTM(HIDDEN, 5, num_layers=2, bidirectional=False)],
    "cnn-lstm": lambda: [st.CNN(HIDDEN, 6), st.LSTM(18, 5)],
}


def _alone(model: SentenceTransformer, text: str) -> np.ndarray:
    """The vector of one text without padding, its length told, which an LSTM of
    sentence-transformers wants.
    """
    features = model.preprocess([text])
    features["sentence_lengths"] = features["attention_mask"].sum(1)
    with torch.inference_mode():
        return model(features)["sentence_embedding"][0].numpy()


OVER_TOKENS = [
    *(("bert", before) for before in BEFORE),
    ("xlnet", "cnn-lstm"),
    *(pytest.param("xlnet", before, marks=pytest.mark.slow) for before in [*BEFORE][:-1]),
]


@pytest.mark.parametrize(("family", "before"), OVER_TOKENS)
def test_layers_of_sentence_transformers_over_tokens(tiny, tmp_path, family, before):
    layers = BEFORE[before]()
    pooling = st.Pooling(layers[-1].get_embedding_dimension(), ("max", "mean"))
    folder = _save(tmp_path / "m", tiny[family], *layers, pooling, st.Normalize())
    expected, encoder = np.stack([_alone(_theirs(folder), text) for text in TEXTS]), _ours(folder)
    assert _close(encoder.encode(TEXTS), expected)
    assert _close(np.stack([encoder.encode(text) for text in TEXTS]), expected)
    named = _ours(folder, pooler="mean")
    assert named.dim == HIDDEN
    assert "tokens" not in named.space.pooler


def test_their_weights_belong_to_the_space_and_go_with_an_export(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], st.CNN(HIDDEN, 6), st.Pooling(18))
    before = _ours(folder)
    (tmp_path / "e").mkdir()
    unfit = write_export(
        Export(resolve_model(str(folder)), before.space, AUTO, None), tmp_path / "e"
    )
    assert unfit.startswith("its modules are more than a transformer and a pooling")
    again = _ours(tmp_path / "e")
    assert again.space.id == before.space.id
    assert np.array_equal(again.encode(TEXTS), before.encode(TEXTS))
    weights = folder / "1_CNN" / "model.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(weights).items()}, weights)
    assert {"weights", "pooler"} == set(_ours(folder).space.differences(before.space))


def test_an_export_of_the_cnn_head_is_whole(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], CNN003(HIDDEN), st.Normalize())
    before = _ours(folder)
    (tmp_path / "e").mkdir()
    unfit = write_export(
        Export(resolve_model(str(folder)), before.space, parse_pooler("cnn"), None), tmp_path / "e"
    )
    assert "`model` is the model's own" in unfit
    assert np.array_equal(_ours(tmp_path / "e").encode(TEXTS), before.encode(TEXTS))
    theirs = _theirs(tmp_path / "e" / "model", trust_remote_code=True)
    assert _close(theirs.encode(TEXTS), before.encode(TEXTS))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stride_sizes": [2]}, "stride_sizes of 1"),
        ({"kernel_sizes": [2]}, "that are odd"),
        ({"kernel_sizes": "1"}, "kernel_sizes is not a list"),
        ({"kernel_sizes": []}, "that are odd"),
        ({"out_channels": "six"}, "out_channels is not a whole number"),
        ({"out_channels": 7}, "does not fit its config.json"),
        ({"in_embedding_dimension": None}, "in_embedding_dimension is missing"),
    ],
    ids=str,
)
def test_a_cnn_whose_masks_are_not_defined_is_refused_by_name(tiny, tmp_path, changes, said):
    folder = _save(tmp_path / "m", tiny["bert"], st.CNN(HIDDEN, 6, [3]), st.Pooling(6))
    edit_json(folder / "1_CNN" / "cnn_config.json", **changes)
    with pytest.raises(OptionError, match=said):
        _ours(folder)


def test_layers_in_another_place_are_refused(tiny, tmp_path):
    folder = _save(tmp_path / "m", tiny["bert"], st.Pooling(HIDDEN), st.LSTM(HIDDEN, 5))
    with pytest.raises(OptionError, match="LSTM is not supported in this place"):
        _ours(folder)
    edit_json(folder / "2_LSTM" / "lstm_config.json", hidden_dim=0)
    listed = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([listed[0], listed[2], listed[1]]))
    with pytest.raises(OptionError, match="hidden_dim is not a whole number from 1"):
        _ours(folder)
