"""A model folder whose JSON was damaged or edited by hand gives one line, or the right vectors."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.examples import examples
from helpers.tiny_models import HIDDEN, TEXTS, edit_json
from hypothesis import given, settings
from hypothesis import strategies as some
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder

Place = tuple[str | int, ...]
REMOVED = object()
ODD = (
    *(REMOVED, None, True, False, 0, 1, -1, 7, 12.5, 1e300, 2**70, "", "64", "mean", "x\ud800"),
    *([], [None], [1], ["mean"], {}, {"x": 1}, [[]], {"content": 1}),
)


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Yield the place of each value below another; of a vocabulary or a long list only a few."""
    if isinstance(value, dict):
        inner: list[Any] = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        inner = []
    for name, item in inner[:40]:
        yield (*before, name)
        yield from places(item, (*before, name))


def with_value(value: Any, place: Place, odd: Any) -> Any:
    """Return the value with another one at a place."""
    changed = copy.deepcopy(value)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    if odd is REMOVED:
        del inner[place[-1]]
    else:
        inner[place[-1]] = odd
    return changed


def damages(folder: Path, skipped: frozenset[str] = frozenset()) -> some.SearchStrategy:
    """Return a strategy of a folder's damages: a file, a place in it, and the value there."""
    found = [
        (path.relative_to(folder).as_posix(), place)
        for path in sorted(folder.rglob("*.json"))
        if path.name not in skipped
        for place in places(json.loads(path.read_text()))
    ]
    return some.tuples(some.sampled_from(found), some.sampled_from(ODD))


def damage(folder: Path, file: str, place: Place, odd: Any) -> None:
    """Put a value at a place of a JSON file of a folder."""
    path = folder / file
    path.write_text(json.dumps(with_value(json.loads(path.read_text()), place, odd)))


TOKENS = [text for text in TEXTS if text] + ["the " * 60]


def _save(folder: Path, *modules: torch.nn.Module) -> None:
    SentenceTransformer(modules=list(modules), device="cpu").save(str(folder))


def _dense(base: Path, folder: Path) -> None:
    dense = st.Dense(HIDDEN, 10, activation_function=torch.nn.GELU())
    layers = [st.Pooling(HIDDEN, "cls"), st.LayerNorm(HIDDEN), dense, st.Normalize()]
    _save(folder, st.Transformer(str(base)), *layers)


def _older(base: Path, folder: Path) -> None:
    _save(folder, st.Transformer(str(base)), st.Pooling(HIDDEN, ("cls", "mean")), st.Dropout(0.1))
    edit_json(folder / "sentence_bert_config.json", transformer_task=None, module_output_name=None)
    edit_json(folder / "sentence_bert_config.json", modality_config=None, max_seq_length=9)
    pooling = folder / "1_Pooling" / "config.json"
    edit_json(pooling, pooling_mode=None, embedding_dimension=None)
    edit_json(pooling, word_embedding_dimension=HIDDEN, pooling_mode_cls_token=True)
    edit_json(pooling, pooling_mode_max_tokens=False)


def _mixed(base: Path, folder: Path) -> None:
    weights = torch.nn.Parameter(torch.tensor([1.0, 5.0, 2.0]))
    mix = st.WeightedLayerPooling(HIDDEN, num_hidden_layers=3, layer_start=1, layer_weights=weights)
    _save(folder, st.Transformer(str(base)), mix, st.Pooling(HIDDEN, "mean"))
    edit_json(folder / "config.json", output_hidden_states=True)


def _routed(base: Path, folder: Path) -> None:
    table = st.StaticEmbedding(
        Tokenizer.from_file(str(base / "tokenizer.json")), embedding_dim=HIDDEN
    )
    routes = [table], [st.Transformer(str(base)), st.Pooling(HIDDEN, "cls")]
    _save(folder, Router.for_query_document(*routes), st.Normalize())


KINDS = {
    "dense": (_dense, "bert"),
    "older": (_older, "roberta"),
    "mixed": (_mixed, "bert"),
    "routed": (_routed, "bert"),
}


def _ours(folder: Path) -> np.ndarray:
    return Encoder.load(str(folder), dtype="float32", device="cpu").encode(TOKENS)


def _theirs(folder: Path) -> np.ndarray:
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return model.encode_document(TOKENS, batch_size=1)


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return (
        found.shape == expected.shape
        and np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
    )


@pytest.fixture(scope="module")
def folders(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("folders")
    for name, (build, family) in KINDS.items():
        torch.manual_seed(3)
        build(tiny[family], root / name)
    return root


@pytest.mark.parametrize("kind", KINDS)
@given(choice=some.data())
@settings(max_examples=examples(100))
def test_a_damaged_field_is_one_line_or_leaves_sentence_transformers_vectors(
    folders: Path, kind: str, choice: some.DataObject
) -> None:
    """If sentence-transformers fails, a field that is not needed here may leave the vectors."""
    usual = folders / kind
    (file, place), odd = choice.draw(damages(usual))
    folder = folders / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(usual, folder)
    damage(folder, file, place, odd)
    try:
        found = _ours(folder)
    except OptionError as error:
        line = str(error)
        assert "\n" not in line
        assert not any(name in line for name in ("KeyError", "TypeError", "AttributeError"))
        assert str(folder) in line
        return
    try:
        expected = _theirs(folder)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        expected = _ours(usual)
    assert _close(found, expected)
