"""Retrieval: compare the vectors of queries with every document of a folder in BEIR's layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.evidence import Evidence
from sentence_beam.transforms.evaluation.kinds.judgements import (
    DEPTH,
    DROP,
    Judgements,
    check_finite,
    collect_evidence,
    read_judgements,
)
from sentence_beam.transforms.evaluation.task import Predictions, TaskVectors
from sentence_beam.transforms.index.exact import exact_search
from sentence_beam.transforms.index.metric_vectors import prepare_vectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

BLOCK_ROWS = 50_000


@dataclass(frozen=True)
class Retrieval:
    """Judged queries and documents; the nearest 100 documents by cosine count.

    Documents with equal scores are in the order of their ids.
    """

    name: str
    judgements: Judgements
    ids: list[str]
    documents: list[str]
    kind: str = "retrieval"

    @classmethod
    def read(cls, name: str, folder: str, same_ids: str = DROP) -> "Retrieval":
        """Read a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv."""
        corpus = storage.join(folder, "corpus.jsonl")
        queries = storage.join(folder, "queries.jsonl")
        qrels = storage.join(folder, "qrels", "test.tsv")
        judged = read_judgements(queries, qrels, same_ids)
        documents: dict[str, str] = {}
        for line, row in task_files.read_json_lines(corpus):
            key = row.get("_id")
            text = row.get("text")
            title = row.get("title") or ""
            if key is None or not isinstance(text, str) or str(key) in documents:
                raise task_files.make_line_error(corpus, line, "no text, or no _id of its own")
            documents[str(key)] = f"{title} {text}".strip()
        if not documents:
            raise OptionError(f"{cite('task')} {corpus} holds no document; check the file")
        ids = sorted(documents)
        return cls(name, judged, ids, [documents[key] for key in ids])

    @property
    def texts(self) -> list[str]:
        return self.documents

    @property
    def queries(self) -> list[str]:
        return self.judgements.texts

    @cached_property
    def notes(self) -> list[str]:
        return self.judgements.notes(set(self.ids))

    def predict(self, vectors: TaskVectors) -> Predictions:
        queries = _normalize(vectors.lookup_queries(self.queries))
        blocks = (
            (_normalize(vectors.lookup(self.documents[start : start + BLOCK_ROWS])), start)
            for start in range(0, len(self.documents), BLOCK_ROWS)
        )
        scores, nearest = exact_search(blocks, queries, DEPTH + 1, "ip")
        check_finite(scores, self.name)
        return {**self._measure(nearest.tolist()), "found": nearest.astype(np.int64)}

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Order the documents that the first method found by a cross-encoder's scores."""
        ranked = [[at for at in row if at >= 0] for row in first["found"].tolist()]
        queries = [text for text, row in zip(self.queries, ranked, strict=True) for _ in row]
        scores = scorer.scores(queries, [self.documents[at] for row in ranked for at in row])
        ends = np.cumsum([len(row) for row in ranked])
        orders = [np.argsort(-part, kind="stable") for part in np.split(scores, ends[:-1])]
        return self._measure(
            [[row[at] for at in order] for row, order in zip(ranked, orders, strict=True)]
        )

    def _measure(self, ranked: Sequence[Sequence[int]]) -> Predictions:
        """Return the measures of each query from places of documents, best first; -1 is none."""
        return self.judgements.measured([[self.ids[at] for at in row if at >= 0] for row in ranked])

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return collect_evidence(predictions)


def _normalize(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors as float32 at length 1; those without a direction stay unchanged."""
    return prepare_vectors(np.ascontiguousarray(vectors, np.float32), "cosine")
