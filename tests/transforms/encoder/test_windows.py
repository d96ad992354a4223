"""Windows for late chunking: each token is in one piece, from the window where it is most inside."""

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder.tokenize import Tokenized
from sentence_beam.transforms.encoder.windows import WindowPart, Windows, make_windows

LIMIT = 12  # with two special tokens


class Words:
    """A tokenizer of words, with a special token before a text and one after it."""

    has_places = True
    around_text = 2

    def __init__(self, limit: int | None = LIMIT):
        self.limit = limit
        self.whole = SimpleNamespace(encode=self._encode)

    def _encode(self, text: str, add_special_tokens: bool) -> Any:
        return SimpleNamespace(offsets=[match.span() for match in re.finditer(r"\S+", text)])

    def count(self, text: str) -> int:
        return len(text.split())

    def with_places(self, texts: Sequence[str]) -> tuple[Tokenized, list[np.ndarray]]:
        special = np.array([[-1, -1]])
        places = []
        for text in texts:
            own = np.array(self._encode(text, False).offsets, np.int64).reshape(-1, 2)
            places.append(np.concatenate([special, own, special]))
        lengths = np.array([len(each) for each in places], np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.zeros(int(offsets[-1]), np.int32)
        return Tokenized(ids, offsets, lengths.astype(np.int32), lengths < 0), places


def document(words: int) -> str:
    return " ".join(f"w{number}" for number in range(words))


def spans_of(text: str, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Pieces that end before these words."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    bounds = [0, *(starts[cut] for cut in cuts), len(text)]
    return list(zip(bounds, bounds[1:], strict=False))


def windows(texts: list[str], spans: list[list[tuple[int, int]]], **how: Any) -> Windows:
    return make_windows(Words(), texts, spans, **how)  # type: ignore[arg-type]


def test_a_document_that_fits_is_one_window_and_counts_its_special_tokens() -> None:
    text = document(10)
    found = windows([text, ""], [[(0, len(text))], [(0, 0)]])
    assert found.pieces == [[WindowPart(0, 0, 12)], [WindowPart(1, 0, 2)]]
    assert found.whole.tolist() == [True, True]
    assert found.tokens.tolist() == [12, 2]


def test_pieces_of_one_window_have_their_own_tokens_alone() -> None:
    text = document(10)
    found = windows([text], [spans_of(text, [3])])
    assert found.pieces == [[WindowPart(0, 1, 4)], [WindowPart(0, 4, 11)]]
    assert found.whole.tolist() == [False, False]
    assert found.keys[0] != found.keys[1]


@given(st.integers(11, 60), st.data())
def test_pieces_of_many_windows_share_all_tokens_between_them(words: int, data: Any) -> None:
    text = document(words)
    cuts = sorted(data.draw(st.sets(st.integers(1, words - 1), max_size=6)))
    overlap = data.draw(st.integers(0, 9))
    found = windows([text], [spans_of(text, cuts)], overlap=overlap)
    assert (found.tokenized.lengths <= LIMIT).all()
    counts = np.diff([0, *cuts, words])
    assert found.tokens.tolist() == counts.tolist()
    for parts in found.pieces:
        for part in parts:
            # no special token
            assert 1 <= part.first < part.stop < found.tokenized.lengths[part.window]
    once = [
        (part.window, n)
        for parts in found.pieces
        for part in parts
        for n in range(part.first, part.stop)
    ]
    assert len(once) == len(set(once)) == words


def test_a_token_is_taken_from_the_window_in_which_it_is_farther_inside() -> None:
    text = document(16)  # windows of words 0-9 and 6-15, whose overlap is 6-9
    found = windows([text], [spans_of(text, [8])], overlap=4)
    assert len(found.tokenized.lengths) == 2
    assert found.pieces == [[WindowPart(0, 1, 9)], [WindowPart(1, 3, 11)]]


def test_equal_pieces_of_equal_windows_have_equal_keys() -> None:
    text, other = document(10), document(9)
    found = windows([text, text, other], [spans_of(each, [3]) for each in (text, text, other)])
    assert found.keys[:2] == found.keys[2:4]
    assert not set(found.keys[4:]) & set(found.keys[:4])


def test_a_piece_of_blanks_has_the_token_after_it() -> None:
    text = "w0   w1"
    found = windows([text], [[(0, 2), (2, 5), (5, 7)]])
    assert [len(parts) for parts in found.pieces] == [1, 1, 1]
    assert found.tokens.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("limit", "how", "message"),
    [
        (None, {}, "say how many"),
        (LIMIT, {"window": LIMIT + 1}, "more than the 12 tokens"),
        (LIMIT, {"window": 2}, "no room beside special tokens"),
        (LIMIT, {"window": 8, "overlap": 6}, "leaves no room in windows of 6 tokens"),
    ],
)
def test_windows_without_room_are_refused(
    limit: int | None, how: dict[str, int], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        make_windows(Words(limit), ["a"], [[(0, 1)]], **how)  # type: ignore[arg-type]


def test_a_pooler_that_rewrites_texts_has_no_places() -> None:
    words = Words()
    words.has_places = False
    with pytest.raises(OptionError, match="changes the text before it is encoded"):
        make_windows(words, ["a"], [[(0, 1)]])  # type: ignore[arg-type]
