"""The bounds between which a store of whole numbers counts, kept in it from the night they were fitted."""

from dataclasses import replace
from typing import Any

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.space import Space
from transforms.store import layout
from transforms.store.precision import RANGED, Ranges


def of_floats(space: Space) -> Space:
    """The space of the vectors before they are stored in fewer bits."""
    return replace(space, precision="float32")


def needs_ranges(space: Space) -> bool:
    """Whether a space's precision is of whole numbers between bounds."""
    return space.precision in RANGED


def fitting(entry: dict[str, Any] | None, space: Space) -> dict[str, Any] | None:
    """What a manifest says of its ranges, where they were fitted on the floats of this space; None otherwise."""
    return entry if entry and needs_ranges(space) and entry["space"] == of_floats(space).id else None


def keep_ranges(root: str, ranges: Ranges, space: Space) -> dict[str, Any]:
    """Write ranges into a store, once; what the manifest says of them: path, digest, and the floats' space."""
    path = layout.ranges(ranges.digest)
    storage.storage_of(root).put_if_absent(storage.join(root, path), ranges.to_bytes())
    return {"path": path, "digest": ranges.digest, "space": of_floats(space).id}


def kept_ranges(root: str, entry: dict[str, Any]) -> Ranges:
    """The ranges that a manifest names. Raises SentenceBeamError naming the file where it is missing or changed."""
    path = storage.join(root, entry["path"])
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path} is missing; restore it, or embed with --precision float32 and then again")
    ranges = Ranges.from_bytes(found[0], path)
    if ranges.digest != entry["digest"]:
        raise SentenceBeamError(f"{path} is not the file that the manifest names; restore it")
    return ranges
