"""The rows of a snapshot as a search shows them: what is kept of each, documents and their
passages.
"""

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.base.arrow import as_matrix
from transforms.base.errors import SentenceBeamError
from transforms.corpus.column_types import word_for_numbers
from transforms.corpus.passages import Piece, in_context, passage
from transforms.search.hits import Hit, Hits
from transforms.store.manifest import Manifest
from transforms.store.matches import matches
from transforms.store.shards.columns import hidden_columns
from transforms.store.shards.reading import open_shard, take_rows

LOOKED_AT = 4  # shards at most that are opened to see whether a text column holds numbers
HIT_FIELDS = {"query", "rank", "score", "rerank"}  # what a search says itself


class StoredRows(NamedTuple):
    """Some rows: their ids, shard and row int64 [r], vectors float32 [r, dim]."""

    ids: np.ndarray
    shard: np.ndarray
    row: np.ndarray
    vectors: np.ndarray

    def of(self, name: str) -> "StoredRows":
        """Those that have an id."""
        here = self.ids == name
        return StoredRows(*(column[here] for column in self))


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
        """The column with the rows' texts, None where they were not kept."""
        return self._manifest.options.kept_text

    def field_of(self, column: str) -> str:
        """The field of a hit that has the values of a column: its name, after `kept_` where a hit
        says that itself.
        """
        own, name = HIT_FIELDS | ({"passage"} if self.has_pieces else set()), column
        while name in own or (name != column and name in self.columns.names):
            name = f"kept_{name}"
        return name

    @property
    def text_field(self) -> str | None:
        """The field of a hit that has its row's text, None where texts were not kept."""
        return self.text and self.field_of(self.text)

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns that a hit has, and that a filter may name; of a snapshot with a row at
        least.
        """
        with open_shard(self._manifest.shard_paths[0]) as parquet:
            hidden = hidden_columns(self.has_pieces)
            return pa.schema(
                [
                    field
                    for field in parquet.schema_arrow.remove_metadata()
                    if field.name not in hidden
                ]
            )

    def numbers_in(self, column: str) -> str | None:
        """The type that a text column should be given, int or float, if most of its first values
        are numbers.
        """
        if column not in self._numbers:
            self._numbers[column] = self._looked_at(column)
        return self._numbers[column]

    def _looked_at(self, column: str) -> str | None:
        for path in self._manifest.shard_paths[:LOOKED_AT]:
            with open_shard(path) as parquet:
                texts = parquet.read_row_group(0, [column]).column(0).drop_null().to_pylist()
            if texts:
                return word_for_numbers(texts)
        return None

    def first_value(self, column: str) -> Any:
        """The first value of a column that is not null, as Python has it; None if the first rows
        have none.
        """
        with open_shard(self._manifest.shard_paths[0]) as parquet:
            values = parquet.read_row_group(0, [column]).drop_null()
        return plain_rows(values.slice(0, 1))[0][column] if len(values) else None

    def with_ids(self, ids: Sequence[str]) -> StoredRows:
        """The rows that have one of the ids."""
        found = matches(self._manifest, pc.field("id").isin(pa.array(ids, pa.string()))).shards
        places = [
            (number, np.flatnonzero(wanted)) for number, wanted in enumerate(found) if wanted.any()
        ]
        tables = [self._of_shard(number, rows, ["id", "embedding"]) for number, rows in places]
        vectors = [as_matrix(table.column("embedding").combine_chunks()) for table in tables]
        return StoredRows(
            np.concatenate(
                [np.empty(0, object), *(table.column("id").to_numpy() for table in tables)]
            ),
            np.concatenate(
                [np.empty(0, np.int64), *(np.full(len(rows), number) for number, rows in places)]
            ),
            np.concatenate([np.empty(0, np.int64), *(rows for _, rows in places)]),
            np.concatenate([np.empty((0, self._manifest.space.dim), np.float32), *vectors]),
        )

    def first_with_id(self, name: str) -> dict[str, Any]:
        """The first row that has an id, by the fields that a hit has of it; a row must have it."""
        found = self.with_ids([name])
        return plain_rows(self._with_fields(int(found.shard[0]), found.row[:1]))[0]

    def firsts(self, shard: np.ndarray, row: np.ndarray) -> list[int]:
        """The places of the first piece of each document among the pieces of a query, in order."""
        documents: dict[tuple[str, bytes], int] = {}
        names: list[Any] = [None] * len(row)
        for number in np.unique(shard[shard >= 0]).tolist():
            here = np.flatnonzero(shard == number)
            table = self._of_shard(number, row[here], ["id", "doc_hash"])
            for place, name in zip(
                here.tolist(),
                zip(*(c.to_pylist() for c in table.columns), strict=True),
                strict=True,
            ):
                names[place] = name
        for place, name in enumerate(names):
            if name is not None:
                documents.setdefault(name, place)
        return list(documents.values())

    def described(self, hits: Hits) -> list[list[Hit]]:
        """The hits of each query, best first."""
        numbers = np.unique(hits.shard[hits.shard >= 0])
        found = [(int(number), np.unique(hits.row[hits.shard == number])) for number in numbers]
        keys = [(number, int(row)) for number, rows in found for row in rows]
        tables = [self._with_fields(number, rows) for number, rows in found]
        values = dict(
            zip(keys, plain_rows(pa.concat_tables(tables)) if tables else [], strict=True)
        )
        return [
            [
                Hit({"rank": rank + 1, "score": float(score), **values[int(shard), int(row)]})
                for rank, (score, shard, row) in enumerate(zip(*query, strict=True))
                if shard >= 0
            ]
            for query in zip(*hits.columns, strict=True)
        ]

    def add_passages(
        self, texts: Sequence[str], hits: Hits, found: list[list[Hit]], width: int
    ) -> None:
        """Put the passage into every hit; sentences of the pieces beside it are known where they
        stand beside it.
        """
        near = self._beside(hits)
        for query, shards, rows, described in zip(texts, hits.shard, hits.row, found, strict=True):
            places = [
                place for place in zip(shards.tolist(), rows.tolist(), strict=True) if place[0] >= 0
            ]
            for (shard, row), hit in zip(places, described, strict=True):
                pieces = (near.get((shard, other)) for other in (row - 1, row, row + 1))
                hit["passage"] = passage(*in_context(*pieces), query, width)

    def _beside(self, hits: Hits) -> dict[tuple[int, int], Piece]:
        """The pieces of hits and those that stand beside them in their shards, by shard and row."""
        found: dict[tuple[int, int], Piece] = {}
        sizes = [unit.rows for unit in self._manifest.units if unit.path]
        for shard in np.unique(hits.shard[hits.shard >= 0]).tolist():
            rows = hits.row[hits.shard == shard]
            near = np.unique(np.concatenate([rows - 1, rows, rows + 1]))
            near = near[(near >= 0) & (near < sizes[shard])]
            table = self._of_shard(
                shard, near, ["id", "doc_hash", "piece", "start", "end", str(self.text)]
            )
            named = zip(
                *(table.column(name).to_pylist() for name in table.column_names), strict=True
            )
            columns = table.column_names
            for row, values in zip(near.tolist(), named, strict=True):
                said = dict(zip(columns, values, strict=True))
                document = said["id"], said["doc_hash"]
                text = said[str(self.text)] or ""
                found[shard, row] = Piece(document, said["piece"], said["start"], said["end"], text)
        return found

    def _with_fields(self, number: int, rows: np.ndarray) -> pa.Table:
        """Rows of one shard by the fields that a hit has of them."""
        names = self.columns.names
        table = self._of_shard(number, rows, names).replace_schema_metadata(None).select(names)
        return table.rename_columns([self.field_of(name) for name in names])

    def _of_shard(self, number: int, rows: np.ndarray, columns: list[str]) -> pa.Table:
        """Rows of one shard, in the order asked for."""
        return take_rows(self._manifest.shard_paths[number], rows, columns)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts of Python values. A column of times with one that Python cannot hold is
    given as text.
    """
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
    raise SentenceBeamError(
        f"kept column {name} ({column.type}) holds values that Python has no type for"
    )
