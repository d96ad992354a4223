"""Count the pairs of STS12 to STS16 that are pairs of the STS benchmark.

    python -m benchmarks.shared_pairs FOLDER

FOLDER holds the sets as docs/reproduce.md names them. Two pairs are the same if their texts are, in
either order.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sentence_beam.transforms.evaluation.pair_files import read_pairs

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16")
PARTS = ("train", "dev", "test")


class SharedPairs(NamedTuple):
    """Counts of a set: its pairs, and those that are training, dev and test pairs of STS-B."""

    name: str
    pairs: int
    train: int
    dev: int
    test: int


def pairs_of(path: Path) -> list[frozenset[str]]:
    """The pairs of a file, each as the set of its two texts."""
    found = read_pairs(str(path))
    return [
        frozenset((a.strip(), b.strip())) for a, b in zip(found.first, found.second, strict=True)
    ]


def shared_pairs(folder: Path) -> Iterator[SharedPairs]:
    """The counts of each set."""
    benchmark = [set(pairs_of(folder / f"stsb-{part}.tsv")) for part in PARTS]
    for name in SETS:
        pairs = [pair for path in sorted(folder.glob(f"{name}-*.tsv")) for pair in pairs_of(path)]
        counts = [sum(pair in part for pair in pairs) for part in benchmark]
        yield SharedPairs(name.upper(), len(pairs), *counts)


def main() -> None:
    """Print a line of Markdown for each set."""
    for row in shared_pairs(Path(sys.argv[1])):
        share = 100 * row.train / row.pairs
        print(
            f"| {row.name} | {row.pairs:,} | {row.train:,} | {share:.1f} | {row.dev:,} |"
            f" {row.test:,} |"
        )


if __name__ == "__main__":
    main()
