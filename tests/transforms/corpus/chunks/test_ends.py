"""Places at which a plain text may be cut."""

import pytest

from sentence_beam.transforms.corpus.chunks.ends import find_text_ends

BLANKS = ("\n", "\r\n", " \n", "\t\n", "\n\u3000")


@pytest.mark.parametrize("blank", BLANKS)
def test_a_long_run_of_blanks_has_the_ends_of_a_short_one(blank: str) -> None:
    """A megabyte of line ends takes no longer than a megabyte of words."""
    short = find_text_ends(f"Page one.{blank * 1_000}Page two.")
    long = find_text_ends(f"Page one.{blank * 400_000}Page two.")
    grown = len(blank) * 399_000
    assert short.levels.tolist() == long.levels.tolist()
    first, *others = short.places.tolist()
    assert [first, *(place + grown for place in others)] == long.places.tolist()


def test_lines_of_a_long_part_are_ends() -> None:
    lines = "\n".join("word " * 30 + str(i) for i in range(20))
    ends = set(find_text_ends(lines).places.tolist())
    assert {place for place, sign in enumerate(lines) if sign == "\n"} <= ends
