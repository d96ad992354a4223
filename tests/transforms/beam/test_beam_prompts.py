"""A model's prompts in pipelines: every transform embeds rows, as encode_document does."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.ml.inference.base import RunInference
from apache_beam.ml.transforms.base import MLTransform
from helpers import eager
from helpers.corpora import vectors_of
from helpers.prompted import GEMMA, reference, save_prompted

import sentence_beam as sb

TEXTS = ["a man is playing", "dog", "the red apple"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_prompted(tmp_path_factory.mktemp("models") / "own", GEMMA, "STS")


def embed_rows(folder: Path, place: Path, said: dict[str, Any]) -> dict[str, Any]:
    step = sb.EmbedRows(str(folder), dtype="float32", **said)
    assert step.space.prompt == said.get("prompt", "a cat ")
    rows = eager.outputs(step, [{"text": text} for text in TEXTS], names=("rows",))["rows"]
    return {row["text"]: row["embedding"] for row in rows}


def run_inference(folder: Path, place: Path, said: dict[str, Any]) -> dict[str, Any]:
    handler = sb.EncoderModelHandler(str(folder), dtype="float32", **said)
    return {made.example: made.inference for made in eager.run(RunInference(handler), TEXTS)}


def ml_transform(folder: Path, place: Path, said: dict[str, Any]) -> dict[str, Any]:
    step = sb.TextEmbeddings(str(folder), columns=["text"], dtype="float32", **said)
    made = MLTransform(write_artifact_location=str(place / "artifact")).with_transform(step)
    rows = [{"id": text, "text": text} for text in TEXTS]
    return {row["id"]: row["text"] for row in eager.run(made, rows)}


def write_store(folder: Path, place: Path, said: dict[str, Any]) -> dict[str, Any]:
    store = str(place / "store")
    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([{"id": text, "text": text} for text in TEXTS])
        _ = rows | sb.WriteStore(
            store, id="id", text="text", model=str(folder), dtype="float32", **said
        )
    return vectors_of(Path(store))


@pytest.mark.usefixtures("plain_beam")
@pytest.mark.parametrize("said", [{}, {"prompt": ""}], ids=["own", "given"])
@pytest.mark.parametrize("embed", [embed_rows, run_inference, ml_transform, write_store])
def test_rows_have_the_models_prompt_for_documents(
    folder: Path, tmp_path: Path, embed: Any, said: dict[str, str]
) -> None:
    found = embed(folder, tmp_path, said)
    model = reference(folder)
    expected = model.encode(TEXTS, **said) if said else model.encode_document(TEXTS)
    np.testing.assert_allclose([found[text] for text in TEXTS], expected, rtol=0, atol=2e-5)
