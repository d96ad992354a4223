"""Words of texts, and the tokenizers whose ids are those of words."""

import numpy as np
import pyarrow as pa
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, BertNormalizer, Lowercase, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Split, Whitespace
from tokenizers.pre_tokenizers import Sequence as SplitSequence

from sentence_beam.transforms.tokens.split_texts import (
    SplitTexts,
    find_unusual_texts,
    is_split_at_words,
    split_at_blanks,
    split_parts,
    split_words,
)
from tests.helpers.word_tokenizers import OTHERS, QWEN, byte_level, unigram, word_piece


def all_words(split: SplitTexts) -> list[str]:
    """Every word, in order."""
    return split.words(np.arange(len(split.starts)))


def test_words_of_texts() -> None:
    found = split_words(pa.array(["", "it's  so", " ", "a.b", ""]))
    assert all_words(found) == ["it", "'", "s", "so", "a", ".", "b"]
    assert found.offsets.tolist() == [0, 0, 4, 4, 7, 7]


def test_parts_of_texts() -> None:
    found = split_parts(pa.array(["", "it's  so.\n (a)", " b\nc"]))
    assert all_words(found) == ["it", "'s", "  so", ".\n (a", ")", " b", "\nc"]
    assert found.offsets.tolist() == [0, 0, 5, 7]
    found = split_at_blanks(pa.array([" it's\tso. ", "", "b"]))
    assert all_words(found) == ["it's", "so.", "b"]
    assert found.offsets.tolist() == [0, 2, 2, 3]


def test_chosen_words() -> None:
    """A slice of a longer array, whose bytes begin behind those of other texts."""
    found = split_words(pa.array(["no", "a cat", "", "sat."])[1:])
    assert found.words(np.array([3, 1])) == [".", "cat"]
    assert found.offsets.tolist() == [0, 2, 2, 4]


def test_no_texts_and_empty_ones() -> None:
    for texts, offsets in (([], [0]), (["", ""], [0, 0, 0])):
        for split in (split_words, split_parts, split_at_blanks):
            found = split(pa.array(texts, pa.string()))
            assert all_words(found) == []
            assert found.offsets.tolist() == offsets


def test_texts_with_unusual_bytes() -> None:
    texts = pa.array(["a", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "", "b\x00", "tab\t\r\n"])
    assert sorted(set(find_unusual_texts(texts).tolist())) == [1, 3]


def test_tokenizers_that_are_split_at_words() -> None:
    own = word_piece()
    assert is_split_at_words(own)
    own.normalizer = NormalizerSequence([Lowercase(), BertNormalizer()])
    assert is_split_at_words(own)
    own.normalizer = NormalizerSequence([NFC(), BertNormalizer()])
    assert not is_split_at_words(own)
    own.normalizer = None
    assert is_split_at_words(own)
    own.pre_tokenizer = Whitespace()
    assert not is_split_at_words(own)
    assert not is_split_at_words(Tokenizer(BPE()))


def test_other_tokenizers_that_are_split_at_words() -> None:
    assert all(is_split_at_words(each) for each in OTHERS.values())
    assert not is_split_at_words(unigram("first"))
    no_split = unigram()
    no_split.pre_tokenizer = Metaspace()
    assert not is_split_at_words(no_split)
    for pre_tokenizer in (
        ByteLevel(add_prefix_space=True),
        ByteLevel(add_prefix_space=False, use_regex=False),
        SplitSequence([Digits(), ByteLevel(add_prefix_space=False)]),
        SplitSequence(
            [
                Split(Regex(r"\s+"), "isolated"),
                ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        SplitSequence(
            [Split(Regex(QWEN), "removed"), ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
    ):
        other = byte_level(None)
        other.pre_tokenizer = pre_tokenizer
        assert not is_split_at_words(other)
    other = byte_level(None)
    other.normalizer = Replace("a", " ")
    assert not is_split_at_words(other)
    other = byte_level(None)
    other.model = BPE(dropout=0.1)
    assert not is_split_at_words(other)
