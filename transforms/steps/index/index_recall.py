"""Recall of an index: what is left of each segment for it, and what all segments give together.

A segment is asked when it is written. Of one that stays, the answers are known from the run before,
without the rows that were deleted since.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_keys
from sentence_beam.transforms.index import (
    Candidates,
    ExactNeighbours,
    SegmentedIndex,
    SegmentFile,
    TrainedIndex,
)
from sentence_beam.transforms.index.index_kinds import choose_depth
from sentence_beam.transforms.index.range_readers import RangeFile
from sentence_beam.transforms.index.recall import measure_known_recall, measure_recall_among, tuned
from sentence_beam.transforms.index.segment import list_sizes
from sentence_beam.transforms.steps.index import held_out, scratch
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.steps.index.index_folder import Folder
from sentence_beam.transforms.store.index_entries import (
    IndexEntry,
    IndexFileEntry,
    RecallEntry,
    SegmentEntry,
    TunedRecallEntry,
)
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.shards.shard_reading import take_rows

K = 10
DEEP = 100  # the other k that a search is tuned for
SPARE = 5  # one answer is kept beside so many that are needed, because rows are deleted


@dataclass(frozen=True)
class Asking:
    """How segments are asked: the trained index, the metric of scores, and what a search looks at.

    A search returns `depth` rows at each of `nprobes`.
    """

    trained: IndexFileEntry
    metric: str
    depth: int
    nprobes: tuple[int, ...]

    @classmethod
    def from_index(cls, index: IndexEntry, metric: str) -> "Asking":
        """Return how an index is asked that was tuned before."""
        nprobes = sorted({max(1, index.nprobe), max(1, index.choose_nprobe(DEEP))})
        trained = IndexFileEntry(index.trained.path, index.trained.sha256)
        return cls(trained, metric, count_answers(index.rerank), tuple(nprobes))


def count_answers(rerank: int) -> int:
    """Return the number of answers to ask for; `rerank` is that of the plan or the index."""
    needed = choose_depth(DEEP, rerank)
    return needed + needed // SPARE


@functools.lru_cache(1)
def open_trained(folder: Folder, trained: IndexFileEntry) -> TrainedIndex:
    """Return the trained index that segments share; a process opens it once.

    Raises DamagedIndexError if its file is not what was written.
    """
    return TrainedIndex.from_bytes(index_files.read(folder.stored(trained.path), trained.sha256))


def leave_queries(
    folder: Folder, last: KnownQueries, vectors: np.ndarray, hashes: np.ndarray,
    crowded: np.ndarray,
) -> None:  # fmt: skip
    """Leave the held-out texts to report on: vectors, hashes, places among the known ones.

    `vectors` float32 [n, d] and `hashes` uint8 [n, 16] are those of the held-out rows, `crowded`
    uint8 [c, 16] the texts that are crowded now. The place is -1 if nothing is known of a text.
    Such texts are left out, until there are so many that all rows are read for them.
    """
    keys, first = np.unique(as_keys(hashes), return_index=True)
    first = first[~np.isin(keys, as_keys(crowded))]
    first = first[held_out.select_reporting_half(hashes[first])]
    place = _find_places(as_keys(hashes[first]), as_keys(last.texts))
    if np.count_nonzero(place < 0) <= held_out.UNMEASURED * len(first):
        first = first[place >= 0]
        place = place[place >= 0]
    folder.leave(scratch.QUERIES, vectors[first])
    folder.leave(scratch.TEXTS, hashes[first])
    folder.leave(scratch.KNOWN, place)
    folder.leave(scratch.CROWDED, crowded)


def _find_places(wanted: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return the place of each key among ascending distinct ones, -1 if it is missing."""
    place = np.searchsorted(ordered, wanted)
    there = place < len(ordered)
    there[there] = ordered[place[there]] == wanted[there]
    return np.where(there, place, -1)


def leave_recall(
    folder: Folder, segment: SegmentEntry, asking: Asking, exact: ExactNeighbours
) -> None:
    """Leave a new segment's true neighbours of the queries, its answers, and its lists' sizes."""
    with folder.on_disk(segment) as path:
        answers = _ask(folder, segment, path, asking, exact.queries, None)
        folder.leave(scratch.list_sizes(segment.number), list_sizes(path))
    folder.put(scratch.exact(segment.number), exact.to_bytes())
    folder.put(scratch.found(segment.number), answers.to_bytes())


def _ask(
    folder: Folder, segment: SegmentEntry, path: str, asking: Asking, queries: np.ndarray,
    keep: np.ndarray | None,
) -> Candidates:  # fmt: skip
    file: SegmentFile | RangeFile
    file = RangeFile.local(path, keep) if segment.lists else SegmentFile(path, keep)
    index = SegmentedIndex.open([file], open_trained(folder, asking.trained))
    nprobes = list(asking.nprobes)
    return Candidates.search(index, queries, asking.depth, nprobes, segment=segment.number)


def leave_gone(folder: Folder, number: int, last: KnownQueries, rows: np.ndarray) -> None:
    """Leave which of the queries' neighbours and answers are deleted in a segment that stays.

    `rows` int64 are all of its local rows that are deleted in this run.
    """
    positions = np.concatenate([last.positions.ravel(), last.found.kept.ravel()])
    here = np.unique(positions[positions >> 32 == number])
    folder.leave(scratch.gone(number), here[np.isin(here & 0xFFFFFFFF, rows)])


def leave_unknown(
    folder: Folder, segment: SegmentEntry, asking: Asking,
    live: Callable[[], tuple[np.ndarray, pa.Table]],
) -> None:  # fmt: skip
    """Leave a segment's neighbours of the queries of which nothing is known, and its answers.

    `live` returns bool [rows], False for deleted rows, and the locator. All its rows are read.
    """
    place = folder.take(scratch.KNOWN)
    unknown = np.flatnonzero(place < 0)
    if not len(unknown):
        return
    keep, locator = live()
    queries = folder.take(scratch.QUERIES)
    exact = _read_exact(folder, queries[unknown], asking.metric, locator, segment.number)
    whole = ExactNeighbours(queries, DEEP, asking.metric)
    gains, positions, bound = (array.copy() for array in whole.lists())
    gains[unknown], positions[unknown], bound[unknown] = exact.lists()
    whole = ExactNeighbours.from_lists(queries, DEEP, asking.metric, gains, positions, bound)
    with folder.on_disk(segment) as path:
        answers = _ask(folder, segment, path, asking, queries[unknown], keep)
    spread = np.full(len(place), -1)
    spread[unknown] = np.arange(len(unknown))
    folder.put(scratch.exact(segment.number), whole.to_bytes())
    folder.put(scratch.found(segment.number), answers.of(spread).to_bytes())


def find_known_neighbours(
    folder: Folder, last: KnownQueries, metric: str, target: int, numbers: dict[int, np.ndarray],
    locator: pa.Table,
) -> ExactNeighbours:  # fmt: skip
    """Return the queries' true neighbours among rows that the index had before.

    `numbers` maps local rows of current segments to local rows of the target, -1 for deleted ones;
    `locator` is the target's for these rows. For queries of which nothing is known all those rows
    are read.
    """
    queries = folder.take(scratch.QUERIES)
    place = folder.take(scratch.KNOWN)
    had = last.of(place)
    gains = np.full(had.gains.shape, -np.inf, np.float32)
    positions = np.full(had.positions.shape, -1)
    for number, local in numbers.items():
        here = (had.positions >= 0) & (had.positions >> 32 == number)
        moved = local[np.where(here, had.positions & 0xFFFFFFFF, 0)]
        here &= moved >= 0
        gains = np.where(here, had.gains, gains)
        positions = np.where(here, moved | target << 32, positions)
    bound = had.bound.copy()
    unknown = np.flatnonzero(place < 0)
    if len(unknown):
        exact = _read_exact(folder, queries[unknown], metric, locator, target)
        gains[unknown], positions[unknown], bound[unknown] = exact.lists()
    return ExactNeighbours.from_lists(queries, DEEP, metric, gains, positions, bound)


def _read_exact(
    folder: Folder, queries: np.ndarray, metric: str, locator: pa.Table, number: int
) -> ExactNeighbours:
    """Return the true neighbours among all live rows of a segment, read from their shards."""
    exact = ExactNeighbours(queries, DEEP, metric)
    shards, names = locators.list_shards(locator)
    row = locator.column("row").to_numpy()
    for shard, name in enumerate(names):
        local = np.flatnonzero(shards == shard)
        if len(local):
            table = take_rows(folder.stored(name), row[local], ["embedding"])
            vectors = folder.vectors(table.column(0).combine_chunks())
            exact.add(vectors, local + (number << 32))
    return exact


@dataclass(frozen=True)
class Measurement:
    """The queries' true neighbours in all segments, their answers, and the sizes of the lists.

    `sizes` as `KnownQueries` has them.
    """

    exact: ExactNeighbours
    found: Candidates
    sizes: np.ndarray

    @classmethod
    def none(cls, queries: np.ndarray, asking: Asking) -> "Measurement":
        """Return those of no segment."""
        answers = Candidates.none(len(queries), asking.depth, asking.nprobes)
        exact = ExactNeighbours(queries, DEEP, asking.metric)
        return cls(exact, answers, np.empty((0, 3), np.int64))

    def add_written(self, folder: Folder, segments: Iterable[SegmentEntry]) -> "Measurement":
        """Return those of other segments too, which were asked."""
        measured = self
        for segment in segments:
            lengths = folder.take(scratch.list_sizes(segment.number))
            place = np.flatnonzero(lengths)
            first = segment.lists[0] if segment.lists else 0
            number = np.full(len(place), segment.number)
            sizes = np.stack([number, first + place, lengths[place]], axis=1)
            measured = measured.add_left(folder, segment.number, sizes)
        return measured

    def add_left(self, folder: Folder, number: int, sizes: np.ndarray) -> "Measurement":
        """Return those with what was left of a segment; `sizes` are those of its lists."""
        parse = functools.partial(ExactNeighbours.from_bytes, queries=self.exact.queries)
        exact = folder.parsed(scratch.exact(number), parse)
        answers = folder.parsed(scratch.found(number), Candidates.from_bytes)
        return Measurement(
            self.exact.merge(exact), self.found.merge(answers), np.concatenate([self.sizes, sizes])
        )

    def count_rows_of_lists(self, nlist: int) -> np.ndarray:
        """Return the rows in each list, float64 [nlist]."""
        return np.bincount(self.sizes[:, 1], weights=self.sizes[:, 2], minlength=nlist)

    def known(self, texts: np.ndarray, crowded: np.ndarray) -> KnownQueries:
        """Return what the next run is to know of the texts."""
        gains, positions, bound = self.exact.lists()
        return KnownQueries(texts, gains, positions, bound, self.found, crowded, self.sizes)


def measure_kept(
    folder: Folder, last: KnownQueries, asking: Asking, kept: Sequence[SegmentEntry]
) -> Measurement:
    """Return the queries' neighbours and answers in the segments that stay."""
    queries = folder.take(scratch.QUERIES)
    place = folder.take(scratch.KNOWN)
    numbers = [segment.number for segment in kept]
    gone = [folder.take(scratch.gone(number)) for number in numbers]
    deleted = np.concatenate([np.empty(0, np.int64), *gone])

    def stays(positions: np.ndarray) -> np.ndarray:
        return np.isin(positions >> 32, numbers) & ~np.isin(positions, deleted)

    had = last.of(place).only(stays)
    exact = ExactNeighbours.from_lists(
        queries, DEEP, asking.metric, had.gains, had.positions, had.bound
    )
    measured = Measurement(exact, had.found, last.sizes[np.isin(last.sizes[:, 0], numbers)])
    if (place < 0).any():
        for number in numbers:
            measured = measured.add_left(folder, number, np.empty((0, 3), np.int64))
    return measured


def measure_tuned_recall(
    measurement: Measurement, k: int, rerank: int, target: float, tuning: np.ndarray
) -> TunedRecallEntry | None:
    """Return recall at one k, with the nprobe tuned for it on some of the queries, bool [q]."""
    measured = tuned(measurement.exact.at(k), measurement.found, rerank, target, tuning)
    return TunedRecallEntry(**measured) if measured else None


def measure_recall_at(
    index: IndexEntry, target: float, measured: Measurement, k: int, is_new: np.ndarray
) -> tuple[TunedRecallEntry | None, RecallEntry | None]:
    """Return recall of an index over all rows, and over the new ones; None if it is not known.

    `is_new` int64 are positions of new rows, all that are among the true neighbours.
    """
    exact = measured.exact.at(k)
    nprobe = max(1, index.choose_nprobe(k))
    depth = choose_depth(k, index.rerank)
    positions = measured.found.positions(nprobe, depth)
    settled = measured.found.settled(nprobe, depth)
    recall = measure_known_recall(exact, positions, settled)
    changed = measure_recall_among(exact, positions, settled, lambda rows: np.isin(rows, is_new))
    entry = None
    if recall:
        rerank = depth if depth > k else 0
        entry = TunedRecallEntry(**recall, nprobe=nprobe, rerank=rerank, target=target)
    return entry, RecallEntry(**changed) if changed else None
