"""SIF: weights and the vectors they make."""

import numpy as np
import torch
from helpers.examples import examples
from helpers.token_states import FIRST, HIDDEN, LAST, LAYERS, VOCABULARY, states
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.pooling import (
    Lexicon,
    ModelShape,
    Status,
    TokenStatistics,
    build_pooler,
)
from sentence_beam.transforms.pooling.sif import smooth_inverse_frequencies
from sentence_beam.transforms.space import parse_pooler

SHAPE = ModelShape(LAYERS, HIDDEN, HIDDEN)
A, B, C, UNSEEN = 3, 4, 5, 6


def _counted(*texts):
    ids = np.array([token for text in texts for token in text], dtype=np.int64)
    return TokenStatistics.count(
        "token-counts", "t", ids, np.cumsum([0, *map(len, texts)]), VOCABULARY
    )


@given(counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=30), a=st.floats(1e-6, 10))
def test_weights_are_those_of_the_paper(counts, a):
    total = max(sum(counts), 1)
    expected = [a / (a + count / total) for count in counts]
    found = smooth_inverse_frequencies(
        TokenStatistics("token-counts", "t", 1, np.array(counts, np.int64)), a
    )
    assert np.allclose(found.numpy(), expected, rtol=1e-6)


def _pool(drawn, fitted, options=""):
    return build_pooler(
        parse_pooler(f"sif:table{options}"), SHAPE, Lexicon(tables={"table": fitted})
    )(drawn)


@settings(max_examples=examples(25), deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from([A, B, C, UNSEEN]), min_size=1, max_size=6), min_size=1, max_size=4
    )
)
def test_vectors_are_the_weighted_sums_over_the_number_of_tokens(texts):
    fitted = _counted([A, B, A], [A, C])
    weights = {A: 0.001 / 0.601, B: 0.001 / 0.201, C: 0.001 / 0.201, UNSEEN: 1.0}
    drawn = states([len(text) + 2 for text in texts])
    drawn.token_ids.copy_(torch.tensor([token for text in texts for token in (FIRST, *text, LAST)]))
    for options, x in (("", drawn.raw), (",states=last", drawn.hidden[LAYERS])):
        found = _pool(drawn, fitted, options).vectors.numpy()
        for row, text in enumerate(texts):
            at = int(drawn.offsets[row]) + 1
            expected = sum(
                weights[token] * x[at + i].double().numpy() for i, token in enumerate(text)
            ) / len(text)
            assert np.allclose(found[row], expected, rtol=1e-4, atol=1e-5)


def test_a_sentence_of_special_tokens_alone_is_a_fallback():
    drawn = states([2])
    drawn.token_ids.copy_(torch.tensor([FIRST, LAST]))
    assert _pool(drawn, _counted([A])).status.tolist() == [int(Status.FALLBACK)]
