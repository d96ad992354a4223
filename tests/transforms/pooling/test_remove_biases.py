"""Static averages without frequent tokens, pieces and signs."""

import numpy as np
import pytest
import torch
from helpers.token_states import EMBEDDING, FIRST, HIDDEN, LAST, LAYERS, alone, states

from sentence_beam.transforms.pooling import (
    Lexicon,
    ModelShape,
    Status,
    TokenStatistics,
    build_pooler,
)
from sentence_beam.transforms.pooling.remove_biases import (
    REFERENCE_PIECES,
    REFERENCE_SIGNS,
    mark_most_frequent,
    mark_word_insides,
    reduce_text,
)
from sentence_beam.transforms.space import parse_pooler

SHAPE = ModelShape(LAYERS, HIDDEN, EMBEDDING)
PIECES = ("[PAD]", "[CLS]", "[SEP]", "dog", "##s", ".", "Cat", "##!", "7", "the")
DOG, S, STOP, CAT, BANG, SEVEN, THE = range(3, 10)


def _pool(spec, drawn, counts=None, pieces=PIECES):
    tables = (
        {} if counts is None else {"t": TokenStatistics("token-counts", "x", 9, np.array(counts))}
    )
    return build_pooler(
        parse_pooler(spec), SHAPE, Lexicon(pieces, frozenset([FIRST, LAST]), tables)
    )(drawn)


def _sentences(*texts):
    drawn = states([len(text) + 2 for text in texts])
    drawn.token_ids.copy_(torch.tensor([token for text in texts for token in (FIRST, *text, LAST)]))
    return drawn


def test_the_references_lists_are_whole():
    assert len(REFERENCE_PIECES) == 36
    assert len(REFERENCE_SIGNS) == 47  # 46 signs and [UNK]
    assert "}" not in REFERENCE_SIGNS


def test_the_reference_keeps_whole_rare_words():
    assert reduce_text("the man is playing .".split()) == "[PAD]"
    assert reduce_text("A gui ##tar , [UNK] Harp".split()) == "a gui harp"
    assert reduce_text([]) == "[PAD]"


def test_the_reference_counts_all_but_the_tokens_around():
    drawn = _sentences([DOG, CAT], [0], [])
    pooled = _pool("remove-biases", drawn)
    assert torch.allclose(pooled.vectors[0].double(), drawn.raw[1:3].mean(0), atol=1e-6)
    assert torch.allclose(pooled.vectors[1].double(), drawn.raw[5], atol=1e-6)
    assert pooled.status.tolist() == [Status.OK, Status.FALLBACK, Status.FALLBACK]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("", [DOG, CAT, SEVEN, THE]),
        (",subwords=keep", [DOG, S, CAT, SEVEN, THE]),
        (",punctuation=keep", [DOG, STOP, CAT, SEVEN, THE]),
        (",case=drop", [DOG, SEVEN, THE]),
        (",top=1", [DOG, CAT, SEVEN]),
        (",top=2,case=keep", [CAT, SEVEN]),
    ],
)
def test_each_option_removes_its_kind(options, left):
    text = [DOG, S, STOP, CAT, BANG, SEVEN, THE]
    drawn, counts = _sentences(text), [0, 0, 0, 5, 1, 1, 1, 1, 1, 6]
    options = options if "top" in options else f"{options},top=0"
    expected = drawn.raw[[1 + text.index(token) for token in left]].mean(0)
    found = _pool(f"remove-biases:t{options}", drawn, counts).vectors[0].double()
    assert torch.allclose(found, expected, atol=1e-6)


def test_removed_tokens_and_word_order_change_nothing():
    counts = [0, 0, 0, 5, 1, 1, 1, 1, 1, 6]
    table = torch.randn(10, EMBEDDING, dtype=torch.float64)
    drawn = _sentences([CAT, SEVEN], [SEVEN, CAT], [THE, CAT, STOP, SEVEN, S])
    drawn.raw.copy_(table[drawn.token_ids])
    vectors = _pool("remove-biases:t,top=2", drawn, counts).vectors
    assert torch.allclose(vectors[0], vectors[1])
    assert torch.allclose(vectors[0], vectors[2])


def test_nothing_removed_is_the_static_mean():
    drawn = states([5, 2, 7])
    pieces = tuple(f"p{i}" for i in range(40))
    spec = "remove-biases:variant=generic,top=0,subwords=keep,punctuation=keep,case=keep"
    assert torch.equal(
        _pool(spec, drawn, pieces=pieces).vectors, _pool("static:count=no-special", drawn).vectors
    )
    assert _pool(spec, drawn, pieces=pieces).status.tolist() == [
        Status.OK,
        Status.FALLBACK,
        Status.OK,
    ]


def test_nothing_left_is_the_mean_of_the_words():
    drawn = _sentences([STOP, BANG], [THE])
    pooled = _pool("remove-biases:t,top=1", drawn, [0, 0, 0, 0, 0, 0, 0, 0, 0, 3])
    assert torch.allclose(pooled.vectors[0].double(), drawn.raw[1:3].mean(0), atol=1e-6)
    assert torch.allclose(pooled.vectors[1].double(), drawn.raw[5], atol=1e-6)
    assert pooled.status.tolist() == [Status.FALLBACK, Status.FALLBACK]


def test_a_texts_first_piece_never_continues_a_word():
    starts = ("[PAD]", "<s>", "</s>", "dog", "\u0120dog", "s")
    assert mark_word_insides(starts).tolist() == [True, True, True, True, False, True]
    # "dogs dog", the first word without a mark as byte-level BPE has it
    drawn = _sentences([3, 5, 4])
    found = _pool("remove-biases:variant=generic,top=0", drawn, pieces=starts).vectors[0].double()
    assert torch.allclose(found, drawn.raw[[1, 3]].mean(0), atol=1e-6)
    assert not mark_word_insides(("a", "b")).any()


def test_the_most_frequent_of_equals_are_the_lowest_ids():
    assert mark_most_frequent(np.array([0, 3, 5, 3, 0]), 2).tolist() == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert mark_most_frequent(np.array([0, 3, 0]), 36).tolist() == [False, True, False]


def test_sentences_stand_alone():
    drawn = _sentences([DOG, S, STOP], [STOP], [CAT, THE])
    for spec in ("remove-biases", "remove-biases:variant=generic,top=0"):
        together = _pool(spec, drawn).vectors
        for row in range(3):
            assert torch.allclose(
                _pool(spec, alone(drawn, row)).vectors[0], together[row], atol=1e-6
            )
        assert _pool(spec, states([])).vectors.shape == (0, EMBEDDING)
