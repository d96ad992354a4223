"""The rows of a snapshot for search: their kept columns, documents and passages."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.base.plain_values import to_python_rows
from sentence_beam.transforms.corpus.column_types import find_word_of_numbers
from sentence_beam.transforms.corpus.passages import Piece, join_context, passage
from sentence_beam.transforms.index import exact_search
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric, prepare_vectors
from sentence_beam.transforms.search.hits import Hit, Hits
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.matches import Matches, matches
from sentence_beam.transforms.store.shards.shard_columns import list_hidden_columns
from sentence_beam.transforms.store.shards.shard_files import open_numbered, take_numbered
from sentence_beam.transforms.store.shards.shard_reading import read_shard, read_wanted

SAMPLED_SHARDS = 4  # opened at most, to see whether a text column holds numbers
HIT_FIELDS = {"query", "rank", "score", "rerank"}  # fields that the search fills itself


class StoredRows(NamedTuple):
    """Ids, shards and rows int64 [r], and vectors float32 [r, dim] of some rows."""

    ids: np.ndarray
    shard: np.ndarray
    row: np.ndarray
    vectors: np.ndarray

    def of(self, name: str) -> "StoredRows":
        """Return the rows that have an id."""
        is_named = self.ids == name
        return StoredRows(*(column[is_named] for column in self))


class SnapshotRows:
    """The rows of a snapshot, read from its shards."""

    def __init__(self, manifest: Manifest):
        self._manifest = manifest
        self._numbers: dict[str, str | None] = {}

    @property
    def has_pieces(self) -> bool:
        """Whether rows are pieces of documents."""
        return self._manifest.rows.pieces is not None

    @property
    def text(self) -> str | None:
        """The column with the rows' texts, None if texts are not kept."""
        return self._manifest.options.kept_text

    def name_field(self, column: str) -> str:
        """Return the field of a hit for the values of a column.

        It is the column's name, with `kept_` before it if the search fills a field of that name.
        """
        reserved = HIT_FIELDS | ({"passage"} if self.has_pieces else set())
        name = column
        while name in reserved or (name != column and name in self.columns.names):
            name = f"kept_{name}"
        return name

    @property
    def text_field(self) -> str | None:
        """The field of a hit with its row's text, None if texts are not kept."""
        return self.text and self.name_field(self.text)

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns that hits have and filters may name; the snapshot must have a row."""
        hidden = list_hidden_columns(self.has_pieces)
        with open_numbered(self._manifest, 0) as parquet:
            fields = parquet.schema_arrow.remove_metadata()
        return pa.schema([field for field in fields if field.name not in hidden])

    def numbers_in(self, column: str) -> str | None:
        """Return int or float if most of the first values of a text column are such numbers."""
        if column not in self._numbers:
            self._numbers[column] = self._sample_type(column)
        return self._numbers[column]

    def _sample_type(self, column: str) -> str | None:
        for number in range(min(SAMPLED_SHARDS, len(self._manifest.shards))):
            with open_numbered(self._manifest, number) as parquet:
                rows = parquet.read_row_group(0, [column], use_threads=False)
            texts = rows.column(0).drop_null().to_pylist()
            if texts:
                return find_word_of_numbers(texts)
        return None

    def read_first_value(self, column: str) -> Any:
        """Return the first value of a column that is not null, as a Python value.

        Returns None if the first row group has none.
        """
        with open_numbered(self._manifest, 0) as parquet:
            values = parquet.read_row_group(0, [column], use_threads=False).drop_null()
        return to_python_rows(values.slice(0, 1))[0][column] if len(values) else None

    def read_with_ids(self, ids: Sequence[str]) -> StoredRows:
        """Return the rows that have one of the ids."""
        wanted = matches(self._manifest, pc.field("id").isin(pa.array(ids, pa.string()))).shards
        names = [np.empty(0, object)]
        shards = [np.empty(0, np.int64)]
        rows = [np.empty(0, np.int64)]
        vectors = [np.empty((0, self._manifest.space.dim), np.float32)]
        for number, is_wanted in enumerate(wanted):
            if not is_wanted.any():
                continue
            row = np.flatnonzero(is_wanted)
            table = self._take(number, row, ["id", "embedding"])
            names.append(table.column("id").to_numpy())
            shards.append(np.full(len(row), number))
            rows.append(row)
            vectors.append(as_matrix(table.column("embedding").combine_chunks()))
        return StoredRows(*(np.concatenate(blocks) for blocks in (names, shards, rows, vectors)))

    def read_first_with_id(self, name: str) -> dict[str, Any]:
        """Return the fields of the first row that has an id; there must be one."""
        stored = self.read_with_ids([name])
        return to_python_rows(self._read_fields(int(stored.shard[0]), stored.row[:1]))[0]

    def read_ids(self, shard: np.ndarray, row: np.ndarray) -> list[str]:
        """Return the ids of rows, by shard and row in it, both int64 [m]."""
        names = np.empty(len(row), object)
        for number in np.unique(shard).tolist():
            places = np.flatnonzero(shard == number)
            names[places] = self._take(number, row[places], ["id"]).column("id").to_numpy()
        ids: list[str] = names.tolist()
        return ids

    def find_firsts(self, shard: np.ndarray, row: np.ndarray) -> list[int]:
        """Return the places of the first piece of each document among the pieces of a query."""
        documents: dict[tuple[str, bytes], int] = {}
        names: list[Any] = [None] * len(row)
        for number in np.unique(shard[shard >= 0]).tolist():
            places = np.flatnonzero(shard == number)
            table = self._take(number, row[places], ["id", "doc_hash"])
            columns = [column.to_pylist() for column in table.columns]
            for place, name in zip(places.tolist(), zip(*columns, strict=True), strict=True):
                names[place] = name
        for place, name in enumerate(names):
            if name is not None:
                documents.setdefault(name, place)
        return list(documents.values())

    def describe(self, hits: Hits) -> list[list[Hit]]:
        """Return the hits of each query with their fields, best first."""
        values: dict[tuple[int, int], dict[str, Any]] = {}
        tables = []
        keys: list[tuple[int, int]] = []
        for number in np.unique(hits.shard[hits.shard >= 0]).tolist():
            rows = np.unique(hits.row[hits.shard == number])
            tables.append(self._read_fields(number, rows))
            keys += [(number, row) for row in rows.tolist()]
        if tables:
            values = dict(zip(keys, to_python_rows(pa.concat_tables(tables)), strict=True))
        return [_describe(*query, values) for query in zip(*hits.columns, strict=True)]

    def add_passages(
        self, texts: Sequence[str], hits: Hits, described: list[list[Hit]], width: int
    ) -> None:
        """Put the passage into every hit, of at most `width` characters.

        The pieces before and after a hit in its shard complete the sentences at its ends.
        """
        pieces = self._read_neighbours(hits)
        for query, shards, rows, of_query in zip(
            texts, hits.shard, hits.row, described, strict=True
        ):
            is_hit = shards >= 0
            places = zip(shards[is_hit].tolist(), rows[is_hit].tolist(), strict=True)
            for (shard, row), hit in zip(places, of_query, strict=True):
                near = (pieces.get((shard, other)) for other in (row - 1, row, row + 1))
                hit["passage"] = passage(*join_context(*near), query, width)

    def _read_neighbours(self, hits: Hits) -> dict[tuple[int, int], Piece]:
        """Return the pieces of hits and the pieces next to them, by shard and row."""
        pieces: dict[tuple[int, int], Piece] = {}
        names = ["id", "doc_hash", "piece", "start", "end", str(self.text)]
        for shard in np.unique(hits.shard[hits.shard >= 0]).tolist():
            rows = hits.row[hits.shard == shard]
            near = np.unique(np.concatenate([rows - 1, rows, rows + 1]))
            near = near[(near >= 0) & (near < self._manifest.shard(shard).rows)]
            table = self._take(shard, near, names)
            columns = [table.column(name).to_pylist() for name in names]
            for row, *values in zip(near.tolist(), *columns, strict=True):
                name, digest, piece, start, end, text = values
                pieces[shard, row] = Piece((name, digest), piece, start, end, text or "")
        return pieces

    def _read_fields(self, number: int, rows: np.ndarray) -> pa.Table:
        """Return rows of one shard, with the fields of hits as column names."""
        names = self.columns.names
        table = self._take(number, rows, names).replace_schema_metadata(None).select(names)
        return table.rename_columns([self.name_field(name) for name in names])

    def _take(self, number: int, rows: np.ndarray, columns: list[str]) -> pa.Table:
        """Return rows of one shard, in the requested order."""
        return take_numbered(self._manifest, number, rows, columns)


def read_rows(
    manifest: Manifest,
    columns: Sequence[str],
    what: str,
    wanted: Matches | None = None,
    shards: range | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield blocks of the wanted rows of some shards, all by default, in order.

    Each block comes with the number of its shard. `what` names the stage for whoever watches the
    progress.
    """
    numbers = range(len(manifest.shards)) if shards is None else shards
    for number in progress.count_over(numbers, what, "shards"):
        path = manifest.shard(number).full_path
        if wanted is None:
            for batch in read_shard(path, list(columns)):
                yield number, batch
            continue
        for table in read_wanted(path, wanted.shards[number], list(columns)):
            for batch in table.combine_chunks().to_batches():
                yield number, batch


def find_exact_rows(
    manifest: Manifest,
    queries: np.ndarray,
    k: int,
    wanted: Matches | None = None,
    shards: range | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores float32 and positions int64 [q, k] of the nearest rows, by comparing with each.

    The rows are those of `read_rows`, a position is the number of a shard << 32, and the row in it.
    """
    numbers = range(len(manifest.shards)) if shards is None else shards

    def blocks() -> Iterator[tuple[np.ndarray, int]]:
        start = 0
        what = "comparing with every row"
        for _, batch in read_rows(manifest, ["embedding"], what, wanted, numbers):
            yield prepare_vectors(as_matrix(batch.column(0)), manifest.metric), start
            start += batch.num_rows

    scores, nearest = exact_search(blocks(), queries, k, choose_scoring_metric(manifest.metric))
    if wanted is None:
        rows = manifest.shards.column("rows").to_numpy()[numbers.start : numbers.stop]
        starts = np.cumsum(rows) - rows
        shard = np.searchsorted(starts, nearest, "right") - 1
        positions = (numbers.start + shard) << 32 | nearest - starts[shard]
    else:
        places = [np.flatnonzero(wanted.shards[number]) | number << 32 for number in numbers]
        positions = np.concatenate(places)[nearest]
    return scores, np.where(nearest >= 0, positions, -1)


def _describe(
    scores: np.ndarray,
    shards: np.ndarray,
    rows: np.ndarray,
    values: Mapping[tuple[int, int], Mapping[str, Any]],
) -> list[Hit]:
    """Return the hits of one query, with the values of their rows by shard and row."""
    hits = []
    for rank, (score, shard, row) in enumerate(zip(scores, shards, rows, strict=True), 1):
        if shard >= 0:
            hits.append(Hit({"rank": rank, "score": float(score), **values[int(shard), int(row)]}))
    return hits
