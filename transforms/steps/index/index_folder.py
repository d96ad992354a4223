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
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_matrix
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.index import IndexPlan, WrittenSegment
from sentence_beam.transforms.index.exact_vectors import RefineWriter
from sentence_beam.transforms.index.metric_vectors import prepare_vectors
from sentence_beam.transforms.steps.index import matching
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import IndexFileEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.shards.shard_reading import read_shard

SEGMENT_ROWS = 250_000
SEGMENTS = 64

ShardRows = tuple[str, int, str | None]  # path relative to the store, rows, sha256
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


def parse_array(data: bytes) -> np.ndarray:
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
        return self.parsed(name, parse_array)

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
        refine_file = self.file(refine.to_bytes(), "refine") if refine is not None else None
        empty = SegmentEntry(
            number, kind, len(locator), 0, path, sha256, len(made.data), "", "", made.closeness,
            self.checksum(path),
            refine=refine_file,
        )  # fmt: skip
        return self.located(empty, locators.add_checks(locator, made.checks.to_text()))

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
            locator_footer=hashlib.sha256(locators.extract_footer(data)).hexdigest(),
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
        return error.line.replace(self.stored(""), "")

    def check(self, segment: SegmentEntry) -> None:
        """Raise DamagedIndexError if a file of a segment is not what was written."""
        index_files.check(self.stored(segment.path), segment.sha256, segment.checksum)
        path = self.stored(segment.locator)
        index_files.check(path, segment.locator_sha256, segment.locator_checksum)
        if segment.refine:
            entry = segment.refine
            index_files.check(self.stored(entry.path), entry.sha256, entry.checksum)

    def vectors(self, column: pa.FixedSizeListArray) -> np.ndarray:
        """Return the vectors of a shard's column as the index holds them, float32 [n, d]."""
        return prepare_vectors(as_matrix(column), self.metric)

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


def choose_most_rows(plan: IndexPlan, rows: int) -> int:
    """Return the most rows of one segment.

    There are enough segments to build in parallel, and few enough to search.
    """
    return min(plan.segment_rows, max(SEGMENT_ROWS, -(-rows // SEGMENTS)))


def choose_layout(plan: IndexPlan) -> str | None:
    """Return the layout of an index: "lists" if its base is cut into ranges, None if by rows."""
    return "lists" if plan.nlist else None


def average_closeness(segments: Iterable[SegmentEntry]) -> float | None:
    """Return the mean score of all live rows with their nearest centroid.

    Returns None if no segment has lists.
    """
    scored = [
        (segment.closeness, segment.live) for segment in segments if segment.closeness is not None
    ]
    rows = sum(live for _, live in scored)
    return sum(score * live for score, live in scored) / rows if rows else None
