"""The record of a unit: its sidecar in the store, and its lines in a manifest; and the reason why a
run must end.
"""

import builtins
import json
import math
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, cast

from transforms.base.compact import by_values
from transforms.base.errors import BY_EXIT_STATUS, SentenceBeamError
from transforms.base.measures import tokens_a_second
from transforms.corpus.groups import bits_of
from transforms.store import layout
from transforms.store.forms import HALF

MANIFEST_FIELDS = (
    "path", "unit", "file", "range", "rows", "read", "rejected", "rejects",
    "tokens", "truncated", "lost", "bytes", "sha256",
)  # fmt: skip
ADDED_FIELDS = (
    "rejects_sha256",
    "checksum",
    "documents",
    "pieces_sum",
    "documents_sum",
    "form",
)  # not in each manifest
SUMS = ("pieces_sum", "documents_sum")  # over pieces of documents
COUNTS = (
    "rows", "read", "rejected", "tokens", "truncated", "lost", "bytes", "embedded", "reused",
    "duplicates", "carried", "real", "padded", "fallbacks", "oom_splits", "blank", "known",
    "unknown",
)  # fmt: skip
_SUM = re.compile(r"[0-9a-f]{16}")
_FORM = re.compile(r"(?:[0-9a-f]{8}){1,2}")
_UNIT = re.compile(r"[0-9a-f]+-[0-9a-f]+(?:\.[0-9]+)?")


@by_values
@dataclass(frozen=True, slots=True)
class UnitRecord:
    """One unit of a snapshot. The first thirteen fields and `ADDED_FIELDS` are a manifest's; the
    rest say how the rows were made.

    `path` and `rejects` are relative to the store and None where there is no such file; `range` is
    [start, stop) in rows (Parquet) or bytes of the uncompressed text, stop None for "to the end";
    of a group of small files `file` is "", and `range` counts rows. `tokens` counts before
    truncation, `lost` is what truncation cut off. `embedded`, `reused`, `duplicates` sum to `rows`.
    `real` and `padded` are tokens that went through the model, without and with padding; of those
    that are the texts' own, neither special tokens nor a prompt, `known` are in the vocabulary and
    `unknown` stand for text that it lacks (both 0 in sidecars of earlier versions). `worker` is
    host and process id, `run` the run that computed it ("" where only the shard is left to tell, or
    where an earlier snapshot has it). `damaged` are old shards (by path) whose vectors could not be
    reused. `checksum` is the shard's as listings of its storage have it, None where they have none.
    Where rows are pieces, `documents` of these begin here, `pieces_sum` and `documents_sum` are the
    sums (16 hex digits) of `corpus.pieces.piece_sums`, and `read` and `rejected` count documents.
    `blank` rejected rows are blank lines of text files. `measures` say what its work took, by the
    names of `measures.STAGES`; they make no two records differ. `moved` are sums that say how far
    its rows are from those of the calibration's fit. `form` is the shard's (`store.forms`); only
    its first half is known if an earlier version wrote the shard, and that is not written down.
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
    measures: dict[str, float] = field(default_factory=dict, compare=False)
    rejects_sha256: str | None = None
    checksum: str | None = None
    moved: tuple[float, ...] = field(default=(), compare=False)
    documents: int | None = None
    pieces_sum: str | None = None
    documents_sum: str | None = None
    blank: int = 0
    form: str | None = None
    known: int = 0
    unknown: int = 0

    @property
    def written(self) -> int:
        """The rows of the input that are in the shard: its rows, or the documents that begin
        there.
        """
        return self.rows if self.documents is None else self.documents

    @property
    def figures(self) -> dict[str, float]:
        """What was measured of the unit's work, with its size; empty where nothing was."""
        size = {"unit_rows": self.rows, "unit_tokens": self.real, "unit_bytes": self.bytes}
        return (
            {**self.measures, **size, **tokens_a_second(self.measures | size)}
            if self.measures
            else {}
        )

    @property
    def has_whole_form(self) -> bool:
        """Whether both halves of the shard's form are known."""
        return self.form is not None and len(self.form) > HALF

    def to_manifest(self) -> dict[str, Any]:
        """The record's entry in a manifest."""
        added = {name: value for name in ADDED_FIELDS if (value := getattr(self, name)) is not None}
        if self.blank:
            added["blank"] = self.blank
        if not self.has_whole_form:
            added.pop("form", None)
        file = {"file": None} if bits_of(self.unit) is not None else {}  # a group is of several
        return {name: getattr(self, name) for name in MANIFEST_FIELDS} | file | added

    def to_json(self) -> builtins.bytes:
        """The bytes of the record's sidecar."""
        return (json.dumps(asdict(self), sort_keys=True, indent=1) + "\n").encode()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "UnitRecord":
        """The record of an entry or a sidecar.

        Raises SentenceBeamError where a field is missing, unknown or of another type, or a path is
        none of the layout.
        """
        if not isinstance(values, dict) or not _NEEDED <= values.keys() <= _NAMES:
            raise SentenceBeamError(f"not a unit's record: {str(values)[:80]}")
        place, damaged, moved = values["range"], values.get("damaged", ()), values.get("moved", ())
        lists = all(isinstance(item, list | tuple) for item in (place, damaged, moved))
        if not lists or len(place) != 2:
            raise SentenceBeamError(f"not a unit's record: {str(values)[:80]}")
        lists_as_tuples = {
            "range": (place[0], place[1]),
            "damaged": tuple(damaged),
            "moved": tuple(moved),
        }
        file = values["file"] if values["file"] is not None else ""
        record = cls(**{**values, **lists_as_tuples, "file": file})
        wrong = _wrong_field(record)
        if wrong:
            raise SentenceBeamError(
                f"not a unit's record: {wrong} is {str(getattr(record, wrong))[:80]!r}"
            )
        return record


_NEEDED = frozenset(MANIFEST_FIELDS)
_NAMES = frozenset(item.name for item in fields(UnitRecord))


def _wrong_field(record: UnitRecord) -> str | None:
    """The first field with a value that no unit can have."""
    for name in COUNTS:
        value = getattr(record, name)
        if type(value) is not int or value < 0:
            return name
    start, stop = record.range
    if (
        type(start) is not int
        or start < 0
        or not (stop is None or (type(stop) is int and stop >= start))
    ):
        return "range"
    texts = (record.file, record.sha256, record.rejects_sha256, record.checksum)
    sums = tuple(getattr(record, name) for name in SUMS)
    right = {
        "unit": isinstance(record.unit, str) and _UNIT.fullmatch(record.unit),
        "path": record.path is None or layout.is_a("shards", record.path),
        "rejects": record.rejects is None or layout.is_a("rejects", record.rejects),
        "documents": (
            record.documents is None or (type(record.documents) is int and record.documents >= 0)
        ),
        "pieces_sum": (
            sums == (None, None)
            or all(isinstance(one, str) and _SUM.fullmatch(one) for one in sums)
        ),
        "form": (
            record.form is None or (isinstance(record.form, str) and _FORM.fullmatch(record.form))
        ),
        "file": all(value is None or isinstance(value, str) for value in texts),
        "run": record.run == "" or layout.is_run(record.run),
        "worker": isinstance(record.worker, str),
        "damaged": all(layout.is_a("shards", path) for path in record.damaged),
        "moved": all(map(_is_figure, record.moved)),
        "measures": (
            isinstance(record.measures, dict) and all(map(_is_figure, record.measures.values()))
        ),
    }
    return next((name for name, passed in right.items() if not passed), None)


def _is_figure(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(cast(float, value))


def carried(unit: UnitRecord) -> UnitRecord:
    """The record of a unit that is taken over unchanged from the last snapshot."""
    return UnitRecord(**{**unit.to_manifest(), "carried": unit.rows, "form": unit.form})


def reused(unit: UnitRecord) -> UnitRecord:
    """The record of a unit that was read again and equals one of an earlier snapshot: nothing was
    computed for it.
    """
    found = replace(unit, embedded=0, duplicates=0, reused=unit.rows, measures={}, run="")
    return replace(found, real=0, padded=0, fallbacks=0, oom_splits=0, known=0, unknown=0)


@dataclass(frozen=True)
class Problem:
    """A reason why a run must end without a commit: one line, and the exit status that goes with
    it.
    """

    message: str
    exit_code: int = 1

    @classmethod
    def of(cls, error: SentenceBeamError) -> "Problem":
        """The problem that an error of this project describes."""
        return cls(error.line or str(error), error.exit_code)

    def error(self) -> SentenceBeamError:
        """The error with which to end the run, of the class that has this exit status."""
        return BY_EXIT_STATUS.get(self.exit_code, SentenceBeamError)(self.message)
