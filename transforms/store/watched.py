"""Watched queries, as a store keeps them: queries, and the answers of a snapshot.

Each is a Parquet file that is named by its bytes, so that snapshots share what did not change.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import (
    HASH_BYTES,
    as_matrix,
    make_vector_column,
    read_parquet_bytes,
    write_parquet_bytes,
)
from sentence_beam.transforms.base.errors import refuse_damage
from sentence_beam.transforms.space import canonical_json, sha256_text
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import WatchEntry, WatchFileEntry
from sentence_beam.transforms.store.named_files import read_named

ANSWERS = pa.schema(
    [
        ("query", pa.int32()),
        ("id", pa.string()),
        ("text_hash", pa.binary(HASH_BYTES)),
        ("score", pa.float32()),
        ("shard", pa.string()),
        ("row", pa.int64()),
    ]
)


@dataclass(frozen=True)
class WatchedQueries:
    """The queries: ids, texts, and their pooled vectors float32 [n, p].

    The vectors are in the space `pooled_id`. `query_prompt` is the one that the store remembered
    when they were made; None means the model's own.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    pooled: np.ndarray
    pooled_id: str
    query_prompt: str | None = None

    def to_bytes(self) -> bytes:
        """Return the Parquet file."""
        about = {"pooled_id": self.pooled_id, "query_prompt": self.query_prompt}
        table = pa.table(
            {
                "id": pa.array(self.ids, pa.string()),
                "text": pa.array(self.texts, pa.string()),
                "pooled": make_vector_column(self.pooled),
            }
        ).replace_schema_metadata({"vectors": json.dumps(about)})
        return write_parquet_bytes(table, write_page_checksum=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> "WatchedQueries":
        """Return the queries of a file that `to_bytes` made.

        Raises ValueError for missing values and vectors that are not finite.
        """
        table = read_parquet_bytes(data).combine_chunks()
        _refuse_nulls(table)
        about = json.loads(table.schema.metadata[b"vectors"])
        pooled = as_matrix(table.column("pooled").chunk(0))
        if not np.isfinite(pooled).all():
            raise ValueError("a vector is not finite")
        return cls(
            tuple(table.column("id").to_pylist()),
            tuple(table.column("text").to_pylist()),
            pooled,
            str(about["pooled_id"]),
            about["query_prompt"],
        )


@dataclass(frozen=True)
class Answer:
    """A row that answers a query.

    `text_hash` is the hash of its text, or of its document if rows are pieces. `shard` is relative
    to the store, `row` the place in it when the query was asked.
    """

    id: str
    text_hash: bytes
    score: float
    shard: str
    row: int


Answers = list[list[Answer]]  # of each query, best first


def pack_answers(answers: Answers) -> bytes:
    """Return the Parquet file of the answers to all queries."""
    rows = [
        {"query": query, **vars(answer)}
        for query, answers_of_query in enumerate(answers)
        for answer in answers_of_query
    ]
    return write_parquet_bytes(pa.Table.from_pylist(rows, schema=ANSWERS), write_page_checksum=True)


def parse_answers(data: bytes, queries: int) -> Answers:
    """Return the answers of a file that `pack_answers` made, for so many queries.

    Raises ValueError for a query, shard or row that no store has.
    """
    answers: Answers = [[] for _ in range(queries)]
    table = read_parquet_bytes(data).select(ANSWERS.names)
    _refuse_nulls(table)
    for row in table.to_pylist():
        query = row.pop("query")
        answer = Answer(**row)
        if not 0 <= query < queries:
            raise ValueError(f"there is no query {query}")
        if not layout.is_a("shards", answer.shard) or answer.row < 0:
            raise ValueError(f"row {answer.row} of {answer.shard} is no row of a store")
        answers[query].append(answer)
    return answers


def _refuse_nulls(table: pa.Table) -> None:
    for name in table.column_names:
        if table.column(name).null_count:
            raise ValueError(f"a value of {name} is missing")


def compute_digest_of_queries(ids: Sequence[str], texts: Sequence[str], k: int) -> str:
    """Return the digest of a set of queries, which does not cover their vectors."""
    content = {"ids": list(ids), "texts": list(texts), "k": k}
    return sha256_text(canonical_json(content))


def keep_watch_file(root: str, data: bytes) -> WatchFileEntry:
    """Write a file of the watched queries unless it is there whole, and return its entry."""
    sha256 = hashlib.sha256(data).hexdigest()
    relative = layout.watch_file(sha256)
    storage.ensure(storage.join(root, relative), data)
    return WatchFileEntry(relative, sha256)


def read_watch_file(root: str, entry: WatchFileEntry) -> bytes:
    """Return the bytes of a file.

    Raises SentenceBeamError if it is missing or was changed.
    """
    mend = "restore it, or name the queries again with sentence-beam watch"
    return read_named(storage.join(root, entry.path), entry.sha256, mend)


def read_queries(root: str, watch: WatchEntry) -> WatchedQueries:
    """Return the watched queries of a store.

    Raises SentenceBeamError if their file is missing, damaged, or has another number of queries
    than the manifest.
    """
    data = read_watch_file(root, watch.queries)
    with refuse_damage(f"{storage.join(root, watch.queries.path)} holds no watched queries"):
        watched = WatchedQueries.from_bytes(data)
        if len(watched.ids) != watch.count:
            raise ValueError(f"{len(watched.ids)} queries, not {watch.count}")
        return watched


def read_answers(root: str, watch: WatchEntry) -> Answers:
    """Return the answers of a snapshot to the watched queries.

    Raises SentenceBeamError if their file is missing or damaged.
    """
    data = read_watch_file(root, watch.answers)
    with refuse_damage(f"{storage.join(root, watch.answers.path)} holds no answers"):
        return parse_answers(data, watch.count)
