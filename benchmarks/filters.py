"""Filtered search against the same search without a filter: recall among the matches, queries a CPU
second.

    python -m benchmarks.filters --rows 200000 --index auto

A table of shares of matching rows, drawn at random, and of rows that lie far from all queries.
Recall is against exact search of the matching rows, beside it the recall of visiting every list,
which the codes allow. Queries a second are divided by those without a filter: for the first batch
under a filter, which finds and copies or decodes its rows, for a later one, and for queries asked
one at a time. They are medians of pairs within this run. `--index compact` ranks candidates by
float16 vectors in memory. `--by-lists` searches lists also among few matches, which are compared
one by one otherwise.
"""

import argparse
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common import timed
from benchmarks.index import BLOCK, choose_sample, synthetic
from sentence_beam.transforms.index import (
    IndexPlan,
    SegmentedIndex,
    SegmentFile,
    SegmentWriter,
    TrainedIndex,
    choose_index,
    exact_search,
    filtered,
    rerank,
    train,
)
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.filtered import FilteredIndex, Vectors
from sentence_beam.transforms.index.index_kinds import depth_for
from sentence_beam.transforms.index.index_spec import IndexSpec

K = 10
BATCH = 200  # queries of each measurement
PAIRS = 7  # measurements with and without a filter, in turns
TARGET = 0.95  # recall without a filter, to which nprobe is tuned


@dataclass(frozen=True)
class Subject:
    """An index, its vectors float32 [n, dim], what they are ranked by (None: the codes), and
    queries [q, dim].
    """

    index: SegmentedIndex
    plan: IndexPlan
    vectors: np.ndarray
    precise: np.ndarray | None
    queries: np.ndarray

    def search(self, nprobe: int) -> np.ndarray:
        """The rows found without a filter, int64 [q, K]."""
        return self._search(self.queries, nprobe)

    def search_alone(self, nprobe: int) -> None:
        """Search for one query after the other without a filter."""
        for query in self.queries:
            self._search(query[None], nprobe)

    def _search(self, queries: np.ndarray, nprobe: int) -> np.ndarray:
        found = self.index.search(queries, depth_for(K, self.plan.rerank), nprobe=nprobe)
        if self.precise is None:
            return found.row
        return rerank(queries, found, K, self.taken, "ip").row

    def among(self, some: FilteredIndex, nprobe: int) -> np.ndarray:
        """The rows found with a filter, int64 [q, K]."""
        return self._among(some, self.queries, nprobe)

    def among_alone(self, some: FilteredIndex, nprobe: int) -> None:
        """Search for one query after the other with a filter."""
        for query in self.queries:
            self._among(some, query[None], nprobe)

    def _among(self, some: FilteredIndex, queries: np.ndarray, nprobe: int) -> np.ndarray:
        return some.search(queries, K, nprobe=nprobe, depth=depth_for(K, self.plan.rerank)).row

    @property
    def ranking(self) -> Vectors | None:
        """The function that gives the vectors by which candidates are ranked, if any."""
        if self.precise is None:
            return None
        return self.taken

    def taken(self, segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """The vectors that candidates are ranked by."""
        assert self.precise is not None, segment
        return self.precise[row].astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--index", default="auto")
    parser.add_argument("--by-lists", action="store_true")
    args = parser.parse_args()
    load_faiss().omp_set_num_threads(1)
    if args.by_lists:
        filtered.FEW = 0
    vectors, queries = synthetic(args.rows, args.dim)
    plan, queries = choose_index(args.rows, args.dim, IndexSpec.parse(args.index)), queries[:BATCH]
    with tempfile.TemporaryDirectory() as folder:
        trained = train(plan, choose_sample(vectors, plan))
        writer = SegmentWriter(trained)
        for start in range(0, args.rows, BLOCK):
            writer.add(vectors[start : start + BLOCK])
        path = Path(folder) / "segment"
        path.write_bytes(writer.to_bytes())
        index = SegmentedIndex.open([SegmentFile(path)], TrainedIndex.from_bytes(trained))
        subject = Subject(
            index, plan, vectors, vectors.astype(np.float16) if plan.rerank else None, queries
        )
        nprobe, found, plain = tuned(subject)
        print(f"{args.rows} x {args.dim}, {plan.factory}, nprobe {nprobe}, one thread, CPU seconds")
        print(f"no filter: {BATCH / plain:,.0f} queries/s, recall {found:.3f}")
        print("matches     rows  recall  every list  queries/s  first batch  later  alone")
        random = np.random.default_rng(2).random(args.rows)
        near = (vectors @ queries.T).max(axis=1)
        filters = {f"{share:.1%}": random < share for share in (0.5, 0.1, 0.01, 0.001)}
        filters |= {f"{share:.0%} far": near <= np.quantile(near, share) for share in (0.1, 0.01)}
        for name, wanted in filters.items():
            print(row(name, subject, wanted, nprobe), flush=True)


def tuned(subject: Subject) -> tuple[int, float, float]:
    """The least nprobe, by steps of a fifth, that reaches the target without a filter; the recall
    and CPU seconds.
    """
    _, true = exact_search([(subject.vectors, 0)], subject.queries, K, "ip")
    nprobe = 4
    while True:
        found, (_, cost) = timed(partial(subject.search, nprobe))
        if recall(found, true) >= TARGET or nprobe >= subject.index.nlist:
            return nprobe, recall(found, true), cost
        nprobe += max(1, nprobe // 5)


def row(name: str, subject: Subject, wanted: np.ndarray, nprobe: int) -> str:
    """A line of the table."""
    some = FilteredIndex(subject.index, [wanted], subject.ranking)
    found = subject.among(some, nprobe)
    every = found if some.is_exact else subject.among(some, subject.index.nlist)
    assert wanted[found[found >= 0]].all()
    live = np.flatnonzero(wanted)
    _, true = exact_search([(subject.vectors[live], 0)], subject.queries, K, "ip")
    shares = f"{recall(found, live[true]):6.3f}  {recall(every, live[true]):10.3f}"
    pairs = [costs_of(subject, wanted, nprobe) for _ in range(PAIRS)]
    later = float(np.median([pair["later"] for pair in pairs]))
    first, over, alone = (
        float(np.median([pair[plain] / pair[kind] for pair in pairs]))
        for plain, kind in (("plain", "first"), ("plain", "later"), ("plain alone", "alone"))
    )
    return (
        f"{name:8} {len(live):7,}  {shares}  {BATCH / later:9,.0f}  {first:11.2f}  {over:5.2f}"
        f"  {alone:5.2f}"
    )


def costs_of(subject: Subject, wanted: np.ndarray, nprobe: int) -> dict[str, float]:
    """CPU seconds of a batch without a filter, under a new one and again, and of queries alone."""
    some = FilteredIndex(subject.index, [wanted], subject.ranking)
    runs = {
        "plain": partial(subject.search, nprobe),
        "first": partial(subject.among, some, nprobe),
        "later": partial(subject.among, some, nprobe),
        "plain alone": partial(subject.search_alone, nprobe),
        "alone": partial(subject.among_alone, some, nprobe),
    }
    return {name: timed(run)[1][1] for name, run in runs.items()}


def recall(found: np.ndarray, true: np.ndarray) -> float:
    """The mean share of the true neighbours that were found."""
    return float(np.mean([np.isin(t, f).mean() for f, t in zip(found, true, strict=True)]))


if __name__ == "__main__":
    main()
