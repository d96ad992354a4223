"""Prompt pooling: one token, and what the template says without a sentence."""

from dataclasses import replace

import torch
from helpers.token_states import HIDDEN, LAYERS, states

from sentence_beam.transforms.pooling import BareMask, ModelShape, Status, build_pooler
from sentence_beam.transforms.space import parse_pooler

SHAPE = ModelShape(LAYERS, HIDDEN, HIDDEN)


def _pool(drawn, options=""):
    return build_pooler(parse_pooler(f"prompt:{options}template={{text}} [MASK]"), SHAPE)(drawn)


def test_the_vector_is_the_state_at_the_mask():
    drawn = replace(states([5, 3]), mask=torch.tensor([3, 5]))
    assert torch.equal(_pool(drawn).vectors, drawn.hidden[LAYERS][[3, 5]].float())


def test_denoising_subtracts_and_an_empty_sentence_leaves_exactly_nothing():
    bare = BareMask(torch.randn(2, HIDDEN), torch.tensor([0, 4]))
    drawn = replace(states([5, 3]), mask=torch.tensor([3, 5]), bare_mask=bare)
    pooled = _pool(drawn, "denoise=yes,")
    assert pooled.status.tolist() == [Status.ZERO, Status.OK]
    assert torch.equal(pooled.vectors[0], torch.zeros(HIDDEN))
    assert torch.allclose(pooled.vectors[1], drawn.hidden[LAYERS][5].float() - bare.vectors[1])


def test_no_sentences():
    drawn = replace(states([]), mask=torch.zeros(0, dtype=torch.long))
    assert _pool(drawn).vectors.shape == (0, HIDDEN)
