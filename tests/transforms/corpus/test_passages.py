"""Passages: whole sentences around a piece."""

from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus.passages import passage

TEXT = "The ferry is late. Nobody knows why. It left the island at noon. The sea is calm today. A bell rings."


def test_the_sentence_that_has_the_query_comes_first_and_others_as_they_fit() -> None:
    start, end = TEXT.index("Nobody"), TEXT.index(" A bell")
    assert (
        passage(TEXT, start, end, "when did it leave the island", 30)
        == "It left the island at noon."
    )
    assert (
        passage(TEXT, start, end, "is the sea calm", 50) == "The sea is calm today. A bell rings."
    )
    assert passage(TEXT, start, end, "zzz", 40) == "The ferry is late. Nobody knows why."
    assert passage(TEXT, start, end, "island", 1000) == TEXT
    assert passage(TEXT, start, end, "island", 1) == "It left the island at noon."


@given(st.text(), st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_a_passage_is_a_part_of_the_text(text: str, start: int, length: int, width: int) -> None:
    assert passage(text, start, start + length, "some words", width) in text
