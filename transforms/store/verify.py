"""Verification: the files that a snapshot names compared with those that are in the store."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms import progress, storage
from transforms.calibration.calibration import INFO, TENSORS
from transforms.errors import LedgerError, SentenceBeamError
from transforms.store import layout, locators, shards
from transforms.store.calibrations import kept_calibration
from transforms.store.canary import CanaryFile
from transforms.store.entries import IndexEntry
from transforms.store.ledger import Ledger, check_pieces
from transforms.store.manifest import UNSEALED, Manifest, read_manifest
from transforms.store.precision import kept_ranges
from transforms.store.records import SUMS, UnitRecord
from transforms.store.units import sums_of

READ_AT_ONCE = 8  # shards: a read of remote storage takes longer than hashing does


@dataclass(frozen=True)
class Extent:
    """What is read of a snapshot: the part `sample` of its shards, and all that the snapshot `since` does not have.

    Each snapshot has another sample, so that nights of them read every shard in time. Shards that are not read are
    looked for in a listing.
    """

    sample: float = 1.0
    since: Manifest | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of the snapshot is read."""
        return self.sample >= 1

    def read(self, manifest: Manifest) -> list[UnitRecord]:
        """The units of a snapshot whose files are read."""
        before = None if self.since is None else {(unit.path, unit.sha256) for unit in self.since.units}
        return [
            unit
            for unit in manifest.units
            if (before is not None and (unit.path, unit.sha256) not in before)
            or place(f"{manifest.run}/{unit.unit}") < self.sample
        ]


WHOLE = Extent()


def place(name: str) -> float:
    """A number from 0 to below 1 that is a name's own."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / (1 << 48)


def faults(manifest: Manifest, extent: Extent = WHOLE) -> Iterator[str]:
    """A line for every fault of a snapshot, with its place; no line for a sound one."""
    units = extent.read(manifest)
    yield from _faults_of_units(manifest, units)
    if not extent.is_whole:
        yield from _listed_faults(manifest, {unit.path for unit in units})
    yield from _ledger_faults(manifest)
    if manifest.ranges:
        yield from _reading_fault(kept_ranges, manifest.root, manifest.ranges)
    if manifest.index and extent.is_whole:
        yield from _index_faults(manifest, manifest.index)
    if manifest.space.calibration:
        yield from _reading_fault(kept_calibration, manifest.root, manifest.space.calibration)
    if manifest.canary:
        yield from _reading_fault(CanaryFile(manifest.root, manifest.canary.path, manifest.canary.sha256).read)
    yield from _manifest_faults(manifest)


def _faults_of_units(manifest: Manifest, units: list[UnitRecord]) -> Iterator[str]:
    """The faults of units, in order, several of which are read side by side."""
    with ThreadPoolExecutor(READ_AT_ONCE) as pool, progress.stage("verifying", len(units), "units"):
        waiting: deque[Future[list[str]]] = deque()
        for unit in units:
            waiting.append(pool.submit(lambda unit: list(_unit_faults(manifest, unit)), unit))
            if len(waiting) > 2 * READ_AT_ONCE:
                yield from waiting.popleft().result()
            progress.step()
        while waiting:
            yield from waiting.popleft().result()


def _listed_faults(manifest: Manifest, read: set[str | None]) -> Iterator[str]:
    """Shards not read that are missing or of another size."""
    folder = storage.join(manifest.root, layout.EMBEDDINGS)
    sizes = {entry.path: entry.size for entry in storage.storage_of(folder).below(folder)}
    for unit in manifest.units:
        if unit.path is not None and unit.path not in read:
            path = storage.join(manifest.root, unit.path)
            if path not in sizes:
                yield f"{path}: the shard is missing"
            elif sizes[path] != unit.bytes:
                yield f"{path}: {sizes[path]} bytes, the manifest says {unit.bytes}"


def _manifest_faults(manifest: Manifest) -> Iterator[str]:
    """What is wrong with the manifest of the run, or of `manifest.json` where that is to be the same."""
    path = storage.join(manifest.root, layout.snapshot(manifest.run))
    try:
        own, current = read_manifest(manifest.root, manifest.run), read_manifest(manifest.root)
    except SentenceBeamError as error:
        yield str(error)
        return
    if own is None:
        yield f"{path}: the snapshot's own manifest is missing; copy manifest.json there, or run embed again"
    elif current is not None and current.run == manifest.run and current.digest != own.digest:
        names = sorted(name for name in own.data.keys() | current.data.keys() if name not in UNSEALED)
        other = [name for name in names if own.data.get(name) != current.data.get(name)]
        yield f"{path}: says something else than manifest.json of {', '.join(other)}; keep one of them, run embed again"


def missing_file(manifest: Manifest) -> str | None:
    """The full path of a file that the snapshot names and the store does not have; None where all are there."""
    named = [path for unit in manifest.units for path in (unit.path, unit.rejects) if path]
    named += [path for path, _ in manifest.index.files] if manifest.index else []
    named += [entry.path for entry in (manifest.ranges, manifest.canary) if entry]
    digest = manifest.space.calibration
    named += [storage.join(layout.calibration(digest), name) for name in (INFO, TENSORS)] if digest else []
    there = {entry.path for entry in storage.storage_of(manifest.root).below(manifest.root)}
    return next((full for path in named if (full := storage.join(manifest.root, path)) not in there), None)


def _unit_faults(manifest: Manifest, unit: UnitRecord) -> Iterator[str]:
    if unit.rejected:
        yield from _reject_faults(manifest, unit)
    if unit.path is None:
        if unit.rows:
            yield f"unit {unit.unit}: {unit.rows} rows but no shard"
        return
    path = storage.join(manifest.root, unit.path)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        yield f"{path}: the shard is missing"
    elif hashlib.sha256(found[0]).hexdigest() != unit.sha256:
        yield f"{path}: the shard was changed after it was written (sha256 differs)"
    else:
        yield from _shard_faults(manifest, unit, path, found[0])


def _shard_faults(manifest: Manifest, unit: UnitRecord, path: str, data: bytes) -> Iterator[str]:
    try:
        info = shards.inspect_shard(data)
    except SentenceBeamError as error:
        yield f"{path}: {error}"
        return
    if info.space_id != manifest.space.id:
        yield f"{path}: the shard is of another space ({info.space_id[:12]}, not {manifest.space.id[:12]})"
    if info.ranges != (manifest.ranges.digest if manifest.ranges else None):
        yield f"{path}: the shard counts between other ranges than those of the manifest"
    if info.rows != unit.rows:
        yield f"{path}: {info.rows} rows, the manifest says {unit.rows}"
    if sums_of(info.pieces) != {name: value for name in SUMS if (value := getattr(unit, name)) is not None}:
        yield f"{path}: other pieces of documents than the manifest says"


def _reject_faults(manifest: Manifest, unit: UnitRecord) -> Iterator[str]:
    path = storage.join(manifest.root, unit.rejects or "")
    found = storage.storage_of(path).read_versioned(path) if unit.rejects else None
    if found is None:
        yield f"{path}: the reject file of unit {unit.unit} is missing"
        return
    if unit.rejects_sha256 not in (None, hashlib.sha256(found[0]).hexdigest()):
        yield f"{path}: the reject file was changed after it was written (sha256 differs)"
        return
    try:
        rows = len(shards.rejects_from_bytes(found[0]))
    except SentenceBeamError as error:
        yield f"{path}: {error}"
        return
    if rows != unit.rejected:
        yield f"{path}: {rows} rejected rows, the manifest says {unit.rejected}"


def _ledger_faults(manifest: Manifest) -> Iterator[str]:
    counted = Ledger.of(manifest.units)
    for name in ("read", "written", "rejected", "pieces"):
        said = getattr(manifest.rows, name)
        if getattr(counted, name) != said:
            yield f"ledger: units have {getattr(counted, name)} rows {name}, the manifest says {said}"
    rows, work = manifest.rows, manifest.work
    totals = (rows.read, rows.written, rows.rejected, work.embedded, work.reused, work.duplicates, work.carried)
    try:
        Ledger(*totals, pieces=rows.pieces).check()
        check_pieces(manifest.units)
    except LedgerError as error:
        yield str(error).removesuffix("; nothing committed")
    for unit, count in Counter(u.unit for u in manifest.units).items():
        if count > 1:
            yield f"ledger: unit {unit} is listed {count} times"


def _reading_fault(read: Callable[..., object], *arguments: Any) -> Iterator[str]:
    """The fault by which a file of the store cannot be read, if it has one."""
    try:
        read(*arguments)
    except SentenceBeamError as error:
        yield str(error)


def _index_faults(manifest: Manifest, index: IndexEntry) -> Iterator[str]:
    broken = False
    for relative, sha256 in progress.over(index.files, "verifying the index", "files"):
        path = storage.join(manifest.root, relative)
        if storage.storage_of(path).stat(path) is None:
            yield f"{path}: the index file is missing"
            broken = True
        elif storage.sha256_of(path)[0] != sha256:
            yield f"{path}: the index file was changed after it was written (sha256 differs)"
            broken = True
    if not broken:
        yield from _coverage_faults(manifest, index)


def _coverage_faults(manifest: Manifest, index: IndexEntry) -> Iterator[str]:
    """Every row of every shard must be in exactly one segment, under its id and its text's hash."""
    rows = {unit.path: unit.rows for unit in manifest.units if unit.path}
    count = {path: np.zeros(n, np.int32) for path, n in rows.items()}
    for segment in progress.over(index.segments, "verifying what the index names", "segments"):
        try:
            table = locators.from_bytes(storage.read_bytes(storage.join(manifest.root, segment.locator)))
        except SentenceBeamError as error:
            yield f"{segment.locator}: {error}"
            return
        live = table.filter(table.column("shard").is_valid())
        for name, found, said in (
            ("rows", len(table), segment.rows),
            ("deleted rows", len(table) - len(live), segment.deleted),
        ):
            if found != said:
                yield f"{segment.locator}: {found} {name}, the segment has {said}"
        numbers, paths = locators.shards_of(live)
        for number in np.unique(numbers):
            path, mine = paths[number], live.filter(pa.array(numbers == number))
            row = mine.column("row").to_numpy()
            if path not in rows or row.max() >= rows[path] or row.min() < 0:
                yield f"{segment.locator}: names rows of {path} that are not in the snapshot"
                return
            if not _same_rows(storage.join(manifest.root, path), row, mine):
                yield f"{segment.locator}: points to other rows of {path} than it names"
            np.add.at(count[path], row, 1)
    for path, times in count.items():
        if not (times == 1).all():
            yield f"{path}: {(times == 0).sum()} rows are not in the index, {(times > 1).sum()} are there twice"
    if index.rows != sum(rows.values()):
        yield f"index: {index.rows} rows, the snapshot has {sum(rows.values())}"


def _same_rows(path: str, row: np.ndarray, locator: pa.Table) -> bool:
    """Whether a locator's ids and hashes are those of the shard's rows; a damaged shard is a fault of its own."""
    try:
        found = shards.take_rows(path, row, ["id", "row_hash"])
    except SentenceBeamError:
        return True
    return all(found.column(name).equals(locator.column(name)) for name in ("id", "row_hash"))
