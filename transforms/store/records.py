"""The record of a unit: its sidecar in the store, and its lines in a manifest; and the reason why a run must end."""

import builtins
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from transforms.errors import SentenceBeamError

MANIFEST_FIELDS = (
    "path", "unit", "file", "range", "rows", "read", "rejected", "rejects",
    "tokens", "truncated", "lost", "bytes", "sha256",
)  # fmt: skip


@dataclass(frozen=True)
class UnitRecord:
    """One unit of a snapshot. The first thirteen fields are the manifest's; the rest say how the rows were made.

    `path` and `rejects` are relative to the store and None where there is no such file; `range` is [start, stop) in
    rows (Parquet) or bytes of the uncompressed text, stop None for "to the end". `tokens` counts before truncation,
    `lost` is what truncation cut off. `embedded`, `reused`, `duplicates` sum to `rows`. `real` and `padded` are
    tokens that went through the model, without and with padding. `worker` is host and process id, `run` the run that
    computed it ("" where only the shard is left to tell). `damaged` are old shards (by path) whose vectors could not
    be reused.
    """

    path: str | None
    unit: str
    file: str
    range: tuple[int, int | None]
    rows: int
    read: int
    rejected: int
    rejects: str | None
    tokens: int
    truncated: int
    lost: int
    bytes: int
    sha256: str | None
    embedded: int = 0
    reused: int = 0
    duplicates: int = 0
    carried: int = 0
    real: int = 0
    padded: int = 0
    fallbacks: int = 0
    oom_splits: int = 0
    worker: str = ""
    damaged: tuple[str, ...] = ()
    run: str = ""

    def to_manifest(self) -> dict[str, Any]:
        """The record's entry in a manifest."""
        return {name: getattr(self, name) for name in MANIFEST_FIELDS}

    def to_json(self) -> builtins.bytes:
        """The bytes of the record's sidecar."""
        return (json.dumps(asdict(self), sort_keys=True, indent=1) + "\n").encode()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "UnitRecord":
        """The record of an entry or a sidecar. Raises SentenceBeamError where a field is missing or unknown."""
        names = {f.name for f in fields(cls)}
        if not isinstance(values, dict) or not set(MANIFEST_FIELDS) <= set(values) <= names:
            raise SentenceBeamError(f"not a unit's record: {str(values)[:80]}")
        damaged = tuple(values.get("damaged", ()))
        return cls(**{**values, "range": (values["range"][0], values["range"][1]), "damaged": damaged})


def carried(unit: UnitRecord) -> UnitRecord:
    """The record of a unit that is taken over unchanged from the last snapshot."""
    return UnitRecord(**{**unit.to_manifest(), "carried": unit.rows})


def reused(unit: UnitRecord) -> UnitRecord:
    """The record of a unit that was read again and equals one of an earlier snapshot: nothing was computed for it."""
    return replace(unit, embedded=0, duplicates=0, reused=unit.rows, real=0, padded=0, fallbacks=0, oom_splits=0)


@dataclass(frozen=True)
class Problem:
    """A reason why a run must end without a commit: one line, and the exit status that goes with it."""

    message: str
    exit_code: int = 1

    @classmethod
    def of(cls, error: SentenceBeamError) -> "Problem":
        """The problem that an error of this project describes."""
        return cls(str(error), error.exit_code)

    def error(self) -> SentenceBeamError:
        """The error with which to end the run."""
        error = SentenceBeamError(self.message)
        error.exit_code = self.exit_code
        return error
