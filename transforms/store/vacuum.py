"""Vacuum: removing the files that no kept snapshot names and no run can still need."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.storage.base import Entry
from transforms.store import layout
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.runs import timestamp

BATCH = 1000


@dataclass(frozen=True)
class Rubbish:
    """The files of a store that can be removed.

    `snapshots` are runs whose manifest goes, `kept` those whose snapshot stays. `files` are in the order in which to
    remove them: manifests first, so that no manifest ever names a file that is gone. `version` is the current
    manifest's.
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
            kind = layout.kind(_relative(self.root, entry)) or ""
            number, size = sums.get(kind, (0, 0))
            sums[kind] = number + 1, size + entry.size
        return sums


def find_rubbish(root: str, keep: int, older_than: float | None, now: float) -> Rubbish:
    """The files of a store that neither the `keep` newest snapshots nor those of the last `older_than` seconds need.

    A file that no kept snapshot names goes if it is older than that, or, where no age is given, than the run that made
    the current snapshot: a younger one may be the work of a run that another one will take up. Raises SentenceBeamError
    where a manifest that has to be kept cannot be read.
    """
    entries = {_relative(root, entry): entry for entry in storage.storage_of(root).below(root)}
    current = read_manifest(root)
    if current is None:
        raise SentenceBeamError(f"{root} holds no snapshot; nothing was removed")
    cutoff = now - older_than if older_than is not None else timestamp(current.data["started"])
    named = _Named()
    for manifest in _kept(current, entries, keep, cutoff):
        named.add(manifest)
    gone = [path for path in entries if entries[path].modified < cutoff and _is_rubbish(path, named)]
    gone.sort(key=lambda path: (layout.kind(path) != "snapshots", path))
    runs = [layout.snapshot_run(path) for path in gone]
    return Rubbish(
        root=root,
        snapshots=tuple(run for run in runs if run is not None),
        kept=tuple(named.runs),
        files=tuple(entries[path] for path in gone),
        version=current.version,
    )


def remove(rubbish: Rubbish) -> None:
    """Remove the files. Raises SentenceBeamError, and removes nothing, where a run committed since they were found."""
    current = read_manifest(rubbish.root)
    if current is None or current.version != rubbish.version:
        raise SentenceBeamError(f"{rubbish.root}: a run committed meanwhile; nothing was removed, run vacuum again")
    store = storage.storage_of(rubbish.root)
    paths = [entry.path for entry in rubbish.files]
    for start in range(0, len(paths), BATCH):
        store.delete(*paths[start : start + BATCH])


def _is_rubbish(path: str, named: "_Named") -> bool:
    known = layout.kind(path) is not None and layout.result_run(path) is None  # history is made of results
    return known and not named(path)


def _kept(current: Manifest, entries: dict[str, Entry], keep: int, cutoff: float) -> Iterator[Manifest]:
    """The current snapshot and those before it that stay, newest first; then others that are too young to go.

    One at a time: a manifest may list very many units.
    """
    written = {run: entries[path].modified for path in entries if (run := layout.snapshot_run(path))}
    manifest, count = current, 1
    yield manifest
    written.pop(current.run, None)
    while (run := manifest.data["previous"]) in written and (count < keep or written[run] >= cutoff):
        manifest, count = _read(current.root, run), count + 1
        del written[run]
        yield manifest
    for run, modified in written.items():
        if modified >= cutoff or layout.kind(layout.snapshot(run)) is None:
            yield _read(current.root, run)


def _read(root: str, run: str) -> Manifest:
    manifest = read_manifest(root, run)
    if manifest is None:
        raise SentenceBeamError(f"{root}: the manifest of run {run} went away meanwhile; run vacuum again")
    return manifest


class _Named:
    """The files that the kept snapshots name, and the sidecars and calibrations that belong to these."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self._paths: set[str] = set()
        self._stems: set[str] = set()

    def add(self, manifest: Manifest) -> None:
        """Keep the files that this snapshot names."""
        self.runs.append(manifest.run)
        self._paths |= {layout.snapshot(manifest.run), layout.plan(manifest.run), *_words(manifest.content)}
        self._stems |= {layout.stem(path) for unit in manifest.units for path in (unit.path, unit.rejects) if path}

    def __call__(self, path: str) -> bool:
        kind = layout.kind(path)
        if kind == "sidecars":
            return layout.stem(path) in self._stems
        return (path.rpartition("/")[0] if kind == "calibrations" else path) in self._paths  # named by its folder


def _words(value: Any) -> Iterator[str]:
    """Every string in some JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _words(item)


def _relative(root: str, entry: Entry) -> str:
    return entry.path.removeprefix(f"{root}/")
