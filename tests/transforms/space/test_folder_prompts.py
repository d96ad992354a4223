"""Prompts of a model's folder: rows and queries get those of sentence-transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.corpora import sentences
from helpers.prompted import GEMMA, reference, save_prompted

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import resolve_model

FOLDER: dict[str, tuple[dict[str, str | None], str | None]] = {
    "both": (GEMMA, None),
    "a default for all": (GEMMA, "STS"),
    "query alone": ({"query": "the red dog "}, None),
    "document alone": ({"document": "a cat "}, "document"),
    "empty document": ({"query": "the red dog ", "document": ""}, "query"),
    "null": ({"query": None, "document": None, "passage": "a cat "}, None),
    "passage": ({"query": "the red dog ", "passage": "a cat "}, "passage"),
    "corpus before passage": ({"corpus": "the man ", "passage": "a cat "}, None),
    "document after passage": ({"passage": "the man ", "document": "a cat "}, None),
    "none": ({}, None),
}
TEXTS = sentences(3)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("case", FOLDER)
def test_rows_and_queries_have_the_prompts_of_encode_document_and_encode_query(
    tmp_path: Path, case: str
) -> None:
    folder = save_prompted(tmp_path / "own", *FOLDER[case])
    model = reference(folder)
    encoder = Encoder.load(str(folder), dtype="float32")
    modules = resolve_model(str(folder)).modules
    same(encoder.encode(TEXTS), model.encode(TEXTS))
    same(model.encode(TEXTS, prompt=modules.document_prompt), model.encode_document(TEXTS))
    same(model.encode(TEXTS, prompt=modules.query_prompt or ""), model.encode_query(TEXTS))
