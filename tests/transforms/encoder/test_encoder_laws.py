"""What holds for every pooler on every architecture.

Covers transforms/pooling/build_pooler.py.
"""

import numpy as np
import pytest
import torch
from helpers.blocks import count_block_calls
from helpers.tiny_models import FAMILIES, LAYERS, TEXTS, WITHOUT_POOLER
from helpers.variants import variants
from transformers import AutoModel, AutoTokenizer, T5EncoderModel

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.batches import plan_batches

POOLERS = {
    "mean": lambda s: s.hs[-1].mean(0),
    "cls": lambda s: s.hs[-1][0],
    "max": lambda s: s.hs[-1].max(0),
    "mean-sqrt-len": lambda s: s.hs[-1].sum(0) / len(s.hs[-1]) ** 0.5,
    "last-token": lambda s: s.hs[-1][-1],
    "weighted-mean": lambda s: np.average(
        s.hs[-1], axis=0, weights=np.arange(1, len(s.hs[-1]) + 1)
    ),
    "static": lambda s: s.raw.mean(0),
    "static:from=embeddings": lambda s: s.hs[0].mean(0),
    "first-last": lambda s: (s.hs[0] + s.hs[-1]).mean(0) / 2,
    "first-last:first=block1": lambda s: (s.hs[1] + s.hs[-1]).mean(0) / 2,
    "last2": lambda s: (s.hs[-2] + s.hs[-1]).mean(0) / 2,
    "mean:layer=1": lambda s: s.hs[1].mean(0),
    "mean+max": lambda s: np.concatenate([s.hs[-1].mean(0), s.hs[-1].max(0)]),
    "mean:count=no-special": lambda s: s.counted(s.hs[-1], ~s.special).mean(0),
    "max:count=drop-last-special": lambda s: s.hs[-1][: max(1, len(s.hs[-1]) - 1)].max(0),
    "weighted-mean:count=no-special": lambda s: _rank_weighted(s.counted(s.hs[-1], ~s.special)),
}


def _rank_weighted(states: np.ndarray) -> np.ndarray:
    return np.average(states, axis=0, weights=np.arange(1, len(states) + 1))


class Sentence:
    """One text through the library's own model: all hidden states, one text at a time, no
    padding.
    """

    def __init__(self, model: torch.nn.Module, tokenizer: object, text: str) -> None:
        encoded = tokenizer(text, return_tensors="pt", truncation=True)
        with torch.inference_mode():
            out = model(**encoded, output_hidden_states=True)
            self.raw = model.get_input_embeddings()(encoded["input_ids"])[0].double().numpy()
        self.hs = [state[0].double().numpy() for state in out.hidden_states]
        self.special = np.isin(encoded["input_ids"][0].numpy(), tokenizer.all_special_ids)

    def counted(self, states: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """The kept rows, or all where none is kept."""
        return states[keep] if keep.any() else states


@pytest.fixture(scope="module")
def sentences(tiny):
    """family -> one `Sentence` a text."""

    def load(family: str) -> list[Sentence]:
        kind = T5EncoderModel if family == "t5" else AutoModel
        model, tokenizer = (
            kind.from_pretrained(tiny[family]).eval(),
            AutoTokenizer.from_pretrained(tiny[family]),
        )
        return [Sentence(model, tokenizer, text) for text in TEXTS]

    return {family: load(family) for family in FAMILIES}


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


# of the others each pooler alone is tried among the slow tests
ALONE = ("bert",)


@pytest.mark.parametrize("pooler", POOLERS)
@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[] if name in ALONE else pytest.mark.slow) for name in FAMILIES],
)
def test_vector_is_the_closed_form_whatever_the_batch_and_the_order(
    tiny, sentences, family, pooler
):
    _check_closed_form(tiny[family], sentences[family], pooler)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ALONE])
def test_vectors_of_all_poolers_joined_are_the_closed_forms_too(tiny, sentences, family):
    _check_closed_form(tiny[family], sentences[family], *POOLERS)


def _check_closed_form(model, sentences, *poolers):
    encoder = Encoder.load(
        str(model), pooler="+".join(poolers), normalize=False, dtype="float32", device="cpu"
    )
    expected = [np.stack([POOLERS[name](sentence) for sentence in sentences]) for name in poolers]
    together = encoder.encode(TEXTS)
    assert together.dtype == np.float32
    assert together.shape == (len(TEXTS), encoder.dim)
    _check_parts(together, expected)
    encoder.tokens_per_batch = 1
    _check_parts(encoder.encode(TEXTS), expected)
    encoder.tokens_per_batch = 20
    order = np.random.permutation(len(TEXTS))
    _check_parts(encoder.encode([TEXTS[i] for i in order]), [part[order] for part in expected])


def _check_parts(found, expected):
    """Each pooler's part is as near as it has to be for itself."""
    ends = np.cumsum([part.shape[1] for part in expected])
    assert found.shape[1] == ends[-1]
    for mine, part in zip(np.split(found, ends[:-1], axis=1), expected, strict=True):
        assert _close(mine, part)


@pytest.mark.parametrize("family", FAMILIES)
def test_cls_tanh_needs_pooler_weights_in_the_checkpoint(tiny, family):
    if family in WITHOUT_POOLER:
        with pytest.raises(OptionError, match="pooler weights"):
            Encoder.load(str(tiny[family]), pooler="cls-tanh")
        return
    encoder = Encoder.load(
        str(tiny[family]), pooler="cls-tanh", normalize=False, dtype="float32", device="cpu"
    )
    model, tokenizer = (
        AutoModel.from_pretrained(tiny[family]).eval(),
        AutoTokenizer.from_pretrained(tiny[family]),
    )
    with torch.inference_mode():
        expected = [
            model(**tokenizer(text, return_tensors="pt")).pooler_output[0].numpy() for text in TEXTS
        ]
    found = encoder.encode(TEXTS)
    assert np.abs(found).max() < 1
    assert _close(found, np.stack(expected))


@variants(
    ("pooler", "blocks"),
    [
        ("static", 0),
        ("static:from=embeddings", 0),
        ("mean:layer=1", 1),
        ("mean:layer=2+cls:layer=1", 2),
        ("mean", LAYERS),
    ],
    (0, 2, 3),
)
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "albert"])
def test_blocks_above_the_deepest_layer_are_not_run(tiny, family, pooler, blocks, monkeypatch):
    calls = count_block_calls(monkeypatch)
    encoder = Encoder.load(str(tiny[family]), pooler=pooler, dtype="float32", device="cpu")
    calls.clear()
    encoder.encode(["the dog is riding"])
    assert len(calls) == blocks


def test_albert_stops_its_loop_early(tiny):
    encoder = Encoder.load(
        str(tiny["albert"]), pooler="mean:layer=1", dtype="float32", device="cpu"
    )
    calls = []
    model = encoder.replicas[0].forward.runner.models.shortest
    model.encoder.albert_layer_groups[0].register_forward_pre_hook(lambda *_: calls.append(1))
    encoder.encode(["the dog"])
    assert len(calls) == 1


@pytest.mark.parametrize("family", ["bert", "albert", "mpnet", "t5", "xlnet"])
@pytest.mark.parametrize("pooler", ["mean:layer=1", "first-last", "last2+ditto:2-1,states=static"])
def test_no_state_is_held_that_nobody_asked_for(tiny, family, pooler):
    encoder = Encoder.load(str(tiny[family]), pooler=pooler, dtype="float32", device="cpu")
    (batch,) = plan_batches(encoder.tokenize(["the dog is riding"]), 100)
    with torch.inference_mode():
        states, needs = encoder.replicas[0].forward(batch), encoder.replicas[0].pooler.needs
    assert set(states.hidden) == needs.layers
    assert set(states.own_attention) == needs.heads
    assert (states.raw is not None) == needs.raw
