"""Ids by words are the tokenizer's own, whatever the text."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import NFC, BertNormalizer, Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import BertPreTokenizer, Whitespace
from tokenizers.processors import TemplateProcessing

from transforms.base.word_pieces import (
    TokenFrame,
    WordPieces,
    frame_of,
    is_split_at_words,
    split_words,
)

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "un", "##happy", "Cat"),
    *"abcde0123!?.,[]'-_$^`+=<>|~",
    *(f"##{letter}" for letter in "abcde0123"),
]


def tokenizer(lowercase: bool = True) -> Tokenizer:
    """BERT's, of a few pieces."""
    model = WordPiece(
        {piece: number for number, piece in enumerate(PIECES)},
        unk_token="[UNK]",
        max_input_chars_per_word=20,
    )
    made = Tokenizer(model)
    made.normalizer = BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = BertPreTokenizer()
    made.add_special_tokens(PIECES[:5])
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


TEXTS = st.lists(
    st.one_of(
        st.text(st.sampled_from("abc0 \t\n\r.[]'-_$^`+=<>|~ACE"), max_size=40),
        st.text(max_size=20),
        st.lists(
            st.sampled_from(["the", "cats", "Unhappy", "[CLS]", "[mask]", "a" * 21, "é", "\x00b"])
        ).map(" ".join),
    ),
    max_size=8,
)


@given(texts=TEXTS, lowercase=st.booleans())
def test_ids_are_the_tokenizers(texts: list[str], lowercase: bool) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    own = tokenizer(lowercase)
    words = WordPieces(own)
    array = pa.array(texts, pa.string())
    has_words = words.has_words_of(array)
    for _ in range(2):  # new words, and known ones
        found = words(array.filter(pa.array(has_words)))
        ids = [part.tolist() for part in np.split(found.ids, found.offsets[1:-1])][: len(texts)]
        plain = [text for text, is_plain in zip(texts, has_words, strict=True) if is_plain]
        expected = own.encode_batch(plain, add_special_tokens=False)
        assert ids[: len(plain)] == [encoding.ids for encoding in expected]
    every = own.encode_batch(texts, add_special_tokens=False)
    assert words.count(texts).tolist() == [len(encoding) for encoding in every]


@pytest.mark.parametrize(
    ("text", "has_words"),
    [
        ("a cat.\tThe end\r\n", True),
        ("", True),
        ("[", True),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", False),
        ("a\x0bb", False),
        ("a\x7fb", False),
        ("see [CLS]", False),
        ("see [cls]", False),
    ],
)
def test_texts_that_have_words(text: str, has_words: bool) -> None:
    """A slice of a longer array, whose bytes begin behind those of other texts."""
    array = pa.array(["\x00", text, "\x00"], pa.string())[1:2]
    assert WordPieces(tokenizer()).has_words_of(array).tolist() == [has_words]


def test_words_of_texts() -> None:
    found = split_words(pa.array(["", "it's  so", " ", "a.b", ""]))
    assert found.words.to_pylist() == ["it", "'", "s", "so", "a", ".", "b"]
    assert found.offsets.tolist() == [0, 0, 4, 4, 7, 7]


def test_a_full_memory_begins_again() -> None:
    own = tokenizer()
    words = WordPieces(own, most_words=3)
    for text in ("a b c", "d e", "the cat a", "a b c d e"):
        found = words(pa.array([text]))
        assert found.ids.tolist() == own.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("limit", [None, 3, 6])
def test_a_frame_is_the_tokenizers(direction: str, limit: int | None) -> None:
    own = tokenizer()
    if limit is not None:
        own.enable_truncation(limit, direction=direction)
    texts = ["a b c d e", "", "the cats", "a . b"]
    found = frame_of(own).around(WordPieces(own)(pa.array(texts)))
    expected = [encoding.ids for encoding in own.encode_batch(texts)]
    assert found.ids.tolist() == [token for ids in expected for token in ids]
    assert np.diff(found.offsets).tolist() == [len(ids) for ids in expected]


def test_a_frame_without_special_tokens() -> None:
    own = tokenizer()
    own.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    assert frame_of(own) == TokenFrame([], [], None, keeps_end=False)


def test_tokenizers_that_are_split_at_words() -> None:
    own = tokenizer()
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
