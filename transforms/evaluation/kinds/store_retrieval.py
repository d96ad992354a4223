"""Retrieval from a store: the cost of its index, precision and truncation beside exact search."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.evaluation.evidence import ALL, Evidence
from sentence_beam.transforms.evaluation.kinds.judgements import (
    DEPTH,
    DROP,
    Judgements,
    check_finite,
    collect_evidence,
    read_judgements,
)
from sentence_beam.transforms.evaluation.task import Predictions
from sentence_beam.transforms.index.exact import exact_search
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric, prepare_vectors
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.space.recipe import Recipe
from sentence_beam.transforms.space.st_modules import QUERY
from sentence_beam.transforms.store import Store, open_store
from sentence_beam.transforms.store.int8_models import read_kept_int8

POOLED = "pooled"
EXACT = "exact"
INDEX = "index"
BYTES = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "uint8": 1.0}  # of a component


@dataclass(frozen=True)
class StoreRetrieval:
    """Judged queries whose documents are the rows of a store; the nearest 100 rows count.

    A store is searched by its own metric and by up to three methods: `pooled` compares with every
    row as the pooler made it, if a calibration, a truncation or a precision changed it; `exact`
    with every row as it is stored; `index` searches the index. If a document is several rows, its
    best one counts.
    """

    name: str
    store: Store
    judgements: Judgements
    kind: str = "retrieval"

    @classmethod
    def read(
        cls, name: str, store: str, queries: str, qrels: str, same_ids: str = DROP
    ) -> "StoreRetrieval":
        """Read a store, a file of queries and a file of judgements."""
        return cls(name, open_store(store), read_judgements(queries, qrels, same_ids))

    @cached_property
    def notes(self) -> list[str]:
        wanted = pa.array(sorted(self.judgements.documents), pa.string())
        known_ids: set[str] = set()
        for batch in self.store.dataset().to_batches(columns=["id"]):
            ids = batch.column("id")
            known_ids.update(ids.filter(pc.is_in(ids, wanted)).to_pylist())
        return self.judgements.notes(known_ids)

    @property
    def methods(self) -> list[str]:
        """The names of the methods that this store has."""
        methods = []
        if "pooled" in self.store.dataset().schema.names:
            methods.append(POOLED)
        methods.append(EXACT)
        if self.store.manifest.index is not None:
            methods.append(INDEX)
        return methods

    def predict(self, method: str) -> Predictions:
        """Return the measures of each query by one method, and its queries per second."""
        started = time.monotonic()
        rankings = self._search_pooled() if method == POOLED else self._search(method == EXACT)
        took = max(time.monotonic() - started, 1e-9)
        return {
            **self.judgements.measured(rankings),
            f"{ALL}/queries_s": np.array(len(rankings) / took),
        }

    def evidence(self, predictions: list[Predictions]) -> dict[str, Evidence]:
        """Return the measures of all methods."""
        return collect_evidence(predictions)

    def dim(self, method: str) -> int:
        """Return the width of the vectors that a method compares."""
        if method == POOLED:
            return int(self.store.dataset().schema.field("pooled").type.list_size)
        return self.store.space.dim

    def count_row_bytes(self, method: str) -> float:
        """Return the bytes of a row's vector, in the shards or in the index."""
        index = self.store.manifest.index
        if method == INDEX and index is not None:
            rows = sum(segment.rows for segment in index.segments)
            return sum(segment.bytes for segment in index.segments) / max(1, rows)
        if method == POOLED:
            return 4.0 * self.dim(method)
        return BYTES.get(self.store.space.precision, 1 / 8) * self.dim(method)

    def _search(self, exact: bool) -> list[list[str]]:
        searcher = Searcher(self.store.manifest)
        rankings = []
        for hits in searcher.search(self.judgements.texts, 2 * DEPTH, exact=exact, width=0):
            check_finite(np.array([[hit["score"] for hit in hits]]), self.name)
            rankings.append(_list_ids(sorted(hits, key=lambda hit: hit["rank"])))
        return rankings

    def _search_pooled(self) -> list[list[str]]:
        recipe = Recipe.from_options(self.store.manifest.options.to_json())
        prompt = Searcher(self.store.manifest).queries.prompt or ""
        plain = replace(
            recipe,
            prompt=prompt,
            prompt_name=None,
            calibration="",
            truncate_dim=None,
            precision="float32",
        )
        from sentence_beam.transforms.encoder import (
            Encoder,  # loads torch, which reading tasks does not need
        )

        int8 = read_kept_int8(self.store.root, self.store.space)
        encoder = Encoder.from_recipe(replace(plain, normalize=False), int8=int8)
        metric = self.store.manifest.metric
        queries = prepare_vectors(encoder.encode(self.judgements.texts, route=QUERY), metric)

        def blocks() -> Iterator[tuple[np.ndarray, int]]:
            start = 0
            for batch in self.store.dataset().to_batches(columns=["pooled"]):
                yield prepare_vectors(as_matrix(batch.column("pooled")), metric), start
                start += batch.num_rows

        scores, rows = exact_search(blocks(), queries, 2 * DEPTH, choose_scoring_metric(metric))
        check_finite(scores, self.name)
        ids = self._read_ids(np.unique(rows[rows >= 0]))
        return [_list_ids([{"id": ids[at]} for at in row if at >= 0]) for row in rows.tolist()]

    def _read_ids(self, rows: np.ndarray) -> dict[int, str]:
        """Return the ids of some rows of the store, ascending, by row; few are in memory."""
        ids: dict[int, str] = {}
        start = 0
        for batch in self.store.dataset().to_batches(columns=["id"]):
            mine = rows[(rows >= start) & (rows < start + batch.num_rows)]
            names = batch.column("id").take(pa.array(mine - start)).to_pylist()
            ids.update(zip(mine.tolist(), names, strict=True))
            start += batch.num_rows
        return ids


def _list_ids(hits: list[dict]) -> list[str]:
    """Return the ids of the documents among rows, best first."""
    return list(dict.fromkeys(str(hit["id"]) for hit in hits))
