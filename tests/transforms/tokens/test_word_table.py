"""A table finds the words that it has, and no others."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.tokens.split_texts import split_at_blanks
from sentence_beam.transforms.tokens.word_table import EMPTY_TABLE, WordKeys, find_first_of_each


def keys_of(words: list[str]) -> WordKeys:
    return WordKeys.from_split(split_at_blanks(pa.array([" ".join(words)], pa.string())))


WORDS = st.lists(st.text(st.sampled_from("abZ09-.~"), min_size=1, max_size=50), max_size=30)
# of 16, 17, 32 and 33 bytes, and pairs that differ in one byte of the first or the last chunk
LIKE = ["a" * size for size in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)]
LIKE += ["a" * size for size in (255, 256, 257, 1000, 1001)]
LIKE += ["b" + "a" * 32, "a" * 32 + "b", "a" * 31 + "b" + "a", "a" * 15 + "b", "a" * 7 + "b"]


def test_words_of_any_length_have_their_own_keys() -> None:
    keys = keys_of(LIKE)
    assert len({*zip(keys.first.tolist(), keys.second.tolist(), strict=True)}) == len(LIKE)
    again = keys_of(["begin", *LIKE, "end"]).take(np.arange(1, len(LIKE) + 1))
    assert np.array_equal(again.first, keys.first)
    assert np.array_equal(again.second, keys.second)


@given(known=WORDS, others=WORDS)
def test_words_are_found(known: list[str], others: list[str]) -> None:
    known = list(dict.fromkeys(known))
    table = EMPTY_TABLE.add_words(keys_of(known))
    assert table.count == len(known)
    numbers = {word: 1 + place for place, word in enumerate(known)}
    asked = [*known, *others]
    assert table.find(keys_of(asked)).tolist() == [numbers.get(word, 0) for word in asked]


def test_a_table_grows_and_earlier_ones_stay() -> None:
    words = [f"word-{number}" for number in range(3000)]
    table = EMPTY_TABLE
    for start in range(0, len(words), 7):
        earlier = table
        table = table.add_words(keys_of(words[start : start + 7]))
        assert earlier.count == start
        assert not earlier.find(keys_of(words[start:])).any()
    assert np.array_equal(table.find(keys_of(words)), np.arange(1, 3001))
    assert not table.find(keys_of([f"other-{number}" for number in range(3000)])).any()


@given(words=WORDS)
def test_the_first_of_each_word(words: list[str]) -> None:
    rows = np.arange(len(words))
    found = find_first_of_each(keys_of(words), rows)
    assert sorted(found.tolist()) == [
        words.index(word) for word in sorted(set(words), key=words.index)
    ]
