"""Filtered search against the same search without a filter: recall among the matches, queries a CPU second.

    python -m benchmarks.filters --rows 200000 --index auto

A table of shares of matching rows, drawn at random, and of rows that lie far from all queries. Recall is against exact
search of the matching rows; `first` is what finding and decoding them costs once, in CPU milliseconds. Ratios are
within this run.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.index import BLOCK, choose_sample, synthetic, timed
from transforms.index import SegmentedIndex, SegmentFile, SegmentWriter, choose_index, exact_search, train
from transforms.index.filtered import FilteredIndex

K = 10
BATCH = 200  # queries of each measurement


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--index", default="auto")
    parser.add_argument("--nprobe", type=int, help="lists as the index was tuned for (default: the plan's)")
    args = parser.parse_args()
    vectors, queries = synthetic(args.rows, args.dim)
    plan = choose_index(args.rows, args.dim, args.index)
    nprobe = args.nprobe or plan.nprobe
    with tempfile.TemporaryDirectory() as folder:
        writer = SegmentWriter(train(plan, choose_sample(vectors, plan), threads=1), threads=1)
        for start in range(0, args.rows, BLOCK):
            writer.add(vectors[start : start + BLOCK])
        path = Path(folder) / "segment"
        path.write_bytes(writer.to_bytes())
        index = SegmentedIndex.open([SegmentFile(path)], writer.trained)
        queries = queries[:BATCH]
        index.search(queries, K, nprobe=nprobe, threads=1)
        found, (_, plain) = timed(lambda: index.search(queries, K, nprobe=nprobe, threads=1))
        _, true = exact_search([(vectors, 0)], queries, K, "ip", threads=1)
        print(f"{args.rows} x {args.dim}, {plan.factory}, nprobe {nprobe}, one thread, CPU seconds")
        print(f"no filter: {BATCH / plain:,.0f} queries/s, recall {recall(found.row, true):.3f}")
        print("matches  rows     recall  queries/s  over no filter  first, ms")
        random = np.random.default_rng(2).random(args.rows)
        near = (vectors @ queries.T).max(axis=1)
        filters = {f"{share:.1%}": random < share for share in (0.5, 0.1, 0.01, 0.001)}
        filters |= {f"{share:.0%} far": near <= np.quantile(near, share) for share in (0.1, 0.01)}
        for name, wanted in filters.items():
            print(row(name, index, vectors, queries, wanted, nprobe, plain))


def row(
    name: str,
    index: SegmentedIndex,
    vectors: np.ndarray,
    queries: np.ndarray,
    wanted: np.ndarray,
    nprobe: int,
    plain: float,
) -> str:
    """A line of the table."""
    some = FilteredIndex(index, [wanted])
    _, (_, first) = timed(lambda: some.search(queries[:1], K, nprobe=nprobe, threads=1))
    found, (_, cost) = timed(lambda: some.search(queries, K, nprobe=nprobe, threads=1))
    assert wanted[found.row[found.row >= 0]].all()
    live = np.flatnonzero(wanted)
    _, true = exact_search([(vectors[live], 0)], queries, K, "ip", threads=1)
    speed = f"{len(queries) / cost:9,.0f}  {plain / cost:14.2f}  {1000 * first:9.0f}"
    return f"{name:8} {len(live):7,}  {recall(found.row, live[true]):6.3f}  {speed}"


def recall(found: np.ndarray, true: np.ndarray) -> float:
    """The mean share of the true neighbours that were found."""
    return float(np.mean([np.isin(t, f).mean() for f, t in zip(found, true, strict=True)]))


if __name__ == "__main__":
    main()
