"""Ditto: weights from one head's diagonal."""

from dataclasses import replace

import pytest
import torch
from helpers.token_states import EMBEDDING, HIDDEN, LAYERS, alone, states

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling import ModelShape, Status, build_pooler
from sentence_beam.transforms.space import parse_pooler

SHAPE = ModelShape(LAYERS, HIDDEN, EMBEDDING, heads=2)


def _pool(spec, drawn):
    return build_pooler(parse_pooler(spec), SHAPE)(drawn)


@pytest.mark.parametrize("kind", ["first-last", "last", "static"])
@pytest.mark.parametrize("scale", ["none", "sum", "count"])
def test_a_sentence_is_the_weighted_sum_of_its_tokens(kind, scale):
    drawn = states([5, 3])
    x = {
        "first-last": (drawn.hidden[0] + drawn.hidden[6]) / 2,
        "last": drawn.hidden[6],
        "static": drawn.raw,
    }[kind]
    a = drawn.own_attention[2, 1].double()
    found = _pool(f"ditto:2-1,states={kind},scale={scale}", drawn).vectors
    for row, part in enumerate((slice(0, 5), slice(5, 8))):
        divisor = {"none": 1, "sum": a[part].sum(), "count": len(a[part])}[scale]
        assert torch.allclose(found[row].double(), a[part] @ x[part] / divisor, atol=1e-6)


def test_scale_changes_the_length_alone():
    drawn = states([5, 3, 9])
    none, total, count = (
        _pool(f"ditto:1-1,scale={scale}", drawn).vectors for scale in ("none", "sum", "count")
    )
    for other in (total, count):
        assert torch.allclose(torch.cosine_similarity(none, other), torch.ones(3), atol=1e-6)


def test_equal_attention_is_the_mean():
    drawn = states([5, 3])
    even = {(1, 1): torch.cat([torch.full((5,), 1 / 5), torch.full((3,), 1 / 3)])}
    drawn = replace(drawn, own_attention=even)
    assert torch.allclose(
        _pool("ditto:1-1", drawn).vectors, _pool("first-last", drawn).vectors, atol=1e-6
    )


def test_no_attention_falls_back_to_the_mean():
    drawn = states([5, 3])
    weak = {(1, 1): torch.cat([torch.full((5,), 1e-14), torch.rand(3)])}
    drawn = replace(drawn, own_attention=weak)
    for scale in ("none", "sum", "count"):
        pooled = _pool(f"ditto:1-1,states=last,scale={scale}", drawn)
        assert pooled.status.tolist() == [Status.FALLBACK, Status.OK]
        assert torch.allclose(pooled.vectors[0], _pool("mean", drawn).vectors[0], atol=1e-6)


def test_uncounted_tokens_do_not_matter_and_sentences_stand_alone():
    drawn = states([5, 3, 8])
    together = _pool("ditto:2-2,count=no-special,scale=sum", drawn).vectors
    for row in range(3):
        assert torch.allclose(
            _pool("ditto:2-2,count=no-special,scale=sum", alone(drawn, row)).vectors[0],
            together[row],
        )
    for tensor in (*drawn.hidden.values(), *drawn.own_attention.values()):
        tensor[[0, 4, 5, 7, 8, 15]] = float("nan")
    assert torch.equal(_pool("ditto:2-2,count=no-special,scale=sum", drawn).vectors, together)
    assert _pool("ditto:2-2", states([])).vectors.shape == (0, HIDDEN)


@pytest.mark.parametrize("head", ["7-1", "1-3"])
def test_heads_that_are_not_there_are_refused(head):
    with pytest.raises(OptionError, match="blocks 1 to 6, heads 1 to 2"):
        build_pooler(parse_pooler(f"ditto:{head}"), SHAPE)


@pytest.mark.parametrize("head", ["0-1", "1-0", "1", "-1-2", "one-two", "1-2-3"])
def test_heads_are_counted_from_one(head):
    with pytest.raises(OptionError, match="both from 1"):
        parse_pooler(f"ditto:{head}")
