"""Predictions of methods: the prompts of their texts; vectors that are not finite are refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.prompted import GEMMA, reference, save_prompted, set_prompts

from sentence_beam.transforms.base.errors import SentenceBeamError, SpaceMismatchError
from sentence_beam.transforms.evaluation.encode_many import Encoded
from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions
from sentence_beam.transforms.evaluation.evaluation_plan import make_plan
from sentence_beam.transforms.evaluation.predict import check_finite, predict_tasks
from sentence_beam.transforms.evaluation.prediction_cache import Cache
from sentence_beam.transforms.evaluation.task import Predictions, TaskVectors
from sentence_beam.transforms.space import AUTO


@dataclass(frozen=True)
class Seen:
    """A task that keeps the vectors of its texts and queries."""

    name: str
    texts: tuple[str, ...]
    queries: tuple[str, ...] = ()
    kind: str = "seen"
    notes: tuple[str, ...] = ()

    def predict(self, vectors: TaskVectors) -> Predictions:
        found = {"texts": vectors.lookup(self.texts)}
        if self.queries:
            found["queries"] = vectors.lookup_queries(self.queries)
        return found

    def evidence(self, predictions: Any) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        (GEMMA, None),
        (GEMMA, "STS"),
        ({"document": "a cat "}, None),
        ({"query": "a cat "}, None),
        ({"query": "a cat ", "document": "a cat "}, None),
        ({"query": "a cat ", "document": ""}, "query"),
    ],
)
def test_texts_of_searches_have_their_prompts_and_others_the_default_one(
    tmp_path: Path, prompts: dict[str, str], default: str | None
) -> None:
    folder = save_prompted(tmp_path / "own", prompts, default)
    pairs = Seen("pairs", ("the big red apple", "dog"))
    search = Seen("search", ("dog", "horse", "the man"), ("horse", "the red apple"))
    plan = make_plan(EvaluateOptions(model=str(folder), poolers=("auto", "max")))
    predictions: list[dict[Any, Predictions]] = [{}, {}]
    predict_tasks(plan, [pairs, search], Cache(None), predictions)
    method = plan.vector_methods[0]
    assert len(plan.vector_methods) == 2
    model = reference(folder)
    for found, expected in (
        (predictions[0][method]["texts"], model.encode(pairs.texts)),
        (predictions[1][method]["texts"], model.encode_document(search.texts)),
        (predictions[1][method]["queries"], model.encode_query(search.queries)),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_a_calibration_of_rows_serves_a_model_with_a_prompt_for_documents(
    run: Run, tmp_path: Path
) -> None:
    folder = save_prompted(tmp_path / "own", GEMMA)
    path = write_parquet(tmp_path / "in.parquet", sentences(40))
    store, fitted = tmp_path / "store", tmp_path / "fitted"
    made = ("--model", folder, "--dtype", "float32")
    run("embed", "--input", path, "--store", store, *made).ok()
    run("fit", "--store", store, "--method", "standardize", "--output", fitted).ok()
    plan = make_plan(EvaluateOptions(model=str(folder), calibrations=(str(fitted),)))
    assert [method.calibration for method in plan.vector_methods] == [None, str(fitted)]
    run("diagnose", "--input", path, *made[:2], "--calibration", fitted).ok()
    set_prompts(folder, {"document": "the red dog "})
    with pytest.raises(SpaceMismatchError, match="prompt differ"):
        make_plan(EvaluateOptions(model=str(folder), calibrations=(str(fitted),)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_named_by_its_text(value: float) -> None:
    rows = np.ones((4, 3), np.float32)
    texts = {f"text {number}": number for number in range(4)}
    check_finite(Encoded("mean", rows, 1.0), texts)
    rows[2, 1] = rows[3, 0] = value
    with pytest.raises(
        SentenceBeamError, match=r"pooler mean: .*text 2.* \(2 of 4 .*dtype float32"
    ):
        check_finite(Encoded("mean", rows, 1.0), texts)


def test_given_prompts_precede_documents_and_queries(tmp_path: Path) -> None:
    folder = save_prompted(tmp_path / "own", GEMMA)

    def spaces(**prompts: str) -> list[str]:
        plan = make_plan(EvaluateOptions(model=str(folder), **prompts))
        models = (plan.model, plan.documents or plan.model, plan.queries or plan.model)
        return [model.space(AUTO).prompt for model in models]

    assert spaces() == ["", GEMMA["document"], GEMMA["query"]]
    assert spaces(prompt="the man ") == ["the man ", "the man ", GEMMA["query"]]
    assert spaces(prompt="", query_prompt="the big ") == ["", "", "the big "]
    assert spaces(prompt="a cat ", query_prompt="a cat ") == ["a cat "] * 3
