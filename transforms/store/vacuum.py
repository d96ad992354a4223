"""Vacuum: removing the files that no kept snapshot names and no run can still need."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.buckets import parse_name
from sentence_beam.transforms.space.int8_model import INT8
from sentence_beam.transforms.storage.base import Entry
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.ledger import get_span_name
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.recorded_plan import RecordedPlan, read_plan
from sentence_beam.transforms.store.runs.run_result import parse_timestamp
from sentence_beam.transforms.store.sealed_json import FENCE, to_bytes
from sentence_beam.transforms.store.tables.table_parts import read_in_turns

BATCH = 1000
RANGES = ("", *"123456789abcdef", "")  # of names, which begin with a digit in hex
FOLDERS = {*layout.FOLDERS_OF_UNITS, *layout.FOLDERS_BESIDE_UNITS}
OF_ROWS = (layout.EMBEDDINGS, "rejects")  # folders of files whose sidecars stay with them
STAYING = ("results", "receipts")  # history, and what was erased
# how long the work of a run that did not end is kept for another to take up
UNFINISHED_SECONDS = 86_400


@dataclass(frozen=True)
class Rubbish:
    """The files of a store that can be removed.

    `snapshots` are runs whose manifest is removed, `kept` those whose snapshot stays. `files` are
    in order of removal: manifests first, so that no manifest ever names a missing file. `version`
    is the current manifest's.
    """

    root: str
    snapshots: tuple[str, ...]
    kept: tuple[str, ...]
    files: tuple[Entry, ...]
    version: str | None

    @property
    def by_kind(self) -> dict[str, tuple[int, int]]:
        """The number of files and of bytes of each kind."""
        sums: dict[str, tuple[int, int]] = {}
        for entry in self.files:
            kind = layout.kind(_strip_root(self.root, entry)) or ""
            number, size = sums.get(kind, (0, 0))
            sums[kind] = number + 1, size + entry.size
        return sums


def find_rubbish(root: str, keep: int, older_than: float | None, now: float) -> Rubbish:
    """Return the files that none of the kept snapshots needs.

    Kept are the `keep` newest snapshots and those of the last `older_than` seconds; a snapshot's
    age counts from when another replaced it. A file that no kept snapshot names is removed if it is
    older than that, or, if no age is given, older than the run that made the current snapshot:
    another run may take up the work of a younger one. The files that an unfinished run planned also
    stay if the run began within a day, and a snapshot whose rows workers push, with the files of
    that push, if one of these was written within a day. Raises SentenceBeamError if a manifest that
    has to be kept cannot be read.
    """
    listed = _StoreFiles(root)
    entries = listed.others
    current = read_manifest(root)
    if current is None:
        raise SentenceBeamError(f"{root} holds no snapshot; nothing was removed")
    cutoff = now - older_than if older_than is not None else parse_timestamp(current.started)
    pushed = _find_pushed(entries, now)
    named = _Named(pushed)
    for manifest in _read_kept(current, entries, keep, cutoff, older_than is not None):
        named.add(manifest)
    for run in pushed & _list_manifests(entries).keys() - set(named.runs):
        named.add(_read(root, run))
    for run in _find_unfinished(entries, now):
        plan = read_plan(root, run) if layout.plan(run) in entries else None
        named.add_unfinished(run, plan)
    unused = [
        entry
        for entry in listed
        if entry.modified < cutoff and _is_rubbish(_strip_root(root, entry), named)
    ]
    return _collect_rubbish(current, unused, named)


def find_unnamed(current: Manifest, stays: str) -> Rubbish:
    """Return the files that the current snapshot does not name, whatever their age.

    The files of all runs that did not end are among them, except the one of the path `stays`, and
    those of runs that another program named. How runs ended stays.
    """
    named = _Named(set())
    named.add(current)
    unused = [
        entry
        for entry in _StoreFiles(current.root)
        if (path := _strip_root(current.root, entry)) != stays and _is_unnamed(path, named)
    ]
    return _collect_rubbish(current, unused, named)


def _is_unnamed(path: str, named: "_Named") -> bool:
    """Return whether a file is rubbish, of runs with any names; locks of local stores are empty."""
    if path.rpartition("/")[2].startswith("."):
        return False
    of_run = path.startswith(f"{layout.RUNS}/") and layout.result_run(path) is None
    if of_run or layout.snapshot_run(path) is not None:
        return not named(path)
    return _is_rubbish(path, named)


def _collect_rubbish(current: Manifest, unused: list[Entry], named: "_Named") -> Rubbish:
    root = current.root
    unused.sort(key=lambda entry: (not _find_snapshot(root, entry), entry.path))
    return Rubbish(
        root=root,
        snapshots=tuple(name for entry in unused if (name := _find_snapshot(root, entry))),
        kept=tuple(named.runs),
        files=tuple(unused),
        version=current.version,
    )


class _StoreFiles:
    """The files of a store: `others` by relative path, and those of units.

    Iteration gives all. Of units' files, of which there may be millions, only path, size and age
    are kept. If the storage lists ranges of names, they are listed during the iteration, a
    sixteenth of a folder at a time.
    """

    def __init__(self, root: str):
        self._root = root
        self._place = storage.storage_of(root)
        self._lists_ranges = self._place.lists_ranges(root)
        self.others: dict[str, Entry] = {}
        self._of_units: list[Entry] = []
        folders = [root]
        if self._lists_ranges:
            folders = [storage.join(root, name) for name in layout.FOLDERS_BESIDE_UNITS]
        with progress.stage("listing the store's files"):
            for folder in folders:
                self._add(self._place.below(folder))

    def _add(self, entries: list[Entry]) -> None:
        while entries:
            entry = entries.pop()
            path = _strip_root(self._root, entry)
            if layout.kind(path) in layout.OF_UNITS:
                self._of_units.append(_drop_checksum(entry))
            else:
                self.others[path] = entry

    def __iter__(self) -> Iterator[Entry]:
        yield from self.others.values()
        yield from self._of_units
        if not self._lists_ranges:
            return
        for name in progress.count_over(
            layout.FOLDERS_OF_UNITS, "listing the units' files", "folders"
        ):
            folder = storage.join(self._root, name)
            for low, high in pairwise(RANGES):
                entries = self._place.between(folder, low, high)
                while entries:
                    yield _drop_checksum(entries.pop())


def _drop_checksum(entry: Entry) -> Entry:
    return Entry(entry.path, entry.size, "", "", entry.modified)


def remove(rubbish: Rubbish) -> None:
    """Remove the files.

    First the version of `manifest.json` changes, by a field that is nowhere else. A run that began
    before, and paused between its last look at the lease and its commit, can then not commit any
    more, since it may name removed files. Raises SentenceBeamError, and removes nothing, if a run
    committed since the files were found.
    """
    if not rubbish.files:
        return
    store = storage.storage_of(rubbish.root)
    path = storage.join(rubbish.root, layout.MANIFEST)
    current = read_manifest(rubbish.root)
    fence = uuid.uuid4().hex
    fenced = to_bytes({**current.data, FENCE: fence}) if current else b""
    if (
        current is None
        or current.version != rubbish.version
        or not store.replace_if(path, fenced, rubbish.version)
    ):
        raise SentenceBeamError(
            f"{rubbish.root}: a run committed meanwhile; nothing was removed, run vacuum again"
        )
    paths = [entry.path for entry in rubbish.files]
    for start in range(0, len(paths), BATCH):
        if start and not _is_fenced(rubbish.root, fence):  # vacuum stood still itself
            raise SentenceBeamError(
                f"{rubbish.root}: a run committed meanwhile; {start} of {len(paths)} files were"
                " removed, run vacuum again"
            )
        with progress.stage("removing", len(paths), "files"):
            store.delete(*paths[start : start + BATCH])
            progress.step(len(paths[start : start + BATCH]))


def _is_fenced(root: str, fence: str) -> bool:
    """Return whether the current manifest is still the one that has this fence."""
    current = read_manifest(root)
    return current is not None and current.data.get(FENCE) == fence


def _is_rubbish(path: str, named: "_Named") -> bool:
    kind = layout.kind(path)
    if kind in (None, *STAYING) or path.startswith(layout.LEASE):
        return False
    return not named(path)


def _read_kept(
    current: Manifest, entries: dict[str, Entry], keep: int, cutoff: float, by_age: bool
) -> Iterator[Manifest]:
    """Yield the current snapshot, then the kept ones before it, newest first, then young others.

    `by_age` also keeps a snapshot whose successor was written after the cutoff.
    """
    written = _list_manifests(entries)
    manifest = current
    count = 1
    yield manifest
    replaced = written.pop(current.run, cutoff)  # when the next one, further back, lost its place
    while (run := manifest.previous) in written and (
        count < keep or (by_age and replaced >= cutoff)
    ):
        manifest = _read(current.root, run)
        count = count + 1
        replaced = written.pop(run)
        yield manifest
    for run, modified in written.items():
        if modified >= cutoff or layout.kind(layout.snapshot(run)) is None:
            yield _read(current.root, run)


def _list_manifests(entries: dict[str, Entry]) -> dict[str, float]:
    """Return the runs that have a manifest, and when it was written."""
    return {run: entries[path].modified for path in entries if (run := layout.snapshot_run(path))}


def _find_pushed(entries: dict[str, Entry], now: float) -> set[str]:
    """Return the runs whose snapshot workers push, by files that they wrote within a day."""
    return {
        run
        for path, entry in entries.items()
        if (run := layout.pushed_run(path)) and now - entry.modified < UNFINISHED_SECONDS
    }


def _find_unfinished(entries: dict[str, Entry], now: float) -> list[str]:
    """Return the runs that left no result and wrote into their folder within a day."""
    youngest: dict[str, float] = {}
    ended = {run for path in entries if (run := layout.result_run(path))}
    for path, entry in entries.items():
        run = layout.run_of(path)
        if run is not None and run not in ended:
            youngest[run] = max(youngest.get(run, 0.0), entry.modified)
    return [run for run, modified in youngest.items() if now - modified < UNFINISHED_SECONDS]


def _read(root: str, run: str) -> Manifest:
    manifest = read_manifest(root, run)
    if manifest is None:
        raise SentenceBeamError(
            f"{root}: the manifest of run {run} went away meanwhile; run vacuum again"
        )
    return manifest


class _Named:
    """The files that the kept snapshots name, their sidecars, calibrations and int8 models.

    For runs that did not end: everything in their folders, and the files of the units that they
    planned. Of the files with changed rows those since a kept snapshot stay, and the files of
    pushes of the snapshots of `pushed`.
    """

    def __init__(self, pushed: set[str]) -> None:
        self.runs: list[str] = []
        self._pushed = pushed
        self._paths: set[str] = set()
        self._parts: set[str] = set()  # of `units`, by sha256; snapshots share most of them
        self._unfinished: set[str] = set()
        self._spans: set[str] = set()
        self._bits: set[int] = set()  # of buckets
        self._changes: dict[str, set[str]] = {}  # files of changed rows, by the run before

    def add(self, manifest: Manifest) -> None:
        """Keep the files that this snapshot names."""
        self.runs.append(manifest.run)
        self._paths |= {layout.snapshot(manifest.run), layout.plan(manifest.run)}
        content = {name: item for name, item in manifest.data.items() if name != "changes"}
        self._paths |= {word for word in _find_words(content) if word.partition("/")[0] in FOLDERS}
        self._add_units(manifest)
        if manifest.space.dtype == INT8:
            self._paths.add(layout.int8_model(manifest.space.weights))
        if manifest.changes is not None:
            self._changes[manifest.changes.since] = {file.path for file in manifest.changes.files}

    def _add_units(self, manifest: Manifest) -> None:
        """Keep the files of the units of a snapshot; each part is read for the first one."""
        new = tuple(part for part in manifest.units.parts if part.sha256 not in self._parts)
        self._parts.update(part.sha256 for part in new)
        for _, units in read_in_turns(manifest.root, TableEntry(parts=new), ("path", "rejects")):
            for paths in units.columns:
                self._paths.update(paths.drop_null().to_pylist())

    def add_unfinished(self, run: str, plan: RecordedPlan | None) -> None:
        """Keep the folder of a run, and the files of its planned units."""
        self._unfinished.add(run)
        if plan is not None:
            self._spans.update(plan.spans.column("name").to_pylist())
            if plan.notes.buckets:
                self._bits.add(plan.notes.buckets.bits)

    def __call__(self, path: str) -> bool:
        kind = layout.kind(path)
        return self._is_in_use(path, kind) or self._is_of_snapshot(path, kind)

    def _is_in_use(self, path: str, kind: str | None) -> bool:
        """Return whether a run that did not end, or a push, may need a file."""
        if kind in layout.OF_UNITS:
            unit = layout.unit(path)
            bucket = parse_name(unit)
            is_planned = bucket is not None and bucket.bits in self._bits
            return is_planned or get_span_name(unit) in self._spans
        if kind == "int8" and self._unfinished:  # their first steps make one
            return True
        return layout.run_of(path) in self._unfinished or layout.pushed_run(path) in self._pushed

    def _is_of_snapshot(self, path: str, kind: str | None) -> bool:
        """Return whether a kept snapshot needs a file."""
        if kind in ("sidecars", "ids"):  # they lie beside the files of a unit's rows
            stem = layout.stem(path)
            return any(f"{folder}/{stem}.parquet" in self._paths for folder in OF_ROWS)
        if kind == "changes":
            return any(path in self._changes.get(run, ()) for run in self.runs)
        if kind in ("calibrations", "int8"):  # named by its folder
            return path.rpartition("/")[0] in self._paths
        return path in self._paths


def _find_words(value: Any) -> Iterator[str]:
    """Every string in some JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _find_words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_words(item)


def _find_snapshot(root: str, entry: Entry) -> str | None:
    """Return the run whose manifest a file is, or None."""
    return layout.snapshot_run(_strip_root(root, entry))


def _strip_root(root: str, entry: Entry) -> str:
    return entry.path.removeprefix(f"{root}/")
