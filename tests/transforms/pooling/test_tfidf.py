"""TF-IDF weights and the vectors they make."""

import numpy as np
import pytest
import torch
from helpers.token_states import FIRST, HIDDEN, LAST, LAYERS, VOCABULARY, alone, states

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling import (
    Lexicon,
    ModelShape,
    Status,
    TokenStatistics,
    build_pooler,
)
from sentence_beam.transforms.pooling.tfidf import inverse_frequencies
from sentence_beam.transforms.space import parse_pooler

SHAPE = ModelShape(LAYERS, HIDDEN, HIDDEN)
A, B, C, UNSEEN = 3, 4, 5, 6


def _fitted(*texts):
    ids = np.array([token for text in texts for token in text], dtype=np.int64)
    return TokenStatistics.count("tfidf", "t", ids, np.cumsum([0, *map(len, texts)]), VOCABULARY)


def _pool(fitted, drawn, options=""):
    lexicon = Lexicon(tables={"table": fitted})
    return build_pooler(parse_pooler(f"tfidf:table{options}"), SHAPE, lexicon)(drawn)


def _sentences(*texts):
    drawn = states([len(text) + 2 for text in texts])
    ids = [token for text in texts for token in (FIRST, *text, LAST)]
    drawn.token_ids.copy_(torch.tensor(ids))
    return drawn, (drawn.hidden[0] + drawn.hidden[LAYERS]) / 2


def test_weights_are_exact():
    two = _fitted([A, B], [A, C])
    assert inverse_frequencies(two)[[A, B, C, UNSEEN]].tolist() == [0, 1, 1, 0]
    assert inverse_frequencies(two, unseen="max")[[A, B, UNSEEN]].tolist() == [0, 1, 1]
    smooth = inverse_frequencies(two, "smooth", "max")[[A, B, UNSEEN]].tolist()
    assert smooth == pytest.approx([1, np.log(3 / 2) + 1, np.log(3 / 2) + 1])
    assert torch.equal(
        inverse_frequencies(two), inverse_frequencies(_fitted(*[[A, B], [A, C]] * 2))
    )


def test_a_token_in_every_document_weighs_nothing():
    drawn, x = _sentences([A, B], [B, B, C])
    pooled = _pool(_fitted([A, B], [A, C]), drawn)
    assert torch.allclose(pooled.vectors[0].double(), x[2], atol=1e-6)
    assert torch.allclose(pooled.vectors[1].double(), x[5:8].mean(0), atol=1e-6)
    assert pooled.status.tolist() == [Status.OK, Status.OK]


def test_scale_is_the_divisor():
    drawn, x = _sentences([B, B, C], [A, B])
    fitted = _fitted([A, B], [A, C], [A], [A])  # idf 0, 2, 2
    total = x[1:4].sum(0) * 2
    expected = {"none": total, "sum": total / 6, "norm": total / np.sqrt(4**2 + 2**2)}
    for scale, vector in expected.items():
        found = _pool(fitted, drawn, f",scale={scale}").vectors[0].double()
        assert torch.allclose(found, vector, atol=1e-6)


def test_a_frequency_can_count_twice():
    drawn, x = _sentences([B, C, B], [B, C])
    fitted = _fitted([A, B], [A, C], [A], [A])  # idf 2 for B and C
    twice = 2 * (2 * x[1] + x[2] + 2 * x[3])
    for scale, divisor in {"none": 1, "sum": 10, "norm": np.sqrt(4**2 + 2**2)}.items():
        found = _pool(fitted, drawn, f",weight=tf-idf,scale={scale}").vectors
        assert torch.allclose(found[0].double(), twice / divisor, atol=1e-6)
        assert torch.equal(found[1], _pool(fitted, drawn, f",scale={scale}").vectors[1])


def test_nothing_known_falls_back_to_the_words_mean():
    drawn, x = _sentences([UNSEEN, 7], [A], [])
    pooled = _pool(_fitted([A, B], [A, C]), drawn)
    assert pooled.status.tolist() == [Status.FALLBACK] * 3
    assert torch.allclose(pooled.vectors[0].double(), x[1:3].mean(0), atol=1e-6)
    assert torch.allclose(pooled.vectors[1].double(), x[5], atol=1e-6)
    # nothing but special tokens
    assert torch.allclose(pooled.vectors[2].double(), x[7:9].mean(0), atol=1e-6)
    assert _pool(_fitted([A, B], [A, C]), drawn, ",unseen=max").status.tolist()[0] == Status.OK


def test_special_tokens_weigh_nothing_even_when_unseen_tokens_do():
    drawn, _ = _sentences([B, C], [B])
    clean = _pool(_fitted([A, B], [A, C]), drawn, ",unseen=max,idf=smooth").vectors
    for state in drawn.hidden.values():
        state[[0, 3, 4, 6]] = 1e6
    assert torch.equal(
        _pool(_fitted([A, B], [A, C]), drawn, ",unseen=max,idf=smooth").vectors, clean
    )


@pytest.mark.parametrize("scale", ["none", "sum", "norm"])
def test_sentences_stand_alone(scale):
    drawn = states([6, 2, 9, 3])
    fitted = _fitted(*np.random.default_rng(0).integers(3, VOCABULARY, (20, 6)).tolist())
    together = _pool(fitted, drawn, f",scale={scale}").vectors
    for row in range(4):
        assert torch.allclose(
            _pool(fitted, alone(drawn, row), f",scale={scale}").vectors[0], together[row], atol=1e-6
        )
    assert _pool(fitted, states([])).vectors.shape == (0, HIDDEN)


def test_without_its_table_it_is_not_built():
    with pytest.raises(OptionError, match="token statistics"):
        build_pooler(parse_pooler("tfidf:table"), SHAPE)
