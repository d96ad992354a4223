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
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import calibrations, layout
from sentence_beam.transforms.store.forgetting.hashes import read_rows
from sentence_beam.transforms.store.index_coverage import Coverage
from sentence_beam.transforms.store.int8_models import read_kept_int8
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.canary import CanaryFile
from sentence_beam.transforms.store.runs.changed_rows import read_changes
from sentence_beam.transforms.store.runs.run_result import read_checked_result
from sentence_beam.transforms.store.shards.precision import read_kept_ranges
from sentence_beam.transforms.store.tables.table_columns import make_records
from sentence_beam.transforms.store.tables.table_parts import read_in_turns, read_units_in
from sentence_beam.transforms.store.verify_files import find_manifest_faults, find_unit_faults
from sentence_beam.transforms.store.verify_index import (
    check_segment,
    find_coverage_faults,
    find_index_file_faults,
)
from sentence_beam.transforms.store.verify_tables import (
    find_count_faults,
    find_part_faults,
    find_table_faults,
)
from sentence_beam.transforms.store.watched import read_answers, read_queries

READ_AT_ONCE = 8  # shards: a read of remote storage takes longer than hashing does
UNITS_IN_A_CHECK = 16
PART = "part"
UNITS = "units"
REST = "rest"
INDEX_FILE = "index file"
SEGMENT = "segment"
UNREADABLE = "unreadable"  # the snapshot; the check is about the line of the error
SIZES = ["path", "bytes"]


@dataclass(frozen=True)
class Extent:
    """The part of a snapshot that is read: a `sample` of its shards.

    Each snapshot has another sample, so that nights of them read every shard in time. Shards that
    are not read are looked for in a listing.
    """

    sample: float = 1.0

    @property
    def is_whole(self) -> bool:
        """Whether all of the snapshot is read."""
        return self.sample >= 1

    def reads(self, manifest: Manifest, units: pa.Table) -> np.ndarray:
        """Return the units of a snapshot whose files are read, bool [n].

        `units` have the column unit.
        """
        names = units.column("unit").to_pylist()
        is_drawn = (place(f"{manifest.run}/{unit}") < self.sample for unit in names)
        return np.fromiter(is_drawn, bool, len(units))


WHOLE = Extent()


def place(name: str) -> float:
    """Return a name's own number from 0 to below 1."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / (1 << 48)


@dataclass(frozen=True)
class Check:
    """A part of the check of a snapshot, at `place` among all.

    It is about a thing of the kind `what`: a part of a table (`files` or `units`, its number), some
    units (the number of their part, first row, row after the last), or a file of the index.
    """

    what: str
    about: Any = None
    place: int = 0

    @property
    def files(self) -> int:
        """The number of files that it looks at, about."""
        if self.what == UNITS:
            _, start, stop = self.about
            return int(stop - start)
        return 1


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
    def from_finding(cls, finding: Finding) -> "Findings":
        """Return the findings of one check."""
        return cls((replace(finding, covered=None),) if finding.faults else (), finding.covered)

    def merge(self, other: "Findings") -> "Findings":
        """Return the findings of both."""
        covered = self.covered.merge(other.covered) if self.covered and other.covered else None
        return Findings(self.faulty + other.faulty, covered)


def checks(manifest: Manifest, extent: Extent = WHOLE) -> list[Check]:
    """Return the parts of the check of a snapshot; those of its index, if read, come last."""
    index = manifest.index if extent.is_whole else None
    every = [Check(PART, ("files", number)) for number in range(len(manifest.files.parts))]
    every += [Check(PART, ("units", number)) for number in range(len(manifest.units.parts))]
    for number, part in enumerate(manifest.units.parts):
        for start in range(0, part.rows, UNITS_IN_A_CHECK):
            stop = min(part.rows, start + UNITS_IN_A_CHECK)
            every.append(Check(UNITS, (number, start, stop)))
    every.append(Check(REST))
    if index is not None:
        every += [Check(INDEX_FILE, file) for file in index.files]
        every += [Check(SEGMENT, segment) for segment in index.segments]
    return [replace(check, place=place) for place, check in enumerate(every)]


def finding(manifest: Manifest, extent: Extent, check: Check) -> Finding:
    """Return the finding of one part."""
    if check.what == PART:
        return Finding(
            check.place, tuple(_add_read_error(find_part_faults(manifest, *check.about)))
        )
    if check.what == UNITS:
        return Finding(check.place, tuple(_find_units_faults(manifest, extent, *check.about)))
    if check.what == INDEX_FILE:
        faults = tuple(_add_read_error(find_index_file_faults(manifest, *check.about)))
        return Finding(check.place, faults, broken=bool(faults))
    if check.what == SEGMENT:
        lines, covered = check_segment(manifest, check.about)
        return Finding(check.place, lines, covered=covered)
    return Finding(check.place, tuple(_find_other_faults(manifest, extent)))


def faults(manifest: Manifest, extent: Extent = WHOLE) -> list[str]:
    """Return a line for every fault of a snapshot, checked by threads of this process.

    Each line names the place of the fault; a sound snapshot has none.
    """
    every = checks(manifest, extent)
    index = [check for check in every if check.what == INDEX_FILE]
    segments = [check for check in every if check.what == SEGMENT]
    findings = _check_together(
        manifest, extent, every[: len(every) - len(index) - len(segments)], "verifying"
    )
    if index:
        findings = findings.merge(_check_together(manifest, extent, index, "verifying the index"))
    # one after the other: a locator is as large as many shards
    if not any(faulty.broken for faulty in findings.faulty):
        for check in progress.count_over(segments, "verifying what the index names", "segments"):
            findings = findings.merge(Findings.from_finding(finding(manifest, extent, check)))
    return list(conclude(manifest, extent, findings))


def _check_together(manifest: Manifest, extent: Extent, some: list[Check], what: str) -> Findings:
    """Return the findings of some parts, several of which are checked at once."""
    findings = Findings()
    total = sum(check.files for check in some)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool, progress.stage(what, total, "files"):
        for check, outcome in zip(
            some, pool.map(partial(finding, manifest, extent), some), strict=True
        ):
            findings = findings.merge(Findings.from_finding(outcome))
            progress.step(check.files)
    return findings


def conclude(manifest: Manifest, extent: Extent, findings: Findings) -> Iterator[str]:
    """Yield the lines of all checks, in order, and those that need all segments together."""
    lines = dict.fromkeys(lines_of(findings))
    if manifest.index and extent.is_whole and not any(faulty.broken for faulty in findings.faulty):
        every = find_coverage_faults(manifest, manifest.index, findings.covered)
        lines |= dict.fromkeys(_add_read_error(every))
    yield from lines


def lines_of(findings: Findings) -> Iterator[str]:
    """Yield the lines of all checks, in order, each once: several may need one damaged file."""
    every = sorted(findings.faulty, key=lambda finding: finding.place)
    yield from dict.fromkeys(line for finding in every for line in finding.faults)


def _find_units_faults(
    manifest: Manifest, extent: Extent, number: int, start: int, stop: int
) -> Iterator[str]:
    """Yield the faults of the files of some units, by their part's number and their rows in it."""
    part = manifest.units.parts[number]
    try:
        units = read_units_in(manifest.root, part).slice(start, stop - start)
        units = units.filter(make_mask_array(extent.reads(manifest, units)))
    except SentenceBeamError as error:
        yield error.line
        return
    for unit in make_records(units):
        yield from _add_read_error(find_unit_faults(manifest, unit))


def _find_other_faults(manifest: Manifest, extent: Extent) -> Iterator[str]:
    """Yield the faults of everything but units and index."""
    if not extent.is_whole:
        yield from _add_read_error(_find_listed_faults(manifest, extent))
    yield from find_table_faults(manifest)
    yield from _add_read_error(find_count_faults(manifest))
    yield from _find_small_faults(manifest)
    yield from _find_changes_faults(manifest)
    yield from _add_read_error(_read(read_checked_result, manifest.root, manifest.run))
    yield from _add_read_error(find_manifest_faults(manifest))


def _find_small_faults(manifest: Manifest) -> Iterator[str]:
    """Yield the faults of the small files that all rows need.

    These are the bounds of codes, the calibration, the quantised model, the canary and the watched
    queries.
    """
    if manifest.ranges:
        yield from _add_read_error(_read(read_kept_ranges, manifest.root, manifest.ranges))
    if manifest.calibration != calibrations.entry(manifest.space.calibration):
        yield "calibration: the manifest names another one than its space"
    yield from _add_read_error(
        _read(calibrations.read_kept_calibration, manifest.root, manifest.space)
    )
    yield from _add_read_error(_read(read_kept_int8, manifest.root, manifest.space))
    if manifest.canary:
        canary = CanaryFile(manifest.root, manifest.canary.path, manifest.canary.sha256)
        yield from _add_read_error(_read(canary.read))
    if manifest.forgotten:
        yield from _add_read_error(_read(read_rows, manifest.root, manifest.forgotten))
    if manifest.watch:
        yield from _add_read_error(_read(read_queries, manifest.root, manifest.watch))
        yield from _add_read_error(_read(read_answers, manifest.root, manifest.watch))


def _find_changes_faults(manifest: Manifest) -> Iterator[str]:
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
        yield from _add_read_error(_read(read_changes, manifest.root, file))


def _find_listed_faults(manifest: Manifest, extent: Extent) -> Iterator[str]:
    """Yield a line for each shard not read that is missing or of another size."""
    shards = manifest.shards.filter(make_mask_array(~extent.reads(manifest, manifest.shards)))
    folder = storage.join(manifest.root, layout.EMBEDDINGS)
    sizes = {entry.path: entry.size for entry in storage.storage_of(folder).below(folder)}
    for name, size in zip(*(shards.column(name).to_pylist() for name in SIZES), strict=True):
        path = storage.join(manifest.root, name)
        if path not in sizes:
            yield f"{path}: the shard is missing"
        elif sizes[path] != size:
            yield f"{path}: {sizes[path]} bytes, the manifest says {size}"


def _list_sizes(manifest: Manifest) -> Iterator[tuple[str, int | None]]:
    """Yield path and size of every part, shard, reject file and index file; None if unknown."""
    for table in (manifest.files, manifest.units):
        yield from ((part.path, None) for part in table.parts)
    for _, units in read_in_turns(manifest.root, manifest.units, ("path", "bytes", "rejects")):
        shards = units.select(SIZES).drop_null()
        yield from zip(*(shards.column(name).to_pylist() for name in SIZES), strict=True)
        yield from ((path, None) for path in units.column("rejects").drop_null().to_pylist())
    if manifest.index:
        yield from ((path, None) for path, _ in manifest.index.files)
        for segment in manifest.index.segments:
            yield segment.path, segment.bytes
            yield segment.locator, segment.locator_bytes or None


def find_faults_without_reading(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each fault that a listing and the small files tell.

    Files that the snapshot names are missing, or have another size than the manifest says.
    """
    sizes = {
        entry.path: entry.size for entry in storage.storage_of(manifest.root).below(manifest.root)
    }
    for path, wanted in _list_sizes(manifest):
        full = storage.join(manifest.root, path)
        if full not in sizes:
            yield f"{full} is missing"
        elif wanted not in (None, sizes[full]):
            yield f"{full} has {sizes[full]:,} bytes, not {wanted:,}"
    yield from _find_small_faults(manifest)


def _read(read: Callable[..., object], *arguments: Any) -> Iterator[str]:
    """Read a file of the store; yield no fault, raise what the reading raises."""
    read(*arguments)
    yield from ()


def _add_read_error(faults: Iterator[str]) -> Iterator[str]:
    """Yield the faults, and last the error if a file cannot be read."""
    try:
        yield from faults
    except SentenceBeamError as error:
        yield error.line
    except OSError as error:
        if error.filename:
            yield f"{error.filename}: cannot be read ({error.strerror})"
        else:
            yield str(error)
