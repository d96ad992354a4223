"""Stores of made-up vectors with an index: `compact` against SQ8 and exact search, updates,
building against autofaiss.

    python -m benchmarks.index_stores --rows 50000 [--autofaiss PYTHON]

Everything is asked of a store as `search` asks it, files checked and mapped. CPU seconds of one
process, warm, each the least of three; a machine that does other work lengthens them, so only
ratios of one run count. PYTHON is one that has autofaiss, which wants an older numpy.
"""

import argparse
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.common import report, timed
from benchmarks.index import synthetic
from benchmarks.index_nights import SHARDS, Nights, Rows
from sentence_beam.transforms import storage
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store.manifest import read_manifest

QUERIES, ALONE, EXACT = 1000, 50, 3
AUTOFAISS = """
import json, resource, sys, numpy as np, faiss
from autofaiss import build_index
folder, queries, truth, threads, factory = sys.argv[1:]
faiss.omp_set_num_threads(int(threads))
before = resource.getrusage(resource.RUSAGE_SELF)
index, _ = build_index(folder, save_on_disk=False, metric_type="ip", index_key=factory,
    should_be_memory_mappable=True, verbose=40, max_index_query_time_ms=1, nb_cores=int(threads))
after = resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
found, true = index.search(np.load(queries), 10)[1], np.load(truth)
recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), true.tolist())])
print(json.dumps({"cpu": cpu, "recall": recall}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument(
        "--folder", help="where the stores are made; a RAM disk keeps the disk out of it"
    )
    parser.add_argument("--autofaiss", metavar="PYTHON", help="an interpreter that has autofaiss")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", help="also write the figures as JSON")
    args = parser.parse_args()
    vectors, queries = synthetic(args.rows + args.rows // 10, args.dim)
    order = np.random.default_rng(2).permutation(len(vectors))
    vectors = vectors[order]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        lines, figures = measure(Path(folder), vectors, queries, args)
    report(f"index of stores, {args.rows:,} x {args.dim}", lines, args.output, figures)


def measure(
    folder: Path, vectors: np.ndarray, queries: np.ndarray, args: argparse.Namespace
) -> tuple[list[tuple[str, str, str]], dict[str, Any]]:
    rows = [(f"{n}", f"text {n}", n) for n in range(len(vectors))]
    shards = [
        rows[start : start + args.rows // SHARDS]
        for start in range(0, args.rows, args.rows // SHARDS)
    ]
    found, truth = {}, nearest(vectors[: args.rows], queries)
    for index in ("auto", "compact"):
        store = Nights(folder / index, vectors)
        took, entry, _ = store.night(shards, IndexRequest(index))
        found[index] = {
            "build": took[1],
            "entry": entry,
            **searched(folder / index, queries, truth),
        }
    sq8, compact = found["auto"], found["compact"]
    lines = [
        (
            name,
            (
                f"{it['entry']['factory']}, nprobe {it['entry']['nprobe']}, {it['entry']['rerank']}"
                " candidates"
            ),
            (
                f"recall@10 {it['recall']:.3f} ({it['entry']['recall']['value']:.3f} by the"
                f" manifest), recall@100 {it['entry']['recall_100']['value']:.3f};"
                f" {it['one'] * 1e3:.2f} ms CPU a query alone, {it['rate']:,.0f}/s in a batch"
            ),
        )
        for name, it in found.items()
    ]
    lines += [
        ("exact", f"{compact['exact'] * 1e3:,.0f} ms CPU a query", ""),
        ("compact alone over exact", f"{compact['one'] / compact['exact']:.4f}", "bar 0.05"),
        ("compact over SQ8, in a batch", f"{compact['rate'] / sq8['rate']:.2f}", "bar 1.4"),
        *updates(folder / "auto", vectors, shards, rows[args.rows :]),
    ]
    figures: dict[str, Any] = {"rows": args.rows, "found": found}
    if args.autofaiss:
        # autofaiss takes no SQ8
        factory = f"{sq8['entry']['factory'].split(',')[0]},Flat"
        took, entry, _ = Nights(folder / "flat", vectors).night(shards, IndexRequest(factory))
        data = (vectors[: args.rows], queries, truth)
        other = figures["autofaiss"] = autofaiss(folder, data, factory, args)
        share = (
            f"{took[1] / other['cpu']:.2f} of autofaiss' {other['cpu']:.1f} s (recall"
            f" {entry['recall']['value']:.3f} and {other['recall']:.3f})"
        )
        lines.append(
            (
                f"building {factory}, CPU",
                f"{took[1]:.1f} s with recall and files",
                f"{share}; bar 1.0",
            )
        )
    return lines, figures


def nearest(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Numbers of the ten rows nearest to each query, int64 [q, 10]."""
    parts = [queries[start : start + 100] @ vectors.T for start in range(0, QUERIES, 100)]
    return np.concatenate([np.argsort(-part, axis=1)[:, :10] for part in parts])


def searched(root: Path, queries: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """CPU seconds of a query alone, by the index and exactly; queries a CPU second in a batch;
    recall of ten.
    """
    searcher = searcher_of(root)
    hits = searcher.nearest(queries, 10)
    rows = numbers_of(root, hits.shard, hits.row)
    alone = min(
        timed(lambda: [searcher.nearest(query[None], 10) for query in queries[:ALONE]])[1][1]
        for _ in range(3)
    )
    batch = min(timed(lambda: searcher.nearest(queries, 10))[1][1] for _ in range(3))
    exact = timed(
        lambda: [searcher.nearest(query[None], 10, exact=True) for query in queries[:EXACT]]
    )[1][1]
    return {
        "one": alone / ALONE,
        "rate": len(queries) / batch,
        "exact": exact / EXACT,
        "recall": float((rows[:, :, None] == truth[:, None]).any(axis=2).mean()),
    }


def numbers_of(root: Path, shard: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Numbers of the vectors of hits, which are their rows' ids."""
    manifest = read_manifest(str(root))
    assert manifest is not None
    tables = [pq.read_table(path, columns=["id"]) for path in manifest.shard_paths]
    starts = np.cumsum([0, *map(len, tables)])
    ids = np.concatenate([table["id"].to_numpy().astype(np.int64) for table in tables])
    return ids[starts[shard] + row]


def searcher_of(root: Path) -> Searcher:
    manifest = read_manifest(str(root))
    assert manifest is not None
    return Searcher(manifest)


def updates(
    root: Path, vectors: np.ndarray, shards: list[Rows], spare: Rows
) -> list[tuple[str, str, str]]:
    """Measure what nights read that add more and more rows, beside the vectors of their shards."""
    store, lines, some = Nights(root, vectors), [], len(spare) // 14
    store._count = 1
    for times in (1, 2, 4):
        taken, spare = spare[: times * some], spare[times * some :]
        shards = [*shards, taken]
        with counted() as read:
            _, entry, _ = store.night(shards, IndexRequest("auto"))
        lines.append(
            (
                f"{len(taken):,} rows added",
                f"{sum(read) / 1e6:.2f} MB read",
                entry["change"]["what"],
            )
        )
    return lines


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """The lengths of what is read of files as a whole or by ranges inside the block."""
    read: list[int] = []
    whole, some = storage.read_bytes, storage.read_range

    def counting(function: Any) -> Any:
        def reading(*arguments: Any) -> bytes:
            data = function(*arguments)
            read.append(len(data))
            return data

        return reading

    storage.read_bytes, storage.read_range = counting(whole), counting(some)
    try:
        yield read
    finally:
        storage.read_bytes, storage.read_range = whole, some


def autofaiss(
    folder: Path,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    factory: str,
    args: argparse.Namespace,
) -> dict[str, float]:
    """CPU seconds and recall of autofaiss with the same factory, in an interpreter of its own.

    `data` are vectors, queries, and the numbers of the rows nearest to each.
    """
    vectors, queries, truth = data
    (folder / "vectors").mkdir()
    for path, array in (("vectors/0.npy", vectors), ("queries.npy", queries), ("truth.npy", truth)):
        np.save(folder / path, array)
    paths = [str(folder / name) for name in ("vectors", "queries.npy", "truth.npy")]
    made = subprocess.run(
        [args.autofaiss, "-c", AUTOFAISS, *paths, str(args.threads), factory],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(made.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
