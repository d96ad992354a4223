"""The cost of intervals and tests of scores: 20 methods on the pairs of STS-B.

python -m benchmarks.evaluation [--methods 20] [--pairs 1379] [--runs 3] [--output FILE]
"""

import argparse
import statistics
import time

import numpy as np

from benchmarks.common import report
from sentence_beam.transforms.evaluation.correlations import Correlations
from sentence_beam.transforms.evaluation.intervals import PERMUTATIONS, RESAMPLES, beliefs, draw


def parser() -> argparse.ArgumentParser:
    """The options of this measurement."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    p.add_argument("--methods", type=int, default=20)
    p.add_argument("--pairs", type=int, default=1379)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    return p


def measure(args: argparse.Namespace) -> None:
    """Print the seconds of the bootstrap alone, and with the permutation tests."""
    generator = np.random.default_rng(0)
    gold = generator.uniform(0, 5, args.pairs).round(1)
    values = gold + generator.normal(size=(args.methods, args.pairs))
    evidence = Correlations(values, gold, (("pairs", args.pairs),))
    took: dict[str, list[float]] = {"bootstrap": [], "and permutations": []}
    for _ in range(args.runs):
        for name, permutations in (("bootstrap", 0), ("and permutations", PERMUTATIONS)):
            began = time.perf_counter()
            beliefs(draw(evidence, permutations=permutations)["all"])
            took[name].append(time.perf_counter() - began)
    what = f"{args.methods} methods, {args.pairs} pairs: {RESAMPLES} resamples"
    rows = [
        (what, f"{statistics.median(took['bootstrap']):.2f} s", "bar 10 s"),
        (
            f"the same, and {PERMUTATIONS} permutations",
            f"{statistics.median(took['and permutations']):.2f} s",
            "",
        ),
    ]
    report("Intervals", rows, args.output, {"seconds": took})


if __name__ == "__main__":
    measure(parser().parse_args())
