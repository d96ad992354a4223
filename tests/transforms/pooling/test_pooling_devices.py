"""Poolers on a GPU: nothing waits for it, nothing is added up in any order, and the vectors are the
CPU's.

Covers transforms/pooling/pooler.py.
"""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.stub_device import GPU, stub_gpu
from helpers.token_states import EMBEDDING, FIRST, HIDDEN, LAST, LAYERS, VOCABULARY, states

from sentence_beam.transforms.pooling import (
    BareMask,
    Lexicon,
    ModelShape,
    TokenStates,
    TokenStatistics,
    build_pooler,
)
from sentence_beam.transforms.pooling.cnn import CnnNetwork
from sentence_beam.transforms.pooling.pooler import MixedLayers, OverTokenLayers, Pooler
from sentence_beam.transforms.pooling.sbert_wk import layer_cosines
from sentence_beam.transforms.pooling.token_layers import Convolutions, Recurrent
from sentence_beam.transforms.space import parse_pooler

PIECES = (
    "[PAD]",
    "[CLS]",
    "[SEP]",
    *(f"{'##' * (n % 3 == 0)}{chr(97 + n % 26)}" for n in range(3, VOCABULARY)),
)
SPECS = (
    "mean", "mean:count=no-special", "mean:count=drop-last-special", "mean:count=no-prompt", "cls", "cls-tanh", "max",
    "mean-sqrt-len", "last-token", "weighted-mean", "weighted-mean:rank=attended", "static", "first-last", "last2",
    "ditto:1-2", "ditto:1-2,scale=sum,states=static", "sbert-wk:start=0,window=2", "sbert-wk:weights=last,start=0",
    "sbert-wk:variant=paper,start=0,tokens=even", "prompt:template=a {text} b [MASK]", "prompt:denoise=yes,template=a {text} b [MASK]",
    "tfidf:t", "tfidf:t,scale=norm,weight=tf-idf", "sif:t", "sif:t,states=last", "remove-biases", "remove-biases:t,top=5",
    "cnn", "mean+max",
)  # fmt: skip


def _drawn() -> TokenStates:
    drawn = states([9, 7, 7, 4, 3, 2], dtype=torch.float32, prompt_tokens=1, head=torch.tanh)
    flat = {layer: state.clone() for layer, state in drawn.hidden.items()}
    for layer in flat:
        flat[layer][2] = flat[0][2]  # a token whose layers are all alike needs the ridge
    mask, bare = (
        drawn.offsets[:-1] + 1,
        BareMask(torch.randn(6, HIDDEN), torch.tensor([0, 1, 2, 3, 4, 5])),
    )
    return replace(drawn, hidden=flat, mask=mask, bare_mask=bare)


def _on_gpu(drawn: TokenStates) -> TokenStates:
    """The states as a forward pass on a GPU leaves them: what it makes is there, what was known
    before is not.
    """
    assert drawn.raw is not None
    assert drawn.bare_mask is not None
    return replace(
        drawn,
        hidden={layer: state.to(GPU) for layer, state in drawn.hidden.items()},
        raw=drawn.raw.to(GPU),
        own_attention={head: own.to(GPU) for head, own in drawn.own_attention.items()},
        bare_mask=BareMask(drawn.bare_mask.vectors.to(GPU), drawn.bare_mask.lengths.to(GPU)),
    )


def _check(here: Pooler, there: Pooler, counts: Any) -> None:
    drawn = _drawn()
    moved = _on_gpu(drawn)
    counts.waits.clear()
    with torch.inference_mode():
        expected, found = here(drawn), there(moved)
    assert counts.waits == []
    assert counts.unordered == []
    assert (found.vectors.device, found.status.device) == (GPU, GPU)
    assert torch.equal(found.vectors.cpu(), expected.vectors)
    assert torch.equal(found.status.cpu(), expected.status)


@pytest.mark.parametrize("spec", SPECS)
def test_a_pooler_on_a_gpu(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = TokenStatistics.count("tfidf", "t", np.arange(3, 20), np.arange(0, 18), VOCABULARY)
    counts_of = np.arange(VOCABULARY)
    tables = {
        "t": counted
        if spec.startswith("tfidf")
        else TokenStatistics("token-counts", "x", 9, counts_of)
    }
    shape = ModelShape(LAYERS, HIDDEN, EMBEDDING, has_pooler_head=True, has_cnn_head=True)
    network = CnnNetwork().eval()
    lexicon = Lexicon(PIECES, frozenset([FIRST, LAST]), tables, network)
    with stub_gpu(monkeypatch) as counts:
        moved = replace(lexicon, cnn=copy.deepcopy(network).to(GPU))
        parsed = parse_pooler(spec)
        _check(build_pooler(parsed, shape, lexicon), build_pooler(parsed, shape, moved), counts)


def test_layers_between_a_model_and_its_pooling_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    mean = build_pooler(parse_pooler("mean"), ModelShape(LAYERS, HIDDEN, EMBEDDING))
    convolutions = Convolutions(
        {"width": HIDDEN, "channels": HIDDEN // 2, "kernels": [1, 3]}
    ).eval()
    recurrent = Recurrent({"width": HIDDEN, "hidden": 5, "depth": 2, "both": True}).eval()
    with stub_gpu(monkeypatch) as counts:
        for layer in (convolutions, recurrent):
            there = OverTokenLayers(mean, LAYERS, copy.deepcopy(layer).to(GPU))
            _check(OverTokenLayers(mean, LAYERS, layer), there, counts)
        mixed = MixedLayers(mean, 2, LAYERS, (0.1, 0.2, 0.3, 0.2, 0.2))
        _check(mixed, mixed, counts)


@pytest.mark.parametrize("fast", [False, True])
def test_cosines_are_exact_whatever_the_switch_for_tensorfloat_says_and_it_stays(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    matmul: Any = torch.backends.cuda.matmul
    vectors = torch.randn(5, 4, HIDDEN)
    monkeypatch.setattr(
        type(matmul), "__setattr__", lambda *_: pytest.fail("the switch is for all threads")
    )
    monkeypatch.setattr(type(matmul), "__getattr__", lambda *_: "tf32" if fast else "none")
    with stub_gpu(monkeypatch):
        found = layer_cosines(vectors.to(GPU)).cpu()
    wide = vectors.double() if fast else vectors
    torch.testing.assert_close(found, layer_cosines(wide), rtol=0, atol=1e-12 if fast else 0)
