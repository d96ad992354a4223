"""Search over a snapshot: the nearest rows of texts, by its index or exactly."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms import progress, storage
from transforms.arrow import as_matrix
from transforms.cores import one_core
from transforms.corpus.passages import Piece, in_context, passage
from transforms.errors import DamagedIndexError, OptionError, SentenceBeamError
from transforms.index import SegmentChecks, SegmentedIndex, SegmentFile, TrainedIndex, exact_search, rerank
from transforms.index.choose import depth_for
from transforms.index.exact import gains_to_scores
from transforms.index.filtered import FilteredIndex
from transforms.index.vectors import as_vectors, prepared, scored_by
from transforms.space import Recipe
from transforms.space.st_modules import QUERY
from transforms.storage.cache import cached
from transforms.store import index_files
from transforms.store.calibrations import kept_calibration
from transforms.store.entries import IndexEntry, SegmentEntry
from transforms.store.locator_file import LocatorFile
from transforms.store.manifest import Manifest
from transforms.store.matches import Matches, matches
from transforms.store.refine_file import RefineFile
from transforms.store.shards import open_shard, read_shard, read_wanted, take_rows
from transforms.where import checked

if TYPE_CHECKING:
    from transforms.encoder import Encoder  # torch, which a search by vectors needs not

NO_QUERY_PROMPT = (
    "the rows have a prompt and none is known for queries, which get none; say --query-prompt here, or in embed, which "
    "remembers it"
)
_LOGGER = logging.getLogger(__name__)
SMALL_MODEL = 200_000_000  # bytes of weights
FEW_CHARACTERS = 2000
OWN_COLUMNS = {"embedding", "norm", "row_hash", "tokens", "truncated", "pooled"}
PIECES_FOR_ONE = 4  # hits looked at for each document wanted, before more are asked for
PASSAGE = 400  # characters
Where: TypeAlias = str | pc.Expression | None


@dataclass(frozen=True)
class Hits:
    """The best rows of queries [q, k]: scores float32, number of the shard and row in it int64, -1 for none."""

    scores: np.ndarray
    shard: np.ndarray
    row: np.ndarray


@dataclass(frozen=True)
class _Asked:
    """So many rows, found by comparing all or by the index, of those that a filter wants."""

    k: int
    exact: bool
    where: Where


@dataclass(frozen=True)
class _Own:
    """The rows that have an id: shard and row int64 [r], vectors float32 [r, dim]."""

    shard: np.ndarray
    row: np.ndarray
    vectors: np.ndarray


class Searcher:
    """A snapshot opened for search; model and index are loaded when first needed.

    `model` is the path of the snapshot's model on this machine, if not the path that the store was written with.
    `query_prompt` stands before each query; None for the one that the store remembers, else the model's own. `alone`
    says that this process does nothing else.
    """

    def __init__(
        self, manifest: Manifest, model: str | None = None, query_prompt: str | None = None, alone: bool = False
    ):
        self._manifest = manifest
        self._alone = alone
        self._model = model
        self._query_prompt = query_prompt
        self._units = [unit for unit in manifest.units if unit.path]
        self._numbers = {str(unit.path): number for number, unit in enumerate(self._units)}
        self._filter: tuple[Matches, FilteredIndex | None] | None = None

    @cached_property
    def _encoder(self) -> "Encoder":
        """The snapshot's encoder, with the prompt for queries."""
        space, model = self._manifest.space, self._recipe.model
        kept = kept_calibration(self._manifest.root, space.calibration) if space.calibration else None
        with progress.stage(progress.LOADING):
            from transforms.encoder import Encoder

            recipe = replace(self._recipe, prompt=self.query_prompt or "", calibration="")
            encoder = Encoder.of(recipe, calibration=kept)
        what = f"{model} is not the model of {self._manifest.root}"
        space.check(encoder.space, what, "name the same one with --model", ignoring=("prompt", "precision"))
        return encoder

    @cached_property
    def _recipe(self) -> Recipe:
        """What the store remembers of its vectors, with the model's place on this machine."""
        recipe = Recipe.of(self._manifest.options.to_json())
        return replace(recipe, model=self._model, revision=None) if self._model else recipe

    @cached_property
    def query_prompt(self) -> str | None:
        """The prompt for queries: given, remembered by the store, or the model's own; None where none is known."""
        known = next((p for p in (self._query_prompt, self._recipe.query_prompt) if p is not None), None)
        return self._recipe.files().modules.query_prompt if known is None else known

    @property
    def lacks_query_prompt(self) -> bool:
        """Whether the rows have a prompt and none is known for queries, which get none then."""
        return bool(self._manifest.space.prompt) and self.query_prompt is None

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
    ) -> list[list[dict[str, Any]]]:
        """The k rows nearest to each text, best first: dicts of rank, score, id and kept columns.

        Instead of texts: `ids` of stored rows, which are not among their own hits, or `vectors` float32 [q, dim].
        `where` is a filter of rows, as text or as an expression of pyarrow, and hits have `min_score` or more.

        Where rows are pieces of documents, `fold` best gives the k documents whose best pieces these are, none the k
        pieces; a hit has `piece`, `pieces`, `start`, `end` too and, where text is kept, its `passage`: whole sentences
        around the piece, of at most `width` characters; no passages, which are slow to find, where that is 0.

        Raises OptionError for a text that is empty, an id that no row has, vectors of another width or not finite, and
        a filter that is none or names a column that there is not.
        """
        given = [asked for asked in (texts, ids, vectors) if asked is not None]
        if len(given) != 1:
            raise OptionError("search: give texts, ids or vectors, and one of these alone")
        if min_score is not None and self._manifest.metric == "l2":
            raise OptionError("--min-score: scores of this store are squared distances (l2), of which less is nearer")
        folds, asked = fold == "best" and self._has_pieces, _Asked(k, exact, where)
        if ids is not None:
            hits = self._like(ids, asked, folds)
        else:
            queries = self.embedded(list(texts)) if texts is not None else self._checked(vectors)
            hits = self._best(lambda rows: self._nearest(queries, replace(asked, k=rows)), asked, folds)
        if min_score is not None:
            hits = Hits(hits.scores, np.where(hits.scores >= min_score, hits.shard, -1), hits.row)
        found = self._described(hits)
        if width and self._has_pieces and self._text is not None:
            self._add_passages([""] * len(found) if texts is None else texts, hits, found, width)
        return found

    def embedded(self, texts: list[str]) -> np.ndarray:
        """The vectors of queries, float32 [q, dim]; of none, and where there is no row to find, without the model."""
        for number, text in enumerate(texts, 1):
            if not text.strip():
                raise OptionError(f"query {number} of {len(texts)} is empty; say what to look for")
        if not texts or not self._units:
            return np.zeros((len(texts), self._manifest.space.dim), np.float32)
        if self.lacks_query_prompt:
            _LOGGER.warning("%s: %s", self._manifest.root, NO_QUERY_PROMPT)
        with one_core() if self._alone and self._is_little(texts) else contextlib.nullcontext():
            encoder = self._encoder
            with progress.stage("embedding the queries"):
                return encoder.encode(texts, route=QUERY)

    def _checked(self, vectors: np.ndarray | None) -> np.ndarray:
        """Queries that are vectors. Raises OptionError for what are none of this space."""
        return as_vectors(np.atleast_2d(np.asarray(vectors)), self._manifest.space.dim, "vectors of queries")

    def _is_little(self, texts: list[str]) -> bool:
        """Whether a core loads the model and embeds the texts about as fast as several do."""
        weights = sum(path.stat().st_size for path in self._recipe.files().weights)
        return weights < SMALL_MODEL and sum(map(len, texts)) < FEW_CHARACTERS

    def _best(self, find: Callable[[int], Hits], asked: "_Asked", folds: bool) -> Hits:
        """The best k of what `find` gives for a number of rows, each document once where it `folds`."""
        if not self._units:
            return find(asked.k)
        wanted = self.matches(asked.where)
        rows = self._manifest.rows.stored if wanted is None else wanted.count
        looked = (PIECES_FOR_ONE if folds else 1) * asked.k
        while True:
            hits = find(min(looked, rows))
            best = [
                (self._firsts(shard, row) if folds else np.flatnonzero(shard >= 0).tolist())[: asked.k]
                for shard, row in zip(hits.shard, hits.row, strict=True)
            ]
            if looked >= rows or all(len(places) == asked.k for places in best):
                return _taken(hits, best, asked.k)
            looked *= PIECES_FOR_ONE

    def _like(self, ids: Sequence[str], asked: "_Asked", folds: bool) -> Hits:
        """The rows nearest to those that have an id, [ids, k]; of several with one id, to any of them."""
        found = [self._best(self._others(rows, asked), asked, folds) for rows in self._rows_of(ids)]
        return Hits(*(np.concatenate(column) for column in zip(*map(_columns, found), strict=True)))

    def _others(self, own: "_Own", asked: "_Asked") -> Callable[[int], Hits]:
        """What finds some number of the nearest rows that are not these."""

        def find(rows: int) -> Hits:
            hits = self._nearest(own.vectors, replace(asked, k=rows + len(own.row)))
            order = np.argsort(
                gains_to_scores(-hits.scores.reshape(-1), scored_by(self._manifest.metric)), kind="stable"
            )
            shard, row = hits.shard.reshape(-1)[order], hits.row.reshape(-1)[order]
            _, firsts = np.unique(shard << 32 | row, return_index=True)
            firsts = np.sort(firsts[~np.isin((shard << 32 | row)[firsts], own.shard << 32 | own.row)])
            firsts = firsts[shard[firsts] >= 0][:rows]
            return Hits(hits.scores.reshape(-1)[order][None, firsts], shard[None, firsts], row[None, firsts])

        return find

    def _rows_of(self, ids: Sequence[str]) -> list["_Own"]:
        """The rows that have each of the ids. Raises OptionError for an id that no row has."""
        found = matches(self._manifest, pc.field("id").isin(pa.array(ids, pa.string()))).shards
        places = [(number, np.flatnonzero(wanted)) for number, wanted in enumerate(found) if wanted.any()]
        tables = [self._rows(number, rows, ["id", "embedding"]).select(["id", "embedding"]) for number, rows in places]
        names = np.concatenate([np.empty(0, object), *(table.column("id").to_numpy() for table in tables)])
        vectors = [as_matrix(table.column("embedding").combine_chunks()) for table in tables]
        every = np.concatenate([np.empty((0, self._manifest.space.dim), np.float32), *vectors])
        shard = np.concatenate([np.empty(0, np.int64), *(np.full(len(rows), number) for number, rows in places)])
        row = np.concatenate([np.empty(0, np.int64), *(rows for _, rows in places)])
        for name in ids:
            if name not in names:
                raise OptionError(f"--id: {self._manifest.root} has no row with the id {name!r}")
        return [_Own(shard[here], row[here], every[here]) for name in ids for here in [names == name]]

    def _firsts(self, shard: np.ndarray, row: np.ndarray) -> list[int]:
        """The places of the first piece of each document among the pieces of a query, in order."""
        documents: dict[tuple[str, bytes], int] = {}
        names: list[Any] = [None] * len(row)
        for number in np.unique(shard[shard >= 0]).tolist():
            here = np.flatnonzero(shard == number)
            table = self._rows(number, row[here], ["id", "doc_hash"])
            for place, name in zip(
                here.tolist(), zip(*(c.to_pylist() for c in table.columns), strict=True), strict=True
            ):
                names[place] = name
        for place, name in enumerate(names):
            if name is not None:
                documents.setdefault(name, place)
        return list(documents.values())

    def _add_passages(self, texts: Sequence[str], hits: Hits, found: list[list[dict[str, Any]]], width: int) -> None:
        """Put the passage into every hit; sentences of the pieces beside it are known where they stand beside it."""
        near = self._beside(hits)
        for query, shards, rows, described in zip(texts, hits.shard, hits.row, found, strict=True):
            places = [place for place in zip(shards.tolist(), rows.tolist(), strict=True) if place[0] >= 0]
            for (shard, row), hit in zip(places, described, strict=True):
                pieces = (near.get((shard, other)) for other in (row - 1, row, row + 1))
                hit["passage"] = passage(*in_context(*pieces), query, width)

    def _beside(self, hits: Hits) -> dict[tuple[int, int], Piece]:
        """The pieces of hits and those that stand beside them in their shards, by shard and row."""
        found: dict[tuple[int, int], Piece] = {}
        for shard in np.unique(hits.shard[hits.shard >= 0]).tolist():
            rows = hits.row[hits.shard == shard]
            near = np.unique(np.concatenate([rows - 1, rows, rows + 1]))
            near = near[(near >= 0) & (near < self._units[shard].rows)]
            table = self._rows(shard, near, ["id", "doc_hash", "piece", "start", "end", str(self._text)])
            named = zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
            columns = table.column_names
            for row, values in zip(near.tolist(), named, strict=True):
                said = dict(zip(columns, values, strict=True))
                document = said["id"], said["doc_hash"]
                text = said[str(self._text)] or ""
                found[shard, row] = Piece(document, said["piece"], said["start"], said["end"], text)
        return found

    @property
    def _text(self) -> str | None:
        """The column with the rows' texts, None where they were not kept."""
        return self._manifest.options.kept_text

    @property
    def _has_pieces(self) -> bool:
        """Whether rows are pieces of documents."""
        return self._manifest.rows.pieces is not None

    def nearest(self, queries: np.ndarray, k: int, *, exact: bool = False, where: Where = None) -> Hits:
        """The k rows nearest to each query vector, float32 [q, dim], of those that a filter wants (None: of all).

        Raises DamagedIndexError where a file of the index is not what was written, OptionError for another filter than
        `search` takes.
        """
        return self._nearest(np.asarray(queries, np.float32), _Asked(k, exact, where))

    def _nearest(self, queries: np.ndarray, asked: "_Asked") -> Hits:
        queries, wanted = prepared(queries, self._manifest.metric), self.matches(asked.where)
        if not self._units or (wanted is not None and not wanted.count):
            return _none(len(queries), asked.k)
        if asked.exact or not self._manifest.index:
            return self._exact(queries, asked.k, wanted)
        try:
            return self._indexed(self._manifest.index, queries, asked.k, wanted)
        except DamagedIndexError as error:
            raise DamagedIndexError(f"{error}; {self._mend(str(error))}") from error

    def matches(self, where: Where) -> Matches | None:
        """The rows that a filter wants; None without one. Raises OptionError as `search` does.

        Those of the last filter are remembered.
        """
        if where is None or not self._units:
            return None
        with open_shard(self._manifest.shard_paths[0]) as parquet:
            schema = pa.schema([parquet.schema_arrow.field(name) for name in self._kept])
        filter_ = checked(where, schema)
        if self._filter is None or not self._filter[0].where.equals(filter_):
            with progress.stage("filtering the rows"):
                self._filter = matches(self._manifest, filter_), None
        return self._filter[0]

    def _filtered(self, wanted: Matches, reranks: bool) -> FilteredIndex:
        """The index of the rows that the last filter wants."""
        if self._filter is None or self._filter[0] is not wanted or self._filter[1] is None:
            rows = {path: wanted.shards[number] for path, number in self._numbers.items()}
            kept = [locator.wanted(rows) for locator in self._locators]
            index = FilteredIndex(self._index, kept, self.vectors_of if reranks else None)
            self._filter = wanted, index
            return index
        return self._filter[1]

    def _mend(self, error: str) -> str:
        """What to do about a file of the index that an error names: one of the store, or a copy of it."""
        if self._manifest.root in error:
            return "`sentence-beam index` makes it again, search --exact does without it"
        return "it is a copy: remove it, and it is fetched again"

    def _exact(self, queries: np.ndarray, k: int, wanted: Matches | None) -> Hits:
        metric = scored_by(self._manifest.metric)
        if wanted is None:
            scores, positions = exact_search(self._vectors(), queries, k, metric)
        else:
            scores, found = exact_search(self._wanted_vectors(wanted), queries, k, metric)
            every = [np.flatnonzero(rows) | number << 32 for number, rows in enumerate(wanted.shards)]
            positions = np.where(found >= 0, np.concatenate(every)[found], -1)
        return Hits(scores, np.where(positions >= 0, positions >> 32, -1), positions & 0xFFFFFFFF)

    def _vectors(self) -> Iterator[tuple[np.ndarray, int]]:
        """All vectors in blocks, each with the position of its first: number of the shard << 32 and row."""
        paths = self._manifest.shard_paths
        for number, path in enumerate(progress.over(paths, "comparing with every row", "shards")):
            start = number << 32
            for batch in read_shard(path, ["embedding"]):
                yield prepared(as_matrix(batch.column(0)), self._manifest.metric), start
                start += batch.num_rows

    def _wanted_vectors(self, wanted: Matches) -> Iterator[tuple[np.ndarray, int]]:
        """The vectors of wanted rows in blocks, each with the number of its first among these."""
        shards, start = list(zip(self._manifest.shard_paths, wanted.shards, strict=True)), 0
        for path, rows in progress.over(shards, "comparing with every row", "shards"):
            for table in read_wanted(path, rows, ["embedding"]):
                yield prepared(as_matrix(table.column(0).combine_chunks()), self._manifest.metric), start
                start += len(table)

    @property
    def _segments(self) -> tuple[SegmentEntry, ...]:
        return self._manifest.index.segments if self._manifest.index else ()

    @cached_property
    def _locators(self) -> list[LocatorFile]:
        return [LocatorFile.open(self._manifest.root, entry) for entry in self._segments]

    @cached_property
    def _index(self) -> SegmentedIndex:
        return self.opened(0, len(self._segments))

    def opened(self, first: int, stop: int) -> SegmentedIndex:
        """The index of the segments from `first` up to `stop` alone, which are numbered from 0 there."""
        pairs = zip(self._segments[first:stop], self._locators[first:stop], strict=True)
        return SegmentedIndex.open([self._segment(*pair) for pair in pairs], self.trained)

    @property
    def trained(self) -> TrainedIndex | None:
        """The trained index that the segments share; None where they have no lists."""
        index = self._manifest.index
        if index is None or not index.nprobe or not index.trained.path:
            return None
        path = cached(self._path(index.trained.path), index.trained.sha256)
        index_files.check(path, index.trained.sha256)
        return TrainedIndex.open(path)

    def _segment(self, entry: SegmentEntry, locator: LocatorFile) -> SegmentFile:
        """A segment to open; one of an earlier version, whose lists have no checksums, is read as a whole first."""
        path, checks = cached(self._path(entry.path), entry.sha256), locator.checks
        if checks is None:
            index_files.check(path, entry.sha256)
        keep = locator.keep() if entry.deleted else None
        return SegmentFile(path, keep, SegmentChecks.from_text(checks) if checks else None)

    def _path(self, relative: str) -> str:
        return storage.join(self._manifest.root, relative)

    def _indexed(self, index: IndexEntry, queries: np.ndarray, k: int, wanted: Matches | None) -> Hits:
        with progress.stage("opening the index"):
            opened = self._index
        depth, nprobe = depth_for(k, index.rerank), index.nprobe_for(k) or None
        with progress.stage("searching the index"):
            if wanted is None:
                found = opened.search(queries, depth, nprobe=nprobe, least=k)
            else:
                found = self._filtered(wanted, bool(index.rerank)).search(queries, k, nprobe=nprobe, depth=depth)
        if index.rerank and wanted is None:
            found = rerank(queries, found, k, self.vectors_of, scored_by(self._manifest.metric))
        shard, row = self.located(found.segment, found.row)
        return Hits(found.scores[:, :k], shard[:, :k], row[:, :k])

    def located(self, segment: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shard number and row within it of every (segment, local row)."""
        shards, rows = np.full(segment.shape, -1, np.int64), np.full(segment.shape, -1, np.int64)
        for number in np.unique(segment[row >= 0]).tolist():
            here = (segment == number) & (row >= 0)
            names, shard, rows[here] = self._locators[number].places(row[here])
            used, place = np.unique(shard, return_inverse=True)
            shards[here] = np.array([self._numbers[names[which]] for which in used])[place]
        return shards, rows

    @cached_property
    def _refine(self) -> list[RefineFile | None]:
        """The vectors beside each segment; None where an earlier version wrote none."""
        dim = self._manifest.space.dim
        return [
            RefineFile(self._path(entry.refine.path), dim, entry.rows) if entry.refine else None
            for entry in self._segments
        ]

    def vectors_of(self, segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Vectors of index rows, in order of (segment, row), float32 [m, dim]: of the files beside the segments."""
        vectors = np.empty((len(row), self._manifest.space.dim), np.float32)
        numbers, starts = np.unique(segment, return_index=True)
        for number, start, end in zip(numbers.tolist(), starts, [*starts[1:], len(row)], strict=True):
            file = self._refine[number]
            if file:
                file.vectors(row[start:end], vectors[start:end])
            else:
                vectors[start:end] = self._stored(segment[start:end], row[start:end])
        return vectors

    def _stored(self, segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Vectors of index rows, read from their shards through the locators; float32 [m, dim]."""
        shard, place = self.located(segment, row)
        vectors = np.empty((len(shard), self._manifest.space.dim), np.float32)
        for number in np.unique(shard):
            at = np.flatnonzero(shard == number)
            vectors[at] = as_matrix(self._rows(int(number), place[at], ["embedding"]).column(0).combine_chunks())
        return prepared(vectors, self._manifest.metric)

    def _rows(self, number: int, rows: np.ndarray, columns: list[str]) -> pa.Table:
        """Rows of one shard, in the order asked for."""
        return take_rows(self._manifest.shard_paths[number], rows, columns)

    @cached_property
    def _kept(self) -> list[str]:
        with open_shard(self._manifest.shard_paths[0]) as parquet:
            own = OWN_COLUMNS | ({"doc_hash"} if self._has_pieces else set())
            return [name for name in parquet.schema_arrow.names if name not in own]

    def _described(self, hits: Hits) -> list[list[dict[str, Any]]]:
        numbers = np.unique(hits.shard[hits.shard >= 0])
        found = [(int(number), np.unique(hits.row[hits.shard == number])) for number in numbers]
        keys = [(number, int(row)) for number, rows in found for row in rows]
        tables = [self._rows(number, rows, self._kept).replace_schema_metadata(None) for number, rows in found]
        values = dict(zip(keys, plain_rows(pa.concat_tables(tables)) if tables else [], strict=True))
        return [
            [
                {"rank": rank + 1, "score": float(score), **values[int(shard), int(row)]}
                for rank, (score, shard, row) in enumerate(zip(*query, strict=True))
                if shard >= 0
            ]
            for query in zip(hits.scores, hits.shard, hits.row, strict=True)
        ]


def _none(queries: int, k: int) -> Hits:
    """The hits of queries that find nothing."""
    missing = np.full((queries, k), -1, np.int64)
    return Hits(np.full((queries, k), -np.inf, np.float32), missing, missing)


def _columns(hits: Hits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return hits.scores, hits.shard, hits.row


def _taken(hits: Hits, places: list[list[int]], k: int) -> Hits:
    """The hits at these places of each query, with nothing behind them up to k."""
    columns = [[column[query][which] for query, which in enumerate(places)] for column in _columns(hits)]
    empty = [
        np.full((len(places), k), fill, column.dtype)
        for fill, column in ((-np.inf, hits.scores), (-1, hits.shard), (-1, hits.row))
    ]
    for made, parts in zip(empty, columns, strict=True):
        for query, part in enumerate(parts):
            made[query, : len(part)] = part
    return Hits(*empty)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts of Python values. A column of times with one that Python cannot hold is given as text."""
    columns = [_plain(name, table.column(name)) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError, KeyError):  # a year beyond 9999, an unknown time zone
        pass
    for text in (pa.string(), pa.int64(), pa.list_(pa.string())):
        with contextlib.suppress(pa.ArrowException):
            return column.cast(text).to_pylist()
    raise SentenceBeamError(f"kept column {name} ({column.type}) holds values that Python has no type for")
