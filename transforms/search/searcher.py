"""A snapshot opened for search: the nearest rows of texts, by its index or exactly."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow.compute as pc

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.values import FOLDS, StrPath
from sentence_beam.transforms.base.where import parse_filter
from sentence_beam.transforms.index.exact import gains_to_scores
from sentence_beam.transforms.index.metric_vectors import (
    as_vectors,
    choose_scoring_metric,
    prepare_vectors,
)
from sentence_beam.transforms.search.hits import Hit, Hits, join_hits, make_no_hits
from sentence_beam.transforms.search.opened import COPY_ALL, Copies, SnapshotIndex
from sentence_beam.transforms.search.query_vectors import QueryEncoder
from sentence_beam.transforms.search.rerank import RERANKED, rerank_hits
from sentence_beam.transforms.search.snapshot_rows import SnapshotRows, StoredRows, find_exact_rows
from sentence_beam.transforms.search.ties import find_best_by_id
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.matches import Matches, matches

if TYPE_CHECKING:
    # it imports torch, which a search by vectors does not need
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

PIECES_FOR_ONE = 4  # pieces requested at first for each document
PASSAGE = 400  # characters
Where: TypeAlias = str | pc.Expression | None


class UnknownIdError(OptionError):
    """No row has the id."""


@dataclass(frozen=True)
class _Request:
    """The number of rows to find, exactly or by the index, among the rows that match a filter."""

    k: int
    exact: bool
    matches: Matches | None


class Searcher:
    """A snapshot opened for search; model and index are loaded when first needed.

    `model` is the path of the snapshot's model on this machine, if not the path that the store was
    written with. `query_prompt` precedes each query; None means the prompt that the store
    remembers, else the model's own. `alone` is true if this process does nothing else. `copies` are
    those of the index of a remote store.
    """

    def __init__(
        self,
        manifest: Manifest,
        model: str | None = None,
        query_prompt: str | None = None,
        alone: bool = False,
        *,
        queries: QueryEncoder | None = None,
        copies: Copies = COPY_ALL,
    ):
        self.manifest = manifest
        self.queries = queries or QueryEncoder(manifest, model, query_prompt, alone)
        self.index = SnapshotIndex(manifest, copies)
        self._copies = copies
        self.rows = SnapshotRows(manifest)
        self._matches: Matches | None = None
        self._scorer: PairScorer | None = None

    def of(self, manifest: Manifest) -> "Searcher":
        """Open another snapshot in the same way; both hold what is the same in them once."""
        return Searcher(manifest, queries=self.queries.of(manifest), copies=self._copies)

    def search(
        self,
        texts: Sequence[str] | None = None,
        k: int = 10,
        *,
        ids: Sequence[str] | None = None,
        vectors: np.ndarray | None = None,
        exact: bool = False,
        fold: str = "best",
        width: int = PASSAGE,
        where: Where = None,
        min_score: float | None = None,
        rerank: StrPath | None = None,
    ) -> list[list[Hit]]:
        """Return the k rows nearest to each text, best first: dicts of rank, score, id and columns.

        Give `texts`, or `ids` of stored rows, which are not among their own hits, or `vectors`
        float32 [q, dim]. `where` is a filter of rows, as text or as an expression of pyarrow. Hits
        have `min_score` or more. `rerank` is the folder of a cross-encoder, which scores and sorts
        the best 100 hits, or k if that is more.

        If rows are pieces of documents, `fold` "best" returns the k documents with the best pieces,
        "none" the k best pieces. A hit then has `piece`, `pieces`, `start` and `end`, and, if text
        is kept, its `passage`: whole sentences around the piece, of at most `width` characters.
        Width 0 returns no passages, which are slow to find.

        Raises OptionError for an empty text, for vectors of another width or not finite, and for a
        malformed filter or one that names an unknown column. Raises UnknownIdError for an id that
        no row has.
        """
        self._check(texts, ids, vectors, k, fold, min_score)
        request = _Request(k, exact, self.matches(where))
        if rerank is not None:
            self._check_reranks(texts)
            request = replace(request, k=max(k, RERANKED))
        folds = fold == "best" and self.rows.has_pieces
        if ids is not None:
            hits = self._find_like(ids, request, folds)
        elif texts is not None:
            hits = self._search_best(self.queries.vectors(list(texts)), request, folds)
        else:
            hits = self._search_best(self._check_vectors(vectors), request, folds)
        if min_score is not None:
            hits = Hits(hits.scores, np.where(hits.scores >= min_score, hits.shard, -1), hits.row)
        rows = self.rows.describe(hits)
        if rerank is not None and texts is not None and self.rows.text_field is not None:
            scorer = self._load_scorer(str(rerank))
            hits, rows = rerank_hits(scorer, texts, hits, rows, self.rows.text_field, k)
        if width and self.rows.has_pieces and self.rows.text is not None:
            queries = [""] * len(rows) if texts is None else texts
            self.rows.add_passages(queries, hits, rows, width)
        return rows

    def _check(
        self,
        texts: Sequence[str] | None,
        ids: Sequence[str] | None,
        vectors: np.ndarray | None,
        k: int,
        fold: str,
        min_score: float | None,
    ) -> None:
        """Raise OptionError for arguments of `search` that do not fit together or to the store."""
        if sum(queries is not None for queries in (texts, ids, vectors)) != 1:
            raise OptionError("search: give either texts, ids or vectors")
        if not isinstance(k, int | np.integer) or k < 1:
            raise OptionError(f"k: {k!r} is not a whole number above zero")
        if fold not in FOLDS:
            raise OptionError(f"{cite('fold')}: {fold!r} is not known; say {' or '.join(FOLDS)}")
        if min_score is not None and self.manifest.metric == "l2":
            raise OptionError(
                f"{cite('min_score')}: scores of this store are squared distances (l2), of which"
                " less is nearer"
            )

    def _check_reranks(self, texts: Sequence[str] | None) -> None:
        """Raise OptionError if a cross-encoder lacks the texts of the queries or of the rows."""
        if texts is None:
            raise OptionError(
                f"{cite('rerank')} reads the query's text; say {cite('query')} or {cite('queries')}"
            )
        if self.rows.text is None:
            raise OptionError(
                f"{cite('rerank')} reads the rows' text, which {self.manifest.root} does not keep"
                f" ({cite('keep_text=True')})"
            )

    def _load_scorer(self, folder: str) -> "PairScorer":
        """Return the cross-encoder of a folder; the last one is kept."""
        from sentence_beam.transforms.encoder.pair_scorer import PairScorer

        if self._scorer is None or self._scorer.folder != folder:
            self._scorer = PairScorer.load(folder, cite("rerank"))
        return self._scorer

    def _check_vectors(self, vectors: np.ndarray | None) -> np.ndarray:
        """Return query vectors as float32 [q, dim]. Raises OptionError if they do not fit."""
        rows = np.atleast_2d(np.asarray(vectors))
        return as_vectors(rows, self.manifest.space.dim, "vectors of queries")

    def _search_best(self, queries: np.ndarray, request: _Request, folds: bool) -> Hits:
        return self._find_best(
            lambda rows: self._find_nearest(queries, replace(request, k=rows)), request, folds
        )

    def _find_best(self, find: Callable[[int], Hits], request: _Request, folds: bool) -> Hits:
        """Return the best k of the hits that `find` returns for a number of rows.

        If `folds`, only the first piece of each document counts; `find` is called with more rows
        until each query has k documents.
        """
        if not len(self.manifest.shards):
            return find(request.k)
        rows = request.matches.count if request.matches is not None else self.manifest.rows.stored
        requested = request.k * (PIECES_FOR_ONE if folds else 1)
        while True:
            hits = find(min(requested, rows))
            best = [places[: request.k] for places in self._find_places(hits, folds)]
            if requested >= rows or all(len(places) == request.k for places in best):
                return hits.at(best, request.k)
            requested *= PIECES_FOR_ONE

    def _find_places(self, hits: Hits, folds: bool) -> Iterator[list[int]]:
        """Yield the places of each query's hits, of its documents' first pieces if `folds`."""
        for shard, row in zip(hits.shard, hits.row, strict=True):
            if folds:
                yield self.rows.find_firsts(shard, row)
            else:
                yield np.flatnonzero(shard >= 0).tolist()

    def _find_like(self, ids: Sequence[str], request: _Request, folds: bool) -> Hits:
        """Return the rows nearest to the rows of each id, [ids, k].

        If several rows have the id, the nearest to any of them.
        """
        stored = self.rows.read_with_ids(ids)
        for name in ids:
            if name not in stored.ids:
                raise UnknownIdError(
                    f"{cite('id')}: {self.manifest.root} has no row with the id {name!r}"
                )
        groups = [make_no_hits(0, request.k)]
        for name in ids:
            groups.append(self._find_best(self._exclude(stored.of(name), request), request, folds))
        return join_hits(groups)

    def _exclude(self, own: StoredRows, request: _Request) -> Callable[[int], Hits]:
        """Return a function that finds some number of the nearest rows except `own`."""

        def find(rows: int) -> Hits:
            hits = self._find_nearest(own.vectors, replace(request, k=rows + len(own.row)))
            scores = hits.scores.reshape(-1)
            gains = gains_to_scores(-scores, choose_scoring_metric(self.manifest.metric))
            order = np.argsort(gains, kind="stable")
            shard = hits.shard.reshape(-1)[order]
            row = hits.row.reshape(-1)[order]
            positions = shard << 32 | row
            _, firsts = np.unique(positions, return_index=True)
            is_own = np.isin(positions[firsts], own.shard << 32 | own.row)
            firsts = np.sort(firsts[~is_own])
            firsts = firsts[shard[firsts] >= 0][:rows]
            return Hits(scores[order][None, firsts], shard[None, firsts], row[None, firsts])

        return find

    def nearest(
        self, queries: np.ndarray, k: int, *, exact: bool = False, where: Where = None
    ) -> Hits:
        """Return the k rows nearest to each query vector, float32 [q, dim], among matching rows.

        Raises DamagedIndexError if a file of the index is not what was written, and OptionError
        for a filter that `search` would refuse.
        """
        request = _Request(k, exact, self.matches(where))
        return self._find_nearest(np.asarray(queries, np.float32), request)

    def best(self, queries: np.ndarray, k: int) -> Hits:
        """Return the k rows nearest to each query vector, float32 [q, dim].

        If rows are pieces, they are the best pieces of k documents. Raises as `nearest` does.
        """
        request = _Request(k, False, None)
        return self._search_best(np.asarray(queries, np.float32), request, self.rows.has_pieces)

    def _find_nearest(self, queries: np.ndarray, request: _Request) -> Hits:
        queries = prepare_vectors(queries, self.manifest.metric)
        wanted = request.matches
        if not len(self.manifest.shards) or (wanted is not None and not wanted.count):
            return make_no_hits(len(queries), request.k)
        index = self.manifest.index

        def find(which: np.ndarray, rows: int) -> Hits:
            if request.exact or not index:
                return Hits.from_positions(
                    *find_exact_rows(self.manifest, queries[which], rows, wanted)
                )
            return self.index.search(index, queries[which], request.k, rows, wanted)

        return find_best_by_id(find, len(queries), request.k, self.rows.read_ids)

    def matches(self, where: Where) -> Matches | None:
        """Return the rows that match a filter; None without a filter.

        The rows of the last filter are remembered. Raises OptionError as `search` does.
        """
        filter_ = self.check_filter(where)
        if filter_ is None:
            return None
        if self._matches is None or not self._matches.where.equals(filter_):
            with progress.stage("filtering the rows"):
                self._matches = matches(self.manifest, filter_)
        return self._matches

    def check_filter(self, where: Where) -> pc.Expression | None:
        """Return a filter as an expression; None without a filter or without rows in the store.

        Raises OptionError as `search` does.
        """
        if where is None or not len(self.manifest.shards):
            return None
        return parse_filter(where, self.rows.columns, numbers_in=self.rows.numbers_in)
