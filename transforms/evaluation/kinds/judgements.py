"""Judged searches: queries, the documents that answer them, and measures of the results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base.errors import (
    OptionError,
    SentenceBeamError,
    cite,
)
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.evidence import Evidence, Means
from sentence_beam.transforms.evaluation.task import Predictions, quote_texts

DEPTH = 100
SAME_IDS = "same-ids"  # what to do with a document that has the id of the query
DROP = "drop"
KEEP = "keep"
MEASURES = {"ndcg@10": "nDCG@10", "recall@100": "R@100", "mrr@10": "RR@10", "map@100": "AP"}


@dataclass(frozen=True)
class Judgements:
    """Judged queries: their ids and texts, and for each the grades of documents by id.

    A document with the query's own id is dropped from the results, as BEIR and MTEB do, unless
    `same_ids` is "keep": in some collections the queries are documents too.
    """

    ids: list[str]
    texts: list[str]
    grades: list[dict[str, int]]
    same_ids: str = DROP

    @property
    def unanswered(self) -> list[str]:
        """The ids of queries without a relevant document."""
        return [
            name
            for name, grades in zip(self.ids, self.grades, strict=True)
            if max(grades.values()) <= 0
        ]

    @property
    def documents(self) -> set[str]:
        """The ids that `notes` looks for among the documents: judged ones, and those of queries."""
        return {*self.ids, *(name for grades in self.grades for name in grades)}

    def notes(self, documents: set[str]) -> list[str]:
        """Return notes on the data, given which of `documents` can be found."""
        notes = []
        if self.unanswered:
            count = len(self.unanswered)
            notes.append(
                f"{count} queries have no relevant document and count 0:"
                f" {quote_texts(self.unanswered)}"
            )
        lost = [
            doc
            for grades in self.grades
            for doc, grade in grades.items()
            if grade > 0 and doc not in documents
        ]
        if lost:
            notes.append(
                f"{len(lost)} relevant documents are not in the corpus and are never found:"
                f" {quote_texts(lost)}"
            )
        same = [name for name in self.ids if name in documents]
        if same and self.same_ids == DROP:
            number = format_count(
                len(same), "query has a document of its id", "queries have a document of their id"
            )
            kept = f"{SAME_IDS}={KEEP} keeps it"
            notes.append(
                f"{number}, dropped from the results as in BEIR ({kept}): {quote_texts(same)}"
            )
        return notes

    def measured(self, rankings: Sequence[Sequence[str]]) -> Predictions:
        """Return the measures of each query, float64 [queries], from ids of documents, best first.

        The ids have no ties. Of the documents that are not dropped, the first 100 count.
        """
        import ir_measures

        rankings = [
            self._select_counting(name, ids) for name, ids in zip(self.ids, rankings, strict=True)
        ]
        names = {str(place): place for place in range(len(self.ids))}
        qrels = [
            ir_measures.Qrel(name, doc, grade)
            for name, at in names.items()
            for doc, grade in self.grades[at].items()
        ]
        run = [
            ir_measures.ScoredDoc(name, doc, float(len(rankings[at]) - rank))
            for name, at in names.items()
            for rank, doc in enumerate(rankings[at])
        ]
        measures = {ir_measures.parse_measure(word): metric for metric, word in MEASURES.items()}
        values = {metric: np.zeros(len(self.ids)) for metric in MEASURES}
        for value in ir_measures.iter_calc(list(measures), qrels, run):
            values[measures[value.measure]][names[value.query_id]] = value.value
        return values

    def _select_counting(self, query: str, ranking: Sequence[str]) -> list[str]:
        """Return the documents found for a query that count."""
        if self.same_ids == DROP:
            ranking = [name for name in ranking if name != query]
        return list(ranking[:DEPTH])


def read_judgements(queries: str, qrels: str, same_ids: str) -> Judgements:
    """Read the queries that a file of relevance judgements judges.

    Queries are JSON lines with _id and text; judgements have query-id, corpus-id and score.
    """
    require_package("ir_measures", "evaluate", "retrieval")
    texts = {}
    for line, row in task_files.read_json_lines(queries):
        name = row.get("_id")
        text = row.get("text")
        if name is None or not isinstance(text, str):
            raise task_files.make_line_error(queries, line, "no _id and text")
        texts[str(name)] = text
    grades: dict[str, dict[str, int]] = {}
    for place, (query, document, score) in task_files.read_table(
        qrels, ("query-id", "corpus-id", "score")
    ):
        grade = task_files.parse_number(qrels, place, score)
        if grade != int(grade):
            raise task_files.make_line_error(qrels, place, f"score {score} is no whole number")
        if query not in texts:
            raise task_files.make_line_error(qrels, place, f"query {query!r} is not in {queries}")
        grades.setdefault(query, {})[document] = int(grade)
    if not grades:
        raise OptionError(f"{cite('task')} {qrels} judges no query; check the file")
    return Judgements(
        list(grades), [texts[name] for name in grades], list(grades.values()), same_ids
    )


def check_finite(scores: np.ndarray, what: str) -> None:
    """Raise SentenceBeamError if one of the scores [q, k] is NaN."""
    bad = np.flatnonzero(np.isnan(scores).any(axis=1))
    if bad.size:
        raise SentenceBeamError(
            f"{what}: the scores of query {bad[0] + 1} are not finite; its vectors are of no use"
        )


def collect_evidence(predictions: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Evidence]:
    """Return the queries' measures of all methods, for each metric."""
    return {
        metric: Means(np.stack([prediction[metric] for prediction in predictions]))
        for metric in MEASURES
    }
