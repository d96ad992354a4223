"""Families of transformers' `AutoModel` through the encoder, against the library's own models."""

import os
import re
from pathlib import Path

import pytest
import transformers
from helpers.families import text_families
from helpers.family_survey import survey, table

from sentence_beam.transforms.space.dtypes import FLOAT32_ONLY

REPRESENTATIVE = {
    "gpt2": "padded",
    "biogpt": "padded",
    "distilbert": "padded",
    "bart": "padded",
    "qwen3": "padded",
    "mamba": "padded",
    "longformer": "padded",
    "fnet": "texts of one length",
    "convbert": "texts of one length",
    "mobilebert": "padded",
    "yoso": "texts of one length",
    "big_bird": "texts of one length",
}
# one of each kind: a decoder, state space, local attention, texts of one length
QUICK = ("gpt2", "mamba", "longformer", "yoso")
SURVEY = Path(__file__).with_name("families.md")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in REPRESENTATIVE
    ],
)
def test_a_family_is_equal_whatever_the_batch_and_the_padding_side(family):
    verdict = survey(family)
    assert (verdict.result, verdict.detail) == ("equal", REPRESENTATIVE[family])
    assert verdict.dtype == ("float32" if family in FLOAT32_ONLY else "bfloat16")


@pytest.mark.slow
def test_no_family_is_wrong_and_the_table_says_what_each_is():
    """With UPDATE_MODELS=1 the table is written."""
    verdicts = [survey(family, row=True) for family in text_families()]
    assert [verdict for verdict in verdicts if verdict.result == "wrong"] == []
    narrow = {verdict.family for verdict in verdicts if verdict.dtype == "float32"}
    assert narrow == {
        verdict.family for verdict in verdicts if verdict.family in FLOAT32_ONLY and verdict.dtype
    }
    head, start, stated = SURVEY.read_text().partition("Surveyed with ")
    stated = start + stated
    if os.environ.get("UPDATE_MODELS"):
        SURVEY.write_text(head + table(verdicts))
    elif f"transformers {transformers.__version__}:" in stated:
        assert table(verdicts) == stated


def test_the_page_shows_families_as_the_survey_has_them():
    surveyed = [row for row in SURVEY.read_text().splitlines() if row.startswith("| `")]
    _, _, below = PAGE.read_text().partition("## Families that people embed with")
    section, _, _ = below.partition("\n## ")
    shown = [row for row in section.splitlines() if row.startswith("| `")]
    assert len(shown) == 20
    for row in shown:
        cells = row.split(" |")[:4]  # without the known models
        assert " |".join(cells) + " |" in surveyed


def test_the_page_counts_the_families_of_the_survey():
    listed = SURVEY.read_text()
    page = PAGE.read_text()
    headings = re.findall(r"^## ([A-Z][a-z ]+) \((\d+)\)$", listed, re.MULTILINE)
    counted = re.findall(r"^\| (equal|refused|not made) \| (\d+) \|", page, re.MULTILINE)
    assert counted == [(name.lower(), count) for name, count in headings]
