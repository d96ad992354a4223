"""An index without the erased rows: their codes are zeros, their places deleted rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow import as_hashes, as_keys, hash_column
from sentence_beam.transforms.index.blank import blank_range, blank_refine, blank_segment
from sentence_beam.transforms.steps.forget.select import ErasedRows
from sentence_beam.transforms.steps.index.files import Folder
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexFileEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.manifest import Manifest

HASH_BYTES = 16


@dataclass(frozen=True)
class MovedShard:
    """The shard that replaces another ("": none), and the rows that left, bool [rows]."""

    path: str
    removed: np.ndarray


@dataclass
class IndexRewriter:
    """Writes the files of all kept snapshots' indexes again that have erased rows.

    `moved` has the shards that are replaced, by their old path. `sweep` also erases all rows that
    were deleted before, whose ids are not known any more.
    """

    root: str
    run: str
    selection: ErasedRows
    moved: dict[str, MovedShard]
    sweep: bool
    blank: dict[str, np.ndarray] = field(default_factory=dict)
    files: dict[str, SegmentEntry] = field(default_factory=dict)
    checks: dict[str, str | None] = field(default_factory=dict)

    def find(self, manifests: Iterable[Manifest]) -> None:
        """Find the erased rows of every segment, in any snapshot's locator of it."""
        seen = set()
        for manifest in manifests:
            for segment in manifest.index.segments if manifest.index else ():
                if segment.locator not in seen:
                    seen.add(segment.locator)
                    locator = self._locator(segment)
                    found = self._blank(locator)
                    self.blank[segment.path] = found | self.blank.get(segment.path, False)
                    self._note_shared(locator, found)

    def _note_shared(self, locator: pa.Table, blank: np.ndarray) -> None:
        """Note which texts of erased rows other rows of a locator have too."""
        hashes = locator.column("row_hash").combine_chunks()
        wanted = [text for texts in self.selection.texts.values() for text in texts.rows]
        mask = np.isin(as_keys(as_hashes(hashes)), _keys(wanted)) & ~blank
        self.selection.shared |= set(hashes.filter(pa.array(mask)).to_pylist())

    def _locator(self, segment: SegmentEntry) -> pa.Table:
        path = f"{self.root}/{segment.locator}"
        return locators.from_bytes(index_files.read(path, segment.locator_sha256))

    def _blank(self, locator: pa.Table) -> np.ndarray:
        """Return the rows of a locator that are erased, bool [n]."""
        numbers, names = locators.shards_of(locator)
        rows = locator.column("row").to_numpy()
        found = np.zeros(len(locator), bool)
        for number, name in enumerate(names):
            if name in self.moved:
                mine = np.flatnonzero(numbers == number)
                found[mine] = self.moved[name].removed[rows[mine]]
        hashes = as_hashes(locator.column("row_hash").combine_chunks())
        deleted = numbers < 0
        if self.sweep:
            return found | (deleted & hashes.any(axis=1))
        wanted = [text for texts in self.selection.texts.values() for text in texts.rows]
        return found | (deleted & np.isin(as_keys(hashes), _keys(wanted)))

    def rewritten(self, manifest: Manifest) -> IndexEntry | None:
        """Return a snapshot's index without the erased rows; None if nothing of it changes."""
        index = manifest.index
        assert index is not None
        folder = Folder(self.root, self.run, "forget", index.metric)
        queries = self._queries(folder, index)
        segments = tuple(
            self._segment(folder, segment, manifest.space.dim) for segment in index.segments
        )
        if segments == index.segments and queries == index.queries:
            return None
        rows = sum(segment.live for segment in segments)
        return replace(index, segments=segments, queries=queries, rows=rows)

    def _segment(self, folder: Folder, segment: SegmentEntry, dim: int) -> SegmentEntry:
        blank = self.blank[segment.path]
        table = self._locator(segment)
        _, names = locators.shards_of(table)
        if not blank.any() and not any(name in self.moved for name in names):
            return segment
        moved = self._moved(table, blank)
        if blank.any():
            segment = self._file(folder, segment, dim, blank)
            checks = self.checks[segment.path]
            if checks is not None:
                moved = locators.with_checks(moved, checks)
        return folder.located(segment, moved)

    def _moved(self, table: pa.Table, blank: np.ndarray) -> pa.Table:
        """Return a locator in which erased rows are deleted and others point to their new place."""
        numbers, names = locators.shards_of(table)
        numbers = numbers.copy()
        rows = table.column("row").to_numpy().copy()
        for number, name in enumerate(names):
            if name in self.moved:
                removed = self.moved[name].removed
                mine = np.flatnonzero(numbers == number)
                rows[mine] = (np.cumsum(~removed) - 1)[rows[mine]]
        rows[blank] = 0
        numbers[blank] = -1
        hashes = as_hashes(table.column("row_hash").combine_chunks()).copy()
        hashes[blank] = 0
        ids = table.column("id").to_pylist()
        for place in np.flatnonzero(blank).tolist():
            ids[place] = None
        now = [self.moved[name].path if name in self.moved else name for name in names]
        columns = [
            pa.array(ids, pa.string()),
            hash_column(hashes),
            locators.shard_column(numbers, now),
            pa.array(rows, pa.int64()),
        ]
        return pa.table(columns, schema=locators.SCHEMA.with_metadata(table.schema.metadata))

    def _file(
        self, folder: Folder, segment: SegmentEntry, dim: int, blank: np.ndarray
    ) -> SegmentEntry:
        """Return a segment whose files have no code of the erased rows."""
        made = self.files.get(segment.path)
        if made is None:
            made = self._written(folder, segment, dim, blank)
            self.files[segment.path] = made
        names = ("path", "sha256", "bytes", "checksum", "refine", "header_sha256")
        return replace(segment, **{name: getattr(made, name) for name in names})

    def _written(
        self, folder: Folder, segment: SegmentEntry, dim: int, blank: np.ndarray
    ) -> SegmentEntry:
        checks = None
        header = ""
        with folder.on_disk(segment) as path:
            if segment.lists is not None:
                data, found = blank_range(path, segment.lists[0], segment.first_id, blank)
                header = found.sha256
                suffix = "lists"
            else:
                data, sums = blank_segment(path, blank)
                checks = sums.to_text()
                suffix = "faiss"
        refine = segment.refine
        if refine is not None:
            stored = folder.stored(refine.path)
            kept = blank_refine(index_files.read(stored, refine.sha256), dim, blank, stored)
            refine = folder.file(kept, "refine")
        name, sha256 = folder.write(data, suffix)
        self.checks[name] = checks
        return replace(
            segment,
            path=name,
            sha256=sha256,
            bytes=len(data),
            checksum=folder.checksum(name),
            refine=refine,
            header_sha256=header,
        )

    def _queries(self, folder: Folder, index: IndexEntry) -> IndexFileEntry:
        """Return the file of the texts that measure recall, without those and rows that leave."""
        data = index_files.read(folder.stored(index.queries.path), index.queries.sha256)
        known = KnownQueries.from_bytes(data)
        gone = _keys(self.selection.gone)
        stay = np.flatnonzero(~np.isin(as_keys(known.texts), gone))
        crowded = known.crowded[~np.isin(as_keys(known.crowded), gone)]
        erased = [
            np.flatnonzero(self.blank[segment.path]) | segment.number << 32
            for segment in index.segments
        ]
        lost = np.concatenate([np.empty(0, np.int64), *erased])
        left = known.of(stay).only(lambda positions: ~np.isin(positions, lost))
        data = replace(left, crowded=crowded).to_bytes()
        return IndexFileEntry(*folder.write(data, "queries"))


def _keys(hashes: Iterable[bytes]) -> np.ndarray:
    data = b"".join(sorted(hashes))
    return as_keys(np.frombuffer(data, np.uint8).reshape(-1, HASH_BYTES))
