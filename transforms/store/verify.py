"""Verification: compare the files that a snapshot names with those in the store.

A snapshot is checked in independent parts (`checks`, `finding`), by the threads of one process
(`faults`) or by the workers of a pipeline. `conclude` makes the same lines from the findings of
either.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.calibrations import kept_calibration
from sentence_beam.transforms.store.forgetting.hashes import read_rows
from sentence_beam.transforms.store.index_coverage import Coverage
from sentence_beam.transforms.store.index_entries import IndexEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.int8_models import kept_int8
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.canary import CanaryFile
from sentence_beam.transforms.store.runs.changed_rows import read_changes
from sentence_beam.transforms.store.runs.result import checked_result
from sentence_beam.transforms.store.shards.precision import kept_ranges
from sentence_beam.transforms.store.verify_files import (
    have_same_rows,
    index_file_faults,
    unit_faults,
)
from sentence_beam.transforms.store.verify_manifest import ledger_faults, manifest_faults
from sentence_beam.transforms.store.watched import read_answers, read_grades, read_queries

READ_AT_ONCE = 8  # shards: a read of remote storage takes longer than hashing does
UNITS_IN_A_CHECK = 16
REST = "rest"
INDEX_FILE = "index file"
SEGMENT = "segment"
UNREADABLE = "unreadable"  # the snapshot; the check is about the line of the error


@dataclass(frozen=True)
class Extent:
    """The part of a snapshot that is read: a `sample` of its shards, and those that `since` lacks.

    Each snapshot has another sample, so that nights of them read every shard in time. Shards that
    are not read are looked for in a listing.
    """

    sample: float = 1.0
    since: Manifest | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of the snapshot is read."""
        return self.sample >= 1

    def read(self, manifest: Manifest) -> list[UnitRecord]:
        """Return the units of a snapshot whose files are read."""
        if self.since is None:
            before = None
        else:
            before = {(unit.path, unit.sha256) for unit in self.since.units}
        return [
            unit
            for unit in manifest.units
            if (before is not None and (unit.path, unit.sha256) not in before)
            or place(f"{manifest.run}/{unit.unit}") < self.sample
        ]


WHOLE = Extent()


def place(name: str) -> float:
    """Return a name's own number from 0 to below 1."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / (1 << 48)


@dataclass(frozen=True)
class Check:
    """A part of the check of a snapshot, at `place` among all.

    It covers some `units`, or the kind `what` of thing that it is `about`.
    """

    what: str = ""
    about: Any = None
    units: tuple[UnitRecord, ...] = ()
    place: int = 0


@dataclass(frozen=True)
class Finding:
    """The result of the check at `place`: its faults, and whether an index file is `broken`.

    A segment's finding has the rows that are in it, None if its locator cannot be read.
    """

    place: int
    faults: tuple[str, ...] = ()
    broken: bool = False
    covered: Coverage | None = field(default_factory=Coverage)


@dataclass(frozen=True)
class Findings:
    """The findings of several checks: those with faults, and the rows that the segments have."""

    faulty: tuple[Finding, ...] = ()
    covered: Coverage | None = field(default_factory=Coverage)

    @classmethod
    def of(cls, one: Finding) -> "Findings":
        """Return the findings of one check."""
        return cls((replace(one, covered=None),) if one.faults else (), one.covered)

    def merge(self, other: "Findings") -> "Findings":
        """Return the findings of both."""
        covered = None
        if self.covered is not None and other.covered is not None:
            covered = self.covered.merge(other.covered)
        return Findings(self.faulty + other.faulty, covered)


def checks(manifest: Manifest, extent: Extent = WHOLE) -> list[Check]:
    """Return the parts of the check of a snapshot; those of its index, if read, come last."""
    units = extent.read(manifest)
    index = manifest.index if extent.is_whole else None
    starts = range(0, len(units), UNITS_IN_A_CHECK)
    parts = [Check(units=tuple(units[start : start + UNITS_IN_A_CHECK])) for start in starts]
    parts.append(Check(REST))
    if index is not None:
        parts += [Check(INDEX_FILE, file) for file in index.files]
        parts += [Check(SEGMENT, segment) for segment in index.segments]
    return [replace(part, place=place) for place, part in enumerate(parts)]


def finding(manifest: Manifest, extent: Extent, check: Check) -> Finding:
    """Return the finding of one part."""
    if check.units:
        lines = (
            line for unit in check.units for line in _with_reading(unit_faults(manifest, unit))
        )
        return Finding(check.place, tuple(lines))
    if check.what == INDEX_FILE:
        found = tuple(_with_reading(index_file_faults(manifest, *check.about)))
        return Finding(check.place, found, broken=bool(found))
    if check.what == SEGMENT:
        return _segment_finding(manifest, check.place, check.about)
    return Finding(check.place, tuple(_other_faults(manifest, extent)))


def faults(manifest: Manifest, extent: Extent = WHOLE) -> list[str]:
    """Return a line for every fault of a snapshot, checked by threads of this process.

    Each line names the place of the fault; a sound snapshot has none.
    """
    every = checks(manifest, extent)
    index = [check for check in every if check.what == INDEX_FILE]
    segments = [check for check in every if check.what == SEGMENT]
    found = _side_by_side(
        manifest, extent, every[: len(every) - len(index) - len(segments)], "verifying"
    )
    if index:
        found = found.merge(_side_by_side(manifest, extent, index, "verifying the index"))
    # one after the other: a locator is as large as many shards
    if not any(one.broken for one in found.faulty):
        for check in progress.over(segments, "verifying what the index names", "segments"):
            found = found.merge(Findings.of(finding(manifest, extent, check)))
    return list(conclude(manifest, extent, found))


def _side_by_side(manifest: Manifest, extent: Extent, some: list[Check], what: str) -> Findings:
    """Return the findings of some parts, several of which are checked at once."""
    found = Findings()
    total = sum(len(check.units) or 1 for check in some)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool, progress.stage(what, total, "files"):
        for check, one in zip(
            some, pool.map(partial(finding, manifest, extent), some), strict=True
        ):
            found = found.merge(Findings.of(one))
            progress.step(len(check.units) or 1)
    return found


def conclude(manifest: Manifest, extent: Extent, found: Findings) -> Iterator[str]:
    """Yield the lines of all parts, in order, and those that need all segments together."""
    yield from lines_of(found)
    if manifest.index and extent.is_whole and not any(one.broken for one in found.faulty):
        yield from _coverage_faults(manifest, manifest.index, found.covered)


def lines_of(found: Findings) -> Iterator[str]:
    """Yield the lines of all parts, in order."""
    for one in sorted(found.faulty, key=lambda one: one.place):
        yield from one.faults


def _other_faults(manifest: Manifest, extent: Extent) -> Iterator[str]:
    """Yield the faults of everything but units and index."""
    if not extent.is_whole:
        yield from _listed_faults(manifest, {unit.path for unit in extent.read(manifest)})
    yield from ledger_faults(manifest)
    yield from _small_faults(manifest)
    yield from _changes_faults(manifest)
    yield from _with_reading(_reads(checked_result, manifest.root, manifest.run))
    yield from _with_reading(manifest_faults(manifest))


def _small_faults(manifest: Manifest) -> Iterator[str]:
    """Yield the faults of the small files that all rows need.

    These are the bounds of codes, the calibration, the quantised model, the canary and the watched
    queries.
    """
    if manifest.ranges:
        yield from _with_reading(_reads(kept_ranges, manifest.root, manifest.ranges))
    yield from _with_reading(_reads(kept_calibration, manifest.root, manifest.space))
    yield from _with_reading(_reads(kept_int8, manifest.root, manifest.space))
    if manifest.canary:
        canary = CanaryFile(manifest.root, manifest.canary.path, manifest.canary.sha256)
        yield from _with_reading(_reads(canary.read))
    if manifest.forgotten:
        yield from _with_reading(_reads(read_rows, manifest.root, manifest.forgotten))
    if manifest.watch:
        yield from _with_reading(_reads(read_queries, manifest.root, manifest.watch))
        yield from _with_reading(_reads(read_grades, manifest.root, manifest.watch))
        yield from _with_reading(_reads(read_answers, manifest.root, manifest.watch))


def _changes_faults(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each file of changed rows that is missing or was changed.

    Vacuum removes them with the snapshot before.
    """
    changes = manifest.changes
    if changes is None:
        return
    before = storage.join(manifest.root, layout.snapshot(changes.since))
    if storage.storage_of(before).stat(before) is None:
        return
    for file in changes.files:
        yield from _with_reading(_reads(read_changes, manifest.root, file))


def _listed_faults(manifest: Manifest, read: set[str | None]) -> Iterator[str]:
    """Yield a line for each shard not read that is missing or of another size."""
    folder = storage.join(manifest.root, layout.EMBEDDINGS)
    sizes = {entry.path: entry.size for entry in storage.storage_of(folder).below(folder)}
    for unit in manifest.units:
        if unit.path is not None and unit.path not in read:
            path = storage.join(manifest.root, unit.path)
            if path not in sizes:
                yield f"{path}: the shard is missing"
            elif sizes[path] != unit.bytes:
                yield f"{path}: {sizes[path]} bytes, the manifest says {unit.bytes}"


def _known_sizes(manifest: Manifest) -> dict[str, int | None]:
    """Return the size of every shard, reject file and index file, by path; None if unknown."""
    sizes: dict[str, int | None] = {unit.path: unit.bytes for unit in manifest.units if unit.path}
    sizes |= {unit.rejects: None for unit in manifest.units if unit.rejects}
    if manifest.index:
        sizes |= {path: None for path, _ in manifest.index.files}
        sizes |= {segment.path: segment.bytes for segment in manifest.index.segments}
        sizes |= {
            segment.locator: segment.locator_bytes or None for segment in manifest.index.segments
        }
    return sizes


def faults_without_reading(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each fault that a listing and the small files tell.

    Files that the snapshot names are missing, or have another size than the manifest says.
    """
    sizes = {
        entry.path: entry.size for entry in storage.storage_of(manifest.root).below(manifest.root)
    }
    for path, wanted in _known_sizes(manifest).items():
        full = storage.join(manifest.root, path)
        if full not in sizes:
            yield f"{full} is missing"
        elif wanted not in (None, sizes[full]):
            yield f"{full} has {sizes[full]:,} bytes, not {wanted:,}"
    yield from _small_faults(manifest)


def _reads(read: Callable[..., object], *arguments: Any) -> Iterator[str]:
    """Read a file of the store; yield no fault, raise what the reading raises."""
    read(*arguments)
    yield from ()


def _with_reading(faults: Iterator[str]) -> Iterator[str]:
    """Yield the faults, and last the error if a file cannot be read."""
    try:
        yield from faults
    except SentenceBeamError as error:
        yield str(error)
    except OSError as error:
        if error.filename:
            yield f"{error.filename}: cannot be read ({error.strerror})"
        else:
            yield str(error)


def _segment_finding(manifest: Manifest, place: int, segment: SegmentEntry) -> Finding:
    """Return the faults of a segment's locator, and the rows that it has."""
    try:
        table = locators.from_bytes(
            storage.read_bytes(storage.join(manifest.root, segment.locator))
        )
    except (OSError, SentenceBeamError) as error:
        return Finding(place, (f"{segment.locator}: {error}",), covered=None)
    live = table.filter(table.column("shard").is_valid())
    counted = (
        ("rows", len(table), segment.rows),
        ("deleted rows", len(table) - len(live), segment.deleted),
    )
    lines = [
        f"{segment.locator}: {found} {name}, the segment has {said}"
        for name, found, said in counted
        if found != said
    ]
    numbers, paths = locators.shards_of(live)
    order = np.argsort(numbers, kind="stable")
    live = live.take(order)
    found, starts = np.unique(numbers[order], return_index=True)
    for number, start, stop in zip(found, starts, [*starts[1:], len(live)], strict=True):
        path = paths[number]
        mine = live.slice(start, stop - start)
        row = mine.column("row").to_numpy()
        if row.max() >= manifest.rows_of.get(path, 0) or row.min() < 0:
            lines.append(f"{segment.locator}: names rows of {path} that are not in the snapshot")
            return Finding(place, tuple(lines), covered=None)
        if not have_same_rows(storage.join(manifest.root, path), row, mine):
            lines.append(f"{segment.locator}: points to other rows of {path} than it names")
    places = {path: place for place, path in enumerate(manifest.rows_of)}
    shards = np.array([places[paths[number]] for number in found], np.int32)
    repeats = np.diff([*starts, len(live)])
    covered = Coverage.of(np.repeat(shards, repeats), live.column("row").to_numpy())
    return Finding(place, tuple(lines), covered=covered)


def _coverage_faults(
    manifest: Manifest, index: IndexEntry, covered: Coverage | None
) -> Iterator[str]:
    """Yield a line for each shard with a row that is not in exactly one segment."""
    if covered is None:
        return
    yield from covered.faults(manifest.rows_of)
    if index.rows != (rows := sum(manifest.rows_of.values())):
        yield f"index: {index.rows} rows, the snapshot has {rows}"
