"""Scores of made-up evidence: averages, the best method by `dev`, scores that are undefined."""

from typing import Any

import numpy as np

from sentence_beam.transforms.evaluation.compared_methods import Method
from sentence_beam.transforms.evaluation.correlations import Correlations
from sentence_beam.transforms.evaluation.evidence import Means
from sentence_beam.transforms.evaluation.score_rows import (
    average_tasks,
    find_best_by_dev,
    note_undefined,
    score_task,
)

MEAN, CLS = Method("mean", None, 24), Method("cls", "whitened", 8)


def rows_of(task: str, *values: list[float]) -> list[dict[str, Any]]:
    """The rows of methods that were right about some items of a task."""
    predictions = {MEAN: {}, CLS: {}}
    return score_task(task, "pairs", {"accuracy": Means(np.array(values))}, predictions)[0]


def test_the_best_by_dev_is_named_with_its_other_scores() -> None:
    dev, one = rows_of("dev", [1, 0, 0, 0], [1, 1, 0, 0]), rows_of("one", [1, 1], [1, 0])
    assert find_best_by_dev([*dev, *one]) == (
        "best by dev of 2: cls, whitened, 8 dims: dev 50.00; one 50.00"
    )
    assert find_best_by_dev(one) is None
    assert find_best_by_dev([row for row in (*dev, *one) if row["pooler"] == "mean"]) is None


def test_the_average_is_of_tasks_and_names_the_first_method() -> None:
    evidence = [Means(np.array([[1.0, 0], [0, 0]])), Means(np.array([[1.0, 1], [0, 1]]))]
    predictions = {MEAN: {}, CLS: {}}
    draws = [
        score_task(str(n), "pairs", {"a": each}, predictions)[1] for n, each in enumerate(evidence)
    ]
    first, second = average_tasks("pairs", "a", draws, [MEAN, CLS], 4)
    assert (first["task"], first["subset"], first["n"]) == ("Avg.", "all", 4)
    assert (first["score"], first["against"], first["diff"]) == (75, None, None)
    assert (second["score"], second["against"], second["diff"]) == (25, "mean, 24 dims", -50)


def test_undefined_scores_are_a_note_a_task() -> None:
    gold, values = np.array([1.0, 1, 1, 2, 3, 1]), np.arange(6.0)[None]
    for subsets, said in (
        ((("flat", 3), ("good", 3)), " in flat, left out of mean and wmean"),
        ((("flat", 3),), ""),
    ):
        count = sum(size for _, size in subsets)
        evidence = Correlations(values[:, :count], gold[:count], subsets)
        rows, _ = score_task("t", "sts", {"spearman": evidence}, {MEAN: {}})
        note = f"t: spearman is undefined{said} (1 method): all scores are equal"
        assert note_undefined(rows) == [note]
    assert note_undefined(rows_of("t", [1, 0], [0, 1])) == []
