"""Training an index beside an earlier version: processor seconds, and rows scanned for a recall.

    python -m benchmarks.training_pairs --before CHECKOUT [--lists 65536] [--rows-a-list 64]
        [--dim 64] [--runs 3] [--output FILE.json]

CHECKOUT is a folder of an earlier version whose modules are below `sentence_beam`. Both train on
the same made-up vectors, one thread, in turn. "Rows scanned" are those in the lists that a search
visits to find nine tenths, and 95 %, of ten neighbours; the neighbours are among the first
--searched vectors.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import Row, report
from benchmarks.index import synthetic
from benchmarks.index_training import rows_scanned
from sentence_beam.transforms.index import ExactNeighbours

METRIC = "ip"
BAR = 1.5
SCRIPT = Path(__file__).with_name("two_levels.py")


def trained(checkout: Path, sample: Path, output: Path, lists: int) -> float:
    """Train by a version; return its processor seconds."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(sample), str(output), str(lists), METRIC],
        env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(done.stdout)


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--before", type=Path, required=True, metavar="CHECKOUT")
    p.add_argument("--lists", type=int, default=65_536)
    p.add_argument("--rows-a-list", type=int, default=64)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--searched", type=int, default=262_144)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    args = p.parse_args()
    if not (args.before / "sentence_beam" / "transforms").is_dir():
        p.error(
            f"--before {args.before}: {SCRIPT.name} needs a version with sentence_beam/transforms"
        )
    vectors, queries = synthetic(args.lists * args.rows_a_list, args.dim)
    vectors = vectors[np.random.default_rng(2).permutation(len(vectors))]
    checkouts = {"before": args.before.resolve(), "now": Path(__file__).resolve().parents[1]}
    took: dict[str, list[float]] = {name: [] for name in checkouts}
    scanned = {}
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.npy"
        np.save(sample, vectors)
        for _ in range(args.runs):
            for name, checkout in checkouts.items():
                took[name].append(trained(checkout, sample, Path(folder) / name, args.lists))
        searched = vectors[: args.searched]
        true = ExactNeighbours(queries, 10, METRIC)
        true.add(searched, 0)
        neighbours = true.lists()[1]
        for name in checkouts:
            centroids = np.load(Path(folder) / f"{name}.npy")
            scanned[name] = rows_scanned(searched, queries, neighbours, centroids, METRIC)
    pairs = [before / now for before, now in zip(took["before"], took["now"], strict=True)]
    rows: list[Row] = [
        (f"{name}: training", f"{statistics.median(seconds):.1f} s", "processor")
        for name, seconds in took.items()
    ]
    said = ", ".join(f"{pair:.2f}" for pair in sorted(pairs))
    rows.append(("as fast as before", f"{statistics.median(pairs):.2f}x", f"bar {BAR}x; {said}"))
    at_90, at_95 = scanned["now"] / scanned["before"]
    rows.append(("rows scanned at recall 0.9, 0.95", f"{at_90:.2f}, {at_95:.2f}", "equal: 1.00"))
    title = f"{args.lists:,} lists of {args.rows_a_list} rows, {args.dim} components"
    report(title, rows, args.output, {"seconds": took})


if __name__ == "__main__":
    main()
