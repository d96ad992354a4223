"""The most similar pairs of rows of a store, or of the files of a collection."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.corpus.collection_rows import list_files, read_files
from sentence_beam.transforms.corpus.found_columns import choose_columns
from sentence_beam.transforms.corpus.spans import estimate_tokens
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.index.copies import add_copies
from sentence_beam.transforms.index.near_pairs import (
    TopPairs,
    find_top_pairs,
    measure_share_of_nearest,
    put_in_one_list,
)
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.space import Machine, Recipe, row_hashes
from sentence_beam.transforms.steps.joins.store_vectors import (
    StoreVectors,
    find_first_copies,
    find_near_lists,
)
from sentence_beam.transforms.steps.options.joins import PairsOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest

EXACT_BELOW = 250_000  # texts; every pair of so many takes some minutes on two cores
TEXTS_AT_ONCE = 32_768


@dataclass(frozen=True)
class Collection:
    """Rows with their ids and vectors float32 [n, d] of length 1.

    `of` int64 [rows] is each row's vector: rows of one text share one, in a store that of the
    first. `texts` returns the texts of some rows int64 [m], None if they are not kept; `pieces` are
    the numbers of rows that are pieces of documents.
    """

    ids: list[str]
    vectors: np.ndarray
    of: np.ndarray
    texts: Callable[[np.ndarray], list[str] | None]
    rejected: int = 0
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


def find_pairs(options: PairsOptions) -> Paired:
    """Return the most similar pairs that the options ask for.

    Raises the errors that `embed` raises for files.
    """
    with tempfile.TemporaryDirectory() as folder:
        if options.store is not None:
            collection = read_store(
                open_store(options.store, options.snapshot).manifest, Path(folder)
            )
        else:
            collection = embed_files(options, Path(folder))
        pairs, how = find_most_similar(collection, options)
        rows = _as_rows(pairs, collection, options.distinct)
        return Paired(rows, len(collection.ids), len(collection.distinct), collection.rejected, how)


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


def embed_files(options: PairsOptions, folder: Path) -> Collection:
    """Return the rows of the files, each text embedded once.

    The vectors are put into a file of the folder. Rows whose text has no finite vector are
    rejected.
    """
    with progress.stage("reading", things="rows"):
        ids, texts, of, rejected = _read_texts(options)
    vectors = _embed(options, texts, folder)
    finite = np.isfinite(vectors).all(axis=1)
    rows = np.flatnonzero(finite[of])
    of = of[rows]
    rejected += len(ids) - len(rows)
    if not finite.all():
        ids = [ids[row] for row in rows.tolist()]
        texts = [texts[number] for number in np.flatnonzero(finite).tolist()]
        vectors = vectors[finite]
        of = (np.cumsum(finite) - 1)[of]
    return Collection(
        ids, vectors, of, lambda chosen: [texts[number] for number in of[chosen].tolist()], rejected
    )


def _read_texts(options: PairsOptions) -> tuple[list[str], list[str], np.ndarray, int]:
    """Return ids, distinct texts, each row's text int64 [rows], and the rejected rows."""
    files = list_files(options.input or (), options.format, Syntax.from_options(options))
    columns = choose_columns(files, options.text_column, options.id_column)
    ids: list[str] = []
    texts: list[str] = []
    of: list[int] = []
    number: dict[bytes, int] = {}
    rejected = 0
    for rows in read_files(files, columns):
        progress.step(len(rows.ids))
        ids += rows.ids
        rejected += len(rows.rejects)
        for text, row_hash in zip(rows.texts, row_hashes(rows.texts), strict=True):
            if row_hash not in number:
                number[row_hash] = len(texts)
                texts.append(text)
            of.append(number[row_hash])
    return ids, texts, np.array(of, np.int64), rejected


def _embed(options: PairsOptions, texts: list[str], folder: Path) -> np.ndarray:
    """Return vectors of length 1, float32 [texts, d], mapped from a file.

    They are not finite for texts that have none.
    """
    with progress.stage(progress.LOADING):
        from sentence_beam.transforms.encoder import Encoder

        encoder = Encoder.from_recipe(
            Recipe.from_options(vars(options)), Machine(options.device, options.tokens_per_batch)
        )
    progress.planned(estimate_tokens(sum(len(text.encode()) for text in texts), len(texts)))
    shape = (max(1, len(texts)), encoder.dim)
    vectors = np.memmap(folder / "vectors", np.float32, "w+", shape=shape)[: len(texts)]
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        tokenized = encoder.tokenize(texts[start : start + TEXTS_AT_ONCE])
        vectors[start : start + TEXTS_AT_ONCE] = _normalize(
            encoder.embed(tokenized, progress.advance).vectors
        )
    return vectors


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
