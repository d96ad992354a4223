"""Beam's own classes with the encoder in them: RunInference, MLTransform, its rag types, its
YAML.
"""

import shutil
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.ml.rag.embeddings.base import create_text_adapter
from apache_beam.ml.rag.types import EmbeddableItem
from apache_beam.ml.transforms.base import MLTransform
from helpers import eager
from helpers.tiny_models import save_tiny_model

import sentence_beam as sb

RECIPES = Path(__file__).resolve().parents[3] / "docs" / "recipes"
TEXTS = ["a man is playing", "dog", "the red apple"]
ROWS = [{"id": n, "text": text} for n, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def expected(model: Path) -> np.ndarray:
    return sb.Encoder.load(str(model), dtype="float32", device="cpu", pooler="max").encode(TEXTS)


def embeddings(model: Path, **said: Any) -> sb.TextEmbeddings:
    return sb.TextEmbeddings(str(model), dtype="float32", pooler="max", **said)


def check(rows: list[dict[str, Any]], expected: np.ndarray) -> None:
    assert sorted(row["id"] for row in rows) == [0, 1, 2]
    for row in rows:
        assert isinstance(row["text"], list)
        np.testing.assert_allclose(row["text"], expected[row["id"]], rtol=0, atol=2e-5)


def test_run_inference_gives_texts_with_their_vectors(model: Path, expected: np.ndarray) -> None:
    handler = sb.EncoderModelHandler(str(model), dtype="float32", pooler="max", min_batch_size=2)
    found = {result.example: result for result in eager.run(RunInference(handler), TEXTS)}
    np.testing.assert_allclose(
        [found[text].inference for text in TEXTS], expected, rtol=0, atol=2e-5
    )
    assert found["dog"].inference.dtype == np.float32
    assert found["dog"].model_id == sb.EmbedRows(str(model), dtype="float32", pooler="max").space.id


def test_an_artifact_of_ml_transform_is_read_again(
    model: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    place = str(tmp_path / "artifact")
    written = MLTransform(write_artifact_location=place).with_transform(
        embeddings(model, columns=["text"])
    )
    check(eager.run(written, ROWS), expected)
    check(eager.run(MLTransform(read_artifact_location=place), ROWS), expected)


def test_an_artifact_knows_another_model(model: Path, tmp_path: Path) -> None:
    mine, place = shutil.copytree(model, tmp_path / "model"), str(tmp_path / "artifact")
    eager.run(
        MLTransform(write_artifact_location=place).with_transform(
            embeddings(mine, columns=["text"])
        ),
        ROWS,
    )
    shutil.rmtree(mine)
    save_tiny_model("bert", mine, initializer_range=0.2)
    with pytest.raises(Exception, match=r"makes another space than the run's \(weights differ\)"):
        eager.run(MLTransform(read_artifact_location=place), ROWS)


def test_items_of_rag_get_their_embedding(
    model: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    items = [EmbeddableItem.from_text(text, id=str(n)) for n, text in enumerate(TEXTS)]
    adapted = embeddings(model, type_adapter=create_text_adapter())
    found = eager.run(
        MLTransform(write_artifact_location=str(tmp_path / "a")).with_transform(adapted), items
    )
    for item in found:
        np.testing.assert_allclose(item.dense_embedding, expected[int(item.id)], rtol=0, atol=2e-5)
    assert len(found) == 3


BAD = [
    ("", "empty text"),
    (" \n\u2003", "empty text"),
    (None, "null text"),
    (5, "text is not a string"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_text_that_embed_rows_rejects_fails_with_the_same_reason(
    model: Path, expected: np.ndarray, tmp_path: Path, bad: Any, reason: str
) -> None:
    rejected = eager.outputs(
        sb.EmbedRows(str(model), dtype="float32"), [{"text": bad}], names=("rejected",)
    )
    assert rejected["rejected"] == [{"text": bad, "reason": reason}]
    handler = sb.EncoderModelHandler(str(model), dtype="float32", pooler="max")
    with pytest.raises(sb.OptionError, match=rf"1 of 4 texts .*\({reason}\)"):
        handler.run_inference([*TEXTS, bad], handler.load_model())
    transform = MLTransform(write_artifact_location=str(tmp_path / "a")).with_transform(
        embeddings(model, columns=["text"], min_batch_size=4)
    )
    rows = [{"id": 3, "text": bad}, *ROWS]
    with pytest.raises(sb.OptionError, match=reason):
        eager.run(transform, rows)

    def handled(items: Any) -> dict[str, Any]:
        again = MLTransform(read_artifact_location=str(tmp_path / "a"))
        good, failed = items | again.with_exception_handling()
        return {"good": good, "failed": failed}

    found = eager.outputs(beam.ptransform_fn(handled)(), rows, names=("good", "failed"))
    check(found["good"], expected)
    (failed,) = found["failed"]
    assert failed.element == rows[0]
    assert reason in failed.msg


def test_keys_stay_beside_texts(model: Path, expected: np.ndarray) -> None:
    handler = sb.EncoderModelHandler(str(model), dtype="float32", pooler="max")
    found = dict(eager.run(RunInference(KeyedModelHandler(handler)), list(enumerate(TEXTS))))
    for place, vector in enumerate(expected):
        np.testing.assert_allclose(found[place].inference, vector, rtol=0, atol=2e-5)


def test_options_are_checked_at_once(model: Path) -> None:
    with pytest.raises(sb.OptionError, match="pooler 'meen' is not known"):
        sb.TextEmbeddings(str(model), columns=["text"], pooler="meen")
    with pytest.raises(sb.OptionError, match="nowhere"):
        sb.EncoderModelHandler("nowhere/at-all")


@pytest.mark.slow
def test_the_pipeline_in_yaml(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docstring_parser", reason="Beam's extra yaml is not installed")
    from apache_beam.yaml import main

    monkeypatch.chdir(tmp_path)
    text = (RECIPES / "embed-rows.yaml").read_text()
    Path("embed-rows.yaml").write_text(text.replace("model: minilm", f"model: {model}"))
    shutil.copy(RECIPES / "providers.yaml", "providers.yaml")
    Path("reviews").mkdir()
    pq.write_table(pa.table({"id": ["a", "b"], "body": ["dog", None]}), "reviews/a.parquet")
    main.run(["--yaml_pipeline_file=embed-rows.yaml", "--runner=FnApiRunner"])
    (row,) = pq.read_table("vectors").to_pylist()
    assert (row["id"], row["body"], row["tokens"]) == ("a", "dog", 3)
    expected = sb.Encoder.load(str(model), dtype="float32", device="cpu").encode("dog")
    np.testing.assert_allclose(row["embedding"], expected, rtol=0, atol=2e-5)
    assert pq.read_table("rejected").to_pylist() == [
        {"id": "b", "body": None, "reason": "null text"}
    ]
