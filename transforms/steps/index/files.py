"""The files that the index steps read and write: segments, blocks of rows, arrays.

Steps leave arrays for each other in the run's folder; only descriptors travel between them.
"""

import functools
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow import as_hashes, as_matrix
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.index import (
    Candidates,
    ExactNeighbours,
    IndexPlan,
    SegmentedIndex,
    SegmentFile,
    TrainedIndex,
    WrittenSegment,
)
from sentence_beam.transforms.index.refine import RefineWriter
from sentence_beam.transforms.index.segment import list_sizes
from sentence_beam.transforms.index.vectors import prepared
from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexFileEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.shards.reading import read_shard

K = 10
DEEP = 100  # the other k that a search is tuned for
SPARE = 10  # answers that a range keeps beside those needed, so that some rows may be deleted
SEGMENT_ROWS = 250_000
SEGMENTS = 64

Item = TypeVar("Item")


@dataclass(frozen=True)
class RowBlock:
    """Rows of one shard: vectors float32 [n, d], hashes uint8 [n, 16], and Arrow columns."""

    shard: str
    start: int
    vectors: np.ndarray
    hashes: np.ndarray
    ids: pa.Array
    hash_column: pa.Array


def array_of(data: bytes) -> np.ndarray:
    """Return the array of a .npy file's bytes."""
    array: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a text file's bytes."""
    return data.decode().splitlines()


@dataclass(frozen=True)
class Folder:
    """The store and the run's folder for its index; files of one purpose share a `prefix`.

    `metric` is the index's.
    """

    root: str
    run: str
    prefix: str
    metric: str

    def path(self, name: str) -> str:
        """Return the path of a file that one step leaves for another, by a name of `scratch`."""
        return storage.join(self.root, layout.index_scratch(self.run), f"{self.prefix}-{name}")

    def leave(self, name: str, array: np.ndarray) -> None:
        """Leave an array in the run's folder for a later step."""
        sink = io.BytesIO()
        np.save(sink, array, allow_pickle=False)
        self.put(name, sink.getvalue())

    def put(self, name: str, data: bytes) -> None:
        """Leave bytes in the run's folder for a later step."""
        path = self.path(name)
        storage.storage_of(path).put_if_absent(path, data)

    def take(self, name: str) -> np.ndarray:
        """Return the array that an earlier step left under a name."""
        return self.parsed(name, array_of)

    def parsed(self, name: str, parse: Callable[[bytes], Item]) -> Item:
        """Return what `parse` makes of the bytes that an earlier step left under a name.

        Raises SentenceBeamError if it can make nothing of them.
        """
        data = storage.read_bytes(self.path(name))
        with self._refuse_damage(name):
            return parse(data)

    def _refuse_damage(self, name: str) -> AbstractContextManager[None]:
        return refuse_damage(f"{self.path(name)} is not what the run wrote", "run again")

    def part(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop` of what an earlier step left under a name.

        Raises SentenceBeamError if it is shorter.
        """
        data = storage.read_range(self.path(name), start, stop)
        with self._refuse_damage(name):
            if len(data) != stop - start:
                raise EOFError("it is cut short")
        return data

    def tables(self, name: str, schema: pa.Schema, first: int, count: int = 1) -> list[pa.Table]:
        """Return some consecutive tables that an earlier step left, without reading others."""
        return matching.read(functools.partial(self.part, name), schema, first, count)

    def stored(self, path: str) -> str:
        """Return the full path of a file of the store."""
        return storage.join(self.root, path)

    def write(self, data: bytes, suffix: str) -> tuple[str, str]:
        """Write a file of the index, named by its bytes; return path in the store and sha256."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = layout.index_file(sha256, suffix)
        storage.ensure(self.stored(path), data)
        return path, sha256

    def file(self, data: bytes, suffix: str) -> IndexFileEntry:
        """Write a file beside a segment, which later runs compare by the storage's checksum."""
        path, sha256 = self.write(data, suffix)
        return IndexFileEntry(path, sha256, self.checksum(path))

    def segment(
        self,
        number: int,
        kind: str,
        made: WrittenSegment,
        locator: pa.Table,
        refine: RefineWriter | None,
    ) -> SegmentEntry:
        """Write a segment, its locator, and its rows' vectors if candidates are scored again."""
        path, sha256 = self.write(made.data, "faiss")
        refine_file = None
        if refine is not None:
            refine_file = self.file(refine.to_bytes(), "refine")
        empty = SegmentEntry(
            number, kind, len(locator), 0, path, sha256, len(made.data), "", "", made.closeness,
            self.checksum(path),
            refine=refine_file,
        )  # fmt: skip
        return self.located(empty, locators.with_checks(locator, made.checks.to_text()))

    def located(self, segment: SegmentEntry, locator: pa.Table) -> SegmentEntry:
        """Return the segment with another locator, which is written."""
        data = locators.to_bytes(locator)
        path, sha256 = self.write(data, "parquet")
        return replace(
            segment,
            deleted=locator.column("shard").null_count,
            locator=path,
            locator_sha256=sha256,
            locator_checksum=self.checksum(path),
            locator_bytes=len(data),
            locator_footer=hashlib.sha256(locators.footer(data)).hexdigest(),
        )

    def checksum(self, path: str) -> str:
        """Return the storage's checksum of a file; "" if it has none."""
        entry = storage.storage_of(self.root).stat(self.stored(path))
        return entry.checksum if entry else ""

    def on_disk(self, segment: SegmentEntry) -> AbstractContextManager[str]:
        """Return a local file with the bytes of a segment, checked. Raises DamagedIndexError."""
        return index_files.on_disk(self.stored(segment.path), segment.sha256)

    def locator(self, segment: SegmentEntry) -> bytes:
        """Return the bytes of a segment's locator, checked. Raises DamagedIndexError."""
        return index_files.read(self.stored(segment.locator), segment.locator_sha256)

    def relative(self, error: SentenceBeamError) -> str:
        """Return the line of an error, with paths relative to the store."""
        return str(error).replace(self.stored(""), "")

    def check(self, segment: SegmentEntry) -> None:
        """Raise DamagedIndexError if a file of a segment is not what was written."""
        index_files.check(self.stored(segment.path), segment.sha256, segment.checksum)
        self.check_locator(segment)
        for entry in (segment.refine, segment.answers):
            if entry:
                index_files.check(self.stored(entry.path), entry.sha256, entry.checksum)

    def check_locator(self, segment: SegmentEntry) -> None:
        """Raise DamagedIndexError if the locator of a segment is not what was written."""
        path = self.stored(segment.locator)
        index_files.check(path, segment.locator_sha256, segment.locator_checksum)

    def vectors(self, column: pa.FixedSizeListArray) -> np.ndarray:
        """Return the vectors of a shard's column as the index holds them, float32 [n, d]."""
        return prepared(as_matrix(column), self.metric)

    def blocks(self, shards: Iterable[str]) -> Iterator[RowBlock]:
        """Yield the rows of some shards (paths relative to the store), block by block."""
        for shard in shards:
            start = 0
            for batch in read_shard(self.stored(shard), ["id", "row_hash", "embedding"]):
                ids, hashes, vectors = batch.columns
                yield RowBlock(shard, start, self.vectors(vectors), as_hashes(hashes), ids, hashes)
                start += batch.num_rows


def locate(locator: locators.LocatorBuilder, block: RowBlock, rows: np.ndarray) -> None:
    """Add these rows of a block, int64, to a locator."""
    if len(rows):
        locator.add(
            block.shard, block.start + rows, block.ids.take(rows), block.hash_column.take(rows)
        )


def stack(arrays: list[np.ndarray], dim: int) -> np.ndarray:
    """Return all rows float32 [n, dim] of some blocks."""
    if arrays:
        return np.concatenate(arrays)
    return np.empty((0, dim), np.float32)


def recall_grid(index: IndexEntry) -> list[int]:
    """Return the values of nprobe at which the recall of an updated index is measured."""
    return sorted({max(1, index.nprobe), max(1, index.nprobe_for(DEEP))})


def most_rows(plan: IndexPlan, rows: int, merge: bool) -> int:
    """Return the most rows of one segment.

    There are enough segments to build in parallel, and few enough to search.
    """
    if merge:
        return rows
    return min(plan.segment_rows, max(SEGMENT_ROWS, -(-rows // SEGMENTS)))


def leave_recall(
    folder: Folder,
    segment: SegmentEntry,
    trained: TrainedIndex,
    exact: ExactNeighbours,
    keep: np.ndarray | None,
    depth: int,
    nprobes: list[int],
) -> None:
    """Leave a segment's true neighbours of the queries, and those found at each nprobe.

    A search returns `depth` rows. What a range answers is left too, with some rows more.
    """
    wide = depth
    if segment.lists:
        wide = depth + SPARE
    with folder.on_disk(segment) as path:
        index = SegmentedIndex.open([SegmentFile(path, keep)], trained)
        found = Candidates.search(index, exact.queries, wide, nprobes, segment=segment.number)
        folder.leave(scratch.list_sizes(segment.number), list_sizes(path))
    folder.put(scratch.exact(segment.number), exact.to_bytes())
    folder.put(scratch.found(segment.number), found.trimmed(depth).to_bytes())
    if segment.lists:
        folder.put(scratch.answers(segment.number), found.to_bytes())


@functools.lru_cache(1)
def trained_index(folder: Folder, path: str, sha256: str) -> TrainedIndex:
    """Return the trained index that segments share; a process opens it once.

    Raises DamagedIndexError if its file is not what was written.
    """
    return TrainedIndex.of(index_files.read(folder.stored(path), sha256))


def take_recall(
    folder: Folder, queries: np.ndarray, metric: str, segments: list[SegmentEntry], nlist: int
) -> tuple[ExactNeighbours, Candidates | None, np.ndarray]:
    """Return true and found neighbours over all segments, and the lengths of the `nlist` lists."""
    exact = ExactNeighbours(queries, DEEP, metric)
    found = None
    sizes = np.zeros(nlist, np.int64)
    for segment in segments:
        exact_of = functools.partial(ExactNeighbours.from_bytes, queries=queries)
        exact = exact.merge(folder.parsed(scratch.exact(segment.number), exact_of))
        part = folder.parsed(scratch.found(segment.number), Candidates.from_bytes)
        found = part if found is None else found.merge(part)
        length = folder.take(scratch.list_sizes(segment.number))
        first, stop = segment.lists or (0, nlist)
        sizes[first:stop] += length
    return exact, found, sizes


def layout_of(segments: Iterable[SegmentEntry]) -> str | None:
    """Return the layout of an index: "lists" if its base is cut into ranges, None if by rows."""
    if any(segment.lists for segment in segments):
        return "lists"
    return None


def closeness_of(segments: Iterable[SegmentEntry]) -> float | None:
    """Return the mean score of all live rows with their nearest centroid.

    Returns None if no segment has lists.
    """
    known = [
        (segment.closeness, segment.live) for segment in segments if segment.closeness is not None
    ]
    rows = sum(live for _, live in known)
    if rows:
        return sum(score * live for score, live in known) / rows
    return None
