"""The index against plain faiss: build time, queries a second over segments, recall.

    python benchmarks/index.py --rows 200000 --threads 2

Prints ratios within this run. Vectors are synthetic: Zipf-sized clusters on a decaying spectrum,
normalized, in the order of their clusters (the worst order for whoever trains on the first rows).
CPU seconds are beside wall seconds because a busy machine changes them less.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row, fastest, report, timed
from benchmarks.index_training import print_training
from sentence_beam.transforms.index import (
    Candidates,
    ExactNeighbours,
    IndexPlan,
    SegmentedIndex,
    SegmentFile,
    SegmentWriter,
    TrainedIndex,
    choose_index,
    measure_recall,
    nprobe_grid,
    sample_keys,
    sample_threshold,
    select,
    train,
)
from sentence_beam.transforms.index.faiss_module import load_faiss, use_threads
from sentence_beam.transforms.index.index_kinds import choose_depth
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.range_file import range_bytes
from sentence_beam.transforms.index.range_readers import RangeFile

BLOCK = 25_000
QUERIES = 1000


def main() -> None:
    args = options()
    load_faiss().omp_set_num_threads(args.threads)
    vectors, queries = synthetic(args.rows, args.dim)
    plan = choose_index(args.rows, args.dim, IndexSpec.parse(args.index))
    header(args, plan)
    sample = choose_sample(vectors, plan)
    with tempfile.TemporaryDirectory() as folder:
        plain, plain_cost = timed(lambda: plain_faiss(vectors, sample, plan))
        (trained, segments), ours_cost = timed(
            lambda: build(vectors, sample, plan, args, Path(folder))
        )
        shared = TrainedIndex.from_bytes(trained)
        exact_report, recall_cost = timed(
            lambda: recall(vectors, queries, segments, shared, plan, args)
        )
        one, _ = ranges(trained, vectors, 1, Path(folder))
        cut, origins = ranges(trained, vectors, args.ranges, Path(folder))
        rows = build_rows(plain_cost, ours_cost, recall_cost)
        print(f"recall: {exact_report[:2]}\n")
        rows += bytes_row(trained, vectors[: len(vectors) // 100], plan)
        print_training(vectors, sample, queries, plan)
        many = SegmentedIndex.open(segments, shared)
        rows += chosen_row(many, queries, exact_report[0]["nprobe"], exact_report[2])
        single = SegmentedIndex.open(one, shared)
        rows += search_rows(plain, single, SegmentedIndex.open(cut, shared), origins, queries, args)
    report(f"index of {args.rows:,} x {args.dim}, {plan.factory}", rows, args.output, {})


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--ranges", type=int, default=64, help="ranges of lists, for searching")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--index", default="auto")
    parser.add_argument("--output")
    return parser.parse_args()


def header(args: argparse.Namespace, plan: IndexPlan) -> None:
    faiss = load_faiss()
    compiled = faiss.get_compile_options().strip()
    print(
        f"faiss {faiss.__version__} ({compiled}), numpy {np.__version__}, Python"
        f" {platform.python_version()}"
    )
    print(f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores, {args.threads} threads")
    print(
        f"{args.rows} x {args.dim}, {plan.factory}, {args.segments} segments, {plan.train_rows}"
        " training rows\n"
    )


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def synthetic(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [rows, dim] sorted by cluster and queries [1000, dim] of the same distribution."""
    rng = np.random.default_rng(0)
    spectrum = (np.arange(1, dim + 1) ** -0.5).astype(np.float32)
    centres = rng.standard_normal((3000, dim)).astype(np.float32) * spectrum
    weights = 1 / np.arange(1, 3001)
    cluster = np.sort(rng.choice(3000, rows, p=weights / weights.sum()))
    asked = rng.choice(3000, QUERIES, p=weights / weights.sum())
    return around(rng, centres, cluster, spectrum), around(rng, centres, asked, spectrum)


def around(
    rng: np.random.Generator, centres: np.ndarray, cluster: np.ndarray, spectrum: np.ndarray
) -> np.ndarray:
    noise = rng.standard_normal((len(cluster), len(spectrum)), dtype=np.float32)
    vectors = centres[cluster] + 0.7 * noise * spectrum
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def choose_sample(vectors: np.ndarray, plan: IndexPlan) -> np.ndarray:
    hashes = np.random.default_rng(1).integers(0, 256, (len(vectors), 16), dtype=np.uint8)
    keys = sample_keys(hashes, [str(number) for number in range(len(vectors))])
    return vectors[select(keys, sample_threshold(plan.train_rows, len(vectors)))]


def blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), BLOCK):
        yield vectors[start : start + BLOCK]


def plain_faiss(vectors: np.ndarray, sample: np.ndarray, plan: IndexPlan) -> Any:
    faiss = load_faiss()
    index = faiss.index_factory(plan.dim, plan.factory, faiss.METRIC_INNER_PRODUCT)
    index.train(sample)
    index.add(vectors)
    return index


def build(
    vectors: np.ndarray, sample: np.ndarray, plan: IndexPlan, args: argparse.Namespace, folder: Path
) -> tuple[bytes, list[SegmentFile]]:
    """Train, write the segments, hash the files."""
    trained = train(plan, sample)
    parts = np.array_split(vectors, args.segments)
    return trained, [segment(trained, part, folder / f"{n}.faiss") for n, part in enumerate(parts)]


def segment(trained: bytes, vectors: np.ndarray, path: Path) -> SegmentFile:
    """A segment of these rows, written with its checksums, hashed."""
    writer = SegmentWriter(trained)
    for block in blocks(vectors):
        writer.add(block)
    made = writer.finish()
    path.write_bytes(made.data)
    hashlib.sha256(path.read_bytes()).hexdigest()
    return SegmentFile(path, checks=made.checks)


def ranges(
    trained: bytes, vectors: np.ndarray, count: int, folder: Path
) -> tuple[list[RangeFile], list[np.ndarray]]:
    """Ranges of about equally many lists, written; and the row that each of their rows is."""
    writer = SegmentWriter(trained)
    for block in blocks(vectors):
        writer.add(block)
    rows = writer.list_rows()
    starts = np.concatenate([[0], np.cumsum(rows.sizes)])
    bounds = np.linspace(0, len(rows.sizes), count + 1).astype(int).tolist()
    files = []
    origins = []
    first_id = 0
    for first, stop in pairwise(bounds):
        here = slice(starts[first], starts[stop])
        data, header = range_bytes(first, first_id, rows.sizes[first:stop], rows.codes[here])
        path = folder / f"{count}-{first}.lists"
        path.write_bytes(data)
        files.append(RangeFile.local(path))
        origins.append(rows.rows[here])
        first_id += -(-header.rows // 8) * 8
    return files, origins


def recall(
    vectors: np.ndarray,
    queries: np.ndarray,
    files: list[SegmentFile],
    trained: TrainedIndex,
    plan: IndexPlan,
    args: argparse.Namespace,
) -> Any:
    """Recall at 10 and at 100 as `index` tunes it, and the least nprobe that meets the target at 10
    by its rule.
    """
    depth = choose_depth(100, plan.rerank)
    exact, found = ExactNeighbours(queries, 100, plan.metric), None
    for number, (file, part) in enumerate(
        zip(files, np.array_split(vectors, args.segments), strict=True)
    ):
        base = number << 32
        for block in blocks(part):
            exact.add(block, base)
            base += len(block)
        index, grid = SegmentedIndex.open([file], trained), nprobe_grid(plan.nlist)
        one = Candidates.search(index, queries, depth, grid, segment=number)
        found = one if found is None else found.merge(one)
    if found is None:
        return None
    tuned = [
        measure_recall(exact.at(k), found, depth=choose_depth(k, plan.rerank)) for k in (10, 100)
    ]
    every, index = (
        list(range(1, (tuned[0] or {})["nprobe"] + 1)),
        SegmentedIndex.open(files, trained),
    )
    fine = Candidates.search(index, queries, choose_depth(10, plan.rerank), every)
    best = measure_recall(exact.at(10), fine)
    return [*tuned, (best or {})["nprobe"]]


def build_rows(
    plain: tuple[float, float], ours: tuple[float, float], recall_cost: tuple[float, float]
) -> list[Row]:
    """The (wall, CPU) seconds of building, over those of plain faiss."""
    both = (ours[0] + recall_cost[0], ours[1] + recall_cost[1])
    return [
        (
            f"{name}, over plain faiss's training and adding",
            f"{cost[1] / plain[1]:.2f}x",
            f"bar {bar}; wall {cost[0] / plain[0]:.2f}x of {plain[0]:.1f} s",
        )
        for name, cost, bar in (("segments", ours, "1.15"), ("with recall", both, "1.4"))
    ]


def bytes_row(trained: bytes, vectors: np.ndarray, plan: IndexPlan) -> list[Row]:
    """The size of a delta of one row in a hundred, beside what it has to hold."""
    writer = SegmentWriter(trained)
    writer.add(vectors)
    sizes = min(plan.nlist * 8, 16 * int(np.count_nonzero(writer.list_sizes)))
    needed = len(vectors) * (writer.code_size + (8 if plan.nlist else 0)) + sizes
    share = len(writer.to_bytes()) / needed
    what = f"bytes of a delta of {len(vectors):,} rows, over codes, ids and list sizes"
    return [(what, f"{share:.3f}x", "bar 1.05")]


def chosen_row(index: SegmentedIndex, queries: np.ndarray, chosen: int, best: int) -> list[Row]:
    """Queries a CPU second at the nprobe that is chosen, over those at the least one that meets the
    target.
    """
    mine, least = fastest([partial(index.search, queries, 10, nprobe=n) for n in (chosen, best)])
    what = f"queries a second at nprobe {chosen}, over nprobe {best}, which meets the target"
    return [(what, f"{least[1] / mine[1]:.2f}x", "bar 0.9")]


def search_rows(
    plain: Any,
    single: SegmentedIndex,
    many: SegmentedIndex,
    origins: list[np.ndarray],
    queries: np.ndarray,
    args: argparse.Namespace,
) -> list[Row]:
    """Queries a second of all queries at once, and the processor's time of one query alone."""
    starts = np.cumsum([0, *map(len, origins)])
    row_of = np.concatenate(origins)
    rows: list[Row] = []
    for nprobe in (8, 16, 32):
        plain_search = partial(search_plain, plain, queries, nprobe)
        ours = [partial(i.search, queries, 10, nprobe=nprobe) for i in (single, many)]
        plain_s, single_s, many_s = fastest([plain_search, *ours])
        a, b = (search() for search in ours)
        same = np.array_equal(a.scores, b.scores) and np.array_equal(
            row_of[a.row], row_of[starts[b.segment] + b.row]
        )
        assert same, "ranges find other rows than one range"
        alone = [partial(one_by_one, i, queries[:200], nprobe) for i in (single, many)]
        one_s, each_s = fastest(alone)
        at = f"nprobe {nprobe}, {args.ranges} ranges over one"
        wall = f"wall {single_s[0] / many_s[0]:.2f}x, plain faiss {plain_s[0] / many_s[0]:.2f}x"
        rows += [
            (f"queries a second, {at}", f"{single_s[1] / many_s[1]:.2f}x", f"bar 0.95; {wall}"),
            (f"one query, {at}", f"{each_s[1] / one_s[1]:.2f}x", "bar 1.1"),
        ]
    return rows


def one_by_one(index: SegmentedIndex, queries: np.ndarray, nprobe: int) -> None:
    with use_threads(1):
        for query in queries:
            index.search(query[None], 10, nprobe=nprobe)


def search_plain(index: Any, queries: np.ndarray, nprobe: int) -> Any:
    return index.search(queries, 10, params=load_faiss().SearchParametersIVF(nprobe=nprobe))


if __name__ == "__main__":
    main()
