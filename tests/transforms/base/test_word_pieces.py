"""Ids by words are the tokenizer's own, whatever the text."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.normalizers import NFC, NFKC, BertNormalizer, Lowercase, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Digits,
    Metaspace,
    Split,
    Whitespace,
    WhitespaceSplit,
)
from tokenizers.pre_tokenizers import Sequence as SplitSequence
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from transforms.base.word_pieces import (
    TokenFrame,
    WordPieces,
    frame_of,
    is_split_at_words,
    split_at_blanks,
    split_parts,
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


def test_many_words_that_are_nearly_all_new_are_not_kept() -> None:
    own = tokenizer()
    words = WordPieces(own)
    numbers = [f"{n} the {n + 1_000_000}" for n in range(1000)]
    for texts, kept in ((numbers, 0), (["the cat"] * 1000, 2)):
        found = words(pa.array(texts))
        expected = own.encode_batch(texts, add_special_tokens=False)
        assert found.ids.tolist() == [token for each in expected for token in each.ids]
        assert np.diff(found.offsets).tolist() == [len(each) for each in expected]
        assert len(words.places) == kept


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


QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"|\p{N}| ", r"|\p{N}{1,3}| ")
SAMPLE = [
    "It's the cat's, isn't it? They'll say so, they've said so; we're the cats. I'd go, I'm here.",
    "def read(path, *, mode='r'):\n    return open(path, mode).read()\n\n\n# 1234.5 + 67890 = 69124.5",
    "a  b   c\td\r\n  e.\n\n  (f) [g] {h} <i> \"j\" 'k' -- l_m__n",
] * 3
ADDED = ["<s>", "</s>", "<unk>"]


def byte_level(pattern: str | None) -> Tokenizer:
    """GPT-2's tokenizer, or one with another pattern, of a few merges."""
    made = Tokenizer(BPE())
    made.normalizer = NFC()
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    if pattern is not None:
        split = Split(Regex(pattern), "isolated")
        by_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = SplitSequence([split, by_bytes])
    made.train_from_iterator(
        SAMPLE,
        BpeTrainer(
            vocab_size=400,
            special_tokens=ADDED,
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return made


def unigram(scheme: str = "always") -> Tokenizer:
    """XLM-RoBERTa's, of a few pieces; most marks are unknown."""
    made = Tokenizer(Unigram())
    made.normalizer = NormalizerSequence([NFKC(), Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = SplitSequence([WhitespaceSplit(), Metaspace(prepend_scheme=scheme)])
    trainer = UnigramTrainer(
        vocab_size=80, special_tokens=ADDED, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator([text.replace("'", "") for text in SAMPLE], trainer)
    return made


OTHERS = {
    "gpt2": byte_level(None),
    "qwen": byte_level(QWEN),
    "llama": byte_level(LLAMA),
    "unigram": unigram(),
    "unigram, never": unigram("never"),
}
MARKED = st.text(st.sampled_from("abst dlemrv1290  \t\n\r.'\"()_-<>AS"), max_size=60)


@pytest.mark.parametrize("name", OTHERS)
@given(texts=st.lists(st.one_of(MARKED, st.text(max_size=20), st.sampled_from(SAMPLE)), max_size=6))
def test_ids_of_other_tokenizers(name: str, texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    words = WordPieces(OTHERS[name])
    array = pa.array(texts, pa.string())
    has_words = words.has_words_of(array)
    found = words(array.filter(pa.array(has_words)))
    ids = [part.tolist() for part in np.split(found.ids, found.offsets[1:-1])]
    plain = [text for text, is_plain in zip(texts, has_words, strict=True) if is_plain]
    expected = OTHERS[name].encode_batch(plain, add_special_tokens=False)
    assert ids[: len(plain)] == [encoding.ids for encoding in expected]
    every = OTHERS[name].encode_batch(texts, add_special_tokens=False)
    assert words.count(texts).tolist() == [len(encoding) for encoding in every]


def test_parts_of_texts() -> None:
    found = split_parts(pa.array(["", "it's  so.\n (a)", " b\nc"]))
    assert found.words.to_pylist() == ["it", "'s", "  so", ".\n (a", ")", " b", "\nc"]
    assert found.offsets.tolist() == [0, 0, 5, 7]
    found = split_at_blanks(pa.array([" it's\tso. ", "", "b"]))
    assert found.words.to_pylist() == ["it's", "so.", "b"]
    assert found.offsets.tolist() == [0, 2, 2, 3]


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
