"""The index of a snapshot, opened: its segments, where their rows are, and the vectors of
candidates.
"""

from functools import cached_property

import numpy as np

from transforms import storage
from transforms.base import progress
from transforms.base.arrow import as_matrix
from transforms.base.errors import DamagedIndexError
from transforms.index import SegmentChecks, SegmentedIndex, SegmentFile, TrainedIndex, rerank
from transforms.index.choose import depth_for
from transforms.index.filtered import FilteredIndex
from transforms.index.vectors import prepared, scored_by
from transforms.search.hits import Hits
from transforms.storage.cache import cached
from transforms.store.entries import IndexEntry, SegmentEntry
from transforms.store.index_files import files as index_files
from transforms.store.index_files.locator_file import LocatorFile
from transforms.store.index_files.refine_file import RefineFile
from transforms.store.manifest import Manifest
from transforms.store.matches import Matches
from transforms.store.shards.reading import take_rows


class SnapshotIndex:
    """The index of a snapshot; its files are opened when they are first needed."""

    def __init__(self, manifest: Manifest):
        self._manifest = manifest
        self._numbers = {
            str(unit.path): number
            for number, unit in enumerate(u for u in manifest.units if u.path)
        }
        self._filter: tuple[Matches, FilteredIndex] | None = None

    @property
    def _segments(self) -> tuple[SegmentEntry, ...]:
        return self._manifest.index.segments if self._manifest.index else ()

    @cached_property
    def _locators(self) -> list[LocatorFile]:
        return [LocatorFile.open(self._manifest.root, entry) for entry in self._segments]

    @cached_property
    def _whole(self) -> SegmentedIndex:
        with progress.stage("opening the index"):
            return self.opened(0, len(self._segments))

    def opened(self, first: int, stop: int) -> SegmentedIndex:
        """The index of the segments from `first` up to `stop` alone, which are numbered from 0
        there.
        """
        pairs = zip(self._segments[first:stop], self._locators[first:stop], strict=True)
        return SegmentedIndex.open([self._segment(*pair) for pair in pairs], self.trained)

    @property
    def trained(self) -> TrainedIndex | None:
        """The trained index that the segments share; None where they have no lists."""
        index = self._manifest.index
        if index is None or not index.nprobe or not index.trained.path:
            return None
        path = cached(self._path(index.trained.path), index.trained.sha256)
        index_files.check(path, index.trained.sha256)
        return TrainedIndex.open(path)

    def _segment(self, entry: SegmentEntry, locator: LocatorFile) -> SegmentFile:
        """A segment to open; one of an earlier version, whose lists have no checksums, is read as a
        whole first.
        """
        path, checks = cached(self._path(entry.path), entry.sha256), locator.checks
        if checks is None:
            index_files.check(path, entry.sha256)
        keep = locator.keep() if entry.deleted else None
        return SegmentFile(path, keep, SegmentChecks.from_text(checks) if checks else None)

    def _path(self, relative: str) -> str:
        return storage.join(self._manifest.root, relative)

    def search(
        self, index: IndexEntry, queries: np.ndarray, k: int, wanted: Matches | None
    ) -> Hits:
        """The k rows nearest to each query, prepared for the metric, of those that a filter wants
        (None: of all).

        Raises DamagedIndexError where a file of the index is not what was written.
        """
        try:
            return self._searched(index, queries, k, wanted)
        except DamagedIndexError as error:
            raise DamagedIndexError(f"{error}; {self._mend(str(error))}") from error

    def _searched(
        self, index: IndexEntry, queries: np.ndarray, k: int, wanted: Matches | None
    ) -> Hits:
        opened, depth, nprobe = self._whole, depth_for(k, index.rerank), index.nprobe_for(k) or None
        with progress.stage("searching the index"):
            if wanted is None:
                found = opened.search(queries, depth, nprobe=nprobe, least=k)
            else:
                found = self._filtered(wanted, bool(index.rerank)).search(
                    queries, k, nprobe=nprobe, depth=depth
                )
        if index.rerank and wanted is None:
            found = rerank(queries, found, k, self.vectors_of, scored_by(self._manifest.metric))
        shard, row = self.located(found.segment, found.row)
        return Hits(found.scores[:, :k], shard[:, :k], row[:, :k])

    def _filtered(self, wanted: Matches, reranks: bool) -> FilteredIndex:
        """The index of the rows that a filter wants; that of the last filter is remembered."""
        if self._filter is None or self._filter[0] is not wanted:
            rows = {path: wanted.shards[number] for path, number in self._numbers.items()}
            kept = [locator.wanted(rows) for locator in self._locators]
            self._filter = (
                wanted,
                FilteredIndex(self._whole, kept, self.vectors_of if reranks else None),
            )
        return self._filter[1]

    def _mend(self, error: str) -> str:
        """What to do about a file of the index that an error names: one of the store, or a copy of
        it.
        """
        if self._manifest.root in error:
            return "`sentence-beam index` makes it again, search --exact does without it"
        return "it is a copy: remove it, and it is fetched again"

    def located(self, segment: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shard number and row within it of every (segment, local row)."""
        shards, rows = np.full(segment.shape, -1, np.int64), np.full(segment.shape, -1, np.int64)
        for number in np.unique(segment[row >= 0]).tolist():
            here = (segment == number) & (row >= 0)
            names, shard, rows[here] = self._locators[number].places(row[here])
            used, place = np.unique(shard, return_inverse=True)
            shards[here] = np.array([self._numbers[names[which]] for which in used])[place]
        return shards, rows

    @cached_property
    def _refine(self) -> list[RefineFile | None]:
        """The vectors beside each segment; None where an earlier version wrote none."""
        dim = self._manifest.space.dim
        return [
            RefineFile(self._path(entry.refine.path), dim, entry.rows) if entry.refine else None
            for entry in self._segments
        ]

    def vectors_of(self, segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Vectors of index rows, in order of (segment, row), float32 [m, dim]: of the files beside
        the segments.
        """
        vectors = np.empty((len(row), self._manifest.space.dim), np.float32)
        numbers, starts = np.unique(segment, return_index=True)
        for number, start, end in zip(
            numbers.tolist(), starts, [*starts[1:], len(row)], strict=True
        ):
            file = self._refine[number]
            if file:
                file.vectors(row[start:end], vectors[start:end])
            else:
                vectors[start:end] = self._stored(segment[start:end], row[start:end])
        return vectors

    def _stored(self, segment: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Vectors of index rows, read from their shards through the locators; float32 [m, dim]."""
        shard, place = self.located(segment, row)
        vectors = np.empty((len(shard), self._manifest.space.dim), np.float32)
        for number in np.unique(shard):
            at = np.flatnonzero(shard == number)
            read = take_rows(self._manifest.shard_paths[int(number)], place[at], ["embedding"])
            vectors[at] = as_matrix(read.column(0).combine_chunks())
        return prepared(vectors, self._manifest.metric)
