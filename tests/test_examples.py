"""Examples in docstrings say what is so."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path
    for package in ("pipelines", "transforms")
    for path in sorted((ROOT / package).rglob("*.py"))
]
SHOWING = [
    ".".join(["sentence_beam", *path.relative_to(ROOT).with_suffix("").parts])
    for path in SOURCES
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", SHOWING)
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed
