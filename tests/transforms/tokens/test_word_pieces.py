"""Ids by words are the tokenizer's own, whatever the text."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from sentence_beam.transforms.tokens.word_pieces import TokenFrame, WordPieces, read_frame
from tests.helpers.word_tokenizers import OTHERS, SAMPLE, word_piece

TEXTS = st.lists(
    st.one_of(
        st.text(st.sampled_from("abc0 \t\n\r.[]'-_$^`+=<>|~ACE"), max_size=40),
        st.text(max_size=20),
        st.lists(
            st.sampled_from(
                ["the", "cats", "Unhappy", "[CLS]", "[mask]", "a" * 21, "b" * 40, "é", "\x00b"]
            )
        ).map(" ".join),
    ),
    max_size=8,
)


@given(texts=TEXTS, lowercase=st.booleans())
def test_ids_are_the_tokenizers(texts: list[str], lowercase: bool) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    own = word_piece(lowercase)
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
    assert WordPieces(word_piece()).has_words_of(array).tolist() == [has_words]


def test_a_full_memory_begins_again() -> None:
    own = word_piece()
    words = WordPieces(own, most_words=3)
    for text in ("a b c", "d e", "the cat a", "a b c d e"):
        found = words(pa.array([text]))
        assert found.ids.tolist() == own.encode(text, add_special_tokens=False).ids


def test_threads_learn_the_same_words() -> None:
    """Words are learnt, forgotten and looked up at once; each text has its own ids."""
    own = word_piece()
    words = WordPieces(own, most_words=40)
    texts = [f"{'a' * n} {'b' * (n % 7)} the {'c' * (n % 30)}." for n in range(1, 200)]
    expected = [encoding.ids for encoding in own.encode_batch(texts, add_special_tokens=False)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: words(pa.array([text])).ids.tolist(), texts))
    assert found == expected


def test_many_words_that_are_nearly_all_new_are_not_kept() -> None:
    own = word_piece()
    words = WordPieces(own)
    numbers = [f"{n} the {n + 1_000_000}" for n in range(1000)]
    for texts, kept in ((numbers, 0), (["the cat"] * 1000, 2)):
        found = words(pa.array(texts))
        expected = own.encode_batch(texts, add_special_tokens=False)
        assert found.ids.tolist() == [token for each in expected for token in each.ids]
        assert np.diff(found.offsets).tolist() == [len(each) for each in expected]
        assert words.known.table.count == kept


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("limit", [None, 3, 6])
def test_a_frame_is_the_tokenizers(direction: str, limit: int | None) -> None:
    own = word_piece()
    if limit is not None:
        own.enable_truncation(limit, direction=direction)
    texts = ["a b c d e", "", "the cats", "a . b"]
    found = read_frame(own).around(WordPieces(own)(pa.array(texts)))
    expected = [encoding.ids for encoding in own.encode_batch(texts)]
    assert found.ids.tolist() == [token for ids in expected for token in ids]
    assert np.diff(found.offsets).tolist() == [len(ids) for ids in expected]


def test_a_frame_without_special_tokens() -> None:
    own = word_piece()
    own.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    assert read_frame(own) == TokenFrame([], [], None, keeps_end=False)


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
