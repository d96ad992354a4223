"""Lines and curves of a training's record, spreads of seeds, the progress line, the dev tasks.

Covers transforms/training/dev.py.
Covers transforms/training/seeds.py.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from sentence_beam.transforms.evaluation.intervals import Belief
from sentence_beam.transforms.training import model_record as records
from sentence_beam.transforms.training import training_progress
from sentence_beam.transforms.training.dev import compute_metric, make_task, predict, score_alone
from sentence_beam.transforms.training.seeds import choose_best, measure_spread
from sentence_beam.transforms.training.trainer import make_curve, name_rows_with
from sentence_beam.transforms.training.training_examples import Examples, Source
from sentence_beam.transforms.training.training_progress import TrainingWatch
from sentence_beam.transforms.training.training_run import is_better

BEFORE = Belief(50.0, 40.0, 60.0)
AFTER = Belief(62.0, 55.0, 70.0, 12.0, 8.0, 16.0, 0.01)


def outcome(believed: tuple[Belief, Belief] | None) -> records.TrainingOutcome:
    return records.TrainingOutcome(SimpleNamespace(), "spearman", believed)


def test_the_dev_line_has_score_start_and_difference() -> None:
    record = {"dev": records.make_dev_record(outcome((BEFORE, AFTER))), "best_step": 1200}
    assert records.describe_dev(record) == (
        "spearman 62.00 (55.00 to 70.00) at step 1,200; before 50.00 (40.00 to 60.00); difference"
        " +12.00 (+8.00 to +16.00)"
    )


def test_an_undefined_start_leaves_the_score_alone() -> None:
    before = Belief(None, None, None)
    record = {
        "dev": records.make_dev_record(outcome((before, Belief(62.0, None, None)))),
        "best_step": 5,
    }
    assert records.describe_dev(record) == "spearman 62.00 at step 5"
    assert (
        records.describe_dev(
            {"dev": records.make_dev_record(outcome((before, before))), "best_step": 5}
        )
        is None
    )
    assert records.describe_dev({"dev": records.make_dev_record(outcome(None))}) is None


def test_the_line_of_test_rows() -> None:
    test = {"metric": "accuracy", "score": 71.5, "low": 70.0, "high": 73.0}
    assert records.describe_test({"test": test}) == "accuracy 71.50 (70.00 to 73.00)"
    assert records.describe_test({"test": {**test, "score": None}}) is None
    assert records.describe_test({}) is None


def test_a_chart_for_each_curve_with_two_points() -> None:
    curve = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, {"step": 2, "dev": None}]
    assert [title for title, _ in records.draw_charts({"dev": None, "curve": curve})] == [
        "training loss"
    ]
    curve += [{"step": 2, "dev": 50.0}, {"step": 3, "dev": 60.0}]
    charts = records.draw_charts({"dev": {"metric": "accuracy"}, "curve": curve})
    assert [title for title, _ in charts] == ["training loss", "dev accuracy"]


def test_the_curve_of_the_trainers_log() -> None:
    history = [
        {"step": 1, "epoch": 0.12345, "loss": 2, "learning_rate": 1e-5},
        {"step": 2, "epoch": 0.25, "eval_dev": 61.23456789},
        {"step": 3, "epoch": 0.5, "eval_dev": math.nan},
        {"step": 3, "epoch": 0.5, "train_runtime": 9.0},
    ]
    assert make_curve(history) == [
        {"step": 1, "epoch": 0.1235, "loss": 2.0, "lr": 1e-5},
        {"step": 2, "epoch": 0.25, "dev": 61.234568},
        {"step": 3, "epoch": 0.5, "dev": None},
    ]


def test_spread_and_best_of_seeds() -> None:
    assert measure_spread([1.0, 3.0]) == {"mean": 2.0, "deviation": 2**0.5, "low": 1.0, "high": 3.0}
    assert measure_spread([1.0]) == {"mean": 1.0, "deviation": 0.0, "low": 1.0, "high": 1.0}
    assert measure_spread([1.0, None]) is None
    runs = [{"seed": 1, "dev": {"score": 5}}, {"seed": 2, "dev": {"score": 7}}, {"seed": 3}]
    assert choose_best(runs) == 2
    assert choose_best([{"seed": 1, "test": {"score": 5}}]) is None


def test_the_progress_line_and_the_best_score(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    said: list[str] = []
    monkeypatch.setattr(training_progress, "tell", lines.append)
    watching = TrainingWatch(said.append)
    watching.begin(10, 1010, 55.0)
    watching.loss(0.25)
    watching.scored(10, "spearman", 50.0)
    watching.scored(20, "spearman", 60.0)
    watching.step(11)
    watching.end()
    assert said == ["step 10: dev spearman 50.00", "step 20: dev spearman 60.00, the best so far"]
    assert lines[0].startswith("step 11 of 1,010, loss 0.2500, dev spearman 60.00, about ")
    assert lines[-1] == ""
    assert len(watching.times) == 2


def rows(**columns: list) -> Examples:
    """Rows of two files, the first of which has one row."""
    number = len(next(iter(columns.values())))
    sources = tuple(Source(name, f"{name}.tsv", "", {}, 1) for name in ("a", "b"))
    origin = [(0, 1), *((1, place) for place in range(1, number))]
    return Examples(sources, columns, origin)


def test_rows_of_a_batch_are_found_by_their_texts() -> None:
    found = rows(text1=["x", "y", "z"], text2=["p", "q", "r"], score=[1, 2, 3])
    assert (
        name_rows_with(found, [("z", "r"), ("x", "p", "mined")]) == "a.tsv, rows 1; b.tsv, rows 2"
    )
    assert name_rows_with(found, [("x", "q")]) == ""


VECTORS = {"x": (1, 0), "y": (0, 1), "x too": (0.9, 0.1), "y too": (0.2, 1)}


def encode(texts: list[str]) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts], np.float32)


def classify(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Label 1 for pairs that point the same way."""
    return (np.einsum("nd,nd->n", first, second) > 0.5).astype(np.int64)


@pytest.mark.parametrize(
    ("objective", "columns", "metric", "score"),
    [
        ("regression", {"text1": ["x", "x", "y"], "text2": ["x too", "y", "y too"], "score": [1.0, 0.0, 0.9]}, "spearman", 100.0),
        ("classification", {"text1": ["x", "x"], "text2": ["x too", "y"], "label": ["same", "same"]}, "accuracy", 50.0),
        ("triplet", {"anchor": ["x", "y"], "positive": ["x too", "x"], "negative": ["y", "y too"]}, "accuracy", 50.0),
        ("ranking", {"anchor": ["x", "y"], "positive": ["x too", "y too"]}, "ndcg@10", 100.0),
    ],
)  # fmt: skip
def test_the_dev_score_of_each_objective(
    objective: str, columns: dict, metric: str, score: float
) -> None:
    if objective == "ranking":
        pytest.importorskip("ir_measures")
    task = make_task(rows(**columns), objective, ("other", "same"), classify)
    predictions = predict(task, encode)
    assert compute_metric(task, predictions) == (metric, pytest.approx(score))
    alone = score_alone(task, predictions)
    assert (alone["metric"], alone["score"]) == (metric, pytest.approx(score))
    assert not is_better(task, predictions, predictions)


def test_a_defined_score_is_better_than_an_undefined_one() -> None:
    columns = {"text1": ["x", "y", "x"], "text2": ["x too", "x", "y too"], "score": [1.0, 0.0, 0.5]}
    task = make_task(rows(**columns), "regression", (), classify)
    good = predict(task, encode)
    flat = predict(task, lambda texts: np.ones((len(texts), 2), np.float32))
    assert is_better(task, flat, good)
    assert not is_better(task, good, flat)
    assert not is_better(task, flat, flat)
