"""An index of 100 million to ten billion rows by counting: files, requests, bytes and memory.

    python -m benchmarks.index_scale [--rows 4000] [--dim 384]

The plan, the groups, the cut into ranges, the headers and the parts of the sample are those of the
functions that a run calls, at full size. A small store is built twice, with few and with many
ranges, and a row and one in a hundred are edited; every request to its storage is counted, a local
disk that reports the checksums of files as object storage does. What
grows with the ranges is the difference of both stores for a range; it is multiplied by the ranges
of the large index. Lists are as uneven as those of the small store, and a query's lists lie
together as there. Nothing here is a time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common import report
from benchmarks.index import choose_sample, synthetic
from benchmarks.index_nights import Nights, Rows
from sentence_beam.transforms.index import (
    IndexPlan,
    SegmentWriter,
    TrainedIndex,
    cells,
    choose_index,
)
from sentence_beam.transforms.index.cells import PASSES
from sentence_beam.transforms.index.index_kinds import cut_lists
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.quantizer import train
from sentence_beam.transforms.index.range_file import (
    ID_BYTES,
    RangeHeader,
    count_header_bytes,
    cut_blocks,
)
from sentence_beam.transforms.index.ranges import SPARE
from sentence_beam.transforms.index.sizes import estimate_size, estimate_step_bytes
from sentence_beam.transforms.index.walk import walk
from sentence_beam.transforms.steps.index.index_folder import choose_most_rows
from sentence_beam.transforms.steps.index.training_sample import PART_BYTES
from sentence_beam.transforms.storage.base import Entry
from sentence_beam.transforms.storage.local import LocalStorage
from sentence_beam.transforms.store.index_entries import IndexRequest

LARGE = (100_000_000, 1_000_000_000, 10_000_000_000)
LISTS = 256  # of the small index by which lists of a query are located
SMALL = IndexRequest("IVF16,SQ8")
SHARDS = 20


@dataclass(frozen=True)
class Locality:
    """Lists of a small index: rows of each over the mean, and a query's runs for each list."""

    sizes: np.ndarray
    runs: float


@dataclass(frozen=True)
class Traffic:
    """Requests of some work on the index of a store, and the ranges that it has."""

    ranges: int
    requests: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4000, help="of the small stores")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--output", help="also write the figures as JSON")
    args = parser.parse_args()
    found = located(args.rows, args.dim)
    few, many = (small_store(args.rows, args.dim, share) for share in (2, 8))
    lines: list[tuple[str, str, str]] = []
    for rows in LARGE:
        for name in ("auto", "compact"):
            plan = choose_index(rows, args.dim, IndexSpec.parse(name))
            lines += figures(plan, rows, found)
            lines += nights(plan, rows, found, few, many)
    report("index by counting", lines, args.output, {"rows": args.rows, "dim": args.dim})


def located(rows: int, dim: int) -> Locality:
    """Build a small index, and search it, for the sizes and the places of its lists."""
    rows = max(rows, 39 * LISTS)
    vectors, queries = synthetic(rows, dim)
    plan = choose_index(rows, dim, IndexSpec.parse(f"IVF{LISTS},SQ8"))
    trained = train(plan, choose_sample(vectors, plan))
    writer = SegmentWriter(trained)
    writer.add(vectors)
    index = TrainedIndex.from_bytes(trained).index
    centroids = index.quantizer.reconstruct_n(0, LISTS)
    order = walk(centroids)
    sizes = writer.list_rows().sizes[order]
    header = RangeHeader(0, dim, 0, sizes.astype(np.uint32), np.zeros(LISTS, np.uint32))
    near = cells.find_nearest(queries, centroids[order], "ip", 16)[1]
    runs = [len(list(cut_blocks(header, np.sort(lists), SPARE))) for lists in near]
    return Locality(sizes / sizes.mean(), float(np.mean(runs)) / near.shape[1])


def list_sizes(plan: IndexPlan, rows: int, found: Locality) -> np.ndarray:
    """The rows of each list of a large index, as uneven as those of the small one."""
    sizes = np.resize(found.sizes, plan.nlist)
    return np.round(sizes * (rows / sizes.sum())).astype(np.int64)


def figures(plan: IndexPlan, rows: int, found: Locality) -> list[tuple[str, str, str]]:
    """Lines of an index: its files, its training, its building, a query, and memory."""
    sizes = list_sizes(plan, rows, found)
    cuts = cut_lists(sizes, plan)
    headers = sum(count_header_bytes(stop - first) for first, stop in cuts)
    sample = plan.train_rows * 4 * plan.dim
    groups = -(-rows // choose_most_rows(plan, rows))
    parts = groups * -(-sample // groups // PART_BYTES)
    count = cells.count_cells(plan.nlist)
    runs = plan.nprobe * found.runs
    touched = min(len(cuts), plan.nprobe, round(runs) or 1)
    code = plan.spec.code_bytes(plan.dim) + ID_BYTES
    probed = float(np.sort(sizes)[-plan.nprobe :].mean()) * plan.nprobe * code
    title = f"{rows:,} rows, {plan.factory}"
    size = estimate_size(plan, rows)
    reads = (1 + PASSES) * count * parts
    return [
        (title, "", ""),
        (
            "  ranges",
            f"{len(cuts):,}",
            f"headers {headers / 1e6:,.1f} MB, {headers / plan.nlist:.1f} B a list",
        ),
        (
            "  sample",
            f"{sample / 1e9:,.1f} GB",
            f"{plan.train_rows / plan.nlist:.0f} rows a list, {parts:,} parts",
        ),
        ("  cells", f"{count:,}", f"{reads:,} reads of rows in all passes"),
        ("  groups", f"{groups:,}", f"{groups * len(cuts):,} reads of codes to write ranges"),
        (
            "  cold query",
            f"{touched + runs:,.0f} requests",
            f"{plan.nprobe} lists of at most {probed / 1e6:,.1f} MB, {touched} headers",
        ),
        (
            "  memory",
            f"{size.memory / 1e9:,.1f} GB to serve",
            f"{estimate_step_bytes(plan, rows) / 1e9:,.1f} GB for a step",
        ),
    ]


def nights(
    plan: IndexPlan, rows: int, found: Locality, few: dict[str, Traffic], many: dict[str, Traffic]
) -> Iterator[tuple[str, str, str]]:
    """Yield lines of the requests of building and of nights, by the ranges of a large index."""
    ranges = len(cut_lists(list_sizes(plan, rows, found), plan))
    for name, less in few.items():
        more = many[name]
        each = (more.requests - less.requests) / (more.ranges - less.ranges)
        yield (
            f"  {name}",
            f"{each * ranges:,.0f} requests",
            f"{each:.1f} a range, beside those for shards and rows",
        )


def small_store(rows: int, dim: int, ranges: int) -> dict[str, Traffic]:
    """The traffic of building a small store of about so many ranges, and of two nights."""
    vectors = synthetic(2 * rows, dim)[0]
    first: list[Rows] = [
        [(f"{n}", f"text {n}", n) for n in range(start, start + rows // SHARDS)]
        for start in range(0, rows, rows // SHARDS)
    ]
    one = [[*first[0][:-1], (first[0][-1][0], "edited", rows)], *first[1:]]
    scattered = [
        [(r[0], f"again {r[0]}", rows + r[2]) if r[2] % 100 == 50 else r for r in shard]
        for shard in one
    ]
    request = replace(SMALL, range_bytes=rows * (dim + ID_BYTES) // ranges)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Nights(Path(folder), vectors)
        works = {"building": first, "a night, 1 row": one, "a night, 1 % of rows": scattered}
        for name, shards in works.items():
            with counted() as seen:
                index = store.night(shards, request)[1]
            found[name] = traffic(index, seen)
    return found


def traffic(index: dict[str, Any], seen: Counter[str]) -> Traffic:
    """What was counted, beside the ranges of the index."""
    ranges = sum("lists" in segment for segment in index["segments"])
    return Traffic(ranges, seen["requests"])


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the requests to files of an index inside the block; files have checksums there."""
    seen: Counter[str] = Counter()
    methods = ("stat", "open", "read_versioned", "put_if_absent", "replace_if")

    def counting(name: str) -> Any:
        real = getattr(LocalStorage, name)

        def call(self: LocalStorage, path: str, *arguments: Any, **named: Any) -> Any:
            if "/index/" in path:
                seen["requests"] += 1
            found = real(self, path, *arguments, **named)
            if isinstance(found, Entry):
                found = replace(found, checksum=sha256(Path(path).read_bytes()).hexdigest())
            return found

        return call

    patches = [patch.object(LocalStorage, name, counting(name)) for name in methods]
    for each in patches:
        each.start()
    try:
        yield seen
    finally:
        for each in patches:
            each.stop()


if __name__ == "__main__":
    main()
