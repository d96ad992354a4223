"""Headings of Markdown, and what only looks like one."""

import pytest

from sentence_beam.transforms.corpus.chunks.markdown import read_structure

TEXTS = {
    "front matter of Jekyll": ("---\ntitle: x\n# no\n---\n\n## Yes\n", ["Yes"]),
    "front matter with CRLF and a mark": ("\ufeff---\r\na: b\r\n---\r\n# Yes\r\n", ["Yes"]),
    "front matter of Hugo": ("+++\n# no\n+++\n# Yes\n", ["Yes"]),
    "a rule at the head": ("---\n\n# Yes\n\n---\n", ["Yes"]),
    "front matter that never ends": ("---\ntitle: x\n\n# Yes\n", ["Yes"]),
    "a comment": ("# A\n<!--\n# no\n-->\n# B\n", ["A", "B"]),
    "a comment after words": ("words <!-- from\n# no\nto --> words\n===\n# Yes\n", ["Yes"]),
    "a comment in a heading": ("# Yes <!-- omit in toc -->\nwords\n", ["Yes"]),
    "a comment that never ends": ("<!-- words\n\n# Yes\n", ["Yes"]),
    "a comment's mark in code": ("`<!--` begins one\n# Yes\n-->\n", ["Yes"]),
    "a comment in a block of code": ("```\n<!--\n```\n# Yes\n-->\n", ["Yes"]),
    "preformatted HTML": ("<pre>\n# no\n</PRE>\n# Yes\n", ["Yes"]),
    "a signature": ("Regards\n-- \nBob\n", []),
    "an underline": ("Yes\n--\nwords\n", ["Yes"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_headings_are_those_that_a_reader_sees(name: str) -> None:
    text, titles = TEXTS[name]
    assert [title for _, _, title in read_structure(text).headings] == titles


def test_regions_are_in_order_and_apart() -> None:
    text = "\n".join(text for text, _ in TEXTS.values())
    regions = read_structure(text).regions
    assert len(regions) > 10
    assert all(start < stop for start, stop, _ in regions)
    assert all(first[1] <= second[0] for first, second in zip(regions, regions[1:], strict=False))
