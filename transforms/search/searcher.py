"""A snapshot opened for search: the nearest rows of texts, by its index or exactly."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow.compute as pc

from transforms.base import progress
from transforms.base.arrow import as_matrix
from transforms.base.errors import OptionError
from transforms.base.values import FOLDS, StrPath
from transforms.base.where import checked
from transforms.index import exact_search
from transforms.index.exact import gains_to_scores
from transforms.index.vectors import as_vectors, prepared, scored_by
from transforms.search.hits import Hit, Hits, joined, no_hits
from transforms.search.opened import SnapshotIndex
from transforms.search.queries import QueryEncoder
from transforms.search.rerank import RERANKED, reranked
from transforms.search.rows import SnapshotRows, StoredRows
from transforms.store.manifest import Manifest
from transforms.store.matches import Matches, matches
from transforms.store.shards.reading import read_shard, read_wanted

if TYPE_CHECKING:
    # torch, which a search by vectors needs not
    from transforms.encoder.pair_scorer import PairScorer

PIECES_FOR_ONE = 4  # hits looked at for each document wanted, before more are asked for
PASSAGE = 400  # characters
Where: TypeAlias = str | pc.Expression | None


class UnknownIdError(OptionError):
    """An id that no row has."""


@dataclass(frozen=True)
class _Wish:
    """The number of rows to find, by comparing all or by the index, among those of a filter."""

    k: int
    exact: bool
    matches: Matches | None


class Searcher:
    """A snapshot opened for search; model and index are loaded when first needed.

    `model` is the path of the snapshot's model on this machine, if not the path that the store was
    written with. `query_prompt` stands before each query; None for the one that the store
    remembers, else the model's own. `alone` says that this process does nothing else.
    """

    def __init__(
        self,
        manifest: Manifest,
        model: str | None = None,
        query_prompt: str | None = None,
        alone: bool = False,
        *,
        queries: QueryEncoder | None = None,
    ):
        self.manifest = manifest
        self.queries = queries or QueryEncoder(manifest, model, query_prompt, alone)
        self.index = SnapshotIndex(manifest)
        self.rows = SnapshotRows(manifest)
        self._matches: Matches | None = None
        self._scorer: PairScorer | None = None

    def of(self, manifest: Manifest) -> "Searcher":
        """Another snapshot opened as this one is, with this one's model where it is the same and
        loaded already.
        """
        return Searcher(manifest, queries=self.queries.of(manifest))

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
        """The k rows nearest to each text, best first: dicts of rank, score, id and kept columns.

        Instead of texts: `ids` of stored rows, which are not among their own hits, or `vectors`
        float32 [q, dim]. `where` is a filter of rows, as text or as an expression of pyarrow, and
        hits have `min_score` or more. `rerank` is the folder of a cross-encoder, by which the best
        100 hits, or k, are scored and put into their order.

        Where rows are pieces of documents, `fold` best gives the k documents whose best pieces
        these are, none the k pieces; a hit has `piece`, `pieces`, `start`, `end` too and, where
        text is kept, its `passage`: whole sentences around the piece, of at most `width`
        characters; no passages, which are slow to find, where that is 0.

        Raises OptionError for a text that is empty, vectors of another width or not finite, and a
        filter that is none or names a column that there is not, UnknownIdError for an id that no
        row has.
        """
        given = [asked for asked in (texts, ids, vectors) if asked is not None]
        if len(given) != 1:
            raise OptionError("search: give texts, ids or vectors, and one of these alone")
        if not isinstance(k, int | np.integer) or k < 1:
            raise OptionError(f"k: {k!r} is not a whole number above zero")
        if fold not in FOLDS:
            raise OptionError(f"--fold: {fold!r} is not known; say {' or '.join(FOLDS)}")
        if min_score is not None and self.manifest.metric == "l2":
            raise OptionError(
                "--min-score: scores of this store are squared distances (l2), of which less is"
                " nearer"
            )
        folds = fold == "best" and self.rows.has_pieces
        asked = _Wish(k, exact, self.matches(where))
        if rerank is not None:
            self._check_reranks(texts)
            asked = replace(asked, k=max(k, RERANKED))
        if ids is not None:
            hits = self._like(ids, asked, folds)
        else:
            queries = (
                self.queries.vectors(list(texts)) if texts is not None else self._checked(vectors)
            )
            hits = self._best(
                lambda rows: self._nearest(queries, replace(asked, k=rows)), asked, folds
            )
        if min_score is not None:
            hits = Hits(hits.scores, np.where(hits.scores >= min_score, hits.shard, -1), hits.row)
        found = self.rows.described(hits)
        if rerank is not None and texts is not None and self.rows.text_field is not None:
            hits, found = reranked(
                self._pair_scorer(str(rerank)), texts, hits, found, self.rows.text_field, k
            )
        if width and self.rows.has_pieces and self.rows.text is not None:
            self.rows.add_passages(
                [""] * len(found) if texts is None else texts, hits, found, width
            )
        return found

    def _check_reranks(self, texts: Sequence[str] | None) -> None:
        """Raise OptionError if there are no texts of queries or of rows for a cross-encoder to
        read.
        """
        if texts is None:
            raise OptionError("--rerank reads the query's text; say --query or --queries")
        if self.rows.text is None:
            raise OptionError(
                f"--rerank reads the rows' text, which {self.manifest.root} does not keep"
                " (--keep-text)"
            )

    def _pair_scorer(self, folder: str) -> "PairScorer":
        """The cross-encoder of a folder; the last one is kept."""
        from transforms.encoder.pair_scorer import PairScorer

        if self._scorer is None or self._scorer.folder != folder:
            self._scorer = PairScorer.load(folder, "--rerank")
        return self._scorer

    def _checked(self, vectors: np.ndarray | None) -> np.ndarray:
        """Queries that are vectors. Raises OptionError for what are none of this space."""
        return as_vectors(
            np.atleast_2d(np.asarray(vectors)), self.manifest.space.dim, "vectors of queries"
        )

    def _best(self, find: Callable[[int], Hits], asked: "_Wish", folds: bool) -> Hits:
        """The best k of what `find` gives for a number of rows, each document once where it
        `folds`.
        """
        if not self.manifest.shard_paths:
            return find(asked.k)
        rows = self.manifest.rows.stored
        if asked.matches is not None:
            rows = asked.matches.count
        looked = asked.k
        if folds:
            looked *= PIECES_FOR_ONE
        while True:
            hits = find(min(looked, rows))
            best = [
                (self.rows.firsts(shard, row) if folds else np.flatnonzero(shard >= 0).tolist())[
                    : asked.k
                ]
                for shard, row in zip(hits.shard, hits.row, strict=True)
            ]
            if looked >= rows or all(len(places) == asked.k for places in best):
                return hits.at(best, asked.k)
            looked *= PIECES_FOR_ONE

    def _like(self, ids: Sequence[str], asked: "_Wish", folds: bool) -> Hits:
        """The rows nearest to those that have an id, [ids, k]; of several with one id, to any of
        them.
        """
        stored = self.rows.with_ids(ids)
        for name in ids:
            if name not in stored.ids:
                raise UnknownIdError(f"--id: {self.manifest.root} has no row with the id {name!r}")
        return joined(
            [self._best(self._others(stored.of(name), asked), asked, folds) for name in ids]
        )

    def _others(self, own: StoredRows, asked: "_Wish") -> Callable[[int], Hits]:
        """What finds some number of the nearest rows that are not these."""

        def find(rows: int) -> Hits:
            hits = self._nearest(own.vectors, replace(asked, k=rows + len(own.row)))
            order = np.argsort(
                gains_to_scores(-hits.scores.reshape(-1), scored_by(self.manifest.metric)),
                kind="stable",
            )
            shard, row = hits.shard.reshape(-1)[order], hits.row.reshape(-1)[order]
            _, firsts = np.unique(shard << 32 | row, return_index=True)
            firsts = np.sort(
                firsts[~np.isin((shard << 32 | row)[firsts], own.shard << 32 | own.row)]
            )
            firsts = firsts[shard[firsts] >= 0][:rows]
            return Hits(
                hits.scores.reshape(-1)[order][None, firsts], shard[None, firsts], row[None, firsts]
            )

        return find

    def nearest(
        self, queries: np.ndarray, k: int, *, exact: bool = False, where: Where = None
    ) -> Hits:
        """The k rows nearest to each query vector, float32 [q, dim], of those that a filter wants
        (None: of all).

        Raises DamagedIndexError where a file of the index is not what was written, OptionError for
        another filter than `search` takes.
        """
        return self._nearest(np.asarray(queries, np.float32), _Wish(k, exact, self.matches(where)))

    def _nearest(self, queries: np.ndarray, asked: "_Wish") -> Hits:
        queries = prepared(queries, self.manifest.metric)
        wanted = asked.matches
        if not self.manifest.shard_paths or (wanted is not None and not wanted.count):
            return no_hits(len(queries), asked.k)
        if asked.exact or not self.manifest.index:
            return self._exact(queries, asked.k, wanted)
        return self.index.search(self.manifest.index, queries, asked.k, wanted)

    def matches(self, where: Where) -> Matches | None:
        """The rows that a filter wants; None without one. Raises OptionError as `search` does.

        Those of the last filter are remembered.
        """
        if where is None or not self.manifest.shard_paths:
            return None
        filter_ = self.check_filter(where)
        if self._matches is None or not self._matches.where.equals(filter_):
            with progress.stage("filtering the rows"):
                self._matches = matches(self.manifest, filter_)
        return self._matches

    def check_filter(self, where: Where) -> pc.Expression | None:
        """Return a filter as an expression; None without one, and in a store without rows.

        Raises OptionError as `search` does.
        """
        if where is None or not self.manifest.shard_paths:
            return None
        return checked(where, self.rows.columns, numbers_in=self.rows.numbers_in)

    def _exact(self, queries: np.ndarray, k: int, wanted: Matches | None) -> Hits:
        metric = scored_by(self.manifest.metric)
        if wanted is None:
            scores, positions = exact_search(self._vectors(), queries, k, metric)
        else:
            scores, found = exact_search(self._wanted_vectors(wanted), queries, k, metric)
            every = [
                np.flatnonzero(rows) | number << 32 for number, rows in enumerate(wanted.shards)
            ]
            positions = np.where(found >= 0, np.concatenate(every)[found], -1)
        return Hits(scores, np.where(positions >= 0, positions >> 32, -1), positions & 0xFFFFFFFF)

    def _vectors(self) -> Iterator[tuple[np.ndarray, int]]:
        """All vectors in blocks, each with the position of its first: number of the shard << 32 and
        row.
        """
        paths = self.manifest.shard_paths
        for number, path in enumerate(progress.over(paths, "comparing with every row", "shards")):
            start = number << 32
            for batch in read_shard(path, ["embedding"]):
                yield prepared(as_matrix(batch.column(0)), self.manifest.metric), start
                start += batch.num_rows

    def _wanted_vectors(self, wanted: Matches) -> Iterator[tuple[np.ndarray, int]]:
        """The vectors of wanted rows in blocks, each with the number of its first among these."""
        shards, start = list(zip(self.manifest.shard_paths, wanted.shards, strict=True)), 0
        for path, rows in progress.over(shards, "comparing with every row", "shards"):
            for table in read_wanted(path, rows, ["embedding"]):
                yield (
                    prepared(as_matrix(table.column(0).combine_chunks()), self.manifest.metric),
                    start,
                )
                start += len(table)
