"""Queries of a join: names and vectors, of the rows of a store or of texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.store.shards.shard_reading import open_shard, take_rows

StoredRows = tuple[int, str, Sequence[int]]  # number and path of a shard, and rows of it


@dataclass(frozen=True)
class Queries:
    """Queries by name, with their vectors float32 [q, dim].

    For stored rows, `shard` and `row` int64 [q] are the number of the shard and the row in it.
    `piece` int32 [q] are their numbers if they are pieces of documents; `texts` are None if
    unknown.
    """

    names: list[str]
    vectors: np.ndarray
    shard: np.ndarray
    row: np.ndarray
    piece: np.ndarray | None = None
    texts: list[str | None] | None = None


def read_stored_queries(parts: Sequence[StoredRows], text: str | None) -> Queries:
    """Return rows of a store as queries, with the texts of a column."""
    names: list[str] = []
    texts: list[str | None] = []
    columns = ["id", "embedding"]
    if text is not None:
        columns.append(text)
    vectors = []
    shards = []
    places = []
    numbers = []
    for number, path, rows in progress.count_over(parts, "reading the queries", "parts of shards"):
        with open_shard(path) as parquet:
            pieces = [name for name in ("piece",) if name in parquet.schema_arrow.names]
        here = np.asarray(rows)
        table = take_rows(path, here, [*columns, *pieces])
        names += table.column("id").to_pylist()
        if text is not None:
            texts += table.column(text).to_pylist()
        vectors.append(as_matrix(table.column("embedding").combine_chunks()))
        shards.append(np.full(len(here), number))
        places.append(here)
        numbers += [table.column(name).to_numpy() for name in pieces]
    piece = np.concatenate(numbers) if numbers else None
    return Queries(
        names,
        np.concatenate(vectors),
        np.concatenate(shards),
        np.concatenate(places),
        piece,
        texts or None,
    )
