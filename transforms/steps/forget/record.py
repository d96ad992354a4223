"""The record of an erasure from before its commit until its receipt: a killed one goes on by it."""

import json
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import refuse_damage
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.sealed_json import check_digest, sealed, to_bytes


@dataclass(frozen=True)
class Unfinished:
    """An erasure whose new files are all written.

    `base` is the digest of the snapshot that it replaces, `manifest` the JSON of the coming one,
    `snapshots` that of each kept one by its run, `dropped` the runs whose snapshots are removed.
    `files` are those to delete, `scrubbed` the new contents of files that keep their names.
    `receipt` is the receipt, `result` the record of the run.
    """

    run: str
    base: str
    manifest: dict[str, Any]
    snapshots: dict[str, dict[str, Any]]
    dropped: tuple[str, ...]
    files: tuple[str, ...]
    scrubbed: dict[str, str]
    receipt: dict[str, Any]
    result: dict[str, Any]


def record_unfinished(root: str, found: Unfinished) -> None:
    """Write down what an erasure replaces; from here on a later run can bring it to its end."""
    storage.overwrite(storage.join(root, layout.UNFINISHED), to_bytes(sealed(vars(found))))


def read_unfinished(root: str) -> Unfinished | None:
    """Return the erasure that has not ended; None if there is none.

    Raises SentenceBeamError if its record is damaged.
    """
    path = storage.join(root, layout.UNFINISHED)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        return None
    with refuse_damage(f"{path} is damaged", "remove it and run forget again"):
        data = json.loads(found[0])
        check_digest(data)
        data.pop("digest")
        return Unfinished(**{**data, "dropped": tuple(data["dropped"]),
                             "files": tuple(data["files"])})  # fmt: skip


def remove_unfinished(root: str) -> None:
    """Remove the record of an erasure that has ended, or was never committed."""
    path = storage.join(root, layout.UNFINISHED)
    storage.storage_of(path).delete(path)
