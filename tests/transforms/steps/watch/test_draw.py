"""Queries drawn from texts, and how much is searched without an index."""

from pathlib import Path

import pyarrow as pa
import pytest
from helpers.nights import Nights

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.watch.ask import choose_sampled_part, is_in_sample
from sentence_beam.transforms.steps.watch.draw import choose_sentence, draw_queries
from sentence_beam.transforms.store.entries import RememberedOptions


class KeepingNights(Nights):
    """A made-up store that keeps its texts."""

    def kept(self, texts: list[str]) -> pa.Table:
        return pa.table({"text": texts})


def nights_of(folder: Path, texts: list[str]) -> Nights:
    """A store of these texts."""
    options = RememberedOptions(keep_columns=("text",))
    nights = KeepingNights(folder / "store", options=options)
    nights.commit_without_index({"a.txt": [(f"r{n}", text) for n, text in enumerate(texts)]})
    return nights


TEXTS = [
    f"{letter} sentence number {n} says this here. {letter} sentence {n} says that there too."
    for letter in "abcdef"
    for n in range(20)
]


def test_a_query_is_a_sentence_of_a_text() -> None:
    text = "The first one is here. Another sentence follows it. Too short."
    assert {choose_sentence(text, key) for key in range(8)} == {
        "The first one is here.",
        "Another sentence follows it.",
    }
    assert choose_sentence("Too short.", 1) == ""
    assert choose_sentence("", 1) == ""


def test_of_one_sentence_a_query_has_about_half_of_the_words() -> None:
    text = "one two three four five six seven eight nine ten"
    drawn = {choose_sentence(text, key << 8) for key in range(20)}
    assert len(drawn) == 6
    for query in drawn:
        assert len(query.split()) == 5
        assert query in text


def test_a_draw_does_not_change_with_other_rows_or_their_order(tmp_path: Path) -> None:
    first = draw_queries(nights_of(tmp_path / "1", TEXTS).manifest, 12)
    again = draw_queries(nights_of(tmp_path / "2", TEXTS[::-1]).manifest, 12)
    assert (set(first.ids), set(first.texts)) == (set(again.ids), set(again.texts))
    assert len(first.texts) == 12


def test_a_draw_is_spread_over_clusters(tmp_path: Path) -> None:
    drawn = draw_queries(nights_of(tmp_path, TEXTS).manifest, 48)
    letters = [text[0] for text in drawn.texts]
    assert all(4 <= letters.count(letter) <= 14 for letter in "abcdef")


def test_a_draw_needs_texts(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    nights.commit_without_index({"a.txt": [("r", "a text of five words")]})
    with pytest.raises(OptionError, match="keeps no text"):
        draw_queries(nights.manifest, 3)


def test_a_smaller_sample_is_a_part_of_a_larger_one() -> None:
    assert [choose_sampled_part(rows) for rows in (10, 1_000_000, 1_000_001, 3_500_000)] == [
        1,
        1,
        0.5,
        0.25,
    ]
    names = [f"{n:016x}-000000000000" for n in range(2000)]
    half = {name for name in names if is_in_sample(name, 0.5)}
    quarter = {name for name in names if is_in_sample(name, 0.25)}
    assert quarter < half
    assert 850 < len(half) < 1150
