"""Poolers on token states whose answers can be written by hand, and laws for all of them.

Covers transforms/pooling/simple.py.
"""

import numpy as np
import pytest
import torch
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling import ModelShape, Status, TokenStates, build_pooler
from sentence_beam.transforms.space import parse_pooler

SHAPE = ModelShape(layers=3, hidden=5, embedding=4, has_pooler_head=True)
POOLERS = [
    "mean",
    "cls",
    "cls-tanh",
    "max",
    "mean-sqrt-len",
    "last-token",
    "weighted-mean",
    "weighted-mean:rank=attended",
    "static",
    "static:from=embeddings",
    "first-last",
    "first-last:first=block1",
    "last2",
    "mean:layer=0+max+static",
]
COUNTS = ["all", "no-special", "drop-last-special", "no-prompt"]


def _states(
    lengths: list[int], dtype: torch.dtype = torch.float32, **changes: object
) -> TokenStates:
    generator = torch.Generator().manual_seed(1)
    total = sum(lengths)
    draw = lambda width: torch.randn(total, width, generator=generator).to(dtype)  # noqa: E731
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    special = torch.zeros(total, dtype=torch.bool)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    fields = {
        "hidden": {layer: draw(5) for layer in range(4)},
        "raw": draw(4),
        "token_ids": torch.arange(total),
        "offsets": offsets,
        "keep": torch.ones(total, dtype=torch.bool),
        "special": special,
        "prompt_tokens": 2,
        "head": torch.tanh,
    }
    return TokenStates(**{**fields, **changes})


def _pool(spec: str, states: TokenStates) -> torch.Tensor:
    return build_pooler(parse_pooler(spec), SHAPE)(states).vectors


@pytest.mark.parametrize("pooler", POOLERS)
@pytest.mark.parametrize("count", COUNTS)
def test_only_what_is_needed_is_read_and_dim_is_right(pooler, count):
    spec = "+".join(
        f"{part}{',' if ':' in part else ':'}count={count}" for part in pooler.split("+")
    )
    built = build_pooler(parse_pooler(spec), SHAPE)
    states = _states([4, 1, 6])
    layers = {layer: state for layer, state in states.hidden.items() if layer in built.needs.layers}
    raw = states.raw if built.needs.raw else None
    given = TokenStates(**{**states.__dict__, "hidden": layers, "raw": raw})
    pooled = built(given)
    assert pooled.vectors.shape == (3, built.dim)
    assert pooled.vectors.dtype == torch.float32
    assert pooled.status.dtype == torch.uint8
    assert built.dim == parse_pooler(spec).dim(5, 4)


@pytest.mark.parametrize("pooler", POOLERS)
@pytest.mark.parametrize("count", ["no-special", "drop-last-special", "no-prompt"])
def test_uncounted_tokens_may_hold_anything(pooler, count):
    spec = "+".join(
        f"{part}{',' if ':' in part else ':'}count={count}" for part in pooler.split("+")
    )
    states = _states([4, 5])
    clean = _pool(spec, states)
    uncounted = {
        "no-special": [0, 3, 4, 8],
        "drop-last-special": [3, 8],
        "no-prompt": [0, 1, 4, 5],
    }[count]
    for tensor in [*states.hidden.values(), states.raw]:
        tensor[uncounted] = torch.tensor(float("nan"))
    assert torch.equal(_pool(spec, states), clean)


@pytest.mark.parametrize("pooler", POOLERS)
@settings(max_examples=examples(25), deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_sentence_alone_equals_the_sentence_in_a_batch(pooler, lengths):
    states = _states(lengths)
    together = _pool(pooler, states)
    for row, (start, stop) in enumerate(zip(states.offsets[:-1], states.offsets[1:], strict=True)):
        part = slice(int(start), int(stop))
        alone = TokenStates(
            hidden={layer: state[part] for layer, state in states.hidden.items()},
            raw=states.raw[part],
            token_ids=states.token_ids[part],
            offsets=torch.tensor([0, stop - start]),
            keep=states.keep[part],
            head=torch.tanh,
        )
        assert torch.allclose(_pool(pooler, alone)[0], together[row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooler", POOLERS)
def test_no_sentences(pooler):
    states = _states([])
    assert _pool(pooler, states).shape == (0, parse_pooler(pooler).dim(5, 4))


@pytest.mark.parametrize(
    "pooler", ["mean", "max", "cls", "last-token", "weighted-mean", "last2", "mean-sqrt-len"]
)
def test_one_token_and_constant_tokens(pooler):
    row = torch.randn(5)
    constant = {layer: row.expand(7, 5) for layer in range(4)}
    vectors = _pool(pooler, _states([6, 1], hidden=constant))
    assert torch.allclose(vectors[1], row, atol=1e-6)
    scale = 6**0.5 if pooler == "mean-sqrt-len" else 1.0
    assert torch.allclose(vectors[0], row * scale, atol=1e-5)


def test_weights_are_ranks():
    states = _states([2, 3])
    x = states.hidden[3]
    vectors = _pool("weighted-mean", states)
    assert torch.allclose(vectors[0], (x[0] + 2 * x[1]) / 3, atol=1e-6)
    assert torch.allclose(vectors[1], (x[2] + 2 * x[3] + 3 * x[4]) / 6, atol=1e-6)
    late = _pool("weighted-mean:count=no-prompt,rank=attended", _states([2, 4]))[1]
    x = _states([2, 4]).hidden[3]
    assert torch.allclose(late, (3 * x[4] + 4 * x[5]) / 7, atol=1e-6)


def test_mean_is_linear_and_bounded_by_max():
    states = _states([3, 8])
    mean, largest, root = (_pool(spec, states) for spec in ("mean", "max", "mean-sqrt-len"))
    assert (largest >= mean).all()
    assert torch.allclose(root, mean * torch.tensor([[3.0], [8.0]]).sqrt(), atol=1e-6)
    doubled = _states([3, 8], hidden={layer: 2 * state for layer, state in states.hidden.items()})
    assert torch.allclose(_pool("mean", doubled), 2 * mean, atol=1e-6)


def test_all_negative_maximum_is_negative_and_input_is_untouched():
    hidden = {3: -torch.rand(6, 5) - 1}
    before = hidden[3].clone()
    assert (_pool("max", _states([2, 4], hidden=hidden)) <= -1).all()
    assert torch.equal(hidden[3], before)


def test_concatenation_keeps_the_order_given():
    states = _states([4, 2])
    joined = _pool("max+static+cls:layer=1", states)
    assert torch.equal(joined[:, :5], _pool("max", states))
    assert torch.equal(joined[:, 5:9], _pool("static", states))
    assert torch.equal(joined[:, 9:], _pool("cls:layer=1", states))


def test_half_precision_states_are_summed_in_float32():
    states = _states([4000], dtype=torch.bfloat16)
    exact = states.hidden[3].double().mean(0)
    assert (_pool("mean", states)[0].double() - exact).abs().max() < 1e-6


def test_status_of_rows():
    hidden = {3: torch.randn(8, 5)}
    hidden[3][2:4] = 0
    hidden[3][4] = float("inf")
    pooler = build_pooler(parse_pooler("mean:count=no-special"), SHAPE)
    status = pooler(_states([2, 2, 1, 3], hidden=hidden)).status
    assert status.tolist() == [Status.FALLBACK, Status.ZERO, Status.NONFINITE, Status.OK]
    both = build_pooler(parse_pooler("mean:count=no-special+mean"), SHAPE)
    assert both(_states([2, 3])).status.tolist() == [Status.FALLBACK, Status.OK]


@pytest.mark.parametrize(
    ("spec", "shape", "words"),
    [
        ("mean:layer=4", SHAPE, "layers 0 to 3"),
        ("cls-tanh", ModelShape(3, 5, 4), "pooler weights"),
        ("last2", ModelShape(1, 5, 4), "has 1 block"),
        ("auto", SHAPE, "auto"),
    ],
)
def test_what_a_model_cannot_serve_is_refused(spec, shape, words):
    with pytest.raises(OptionError, match=words):
        build_pooler(parse_pooler(spec), shape)
