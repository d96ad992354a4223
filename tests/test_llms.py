"""docs/llms.txt: what programs read to find commands and pages."""

import re
from pathlib import Path

from helpers.pages import DOCS, ROOT, Page

from sentence_beam.pipelines import cli

LIST = Page(ROOT / "docs/llms.txt")


def test_it_describes_every_command_as_the_help_does() -> None:
    lines = re.findall(r"^- \[(.+)\]\(reference\.md#(.+)\): (.*)$", LIST.text, re.MULTILINE)
    assert {name: what for name, anchor, what in lines if name == anchor} == cli.COMMANDS


def test_it_links_to_every_page_and_to_nothing_else() -> None:
    pages: set[Path] = set()
    for path, anchor in LIST.links:
        assert not anchor or anchor in Page(path).anchors, f"{path.name}#{anchor}"
        pages.add(path)
    assert pages == set(DOCS)


def test_the_help_names_it() -> None:
    assert "docs/llms.txt" in cli.list_usage()
