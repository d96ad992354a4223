"""The manifest: one committed state of a store, and the only list of what counts.

Above 20 000 units the lists move into parts, named by their sha256, and are read when somebody needs them.
"""

import contextlib
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transforms import storage
from transforms.corpus.buckets import Buckets
from transforms.errors import OptionError, SentenceBeamError, first_line
from transforms.space import Space, canonical_json, sha256_text
from transforms.store import layout
from transforms.store.records import UnitRecord
from transforms.store.shape import check_manifest, check_part

FORMAT = 1
FENCE = "fence"  # in manifest.json alone: what vacuum writes there to move its version
UNITS_IN_ONE_FILE = 20_000
UNSEALED = ("digest", FENCE)  # what a manifest's digest does not cover: itself, and what is in manifest.json alone
WITHOUT_DIGEST = frozenset(
    ("format", "run", "space", "partition", "unit_tokens", "generation", "buckets", "rows", "work", "tokens", "index")
    + ("ranges", "calibration", "input", "canary", "options", "versions", "started", "finished", "previous", "shards")
    + ("parts", FENCE)
)  # all fields of the versions that wrote no digest


@dataclass(frozen=True)
class Manifest:
    """One snapshot: the JSON of its manifest, and the `root` of the store it was read from."""

    root: str
    data: dict[str, Any]
    version: str | None = field(default=None, compare=False)

    @property
    def run(self) -> str:
        """The id of the run that made this snapshot."""
        return self.data["run"]

    @cached_property
    def digest(self) -> str:
        """The digest over everything that the snapshot's manifest says."""
        return str(self.data.get("digest") or digest_of(self.data))

    @cached_property
    def space(self) -> Space:
        """The space of every vector of the snapshot."""
        return Space.from_json(self.data["space"])

    @cached_property
    def _parts(self) -> list[dict[str, Any]]:
        return [_read_part(self.root, part) for part in self.data.get("parts", [])]

    @cached_property
    def units(self) -> list[UnitRecord]:
        """The records of all units of the snapshot, sorted by name. Raises SentenceBeamError for one that is none."""
        listed = self.data["shards"] or [unit for part in self._parts for unit in part["shards"]]
        try:
            return [UnitRecord.from_dict(unit) for unit in listed]
        except SentenceBeamError as error:
            raise SentenceBeamError(
                f"{storage.join(self.root, layout.snapshot(self.run))} is corrupt ({error}); restore it from a copy"
            ) from error

    @cached_property
    def files(self) -> list[dict[str, Any]]:
        """The entries of all input files, with size and checksum."""
        return self.data["input"]["files"] or [file for part in self._parts for file in part["files"]]

    @property
    def buckets(self) -> Buckets | None:
        """The buckets that are the snapshot's units, None where the units are parts of files."""
        found = self.data.get("buckets")
        return Buckets(**found) if found else None

    @property
    def content(self) -> list[dict[str, Any]]:
        """All of the snapshot's JSON: the manifest's own, then that of its parts."""
        return [self.data, *self._parts]

    @property
    def shard_paths(self) -> list[str]:
        """Full paths of the shards, in the units' order."""
        return [storage.join(self.root, unit.path) for unit in self.units if unit.path]


def _read_part(root: str, part: dict[str, Any]) -> dict[str, Any]:
    path = storage.join(root, part["path"])
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path} is missing, a part of the manifest; restore it")
    if hashlib.sha256(found[0]).hexdigest() != part["sha256"]:
        raise SentenceBeamError(f"{path} is not the part that the manifest names (sha256 differs); restore it")
    try:
        data = json.loads(found[0])
        check_part(data)
    except (ValueError, RecursionError) as error:
        raise SentenceBeamError(f"{path} is no part of a manifest ({first_line(error)}); restore it") from error
    return data


def digest_of(data: dict[str, Any]) -> str:
    """sha256 in hex over the canonical JSON of a manifest, without the fields that it does not cover."""
    return sha256_text(canonical_json({name: value for name, value in data.items() if name not in UNSEALED}))


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """The manifest's JSON with its digest."""
    return {**data, "digest": digest_of(data)}


def index_files(index: dict[str, Any]) -> list[tuple[str, str]]:
    """Path (relative to the store) and sha256 of every file that a manifest's `index` names."""
    named = [(index[name]["path"], index[name]["sha256"]) for name in ("trained", "queries") if name in index]
    for segment in index["segments"]:
        named += [(segment["path"], segment["sha256"]), (segment["locator"], segment["locator_sha256"])]
    return named


def read_manifest(root: str, run: str | None = None) -> Manifest | None:
    """The current snapshot, or that of a run; None where there is none. Raises SentenceBeamError if it is corrupt."""
    path = storage.join(root, layout.snapshot(run) if run else layout.MANIFEST)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        return None
    try:
        data = json.loads(found[0])
        if data["format"] != FORMAT:
            raise SentenceBeamError(
                f"{path} has format {str(data['format'])[:40]!r}, this version reads {FORMAT}; update sentence-beam"
            )
        _check_digest(data)
        check_manifest(data)
        manifest = Manifest(root, data, found[1])
        _ = manifest.space
        return manifest
    except (ValueError, KeyError, TypeError, OptionError, RecursionError) as error:
        raise SentenceBeamError(
            f"{path} is corrupt ({first_line(error)}); restore it from {storage.join(root, 'manifests')}"
        ) from error


def _check_digest(data: dict[str, Any]) -> None:
    """Raise ValueError where a manifest's fields do not give its digest; one that never had any has no other field."""
    if "digest" not in data:
        unknown = sorted(data.keys() - WITHOUT_DIGEST)
        if unknown:
            raise ValueError(f"it has a field {unknown[0][:80]!r} and no digest")
    elif data["digest"] != digest_of(data):
        raise ValueError("it was changed after it was written, its digest differs")


def read_resolved(root: str, run: str | None, digest: str | None) -> Manifest | None:
    """The snapshot that a run began with, as it was then; None where it began with none.

    `digest` is the snapshot's (None: not known). Where its own manifest is damaged, missing or says something else,
    `manifest.json` is read, which is what the run began with. Raises SentenceBeamError where neither is that snapshot.
    """
    for named in (run, None) if run is not None else ():
        with contextlib.suppress(SentenceBeamError):
            found = read_manifest(root, named)
            if found is not None and found.run == run and digest in (None, found.digest):
                return found
    if run is None:
        return None
    raise SentenceBeamError(
        f"{root}: the snapshot {run}, with which this run began, is missing or was changed; see verify, and run again"
    )


def mend_copy(current: Manifest) -> None:
    """Write the current snapshot's own manifest again where it is missing or differs from `manifest.json`."""
    path = storage.join(current.root, layout.snapshot(current.run))
    with contextlib.suppress(SentenceBeamError):
        found = read_manifest(current.root, current.run)
        if found is not None and found.digest == current.digest:
            return
    storage.replace(path, to_bytes({name: value for name, value in current.data.items() if name != FENCE}))


def snapshots(root: str) -> list[str]:
    """The runs that have a manifest, the latest first; one of them may never have become current."""
    folder = storage.join(root, layout.MANIFESTS)
    paths = (entry.path.removeprefix(root.rstrip("/") + "/") for entry in storage.storage_of(folder).below(folder))
    return sorted((run for path in paths if (run := layout.snapshot_run(path))), reverse=True)


def with_units(root: str, data: dict[str, Any], units: list[UnitRecord], files: list[dict[str, Any]]) -> dict[str, Any]:
    """The manifest's JSON with its units and files in place; writes the parts first where there are very many."""
    listed = [unit.to_manifest() for unit in sorted(units, key=lambda u: u.unit)]
    if len(listed) <= UNITS_IN_ONE_FILE:
        return {**data, "shards": listed, "input": {**data["input"], "files": files}, "parts": []}
    parts = []
    for start in range(0, len(listed), UNITS_IN_ONE_FILE):
        chunk = listed[start : start + UNITS_IN_ONE_FILE]
        parts.append(_write_part(root, {"shards": chunk, "files": files if start == 0 else []}, len(chunk)))
    return {**data, "shards": [], "input": {**data["input"], "files": []}, "parts": parts}


def _write_part(root: str, content: dict[str, Any], units: int) -> dict[str, Any]:
    data = to_bytes(content)
    sha256 = hashlib.sha256(data).hexdigest()
    path = storage.join(root, layout.part(sha256))
    storage.ensure(path, data)
    return {"path": layout.part(sha256), "sha256": sha256, "units": units}


def to_bytes(content: dict[str, Any]) -> bytes:
    """The bytes of JSON as stores hold it: readable, keys sorted."""
    return (json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()
