"""Search over a snapshot: the nearest rows of texts, by its index or exactly."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transforms import progress, storage
from transforms.arrow import as_matrix
from transforms.cores import one_core
from transforms.corpus.passages import passage
from transforms.errors import DamagedIndexError, OptionError, SentenceBeamError
from transforms.index import SegmentChecks, SegmentedIndex, SegmentFile, TrainedIndex, exact_search, rerank
from transforms.index.choose import depth_for
from transforms.index.vectors import prepared, scored_by
from transforms.space import Recipe
from transforms.space.st_modules import QUERY
from transforms.storage.cache import cached
from transforms.store import index_files
from transforms.store.calibrations import kept_calibration
from transforms.store.entries import IndexEntry, SegmentEntry
from transforms.store.locator_file import LocatorFile
from transforms.store.manifest import Manifest
from transforms.store.refine_file import RefineFile
from transforms.store.shards import open_shard, read_shard, take_rows

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


@dataclass(frozen=True)
class Hits:
    """The best rows of queries [q, k]: scores float32, number of the shard and row in it int64, -1 for none."""

    scores: np.ndarray
    shard: np.ndarray
    row: np.ndarray


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
        self._numbers = {unit.path: number for number, unit in enumerate(self._units)}

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
        self, texts: list[str], k: int = 10, *, exact: bool = False, fold: str = "best", width: int = PASSAGE
    ) -> list[list[dict[str, Any]]]:
        """The k rows nearest to each text, best first: dicts of rank, score, id and kept columns.

        Where rows are pieces of documents, `fold` best gives the k documents whose best pieces these are, none the k
        pieces; a hit has `piece`, `pieces`, `start`, `end` too and, where text is kept, its `passage`: whole sentences
        around the piece, of at most `width` characters; no passages, which are slow to find, where that is 0.

        Raises OptionError for a text that is empty.
        """
        for number, text in enumerate(texts, 1):
            if not text.strip():
                raise OptionError(f"query {number} of {len(texts)} is empty; say what to look for")
        if not texts or not self._units:
            return [[] for _ in texts]
        if self.lacks_query_prompt:
            _LOGGER.warning("%s: %s", self._manifest.root, NO_QUERY_PROMPT)
        queries = self.embedded(texts)
        folds = fold == "best" and self._has_pieces
        hits = self._documents(queries, k, exact) if folds else self.nearest(queries, k, exact=exact)
        found = self._described(hits)
        if width and self._has_pieces and self._text is not None:
            self._add_passages(texts, hits, found, width)
        return found

    def embedded(self, texts: list[str]) -> np.ndarray:
        """The vectors of queries, float32 [q, dim]."""
        with one_core() if self._alone and self._is_little(texts) else contextlib.nullcontext():
            encoder = self._encoder
            with progress.stage("embedding the queries"):
                return encoder.encode(texts, route=QUERY)

    def _is_little(self, texts: list[str]) -> bool:
        """Whether a core loads the model and embeds the texts about as fast as several do."""
        weights = sum(path.stat().st_size for path in self._recipe.files().weights)
        return weights < SMALL_MODEL and sum(map(len, texts)) < FEW_CHARACTERS

    def _documents(self, queries: np.ndarray, k: int, exact: bool) -> Hits:
        """The best pieces of the k documents that have the best ones."""
        rows, asked = self._manifest.rows.stored, PIECES_FOR_ONE * k
        while True:
            hits = self.nearest(queries, min(asked, rows), exact=exact)
            best = [self._firsts(shard, row)[:k] for shard, row in zip(hits.shard, hits.row, strict=True)]
            if asked >= rows or all(len(places) == k for places in best):
                return _taken(hits, best, k)
            asked *= PIECES_FOR_ONE

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

    def _add_passages(self, texts: list[str], hits: Hits, found: list[list[dict[str, Any]]], width: int) -> None:
        """Put the passage into every hit; sentences of the pieces beside it are known where they stand beside it."""
        for query, shards, rows, described in zip(texts, hits.shard, hits.row, found, strict=True):
            for shard, row, hit in zip(shards.tolist(), rows.tolist(), described, strict=False):
                text, start, end = self._context(shard, row)
                hit["passage"] = passage(text, start, end, query, width)

    def _context(self, shard: int, row: int) -> tuple[str, int, int]:
        """The text of a piece and of those of its document that its shard has beside it, and where in it it is."""
        near = np.arange(max(0, row - 1), min(row + 2, self._units[shard].rows))
        rows = self._rows(shard, near, ["id", "doc_hash", "piece", "start", "end", str(self._text)]).to_pylist()
        here = rows[row - int(near[0])]
        text, start = here[str(self._text)] or "", 0
        for other in rows:
            if (other["id"], other["doc_hash"]) != (here["id"], here["doc_hash"]):
                continue
            own, gap = other[str(self._text)] or "", max(here["start"] - other["end"], other["start"] - here["end"])
            between = "\n\n" if gap > 1 else " " * max(gap, 0)
            if other["piece"] == here["piece"] - 1:
                own = own[: max(0, here["start"] - other["start"])]
                text, start = own + between + text, len(own) + len(between)
            elif other["piece"] == here["piece"] + 1:
                text += between + own[max(0, here["end"] - other["start"]) :]
        return text, start, start + here["end"] - here["start"]

    @property
    def _text(self) -> str | None:
        """The column with the rows' texts, None where they were not kept."""
        return self._manifest.options.kept_text

    @property
    def _has_pieces(self) -> bool:
        """Whether rows are pieces of documents."""
        return self._manifest.rows.pieces is not None

    def nearest(self, queries: np.ndarray, k: int, *, exact: bool = False) -> Hits:
        """The k rows nearest to each query vector, float32 [q, dim].

        Raises DamagedIndexError where a file of the index is not what was written.
        """
        queries = prepared(np.asarray(queries, np.float32), self._manifest.metric)
        if exact or not self._manifest.index:
            return self._exact(queries, k)
        try:
            return self._indexed(self._manifest.index, queries, k)
        except DamagedIndexError as error:
            raise DamagedIndexError(f"{error}; {self._mend(str(error))}") from error

    def _mend(self, error: str) -> str:
        """What to do about a file of the index that an error names: one of the store, or a copy of it."""
        if self._manifest.root in error:
            return "`sentence-beam index` makes it again, search --exact does without it"
        return "it is a copy: remove it, and it is fetched again"

    def _exact(self, queries: np.ndarray, k: int) -> Hits:
        scores, positions = exact_search(self._vectors(), queries, k, scored_by(self._manifest.metric))
        return Hits(scores, np.where(positions >= 0, positions >> 32, -1), positions & 0xFFFFFFFF)

    def _vectors(self) -> Iterator[tuple[np.ndarray, int]]:
        paths = self._manifest.shard_paths
        for number, path in enumerate(progress.over(paths, "comparing with every row", "shards")):
            start = number << 32
            for batch in read_shard(path, ["embedding"]):
                yield prepared(as_matrix(batch.column(0)), self._manifest.metric), start
                start += batch.num_rows

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

    def _indexed(self, index: IndexEntry, queries: np.ndarray, k: int) -> Hits:
        with progress.stage("opening the index"):
            opened = self._index
        with progress.stage("searching the index"):
            depth = depth_for(k, index.rerank)
            found = opened.search(queries, depth, nprobe=index.nprobe_for(k) or None, least=k)
        if index.rerank:
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
        for number in np.unique(segment).tolist():
            here, file = segment == number, self._refine[number]
            vectors[here] = file.vectors(row[here]) if file else self._stored(segment[here], row[here])
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


def _taken(hits: Hits, places: list[list[int]], k: int) -> Hits:
    """The hits at these places of each query, with nothing behind them up to k."""
    columns = [
        [column[query][which] for query, which in enumerate(places)] for column in (hits.scores, hits.shard, hits.row)
    ]
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
