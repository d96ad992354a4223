"""`sentence-beam pairs`: the most similar pairs of texts in a collection."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.common import command, options, specs
from pipelines.common.library import function
from pipelines.common.output import check_output, write_rows
from pipelines.common.said import Said
from pipelines.common.stdin import with_stdin
from pipelines.common.tables import Column, excerpt, id_column, one_line, table, text_column
from transforms.base import progress
from transforms.base.arrow import as_matrix
from transforms.base.numbers import counted
from transforms.corpus import Columns
from transforms.corpus.reading import list_files, read_files
from transforms.corpus.spans import estimated_tokens
from transforms.index.top_pairs import (
    EXACT_BELOW,
    TopPairs,
    exact_pairs,
    indexed_pairs,
    with_copies,
)
from transforms.space import Machine, Recipe, row_hashes
from transforms.steps.options.joins import PairsOptions
from transforms.store import Store, open_store
from transforms.store.shards.reading import read_shard

TEXTS_AT_ONCE = 32_768


@dataclass(frozen=True)
class Collection:
    """Rows and their distinct texts; `of` int64 [rows] is the number of each row's text.

    A text is None in a store that keeps none; `pieces` are the numbers of rows that are pieces of
    documents.
    """

    ids: list[str]
    texts: Sequence[str | None]
    of: np.ndarray
    rejected: int
    pieces: list[int] | None = None


def parser() -> argparse.ArgumentParser:
    """The options of `pairs`."""
    return options.command(
        "pairs",
        "Find the most similar pairs of texts in a collection.",
        "sentence-beam pairs --input notes.txt -k 20",
        "sentence-beam pairs --input 'corpus/*.parquet' --output pairs.parquet",
        "sentence-beam pairs --store store --distinct --min-score 0.9 -k 1000",
        words=specs.of_poolers(),
        kind=PairsOptions,
    )


def _pairs(asked: PairsOptions) -> Said:
    check_output(asked.output)
    with with_stdin(asked, local=True) as asked, tempfile.TemporaryDirectory() as folder:
        if asked.store is not None:
            with progress.stage("reading", things="rows"):
                vectors, collection = of_store(
                    open_store(asked.store, asked.snapshot), Path(folder)
                )
        else:
            with progress.stage("reading", things="rows"):
                collection = read(asked)
            vectors, collection = encode(asked, collection, Path(folder))
        pairs, how = find(vectors, collection, asked)
    rows = described(pairs, collection, asked.distinct)
    if asked.output:
        write_rows(asked.output, rows)
    counts = {
        "rows": len(collection.ids),
        "texts": len(collection.texts),
        "rejected": collection.rejected,
        "how": how,
    }
    if asked.output:
        lines = [f"{counted(len(rows), 'pair')} in {asked.output}"]
    else:
        lines = shown(rows)
    sizes = f"{counted(len(collection.ids), 'row')} with {counted(len(collection.texts), 'text')}"
    last = f"{sizes}, {collection.rejected:,} rejected; {how}"
    values: dict[str, Any] = {"pairs": rows}
    if asked.output:
        values = {"output": asked.output}
    return Said([*lines, "", last], {**counts, **values}, asked=asked.output is None)


def read(asked: PairsOptions) -> Collection:
    """The rows of the files. Raises the errors that `embed` raises for them."""
    columns = Columns(asked.text_column or "text", asked.id_column or None)
    ids = []
    number = {}
    of = []
    rejected = 0
    texts: list[str] = []
    for rows in read_files(list_files(asked.input or (), asked.format, asked.delimiter), columns):
        progress.step(len(rows.ids))
        ids += rows.ids
        rejected += len(rows.rejects)
        for text, row_hash in zip(rows.texts, row_hashes(rows.texts), strict=True):
            if row_hash not in number:
                number[row_hash] = len(texts)
                texts.append(text)
            of.append(number[row_hash])
    return Collection(ids, texts, np.array(of, np.int64), rejected)


def of_store(store: Store, folder: Path) -> tuple[np.ndarray, Collection]:
    """The rows of a snapshot, and vectors of length 1 of their texts, float32 [texts, d], mapped
    from a file.
    """
    manifest = store.manifest
    text = store.manifest.options.kept_text
    number = dict[bytes, int]()
    has_pieces = manifest.rows.pieces is not None
    columns = [
        "id",
        "embedding",
        "row_hash",
        *([text] if text else []),
        *(["piece"] if has_pieces else []),
    ]
    ids = list[str]()
    texts = list[str | None]()
    pieces = list[int]()
    of = list[int]()
    vectors = np.memmap(
        folder / "vectors", np.float32, "w+", shape=(max(1, len(store)), store.space.dim)
    )
    for path in manifest.shard_paths:
        for batch in read_shard(path, columns):
            progress.step(batch.num_rows)
            first = len(number)
            start = len(of)
            of += [
                number.setdefault(key, len(number)) for key in batch.column("row_hash").to_pylist()
            ]
            new = _firsts(of[start:], first)
            vectors[first : len(number)] = _of_length_1(as_matrix(batch.column("embedding"))[new])
            if text:
                texts += batch.column(text).take(pa.array(new)).to_pylist()
            else:
                texts += [None] * len(new)
            ids += batch.column("id").to_pylist()
            if has_pieces:
                pieces += batch.column("piece").to_pylist()
    collection = Collection(ids, texts, np.array(of, np.int64), 0, pieces if has_pieces else None)
    return vectors[: len(number)], collection


def _firsts(numbers: list[int], least: int) -> np.ndarray:
    """The places where each number from `least` on stands first, in the order of the numbers."""
    found, places = np.unique(np.array(numbers, np.int64), return_index=True)
    return places[found >= least]


def encode(
    asked: PairsOptions, collection: Collection, folder: Path
) -> tuple[np.ndarray, Collection]:
    """Vectors of length 1, float32 [texts, d], mapped from a file, and the collection without texts
    that have none.
    """
    with progress.stage(progress.LOADING):
        from transforms.encoder import Encoder

        encoder = Encoder.of(Recipe.of(vars(asked)), Machine(asked.device, asked.tokens_per_batch))
    texts = [text or "" for text in collection.texts]
    progress.planned(estimated_tokens(sum(len(text.encode()) for text in texts), len(texts)))
    vectors = np.memmap(
        folder / "vectors", np.float32, "w+", shape=(max(1, len(texts)), encoder.dim)
    )[: len(texts)]
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        tokenized = encoder.tokenize(texts[start : start + TEXTS_AT_ONCE])
        vectors[start : start + TEXTS_AT_ONCE] = _of_length_1(
            encoder.embed(tokenized, progress.advance).vectors
        )
    good = np.flatnonzero(np.isfinite(vectors).all(axis=1))
    if len(good) == len(texts):
        return (vectors, collection)
    return (vectors[good], _without(collection, good))


def _of_length_1(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths; not finite if the length is zero or not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return vectors / np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]


def _without(collection: Collection, good: np.ndarray) -> Collection:
    """The collection of the texts numbered `good`; rows of the others count as rejected."""
    place = np.full(len(collection.texts), -1)
    place[good] = np.arange(len(good))
    rows = np.flatnonzero(place[collection.of] >= 0)
    lost = len(collection.ids) - len(rows)
    return Collection(
        [collection.ids[row] for row in rows],
        [collection.texts[text] for text in good],
        place[collection.of[rows]],
        collection.rejected + lost,
    )


def find(vectors: np.ndarray, collection: Collection, asked: PairsOptions) -> tuple[TopPairs, str]:
    """The k most similar pairs of rows (of texts if these are to be distinct), and how they were
    found, in words.
    """
    least = -np.inf if asked.min_score is None else asked.min_score
    if len(vectors) < EXACT_BELOW:
        pairs = exact_pairs(vectors, asked.k, least=least)
        how = "every pair compared"
    else:
        pairs, share = indexed_pairs(vectors, asked.k, least=least)
        how = f"an index was asked, which finds the nearest neighbour of {share:.1%} of the texts"
    return (pairs if asked.distinct else with_copies(pairs, vectors, collection.of, asked.k)), how


def described(pairs: TopPairs, collection: Collection, distinct: bool) -> list[dict[str, Any]]:
    """The pairs as rows: rank, score, and of both id, text, if it is known, and number among a
    document's pieces.

    Where pairs are of distinct texts, the first row of a text stands for all, and `rows_1` and
    `rows_2` count them.
    """
    counts = np.bincount(collection.of, minlength=len(collection.texts))
    first = _firsts(collection.of.tolist(), 0) if distinct else None
    found = []
    for rank, (score, *both) in enumerate(zip(*pairs, strict=True)):
        row: dict[str, Any] = {"rank": rank + 1, "score": min(float(score), 1.0)}
        for side, place in enumerate(both, 1):
            number = place if first is None else first[place]
            row[f"id_{side}"] = collection.ids[number]
            if collection.pieces is not None:
                row[f"piece_{side}"] = collection.pieces[number]
            if (text := collection.texts[collection.of[number]]) is not None:
                row[f"text_{side}"] = text
            if distinct:
                row[f"rows_{side}"] = int(counts[place])
        found.append(row)
    return found


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """The pairs as a table, two lines each: rank, score, ids, and of both texts what the other has
    too.
    """
    if not rows:
        return ["no pairs"]
    texts = [(one_line(row.get("text_1", "")), one_line(row.get("text_2", ""))) for row in rows]
    beside = {one: other for pair in texts for one, other in (pair, pair[::-1])}
    columns = [Column("rank"), Column("score"), id_column()]
    counted = "rows_1" in rows[0]
    if counted:
        columns += [Column("rows")]
    columns.append(text_column("text", cut=lambda cell, width: excerpt(cell, width, beside[cell])))
    cells = []
    for row, pair in zip(rows, texts, strict=True):
        for side, text in enumerate(pair, 1):
            if side == 1:
                place = [str(row["rank"]), f"{row['score']:.4f}"]
            else:
                place = ["", ""]
            count = [str(row[f"rows_{side}"])] if counted else []
            cells.append([*place, row[f"id_{side}"], *count, text])
    return table(columns, cells)


pairs = function("pairs", PairsOptions, _pairs)
main = command.main(parser, _pairs, kind=PairsOptions)

if __name__ == "__main__":
    sys.exit(main())
