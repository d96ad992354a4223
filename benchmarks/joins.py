"""Joins of a store with itself against exact search: their cost and their recall.

    python -m benchmarks.joins --rows 200000

Made-up vectors (as in benchmarks.index), a tenth of them near copies of others (cosine 0.9 to 1),
are in a store with the index that `auto` chooses. `neighbours` of all rows runs as a Beam
pipeline in this process, files and all; `dedup` needs none. Exact search compares `--exact` of the
rows with all, by faiss, and its cost is taken in proportion. Ratios are of CPU seconds within this
run.
"""

import argparse
import tempfile
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.common import report, timed
from benchmarks.index import synthetic
from benchmarks.index_nights import Nights
from sentence_beam.transforms.beam import IndexRequest, Neighbours, NeighboursJob
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.search.selection import Selection
from sentence_beam.transforms.steps.joins.near_duplicates import deduplicate
from sentence_beam.transforms.steps.joins.nearest_rows import query_blocks
from sentence_beam.transforms.store.manifest import Manifest, read_manifest

K = 10
SHARDS = 20
THRESHOLD = 0.9
ROUGH = 0.002  # how far a score by SQ8 may be from the true one


def main() -> None:
    args = options()
    vectors = with_copies(synthetic(args.rows, args.dim)[0])
    rows = np.linspace(0, args.rows - 1, args.exact).astype(np.int64)
    with tempfile.TemporaryDirectory() as folder:
        manifest = store(Path(folder) / "store", vectors, args.target_recall)
        (scores, _), exact_cost = timed(lambda: nearest(vectors, rows))
        found, neighbours_cost = timed(lambda: neighbours(manifest, Path(folder) / "found"))
        rows_of = Selection(manifest)
        groups, dedup_cost = timed(lambda: deduplicate(rows_of, THRESHOLD, Path(folder)))
    exact, rate = args.exact / exact_cost[1], args.rows / neighbours_cost[1]
    lines = [
        ("exact search by faiss", f"{exact:,.0f} queries/s", f"of {args.exact:,} rows"),
        ("neighbours of all rows", f"{rate:,.0f} queries/s", f"{neighbours_cost[1]:.1f} s"),
        ("neighbours over exact search", f"{rate / exact:.1f}x", "at least 10x"),
        ("recall@10 of neighbours", f"{recall(found, rows, scores):.4f}", "at least 0.95"),
        (
            "dedup",
            f"{dedup_cost[1]:.1f} s",
            f"{groups.duplicates:,} rows in {groups.groups:,} groups",
        ),
        (
            "dedup over exact search of all rows",
            f"{dedup_cost[1] * exact / args.rows:.3f}",
            "at most 0.1",
        ),
        ("pairs that are compared, as dedup says", f"{groups.found:.4f}", f"of {groups.sampled:,}"),
        (
            "pairs in one group, by brute force",
            f"{together(groups.rows, vectors, rows):.4f}",
            "at least 0.995",
        ),
    ]
    title = (
        f"joins of {args.rows:,} x {args.dim}, {manifest.index.factory if manifest.index else ''},"
        " CPU seconds"
    )
    report(title, lines, args.output, {})


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument(
        "--exact", type=int, default=2000, help="rows of which an exact search is made"
    )
    parser.add_argument(
        "--target-recall", type=float, help="of the index, over rows that it does not hold"
    )
    parser.add_argument("--output", help="write the figures as JSON")
    return parser.parse_args()


def with_copies(vectors: np.ndarray) -> np.ndarray:
    """The vectors in another order, the last tenth near copies of others."""
    rng = np.random.default_rng(2)
    vectors = vectors[rng.permutation(len(vectors))]
    count, dim = len(vectors) // 10, vectors.shape[1]
    noise = rng.standard_normal((count, dim), dtype=np.float32)
    of = vectors[rng.integers(0, len(vectors) - count, count)]
    noise -= np.einsum("nd,nd->n", noise, of)[:, None] * of
    cosine = rng.uniform(THRESHOLD, 1, (count, 1)).astype(np.float32)
    vectors[-count:] = cosine * of + np.sqrt(1 - cosine**2) * noise / np.linalg.norm(
        noise, axis=1, keepdims=True
    )
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def store(root: Path, vectors: np.ndarray, target_recall: float | None) -> Manifest:
    rows = [(str(n), f"text {n}", n) for n in range(len(vectors))]
    size = -(-len(rows) // SHARDS)
    shards = [rows[start : start + size] for start in range(0, len(rows), size)]
    Nights(root, vectors).night(shards, IndexRequest(target_recall=target_recall))
    manifest = read_manifest(str(root))
    assert manifest is not None
    return manifest


def nearest(vectors: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and numbers [rows, 10] of the nearest others of some rows, by faiss."""
    faiss = load_faiss()
    scores, found = faiss.knn(vectors[rows], vectors, K + 1, metric=faiss.METRIC_INNER_PRODUCT)
    found[found[:, -1] == rows] = -1
    other = found != rows[:, None]
    other[other.all(axis=1), -1] = False
    return scores[other].reshape(-1, K), found[other].reshape(-1, K)


def neighbours(manifest: Manifest, output: Path) -> pa.Table:
    """The neighbours of all rows, by a pipeline in this process."""
    job = NeighboursJob(manifest.root, manifest.run, manifest.digest, str(output), K, itself=True)
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = (
            pipeline
            | "Blocks" >> beam.Create(query_blocks(manifest))
            | "Neighbours" >> Neighbours(job)
        )
    return ds.dataset(str(output)).to_table()


def recall(found: pa.Table, rows: np.ndarray, scores: np.ndarray) -> float:
    """The share of the nearest rows, or of others as near, that are among those found."""
    worst = dict(zip(rows.tolist(), scores[:, -1].tolist(), strict=True))
    queries, got = found["query"].to_numpy().astype(int), found["score"].to_numpy()
    good = [
        score >= worst[query] - ROUGH
        for query, score in zip(queries, got, strict=True)
        if query in worst
    ]
    return sum(good) / (K * len(rows))


def together(groups: pa.Table, vectors: np.ndarray, rows: np.ndarray) -> float:
    """The share of the pairs of some rows with any other, by brute force, that are in one group."""
    component = np.empty(len(vectors), np.int64)
    component[groups["id"].to_numpy().astype(int)] = groups["component"].to_numpy()
    first, second = np.nonzero(vectors[rows] @ vectors.T >= THRESHOLD)
    first = rows[first]
    other = first != second
    return float((component[first] == component[second])[other].mean())


if __name__ == "__main__":
    main()
