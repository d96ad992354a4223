"""Judged searches: measures of ranked lists in closed form, and documents that do not count."""

from math import log2

import numpy as np
import pytest

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.evaluation.evidence import ALL
from sentence_beam.transforms.evaluation.kinds.judgements import (
    DEPTH,
    KEEP,
    Judgements,
    check_finite,
    collect_evidence,
)

pytest.importorskip("ir_measures", reason="the extra evaluate is not installed")


def judged(*grades: dict[str, int], same_ids: str = "drop") -> Judgements:
    """Queries q0, q1, ... and the grades of their documents."""
    ids = [f"q{place}" for place in range(len(grades))]
    return Judgements(ids, [f"text {name}" for name in ids], list(grades), same_ids)


@pytest.mark.parametrize("rank", [1, 2, 7, 10])
def test_one_relevant_document(rank: int) -> None:
    found = [[*(f"wrong{place}" for place in range(rank - 1)), "right", "more"]]
    measures = judged({"right": 1}).measured(found)
    assert measures["ndcg@10"] == pytest.approx([1 / log2(rank + 1)])
    assert measures["mrr@10"] == pytest.approx([1 / rank])
    assert measures["map@100"] == pytest.approx([1 / rank])
    assert measures["recall@100"].tolist() == [1]


def test_a_document_below_the_depth_of_a_measure() -> None:
    found = [[*(f"wrong{place}" for place in range(10)), "right"]]
    measures = judged({"right": 1}).measured(found)
    assert (measures["ndcg@10"], measures["mrr@10"]) == ([0], [0])
    assert measures["map@100"] == pytest.approx([1 / 11])
    far = [[*(f"wrong{place}" for place in range(DEPTH)), "right"]]
    assert {name: value.tolist() for name, value in judged({"right": 1}).measured(far).items()} == {
        name: [0] for name in measures
    }


def test_grades_count_in_ndcg() -> None:
    measures = judged({"best": 3, "good": 1}).measured([["good", "best"]])
    ideal = 3 / log2(2) + 1 / log2(3)
    assert measures["ndcg@10"] == pytest.approx([(1 / log2(2) + 3 / log2(3)) / ideal])


def test_queries_are_measured_alone_and_one_without_an_answer_counts_zero() -> None:
    queries = judged({"a": 1}, {"a": 0}, {"a": 1, "b": 1})
    measures = queries.measured([["a"], ["a"], ["c", "a"]])
    assert measures["mrr@10"] == pytest.approx([1, 0, 0.5])
    assert measures["recall@100"] == pytest.approx([1, 0, 0.5])
    assert queries.unanswered == ["q1"]
    scores = collect_evidence([measures, queries.measured([["b"], ["b"], ["a", "b"]])])
    assert scores["mrr@10"].scores()[ALL] == pytest.approx([0.5, 1 / 3])


def test_a_document_with_the_querys_own_id_is_dropped_unless_it_is_to_be_kept() -> None:
    found = [["q0", "right"]]
    assert judged({"right": 1}).measured(found)["mrr@10"].tolist() == [1]
    assert judged({"right": 1}, same_ids=KEEP).measured(found)["mrr@10"].tolist() == [0.5]


def test_what_is_noted_of_the_data() -> None:
    queries = judged({"a": 1}, {"a": 0}, {"lost": 2})
    unanswered, lost, same = queries.notes({"a", "q0"})
    assert "1 queries have no relevant document" in unanswered
    assert "'q1'" in unanswered
    assert "1 relevant documents are not in the corpus" in lost
    assert "'lost'" in lost
    assert "1 query has a document of its id" in same
    assert queries.documents == {"q0", "q1", "q2", "a", "lost"}
    assert judged({"a": 1}, same_ids=KEEP).notes({"a", "q0"}) == []


def test_scores_that_are_not_finite_name_their_query() -> None:
    scores = np.zeros((3, 2))
    check_finite(scores, "mean")
    scores[1, 1] = np.nan
    with pytest.raises(SentenceBeamError, match="mean: the scores of query 2 are not finite"):
        check_finite(scores, "mean")
