"""All rows of a snapshot at hand at once: ids in memory, vectors of length 1 in a file that is mapped."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from transforms.base import progress
from transforms.base.arrow import as_hashes, as_keys, as_matrix
from transforms.base.errors import OptionError
from transforms.index import IndexPlan, TrainedIndex, train
from transforms.index.vectors import prepared
from transforms.store.manifest import Manifest
from transforms.store.shards.shards import open_shard, read_shard, take_rows

TEXT_CHARACTERS = 200
TEXT = "text"  # the column with the texts of rows in what a join writes


@dataclass(frozen=True)
class StoreVectors:
    """The rows of a snapshot in the order of its shards: columns id and, of pieces, piece; hashes uint8 [n, 16].

    `vectors` float32 [n, d] are of length 1. `starts` int64 [shards] are the shards' first rows.
    """

    manifest: Manifest
    columns: pa.Table
    hashes: np.ndarray
    vectors: np.ndarray
    starts: np.ndarray

    @classmethod
    def read(cls, manifest: Manifest, folder: Path) -> "StoreVectors":
        """The rows, whose vectors are put into a file of the folder. Raises OptionError where there are none."""
        rows = manifest.rows.stored
        if not rows:
            raise OptionError(f"{manifest.root} holds no rows")
        vectors = np.memmap(folder / "vectors", np.float32, "w+", shape=(rows, manifest.space.dim))
        batches, starts, at = [], [], 0
        for path in progress.over(manifest.shard_paths, "reading the store", "shards"):
            starts.append(at)
            with open_shard(path) as parquet:
                pieces = [name for name in ("piece",) if name in parquet.schema_arrow.names]
            for batch in read_shard(path, ["id", *pieces, "row_hash", "embedding"]):
                found = as_matrix(batch.column("embedding"))
                vectors[at : at + len(found)] = prepared(found, "cosine")
                at += len(found)
                batches.append(batch.drop_columns(["embedding"]))
        table = pa.Table.from_batches(batches).replace_schema_metadata(None)
        hashes = as_hashes(table.column("row_hash"))
        return cls(manifest, table.drop_columns(["row_hash"]), hashes, vectors, np.array(starts, np.int64))

    def __len__(self) -> int:
        return len(self.vectors)

    def trained(self, plan: IndexPlan, most: int) -> TrainedIndex:
        """What the training of an index gives for `most` of the rows, the same ones each time."""
        return train_on(self.vectors, plan, most)

    def names(self, rows: np.ndarray) -> list[str]:
        """The texts of rows int64 [m], cut to 200 characters and on one line; their ids where no text is kept."""
        texts = self.texts(rows)
        if texts is None:
            return self.columns.column("id").take(pa.array(rows)).to_pylist()
        return [" ".join(text.split())[:TEXT_CHARACTERS] for text in texts]

    def texts(self, rows: np.ndarray) -> list[str] | None:
        """The texts of rows int64 [m], None if the store keeps none."""
        text = self.manifest.options.kept_text
        if text is None:
            return None
        found = [""] * len(rows)
        shard = np.searchsorted(self.starts, rows, "right") - 1
        for number in np.unique(shard).tolist():
            here = np.flatnonzero(shard == number)
            table = take_rows(self.manifest.shard_paths[number], rows[here] - self.starts[number], [text])
            for place, value in zip(here.tolist(), table.column(0).to_pylist(), strict=True):
                found[place] = str(value or "")
        return found


def train_on(vectors: np.ndarray, plan: IndexPlan, most: int) -> TrainedIndex:
    """What the training of an index gives for `most` of the vectors, the same ones each time."""
    rows = np.sort(np.random.default_rng(0).choice(len(vectors), min(most, len(vectors)), replace=False))
    with progress.stage(f"training on {len(rows):,} rows"):
        return TrainedIndex.of(train(plan, np.ascontiguousarray(vectors[rows])))


def first_copies(hashes: np.ndarray) -> np.ndarray:
    """For each row the first one that has its text, int64 [n]; `hashes` uint8 [n, 16]."""
    _, first, of = np.unique(as_keys(hashes), return_index=True, return_inverse=True)
    return first[of]


def with_texts(rows: pa.Table, manifest: Manifest) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """All rows of a snapshot, in the order of its shards, with their texts if the store keeps these; schema and tables.

    A shard's texts are read when its table is asked for.
    """
    text = manifest.options.kept_text
    if text is None:
        return rows.schema, iter([rows])
    return rows.schema.append(pa.field(TEXT, pa.large_string())), _with_texts(rows, manifest.shard_paths, text)


def _with_texts(rows: pa.Table, shards: list[str], text: str) -> Iterator[pa.Table]:
    at = 0
    for path in shards:
        for batch in read_shard(path, [text]):
            here = rows.slice(at, batch.num_rows)
            yield here.append_column(TEXT, batch.column(0).cast(pa.large_string()))
            at += batch.num_rows
