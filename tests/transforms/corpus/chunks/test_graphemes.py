"""Where texts may be cut: at the ends of grapheme clusters, however far a run goes on without a
plain boundary.
"""

import pytest
import regex

from sentence_beam.transforms.corpus.chunks.graphemes import LONGEST, is_boundary

RUNS = {
    "decomposed letters": "e\u0301" * 400,
    "one mark at the end of plain letters": "a" * 400 + "\u0301b",
    "emoji that are joined": "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 100,
    "Hangul": "\u1100\u1161\u11a8" * 200,
    "marks and blanks": "e\u0301 " * 300,
}


@pytest.mark.parametrize("name", RUNS)
def test_no_cluster_is_cut_in_a_long_run(name: str) -> None:
    text = RUNS[name]
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    for place in range(1, len(text)):
        if not text[place].isspace():
            assert is_boundary(text, place) == (place in ends), place


def test_a_cluster_that_is_itself_too_long_may_be_cut() -> None:
    text = "a" + "\u0301" * 600 + "b"
    found = [place for place in range(1, len(text)) if is_boundary(text, place)]
    assert found == [*range(LONGEST + 1, 601), 601]
