"""Families of transformers' `AutoModel` through the encoder, against the library's own models."""

import os
from pathlib import Path

import pytest
import transformers
from helpers.families import text_families
from helpers.family_survey import survey, table

from transforms.space.dtypes import FLOAT32_ONLY

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
DOCS = Path(__file__).resolve().parents[3] / "docs" / "models.md"
START, END = "<!-- generated: the survey -->\n", "<!-- end of what is generated -->\n"


@pytest.mark.parametrize("family", REPRESENTATIVE)
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
    before, _, rest = DOCS.read_text().partition(START)
    stated, _, after = rest.partition(END)
    if os.environ.get("UPDATE_MODELS"):
        DOCS.write_text(before + START + table(verdicts) + END + after)
    elif f"transformers {transformers.__version__}:" in stated:
        assert table(verdicts) == stated
