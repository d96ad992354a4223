"""Faults of single files of a snapshot: shards, reject files, and the copy of its manifest."""

import hashlib
from collections.abc import Iterator

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.sealed_json import UNSEALED
from sentence_beam.transforms.store.shards import shard_reading
from sentence_beam.transforms.store.shards.reject_files import parse_rejects
from sentence_beam.transforms.store.shards.unit_store import make_piece_sums


def find_unit_faults(manifest: Manifest, unit: UnitRecord) -> Iterator[str]:
    """Yield a line for each fault of a unit's shard and reject file."""
    if unit.rejected:
        yield from _compare_rejects(manifest, unit)
    if unit.path is None:
        if unit.rows:
            yield f"unit {unit.unit}: {unit.rows} rows but no shard"
        return
    path = storage.join(manifest.root, unit.path)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        yield f"{path}: the shard is missing"
    elif hashlib.sha256(stored[0]).hexdigest() != unit.sha256:
        yield f"{path}: the shard was changed after it was written (sha256 differs)"
    else:
        yield from _compare_shard(manifest, unit, path, stored[0])


def _compare_shard(manifest: Manifest, unit: UnitRecord, path: str, data: bytes) -> Iterator[str]:
    try:
        info = shard_reading.inspect_shard(data)
    except SentenceBeamError as error:
        yield f"{path}: {error.line}"
        return
    if info.space_id != manifest.space.id:
        yield (
            f"{path}: the shard is of another space ({info.space_id[:12]}, not"
            f" {manifest.space.id[:12]})"
        )
    ranges = manifest.ranges.digest if manifest.ranges else None
    if info.ranges != ranges:
        yield f"{path}: the shard counts between other ranges than those of the manifest"
    if info.rows != unit.rows:
        yield f"{path}: {info.rows} rows, the manifest says {unit.rows}"
    if make_piece_sums(info.pieces) != {
        name: value
        for name in ("pieces_sum", "documents_sum")
        if (value := getattr(unit, name)) is not None
    }:
        yield f"{path}: other pieces of documents than the manifest says"


def _compare_rejects(manifest: Manifest, unit: UnitRecord) -> Iterator[str]:
    path = storage.join(manifest.root, unit.rejects or "")
    stored = storage.storage_of(path).read_versioned(path) if unit.rejects else None
    if stored is None:
        yield f"{path}: the reject file of unit {unit.unit} is missing"
        return
    if unit.rejects_sha256 != hashlib.sha256(stored[0]).hexdigest():
        yield f"{path}: the reject file was changed after it was written (sha256 differs)"
        return
    try:
        rows = len(parse_rejects(stored[0]))
    except SentenceBeamError as error:
        yield f"{path}: {error.line}"
        return
    if rows != unit.rejected:
        yield f"{path}: {rows} rejected rows, the manifest says {unit.rejected}"


def find_manifest_faults(manifest: Manifest) -> Iterator[str]:
    """Yield a line if the run's manifest is missing or differs from `manifest.json`.

    They are compared if `manifest.json` is of the same run.
    """
    path = storage.join(manifest.root, layout.snapshot(manifest.run))
    own = read_manifest(manifest.root, manifest.run)
    current = read_manifest(manifest.root)
    if own is None:
        yield (
            f"{path}: the snapshot's own manifest is missing; copy manifest.json there, or run"
            " embed again"
        )
    elif current is not None and current.run == manifest.run and current.digest != own.digest:
        names = sorted(
            name for name in own.data.keys() | current.data.keys() if name not in UNSEALED
        )
        other = [name for name in names if own.data.get(name) != current.data.get(name)]
        yield (
            f"{path}: says something else than manifest.json of {', '.join(other)}; keep one of"
            " them, run embed again"
        )
