"""`sentence-beam pairs`: the most similar pairs of texts in a collection."""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import command, options, specs
from pipelines.output import TABLE_FILE, check_output, write_rows
from pipelines.said import Said
from pipelines.stdin import with_stdin
from pipelines.tables import Column, excerpt, id_column, one_line, table, text_column
from transforms import progress
from transforms.corpus import Columns
from transforms.corpus.files import INPUT_FORMATS
from transforms.corpus.reading import list_files, read_files
from transforms.corpus.spans import estimated_tokens
from transforms.index.top_pairs import EXACT_BELOW, TopPairs, exact_pairs, indexed_pairs, with_copies
from transforms.space import Machine, Recipe, row_hashes
from transforms.steps.options import PairsOptions

TEXTS_AT_ONCE = 32_768


@dataclass(frozen=True)
class Collection:
    """Rows and their distinct texts; `of` int64 [rows] is the number of each row's text."""

    ids: list[str]
    texts: list[str]
    of: np.ndarray
    rejected: int


def parser() -> argparse.ArgumentParser:
    """The options of `pairs`."""
    p = options.command(
        "pairs",
        "Find the most similar pairs of texts in a collection.",
        "sentence-beam pairs --input notes.txt -k 20",
        "sentence-beam pairs --input 'corpus/*.parquet' --output pairs.parquet",
        words=specs.of_poolers(),
    )
    what = p.add_argument_group("input")
    options.add_input(what, "what to read")
    what.add_argument("--format", choices=INPUT_FORMATS, default="auto", help=options.FORMAT)
    what.add_argument("--delimiter", type=options.delimiter, metavar="CHAR", help=options.DELIMITER)
    what.add_argument("--text-column", default="text", metavar="NAME", help="column with the text (default: text)")
    what.add_argument("--id-column", metavar="NAME", help="column with the id (default: made of path and position)")
    options.add_vector_options(p.add_argument_group("vectors"))
    out = p.add_argument_group("result")
    out.add_argument("-k", type=options.positive, default=10, metavar="K", help="how many pairs (default: 10)")
    out.add_argument("--output", metavar="FILE", help=f"{TABLE_FILE} (default: a table is printed)")
    machine = p.add_argument_group("machine")
    machine.add_argument(
        "--device", type=options.device, metavar="auto|cpu|cuda|cuda:N", default="auto", help=options.DEVICE
    )
    machine.add_argument("--tokens-per-batch", type=options.size, metavar="N", help=options.TOKENS_PER_BATCH)
    return p


def _pairs(args: argparse.Namespace) -> Said:
    asked = PairsOptions(**vars(args))
    check_output(asked.output)
    with with_stdin(asked, local=True) as asked, tempfile.TemporaryDirectory() as folder:
        with progress.stage("reading", things="rows"):
            collection = read(asked)
        vectors, collection = encode(asked, collection, Path(folder))
        pairs, how = find(vectors, collection, asked.k)
    rows = described(pairs, collection)
    if asked.output:
        write_rows(asked.output, rows)
    counts = {"rows": len(collection.ids), "texts": len(collection.texts), "rejected": collection.rejected, "how": how}
    lines = [f"{len(rows):,} pairs in {asked.output}"] if asked.output else shown(rows)
    last = f"{counts['rows']:,} rows with {counts['texts']:,} texts, {counts['rejected']:,} rejected; {how}"
    values = {"output": asked.output} if asked.output else {"pairs": rows}
    return Said([*lines, "", last], {**counts, **values}, asked=asked.output is None)


def read(asked: PairsOptions) -> Collection:
    """The rows of the files. Raises the errors that `embed` raises for them."""
    columns, ids, number, of, rejected = Columns(asked.text_column, asked.id_column or None), [], {}, [], 0
    texts: list[str] = []
    for rows in read_files(list_files(asked.input, asked.format, asked.delimiter), columns):
        progress.step(len(rows.ids))
        ids += rows.ids
        rejected += len(rows.rejects)
        for text, row_hash in zip(rows.texts, row_hashes(rows.texts), strict=True):
            if row_hash not in number:
                number[row_hash] = len(texts)
                texts.append(text)
            of.append(number[row_hash])
    return Collection(ids, texts, np.array(of, np.int64), rejected)


def encode(asked: PairsOptions, collection: Collection, folder: Path) -> tuple[np.ndarray, Collection]:
    """Vectors of length 1, float32 [texts, d], mapped from a file, and the collection without texts that have none."""
    with progress.stage(progress.LOADING):
        from transforms.encoder import Encoder

        encoder = Encoder.of(Recipe.of(vars(asked)), Machine(asked.device, asked.tokens_per_batch))
    texts = collection.texts
    progress.planned(estimated_tokens(sum(len(text.encode()) for text in texts), len(texts)))
    vectors = np.memmap(folder / "vectors", np.float32, "w+", shape=(max(1, len(texts)), encoder.dim))[: len(texts)]
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        tokenized = encoder.tokenize(texts[start : start + TEXTS_AT_ONCE])
        vectors[start : start + TEXTS_AT_ONCE] = _of_length_1(encoder.embed(tokenized, progress.advance).vectors)
    good = np.flatnonzero(np.isfinite(vectors).all(axis=1))
    return (vectors, collection) if len(good) == len(texts) else (vectors[good], _without(collection, good))


def _of_length_1(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths; not finite where the length is zero or not finite."""
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


def find(vectors: np.ndarray, collection: Collection, k: int) -> tuple[TopPairs, str]:
    """The k most similar pairs of rows, and a phrase that says how they were found."""
    if len(vectors) < EXACT_BELOW:
        pairs, how = exact_pairs(vectors, k), "every pair compared"
    else:
        pairs, share = indexed_pairs(vectors, k)
        how = f"an index was asked, which finds the nearest neighbour of {share:.1%} of the texts"
    return with_copies(pairs, vectors, collection.of, k), how


def described(pairs: TopPairs, collection: Collection) -> list[dict[str, Any]]:
    """The pairs as rows: rank, score, and id and text of both."""
    return [
        {
            "rank": rank + 1,
            "score": min(float(score), 1.0),
            "id_1": collection.ids[a],
            "text_1": collection.texts[collection.of[a]],
            "id_2": collection.ids[b],
            "text_2": collection.texts[collection.of[b]],
        }
        for rank, (score, a, b) in enumerate(zip(*pairs, strict=True))
    ]


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """The pairs as a table, two lines each: rank, score, ids, and of both texts what the other has too."""
    if not rows:
        return ["no pairs"]
    texts = [(one_line(row["text_1"]), one_line(row["text_2"])) for row in rows]
    beside = {one: other for pair in texts for one, other in (pair, pair[::-1])}
    columns = [Column("rank"), Column("score"), id_column()]
    columns.append(text_column("text", cut=lambda cell, width: excerpt(cell, width, beside[cell])))
    cells = []
    for row, (one, other) in zip(rows, texts, strict=True):
        cells.append([str(row["rank"]), f"{row['score']:.4f}", row["id_1"], one])
        cells.append(["", "", row["id_2"], other])
    return table(columns, cells)


main = command.main(parser, _pairs)

if __name__ == "__main__":
    sys.exit(main())
