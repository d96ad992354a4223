"""The receipts of a store's erasures, and of what was fitted again after them."""

import json
from collections.abc import Iterator
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import refuse_damage
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.sealed_json import check_digest


def receipts_of(root: str, after: str = "") -> Iterator[dict[str, Any]]:
    """Yield the receipts of a store, the oldest first, of runs that are later than `after`.

    Raises SentenceBeamError if one is damaged.
    """
    folder = storage.join(root, layout.FORGOTTEN)
    paths = (
        entry.path.removeprefix(f"{root}/") for entry in storage.storage_of(folder).below(folder)
    )
    for path in sorted(path for path in paths if layout.kind(path) == "receipts"):
        if path > layout.receipt(after):
            yield _read(storage.join(root, path))


def _read(path: str) -> dict[str, Any]:
    with refuse_damage(f"{path} was changed", "restore it from a copy"):
        found: dict[str, Any] = json.loads(storage.read_bytes(path))
        check_digest(found)
        return found


def was_erased_since(manifest: Manifest, run: str) -> bool:
    """Return whether rows were erased from a store after a run, whose snapshot lacks them now."""
    if manifest.forgotten is None:
        return False
    return any("ids" in receipt for receipt in receipts_of(manifest.root, run))


def stale_fits(root: str) -> set[str]:
    """Return the digests of what was fitted with rows that were erased since.

    These are calibrations and trained quantizers, without those that were fitted again.
    """
    stale: set[str] = set()
    for receipt in receipts_of(root):
        stale |= set(receipt.get("fitted", ()))
        stale -= set(receipt.get("replaced", ()))
    return stale
