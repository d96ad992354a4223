"""The record of an erasure from before its commit until its receipt: a killed one goes on by it."""

import json
from dataclasses import dataclass, field

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import refuse_damage
from sentence_beam.transforms.base.json_entries import JsonEntry
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.sealed_json import check_digest, sealed, to_bytes


@dataclass(frozen=True)
class ErasureRecord(JsonEntry):
    """The work of a run that erases rows; it names no row.

    `rows` and `queries` (watched ones) are counts of what is erased, `ids` keyed hashes. `units`
    are written again without the rows. After the commit, the snapshots of the runs `snapshots` are
    removed, with all that only they name, and `results`, which quote an id. `removed` are the
    numbers of removed files by kind, once these are known. `fitted` has a line for all that was
    fitted with the rows and stays.
    """

    run: str
    started: str
    reason: str
    rows: int
    queries: int
    ids: tuple[str, ...]
    units: tuple[str, ...]
    snapshots: tuple[str, ...]
    results: tuple[str, ...]
    fitted: tuple[str, ...]
    removed: dict[str, int] = field(default_factory=dict)


def write_record(root: str, record: ErasureRecord) -> None:
    """Write the record of an erasure into the folder of its run."""
    path = storage.join(root, layout.erasure(record.run))
    storage.overwrite(path, to_bytes(sealed(record.to_json())))


def read_record(root: str, run: str) -> ErasureRecord | None:
    """Return the record of an erasure that has not ended; None if there is none.

    Raises SentenceBeamError if it is damaged.
    """
    path = storage.join(root, layout.erasure(run))
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return None
    with refuse_damage(f"{path} is damaged", "remove it and run forget again"):
        data = json.loads(stored[0])
        check_digest(data)
        data.pop("digest")
        return ErasureRecord.from_json(data)


def read_unfinished(manifest: Manifest) -> ErasureRecord | None:
    """Return the record of an erasure that was committed and has not ended; None without one."""
    if manifest.forgotten is None:
        return None
    return read_record(manifest.root, manifest.forgotten.run)
