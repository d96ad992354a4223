"""All selected rows of a snapshot at once: ids in memory, vectors of length 1 in a mapped file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_keys, as_matrix
from sentence_beam.transforms.index import IndexPlan, TrainedIndex, train
from sentence_beam.transforms.index.index_kinds import choose_automatic_index, make_plan
from sentence_beam.transforms.index.metric_vectors import prepare_vectors
from sentence_beam.transforms.index.near_pairs import (
    choose_list_count,
    find_lists_near,
    put_in_one_list,
)
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.store.shards.shard_files import open_numbered, take_numbered

TEXT_CHARACTERS = 200
TEXT = "text"  # the column with the texts of rows in what a join writes


@dataclass(frozen=True)
class StoreVectors:
    """The n selected rows of a snapshot, in the order of its shards.

    `columns`: id and, of pieces, piece; `hashes` uint8 [n, 16]; `vectors` float32 [n, d] of length
    1; `starts` int64 [shards]: the number of each shard's first row among the n.
    """

    selection: Selection
    columns: pa.Table
    hashes: np.ndarray
    vectors: np.ndarray
    starts: np.ndarray

    @classmethod
    def read(cls, selection: Selection, folder: Path) -> "StoreVectors":
        """Read the rows; their vectors go into a file of the folder.

        Raises OptionError if there are none.
        """
        selection.check_rows()
        manifest = selection.manifest
        shape = (len(selection), manifest.space.dim)
        vectors = np.memmap(folder / "vectors", np.float32, "w+", shape=shape)
        columns = ["id", "row_hash", "embedding"]
        with open_numbered(manifest, 0) as parquet:
            if "piece" in parquet.schema_arrow.names:
                columns.insert(1, "piece")
        batches = []
        counts = np.zeros(len(manifest.shards), np.int64)
        at = 0
        for shard, batch in selection.read(columns, "reading the store"):
            matrix = as_matrix(batch.column("embedding"))
            vectors[at : at + len(matrix)] = prepare_vectors(matrix, "cosine")
            at += len(matrix)
            counts[shard] += len(matrix)
            batches.append(batch.drop_columns(["embedding"]))
        table = pa.Table.from_batches(batches).replace_schema_metadata(None)
        hashes = as_hashes(table.column("row_hash"))
        starts = np.cumsum(counts) - counts
        return cls(selection, table.drop_columns(["row_hash"]), hashes, vectors, starts)

    def __len__(self) -> int:
        return len(self.vectors)

    def table(self, columns: dict[str, np.ndarray]) -> pa.Table:
        """Return the ids of all rows, other columns of them, and the numbers of pieces."""
        table = self.columns.select(["id"])
        for name, column in columns.items():
            table = table.append_column(name, pa.array(column))
        if "piece" in self.columns.column_names:
            return table.append_column("piece", self.columns["piece"])
        return table

    def names(self, rows: np.ndarray) -> list[str]:
        """Return the texts of rows int64 [m], cut to 200 characters and on one line.

        Returns their ids if the store keeps no text.
        """
        texts = self.texts(rows)
        if texts is None:
            return self.columns.column("id").take(pa.array(rows)).to_pylist()
        return [" ".join(text.split())[:TEXT_CHARACTERS] for text in texts]

    def texts(self, rows: np.ndarray) -> list[str] | None:
        """Return the texts of rows int64 [m], None if the store keeps none."""
        manifest = self.selection.manifest
        text = manifest.options.kept_text
        if text is None:
            return None
        texts = [""] * len(rows)
        shards = np.searchsorted(self.starts, rows, "right") - 1
        for shard in np.unique(shards).tolist():
            here = np.flatnonzero(shards == shard)
            places = rows[here] - self.starts[shard]
            selected = self.selection.rows_of(shard)
            if selected is not None:
                places = selected[places]
            table = take_numbered(manifest, shard, places, [text])
            for place, value in zip(here.tolist(), table.column(0).to_pylist(), strict=True):
                texts[place] = str(value or "")
        return texts


def train_on(vectors: np.ndarray, plan: IndexPlan, most: int) -> TrainedIndex:
    """Train an index on at most `most` of the vectors, the same ones each time."""
    generator = np.random.default_rng(0)
    rows = np.sort(generator.choice(len(vectors), min(most, len(vectors)), replace=False))
    with progress.stage(f"training on {len(rows):,} rows"):
        return TrainedIndex.from_bytes(train(plan, np.ascontiguousarray(vectors[rows])))


def find_near_lists(
    vectors: np.ndarray,
    threshold: float,
    open_trained: Callable[[], TrainedIndex | None] = lambda: None,
) -> np.ndarray:
    """Return the lists near each vector, int32 [n, lists], to find pairs above a threshold.

    They are those of the trained index that can be opened, else of k-means over the vectors. Few
    vectors are in one list.
    """
    rows, dim = vectors.shape
    plan = make_plan(choose_automatic_index(rows, "Flat"), rows, dim, "ip")
    if not plan.nlist:
        return put_in_one_list(rows)
    trained = open_trained() or train_on(vectors, plan, plan.train_rows)
    return find_lists_near(vectors, trained, choose_list_count(threshold))


def find_first_copies(hashes: np.ndarray) -> np.ndarray:
    """Return for each row the first one of its text, int64 [n]; `hashes` uint8 [n, 16]."""
    _, first, of = np.unique(as_keys(hashes), return_index=True, return_inverse=True)
    return first[of]


def append_texts(rows: pa.Table, selection: Selection) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Append the texts of all selected rows, if the store keeps them, and return schema and tables.

    `rows` are in the order of the shards. Texts are read when a table is requested.
    """
    text = selection.manifest.options.kept_text
    if text is None:
        return rows.schema, iter([rows])
    schema = rows.schema.append(pa.field(TEXT, pa.large_string()))
    return schema, _append_texts(rows, selection, text)


def _append_texts(rows: pa.Table, selection: Selection, text: str) -> Iterator[pa.Table]:
    at = 0
    for _, batch in selection.read([text], "reading the texts"):
        here = rows.slice(at, batch.num_rows)
        yield here.append_column(TEXT, batch.column(0).cast(pa.large_string()))
        at += batch.num_rows
