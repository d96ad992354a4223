"""SBERT-WK against a literal decomposition token by token, known outputs and closed forms.

Covers transforms/pooling/counted_tokens.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.examples import examples
from helpers.token_states import HIDDEN, LAYERS, alone, states
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling import ModelShape, Status, build_pooler
from sentence_beam.transforms.pooling.counted_tokens import count_tokens
from sentence_beam.transforms.pooling.sbert_wk import (
    SbertWk,
    layer_cosines,
    layer_weights,
    token_shares,
)
from sentence_beam.transforms.space import parse_pooler

KNOWN = {
    ("reference", 0): [0.2284485294, 0.2223849535, 0.1498065769, 0.1769749868, 0.2223849535],
    ("reference", 1): [0.2835831678, 0.2315446869, 0.1637268182, 0.1417915839, 0.1793537432],
    ("paper", 0): [0.2347043582, 0.2027163873, 0.1986955050, 0.1832586100, 0.1806251395],
    ("paper", 1): [0.2926618624, 0.2069431875, 0.1689684050, 0.1463309312, 0.1850956139],
}
COMBINED = [0.2560158486, 0.2269648202, 0.1567666976, 0.1593832854, 0.2008693483]
STAIRS = torch.tril(torch.ones(5, 8, dtype=torch.float64))


def _pooler(**changes: object) -> SbertWk:
    return SbertWk(**{"start": 2, "last": LAYERS, "dim": HIDDEN, **changes})


def _neighbours(vectors: np.ndarray, layer: int, window: int, variant: str) -> list[np.ndarray]:
    # as a slice that starts below zero: empty, not cut off
    below = range(max(0, layer - window), layer)
    if variant == "reference" and layer - window < 0:
        below = range(0)
    above = range(layer + 1, min(len(vectors), layer + window + 1))
    return [vectors[i] for i in (*below, *above)]


def slow_weights(vectors: np.ndarray, window: int, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Alignment and novelty of one token's layers [K, H], one QR decomposition a layer, the layer's
    vector last.
    """
    alignment, novelty = np.zeros(len(vectors)), np.zeros(len(vectors))
    for layer, vector in enumerate(vectors):
        context = _neighbours(vectors, layer, window, variant)
        r = np.linalg.qr(np.stack([*context, vector]).T, mode="r")[:, -1]
        novelty[layer] = abs(r[-1]) / np.linalg.norm(r)
        mean = np.mean([c @ vector / np.linalg.norm(c) / np.linalg.norm(vector) for c in context])
        if variant == "reference":
            mean = mean / (np.linalg.norm(r[:-1]) / np.linalg.norm(r)) * (len(context) + 1)
        alignment[layer] = 1 / mean
    return alignment / alignment.sum(), novelty / novelty.sum()


def slow_pool(drawn, row: int, pooler: SbertWk) -> np.ndarray:
    """One sentence by the book, every token on its own."""
    part = slice(int(drawn.offsets[row]), int(drawn.offsets[row + 1]) - 1)
    every = np.stack([drawn.hidden[layer][part].numpy() for layer in range(LAYERS + 1)])
    words, variances = [], []
    for token in range(every.shape[1]):
        selected = every[pooler.start :, token]
        alignment, novelty = slow_weights(selected, pooler.window, pooler.variant)
        mixed = {
            "combined": pooler.mix * alignment + (1 - pooler.mix) * novelty,
            "alignment": alignment,
            "novelty": novelty,
            "even": np.ones(len(selected)),
            "last": np.eye(len(selected))[-1],
        }[pooler.weights]
        words.append(mixed / mixed.sum() @ selected)
        seen = every[:, token] if pooler.importance == "all" else selected
        unit = seen / np.linalg.norm(seen, axis=1, keepdims=True)
        variances.append(np.var((unit[1:] * unit[:-1]).sum(1)))
    shares = np.array(variances) if pooler.tokens == "variance" else np.ones(len(words))
    return shares / shares.sum() @ np.stack(words)


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_known_outputs(variant):
    cosines = layer_cosines(STAIRS.unsqueeze(0))
    found = layer_weights(cosines, 2, variant)
    for kind in (0, 1):
        assert np.abs(found[kind][:, 0].numpy() - KNOWN[variant, kind]).max() < 1e-9
    if variant == "reference":
        assert np.abs((sum(found) / 2)[:, 0].numpy() - COMBINED).max() < 1e-9
    assert abs(float(cosines.diagonal(1).var(correction=0)) - 0.005102696164) < 1e-9


@pytest.mark.parametrize("rho", [0.2, 0.5, 0.95])
@pytest.mark.parametrize(("layers", "window"), [(9, 2), (5, 3), (4, 1)])
def test_equal_cosines_have_a_closed_form(rho, layers, window):
    cosines = torch.full((layers, layers, 1), rho, dtype=torch.float64)
    cosines.diagonal().fill_(1)
    sizes = [len(_neighbours(np.zeros((layers, 1)), k, window, "reference")) for k in range(layers)]
    c = np.array(sizes, dtype=float)
    novelty = np.sqrt(1 - c * rho**2 / (1 + (c - 1) * rho))
    alignment = 1 / (np.sqrt((1 + (c - 1) * rho) / c) * (c + 1))
    found = layer_weights(cosines, window, "reference")
    assert np.abs(found[0][:, 0].numpy() - alignment / alignment.sum()).max() < 1e-12
    assert np.abs(found[1][:, 0].numpy() - novelty / novelty.sum()).max() < 1e-12
    paper = layer_weights(cosines, window, "paper")[0]
    assert np.abs(paper[:, 0].numpy() - 1 / layers).max() < 1e-12


def test_combined_weights_of_nine_layers_at_one_half():
    cosines = torch.full((9, 9, 1), 0.5, dtype=torch.float64)
    cosines.diagonal().fill_(1)
    alignment, novelty = layer_weights(cosines, 2, "reference")
    found = ((alignment + novelty) / 2)[:, 0].numpy()
    expected = np.full(9, 0.1008542081)
    expected[[0, 1, 8]], expected[7] = 0.1279975425, 0.1117363322
    assert np.abs(found - expected).max() < 1e-9


@pytest.mark.parametrize("variant", ["reference", "paper"])
@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10**6), layers=st.integers(3, 9), data=st.data())
def test_cholesky_of_cosines_is_qr_of_vectors(variant, seed, layers, data):
    window = data.draw(st.integers(1, min(4, layers - 1)))
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(layers, 20, generator=generator, dtype=torch.float64) + 2
    found = layer_weights(layer_cosines(vectors.unsqueeze(0)), window, variant)
    for kind, expected in enumerate(slow_weights(vectors.numpy(), window, variant)):
        assert np.abs(found[kind][:, 0].numpy() - expected).max() < 1e-9
        assert abs(float(found[kind].sum()) - 1) < 1e-12
        assert (found[kind] >= 0).all()


@pytest.mark.parametrize("weights", ["combined", "alignment", "novelty"])
@pytest.mark.parametrize("variant", ["reference", "paper"])
@pytest.mark.parametrize(("importance", "window"), [("selected", 2), ("all", 1), ("selected", 4)])
def test_sentences_are_those_of_the_literal_algorithm(weights, variant, importance, window):
    drawn = states([7, 3, 12, 2])
    pooler = _pooler(weights=weights, variant=variant, importance=importance, window=window)
    pooled = pooler(drawn)
    for row in range(4):
        expected = slow_pool(drawn, row, pooler)
        assert np.abs(pooled.vectors[row].numpy() - expected).max() < 1e-6 * np.abs(expected).max()
    assert pooled.status.tolist() == [Status.OK] * 4


@pytest.mark.parametrize("weights", ["combined", "even", "last"])
@pytest.mark.parametrize("tokens", ["variance", "even"])
def test_every_part_can_be_left_out(weights, tokens):
    drawn = states([7, 3, 12, 2])
    pooler = _pooler(weights=weights, tokens=tokens, mix=0.2)
    pooled = pooler(drawn)
    for row in range(4):
        expected = slow_pool(drawn, row, pooler)
        assert np.abs(pooled.vectors[row].numpy() - expected).max() < 1e-6 * np.abs(expected).max()


def test_without_both_parts_it_is_a_mean_of_the_last_layer():
    drawn, shape = states([7, 3, 12, 2]), ModelShape(LAYERS, HIDDEN, HIDDEN)
    specs = ("sbert-wk:start=2,weights=last,tokens=even", "mean:count=drop-last-special")
    found, expected = (build_pooler(parse_pooler(spec), shape)(drawn) for spec in specs)
    assert torch.allclose(found.vectors, expected.vectors, atol=1e-6)
    assert found.status.tolist() == expected.status.tolist()


@settings(max_examples=examples(20), deadline=None)
@given(mix=st.floats(0, 1))
def test_the_mixture_lies_between_its_parts(mix):
    drawn = states([5, 3])
    alignment, novelty = (_pooler(weights=kind)(drawn).vectors for kind in ("alignment", "novelty"))
    found = _pooler(mix=mix)(drawn).vectors
    assert torch.allclose(found, mix * alignment + (1 - mix) * novelty, atol=1e-5)


def test_shares_of_the_tokens_sum_to_one():
    drawn = states([7, 3, 2])
    counted = count_tokens(drawn, "drop-last-special")
    shares, uniform = token_shares(torch.rand(9, dtype=torch.float64), counted)
    assert torch.allclose(counted.sum_by_sentence(shares), torch.ones(3, dtype=torch.float64))
    assert not uniform.any()
    shares, uniform = token_shares(torch.zeros(9, dtype=torch.float64), counted)
    assert torch.allclose(shares[:6], torch.full((6,), 1 / 6, dtype=torch.float64))
    assert uniform.tolist() == [True, True, False]  # a single token needs no weights


def test_weights_know_nothing_of_lengths_and_rotations():
    drawn = states([9, 4])
    scale = {layer: state * (layer + 0.5) for layer, state in drawn.hidden.items()}
    cosines = [
        layer_cosines(torch.stack([h[layer] for layer in range(7)], 1))
        for h in (drawn.hidden, scale)
    ]
    assert torch.allclose(cosines[0], cosines[1], atol=1e-12)
    turn = torch.linalg.qr(torch.randn(HIDDEN, HIDDEN, dtype=torch.float64))[0]
    turned = replace(drawn, hidden={layer: state @ turn for layer, state in drawn.hidden.items()})
    assert torch.allclose(
        _pooler()(turned).vectors, _pooler()(drawn).vectors @ turn.float(), atol=1e-5
    )


def test_parallel_layers_weigh_equally_and_are_a_fallback():
    base = torch.randn(8, HIDDEN, dtype=torch.float64)
    drawn = states([5, 3], hidden={layer: base * (layer + 1) for layer in range(LAYERS + 1)})
    _, novelty = layer_weights(
        layer_cosines(torch.stack([drawn.hidden[k] for k in range(7)], 1)), 2, "reference"
    )
    assert torch.allclose(novelty, torch.full_like(novelty, 1 / 7))
    pooled = _pooler()(drawn)
    assert pooled.status.tolist() == [Status.FALLBACK, Status.FALLBACK]
    directions = torch.stack([base[:4].mean(0), base[5:7].mean(0)]).float()
    assert torch.allclose(
        torch.cosine_similarity(pooled.vectors, directions), torch.ones(2), atol=1e-6
    )


def test_repeated_zero_opposed_and_broken_layers_stay_in_bounds():
    drawn = states([5, 5, 5, 5])
    hidden = {layer: state.clone() for layer, state in drawn.hidden.items()}
    hidden[4][:5] = hidden[5][:5]
    hidden[3][5:10] = 0
    hidden[6][10:15] = -hidden[5][10:15]
    hidden[6][17] = float("nan")
    pooled = _pooler()(replace(drawn, hidden=hidden))
    assert pooled.status.tolist() == [Status.OK, Status.OK, Status.OK, Status.NONFINITE]
    bound = max(float(state[:15].norm(dim=1).max()) for state in hidden.values())
    assert (pooled.vectors[:3].norm(dim=1) <= bound).all()
    weights = layer_weights(
        layer_cosines(torch.stack([hidden[k][:15] for k in range(7)], 1)), 2, "reference"
    )
    for kind in weights:
        assert torch.allclose(kind.sum(0), torch.ones(15, dtype=torch.float64))
        assert (kind >= 0).all()


def test_the_last_token_and_uncounted_ones_are_not_read():
    drawn = states([6, 4])
    clean = _pooler()(drawn).vectors
    for state in drawn.hidden.values():
        state[[5, 9]] = float("nan")
    assert torch.equal(_pooler()(drawn).vectors, clean)


@pytest.mark.parametrize("tokens", [1, 3, 1000])
def test_chunks_change_nothing(monkeypatch, tokens):
    drawn = states([9, 1, 14, 2], dtype=torch.float32)
    whole = _pooler()(drawn).vectors
    monkeypatch.setattr(
        "sentence_beam.transforms.pooling.sbert_wk.CHUNK_BYTES", {"cpu": tokens * 4 * 5 * HIDDEN}
    )
    assert torch.allclose(_pooler()(drawn).vectors, whole, rtol=1e-5, atol=1e-6)
    for row in range(4):
        assert torch.allclose(
            _pooler()(alone(drawn, row)).vectors[0], whole[row], rtol=1e-5, atol=1e-5
        )


def test_one_token_is_its_own_word_and_no_sentence_gives_no_vector():
    pooled = _pooler()(states([1, 2]))
    assert pooled.status.tolist() == [Status.OK, Status.OK]
    assert _pooler()(states([])).vectors.shape == (0, HIDDEN)


@pytest.mark.parametrize(
    "spec", ["sbert-wk:start=5", "sbert-wk:start=4,window=3", "sbert-wk:start=2,window=0"]
)
def test_too_few_layers_or_too_wide_a_window_are_refused(spec):
    with pytest.raises(OptionError, match="fewer than 3 layers|window must be 1 to"):
        build_pooler(parse_pooler(spec), ModelShape(LAYERS, HIDDEN, HIDDEN))
