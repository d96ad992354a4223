"""The most similar pairs of rows of a store."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms.index.copies import add_copies
from sentence_beam.transforms.index.near_pairs import (
    TopPairs,
    find_top_pairs,
    measure_share_of_nearest,
    put_in_one_list,
)
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.steps.joins.store_vectors import (
    StoreVectors,
    find_first_copies,
    find_near_lists,
)
from sentence_beam.transforms.steps.options.joins import PairsOptions
from sentence_beam.transforms.store.manifest import Manifest

EXACT_BELOW = 250_000  # texts; every pair of so many takes some minutes on two cores
TEXTS_AT_ONCE = 32_768


@dataclass(frozen=True)
class Collection:
    """Rows with their ids and vectors float32 [n, d] of length 1.

    `of` int64 [rows] is each row's vector: rows of one text share that of the first. `texts`
    returns the texts of some rows int64 [m], None if they are not kept; `pieces` are the numbers of
    rows that are pieces of documents.
    """

    ids: list[str]
    vectors: np.ndarray
    of: np.ndarray
    texts: Callable[[np.ndarray], list[str] | None]
    pieces: list[int] | None = None

    @property
    def distinct(self) -> np.ndarray:
        """The vectors that rows have, int64 [texts], in their order."""
        return np.unique(self.of)


@dataclass(frozen=True)
class Paired:
    """The pairs as rows of a table, and the numbers of the collection's rows, texts and rejected
    rows.

    `how` says in words how the pairs were found.
    """

    pairs: list[dict[str, Any]]
    rows: int
    texts: int
    rejected: int
    how: str


def find_pairs(manifest: Manifest, options: PairsOptions) -> Paired:
    """Return the most similar pairs of a snapshot's rows that the options ask for."""
    with tempfile.TemporaryDirectory() as folder:
        collection = read_store(manifest, Path(folder))
        pairs, how = find_most_similar(collection, options)
        rows = _as_rows(pairs, collection, options.distinct)
        texts = len(collection.distinct)
        return Paired(rows, len(collection.ids), texts, manifest.rows.rejected, how)


def read_store(manifest: Manifest, folder: Path) -> Collection:
    """Return the rows of a snapshot, whose vectors are put into a file of the folder."""
    if not manifest.rows.stored:
        return Collection(
            [], np.empty((0, manifest.space.dim), np.float32), np.empty(0, np.int64), lambda _: None
        )
    stored = StoreVectors.read(Selection(manifest), folder)
    columns = stored.columns
    pieces = columns.column("piece").to_pylist() if "piece" in columns.column_names else None
    ids = columns.column("id").to_pylist()
    # an index takes lengths near 1 as they are, a score does not
    for start in range(0, len(stored), TEXTS_AT_ONCE):
        block = slice(start, start + TEXTS_AT_ONCE)
        stored.vectors[block] = _normalize(stored.vectors[block])
    return Collection(
        ids, stored.vectors, find_first_copies(stored.hashes), stored.texts, pieces=pieces
    )


def _normalize(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors divided by their lengths; not finite for length zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return vectors / np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]


def find_most_similar(
    collection: Collection, options: PairsOptions, exact_below: int = EXACT_BELOW
) -> tuple[TopPairs, str]:
    """Return the k most similar pairs of rows, and how they were found.

    They are pairs of vectors if pairs are to be distinct.
    """
    vectors = collection.vectors
    least = -np.inf if options.min_score is None else options.min_score
    exact = len(collection.distinct) < exact_below
    near = put_in_one_list(len(vectors)) if exact else find_near_lists(vectors, least)
    copies = np.ones(len(vectors), bool)
    copies[collection.of] = False
    near[copies] = -1  # in no list: the first row of their text represents them
    pairs = find_top_pairs(vectors, near, options.k, least=least)
    if not options.distinct:
        pairs = add_copies(pairs, vectors, collection.of, options.k)
    if exact:
        return pairs, "every pair compared"
    share = measure_share_of_nearest(vectors, near)
    return (
        pairs,
        f"an index was asked, which finds the nearest neighbour of {share:.1%} of the texts",
    )


def _as_rows(pairs: TopPairs, collection: Collection, distinct: bool) -> list[dict[str, Any]]:
    """Return the pairs as rows: rank and score, and of both id, text and piece.

    Texts are there if they are kept. If pairs are of distinct texts, the first row of a text
    represents all, and `rows_1` and `rows_2` count them.
    """
    rows = [
        {"rank": rank, "score": min(score, 1.0)}
        for rank, score in enumerate(pairs.scores.tolist(), 1)
    ]
    numbers, first, counts = np.unique(collection.of, return_index=True, return_counts=True)
    for side, places in ((1, pairs.first), (2, pairs.second)):
        at = np.searchsorted(numbers, places)
        chosen = first[at] if distinct else places
        texts = collection.texts(chosen)
        for number, (row, place) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            row[f"id_{side}"] = collection.ids[place]
            if collection.pieces is not None:
                row[f"piece_{side}"] = collection.pieces[place]
            if texts is not None:
                row[f"text_{side}"] = texts[number]
            if distinct:
                row[f"rows_{side}"] = int(counts[at[number]])
    return rows
