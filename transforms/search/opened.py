"""The opened index of a snapshot: its segments, their rows' places, and vectors of candidates."""

import functools
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DamagedIndexError, cite
from sentence_beam.transforms.index import (
    SegmentChecks,
    SegmentedIndex,
    SegmentFile,
    TrainedIndex,
    rerank,
)
from sentence_beam.transforms.index.filtered import FilteredIndex
from sentence_beam.transforms.index.index_kinds import choose_depth
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric
from sentence_beam.transforms.index.range_readers import MappedRange, RangeFile, RangeReader
from sentence_beam.transforms.search.hits import Hits
from sentence_beam.transforms.storage.bounded_cache import BoundedCache
from sentence_beam.transforms.storage.cache import cache_file
from sentence_beam.transforms.store.index_entries import IndexEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files.locator_file import LocatorFile
from sentence_beam.transforms.store.index_files.refine_file import RefineFile
from sentence_beam.transforms.store.index_files.remote_range import CACHE, RemoteRange
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.matches import Matches

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key; each is made once and shared while anybody holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; make it if nobody holds one. Raises what `make` raises."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                value = self._values[key] = make()
            return value


@dataclass(frozen=True)
class Copies:
    """The copies that a search makes of the index of a remote store.

    If `local`, all files are copied whole. Otherwise lists are read as they are needed, and those
    used last stay in a cache of a tenth of the free disk.
    """

    local: bool = False


COPY_ALL = Copies(local=True)
READ_LISTS = Copies()
_TRAINED: Kept[TrainedIndex] = Kept()  # by sha256; snapshots share it
_LOCATORS: Kept[LocatorFile] = Kept()  # by root and sha256


class SnapshotIndex:
    """The index of a snapshot; its files are opened when first needed."""

    def __init__(self, manifest: Manifest, copies: Copies = COPY_ALL):
        self._manifest = manifest
        self._copies = copies
        self._cache = BoundedCache(CACHE)
        self._filter: tuple[Matches, FilteredIndex] | None = None
        self._opened_locators: dict[int, LocatorFile] = {}

    @property
    def _segments(self) -> tuple[SegmentEntry, ...]:
        return self._manifest.index.segments if self._manifest.index else ()

    def _open_locator(self, number: int) -> LocatorFile:
        """Return the locator of a segment, opened when first needed."""
        locator = self._opened_locators.get(number)
        if locator is None:
            locator = _share_locator(self._manifest.root, self._segments[number])
            self._opened_locators[number] = locator
        return locator

    @cached_property
    def whole_index(self) -> SegmentedIndex:
        """The index of all segments, opened at the first use."""
        with progress.stage("opening the index"):
            return self.open_segments(0, len(self._segments))

    def open_segments(self, first: int, stop: int) -> SegmentedIndex:
        """Return the index of the segments from `first` up to `stop`, numbered from 0."""
        files = [self._open_file(number) for number in range(first, stop)]
        return SegmentedIndex.open(files, self.trained)

    @property
    def trained(self) -> TrainedIndex | None:
        """The trained index that the segments share; None if they have no lists."""
        index = self._manifest.index
        if index is None or not index.spec.lists:
            return None
        path = self._join(index.trained.path)
        sha256 = index.trained.sha256
        return _TRAINED.get((path, sha256), lambda: _open_trained(path, sha256))

    def _open_file(self, number: int) -> SegmentFile | RangeFile:
        """Return a segment or a range to open."""
        entry = self._segments[number]
        path = self._join(entry.path)
        if entry.lists is None:
            locator = self._open_locator(number)
            checks = SegmentChecks.from_text(locator.checks)
            keep = locator.keep() if entry.deleted else None
            return SegmentFile(cache_file(path, entry.sha256), keep, checks)
        reader: RangeReader
        if storage.is_local(path) or self._copies.local:
            reader = MappedRange(cache_file(path, entry.sha256), entry.header_sha256)
        else:
            reader = RemoteRange(path, entry, self._cache)
        keep_of = functools.partial(_find_kept_rows, self._manifest.root, entry)
        return RangeFile(reader, *entry.lists, entry.rows, entry.first_id, entry.deleted, keep_of)

    def _join(self, relative: str) -> str:
        return storage.join(self._manifest.root, relative)

    def search(
        self, index: IndexEntry, queries: np.ndarray, k: int, rows: int, wanted: Matches | None
    ) -> Hits:
        """Return some `rows` nearest to each query, among `wanted` ones (None: all).

        It looks into as many lists as for k rows. Queries are prepared for the metric. Raises
        DamagedIndexError if a file of the index is not what was written.
        """
        try:
            return self._search(index, queries, k, rows, wanted)
        except DamagedIndexError as error:
            raise DamagedIndexError(f"{error.message}; {self._find_mend(error.message)}") from error

    def _search(
        self, index: IndexEntry, queries: np.ndarray, k: int, rows: int, wanted: Matches | None
    ) -> Hits:
        opened = self.whole_index
        depth = choose_depth(k, index.rerank)
        nprobe = index.choose_nprobe(k) or None
        with progress.stage("searching the index"):
            if wanted is not None:
                filtered = self._open_filtered(wanted, bool(index.rerank))
                result = filtered.search(queries, rows, nprobe=nprobe, depth=depth)
            elif index.rerank:
                result = opened.search_ties(queries, depth, nprobe=nprobe, least=k)
            else:
                result = opened.search(queries, rows, nprobe=nprobe, least=k)
        if index.rerank and wanted is None:
            metric = choose_scoring_metric(self._manifest.metric)
            result = rerank(queries, result, rows, self.read_vectors_of, metric)
        shard, row = self.located(result.segment, result.row)
        return Hits(result.scores, shard, row)

    def _open_filtered(self, wanted: Matches, reranks: bool) -> FilteredIndex:
        """Return the index of the wanted rows; the index of the last filter is remembered."""
        if self._filter is None or self._filter[0] is not wanted:
            of_segments = [
                self._open_locator(number).wanted(functools.partial(self._find_wanted, wanted))
                for number in range(len(self._segments))
            ]
            vectors = self.read_vectors_of if reranks else None
            self._filter = (wanted, FilteredIndex(self.whole_index, of_segments, vectors))
        return self._filter[1]

    def _find_wanted(self, wanted: Matches, path: str) -> np.ndarray:
        """Return bool by row of a shard that a locator names.

        Raises DamagedIndexError if the snapshot lacks it.
        """
        number = self._manifest.find_shard_number(path)
        if number < 0:
            raise DamagedIndexError(
                f"{self._join(path)} is none of the snapshot's shards, and its index has rows of it"
            )
        return wanted.shards[number]

    def _find_mend(self, error: str) -> str:
        """Return what mends the damaged file that an error names, in the store or in a cache."""
        if self._manifest.root in error:
            command = f"sentence-beam index --store {self._manifest.root}"
            return f"`{command}` builds it again, search {cite('exact=True')} does without it"
        return "it is a copy: remove it, and it is fetched again"

    def located(self, segment: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the shard number and the row in it of every (segment, local row), -1 for none."""
        shards = np.full(segment.shape, -1, np.int64)
        rows = np.full(segment.shape, -1, np.int64)
        for number in np.unique(segment[row >= 0]).tolist():
            here = (segment == number) & (row >= 0)
            names, shard, rows[here] = self._open_locator(number).places(row[here])
            used, place = np.unique(shard, return_inverse=True)
            numbers = np.array([self._manifest.find_shard_number(names[i]) for i in used])
            shards[here] = numbers[place]
        return shards, rows

    def read_vectors_of(self, segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return vectors of index rows, float32 [m, dim], from the files beside the segments.

        Rows are in order of (segment, row).
        """
        vectors = np.empty((len(row), self._manifest.space.dim), np.float32)
        numbers, starts = np.unique(segment, return_index=True)
        ends = [*starts[1:], len(row)]
        for number, start, end in zip(numbers.tolist(), starts, ends, strict=True):
            vectors[start:end] = self._refine[number].vectors(row[start:end])
        return vectors

    @cached_property
    def _refine(self) -> dict[int, RefineFile]:
        """The files of vectors by the places of their segments."""
        dim = self._manifest.space.dim
        return {
            number: RefineFile(self._join(entry.refine.path), dim, entry.rows)
            for number, entry in enumerate(self._segments)
            if entry.refine
        }


def _share_locator(root: str, entry: SegmentEntry) -> LocatorFile:
    """Return the locator of a segment, opened once while anybody holds it."""
    key = (root, entry.locator_sha256)
    return _LOCATORS.get(key, lambda: LocatorFile.open(root, entry))


def _find_kept_rows(root: str, entry: SegmentEntry) -> np.ndarray:
    """Return bool [rows] of a segment, False for deleted rows."""
    return _share_locator(root, entry).keep()


def _open_trained(path: str, sha256: str) -> TrainedIndex:
    local = cache_file(path, sha256)
    index_files.check(local, sha256)
    return TrainedIndex.open(local)
