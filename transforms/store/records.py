"""Records of units (sidecars, entries in a manifest), and the reason why a run must end."""

import builtins
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from sentence_beam.transforms.base.compact import by_values
from sentence_beam.transforms.base.entries import (
    WrongFieldError,
    count,
    dataclass_of,
    fail,
    finite,
    matching,
    text,
)
from sentence_beam.transforms.base.errors import BY_EXIT_STATUS, SentenceBeamError
from sentence_beam.transforms.base.measures import tokens_a_second
from sentence_beam.transforms.corpus.groups import bits_of
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import stored
from sentence_beam.transforms.store.forms import HALF

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
    "unknown", "forgotten",
)  # fmt: skip


def _range(value: Any, where: str) -> tuple[int, int | None]:
    """Return a first place and one after the last, None for the end."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        fail(where, "a start and a stop")
    start = count(value[0], where)
    stop = None if value[1] is None else count(value[1], where)
    if stop is not None and stop < start:
        fail(where, "a start and a stop that is not before it")
    return start, stop


def _file(value: Any, where: str) -> str:
    """Return a relative path; None in a manifest, for a group of files, is ""."""
    return "" if value is None else text(value, where)


def _run(value: Any, where: str) -> str:
    """Return the name of a run, or ""."""
    if value == "" or layout.is_run(value):
        return value
    return fail(where, "the name of a run")


UnitName = Annotated[str, matching(r"[0-9a-f]+-[0-9a-f]+(?:\.[0-9]+)?", "the name of a unit")]
ShardPath = Annotated[str, stored("shards")]
RejectsPath = Annotated[str, stored("rejects")]
Sum = Annotated[str, matching(r"[0-9a-f]{16}", "16 hex digits")]
Form = Annotated[str, matching(r"(?:[0-9a-f]{8}){1,2}", "8 or 16 hex digits")]
Figure = Annotated[float, finite]


@by_values
@dataclass(frozen=True, slots=True)
class UnitRecord:
    """A unit of a snapshot.

    The first thirteen fields and `ADDED_FIELDS` are in a manifest; the others say how the rows were
    made.

    Files: `path` and `rejects` are relative to the store, None if there is no such file. `sha256`
    and `checksum` are the shard's, the latter from listings of its storage (None if they have
    none). `range` is [start, stop) in rows (Parquet) or bytes of the uncompressed text, stop None
    for "to the end". For a group of small files `file` is "", and `range` counts rows. `form` is
    the shard's (`store.forms`); if an earlier version wrote the shard, only the first half is
    known, and manifests leave it out.

    Tokens: `tokens` counts before truncation, `lost` what truncation cut off. `real` and `padded`
    went through the model, without and with padding. `known` and `unknown` are the texts' own
    tokens, without special tokens and prompt, that the vocabulary has, and those for text that it
    lacks (both 0 in sidecars of earlier versions).

    Rows: `embedded`, `reused`, `duplicates` sum to `rows`. `blank` rejected rows are blank lines of
    text files, `forgotten` ones were erased from the store. If rows are pieces, `documents` begin
    here, `pieces_sum` and `documents_sum` are the sums (16 hex digits) of
    `corpus.pieces.piece_sums`, and `read` and `rejected` count documents.

    Work: `worker` is host and process id, `device` the names of the devices that computed its
    vectors ("" if none did), `run` the run that computed the unit ("" if only the shard is left, or
    an earlier snapshot has it). `damaged` are old shards, by path, whose vectors
    could not be reused. `measures` are figures of its work by the names of `measures.STAGES`;
    records that differ only in them are equal. `moved` are sums that compare its rows with those of
    the calibration's fit.
    """

    path: ShardPath | None
    unit: UnitName
    file: Annotated[str, _file]
    range: Annotated[tuple[int, int | None], _range]
    rows: int
    read: int
    rejected: int
    rejects: RejectsPath | None
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
    damaged: tuple[ShardPath, ...] = ()
    run: Annotated[str, _run] = ""
    measures: dict[str, Figure] = field(default_factory=dict, compare=False)
    rejects_sha256: str | None = None
    checksum: str | None = None
    moved: tuple[Figure, ...] = field(default=(), compare=False)
    documents: int | None = None
    pieces_sum: Sum | None = None
    documents_sum: Sum | None = None
    blank: int = 0
    form: Form | None = None
    known: int = 0
    unknown: int = 0
    device: str = field(default="", compare=False)
    forgotten: int = 0

    @property
    def written(self) -> int:
        """The input rows that are in the shard: its rows, or the documents that begin there."""
        return self.rows if self.documents is None else self.documents

    @property
    def figures(self) -> dict[str, float]:
        """The measures of the unit's work, with its size; empty if nothing was measured."""
        size = {"unit_rows": self.rows, "unit_tokens": self.real, "unit_bytes": self.bytes}
        if self.measures:
            return {**self.measures, **size, **tokens_a_second(self.measures | size)}
        return {}

    @property
    def has_whole_form(self) -> bool:
        """Whether both halves of the shard's form are known."""
        return self.form is not None and len(self.form) > HALF

    def to_manifest(self) -> dict[str, Any]:
        """The record's entry in a manifest."""
        added = {name: value for name in ADDED_FIELDS if (value := getattr(self, name)) is not None}
        if self.blank:
            added["blank"] = self.blank
        if self.forgotten:
            added["forgotten"] = self.forgotten
        if not self.has_whole_form:
            added.pop("form", None)
        file = {"file": None} if bits_of(self.unit) is not None else {}  # a group is of several
        return {name: getattr(self, name) for name in MANIFEST_FIELDS} | file | added

    def to_json(self) -> builtins.bytes:
        """The bytes of the record's sidecar."""
        return (json.dumps(asdict(self), sort_keys=True, indent=1) + "\n").encode()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "UnitRecord":
        """Return the record of an entry or a sidecar.

        Raises SentenceBeamError if a field is missing, unknown or of another type, or a path is not
        one of the layout.
        """
        if not isinstance(values, dict) or not _NEEDED <= values.keys() <= _NAMES:
            raise SentenceBeamError(f"not a unit's record: {str(values)[:80]}")
        try:
            record: UnitRecord = dataclass_of(cls, values)
            if (record.pieces_sum is None) != (record.documents_sum is None):
                fail("pieces_sum", "there with documents_sum")
        except WrongFieldError as error:
            value = str(values.get(error.name))[:80]
            raise SentenceBeamError(
                f"not a unit's record: {error.name} is {value!r}, not {error.wanted}"
            ) from error
        return record


_NEEDED = frozenset(MANIFEST_FIELDS)
_NAMES = frozenset(item.name for item in fields(UnitRecord))


def by_file(units: Iterable[UnitRecord]) -> dict[str, list[UnitRecord]]:
    """Return units in lists, by the relative path of their file."""
    found: dict[str, list[UnitRecord]] = {}
    for unit in units:
        found.setdefault(unit.file, []).append(unit)
    return found


def carried(unit: UnitRecord) -> UnitRecord:
    """Return the record of a unit that is carried over unchanged from the last snapshot."""
    return UnitRecord(**{**unit.to_manifest(), "carried": unit.rows, "form": unit.form})


def reused(unit: UnitRecord) -> UnitRecord:
    """Return the record of a unit that was read again and equals one of an earlier snapshot.

    Nothing was computed for it.
    """
    found = replace(unit, embedded=0, duplicates=0, reused=unit.rows, measures={}, run="")
    found = replace(found, real=0, padded=0, fallbacks=0, oom_splits=0, known=0, unknown=0)
    return replace(found, device="")


@dataclass(frozen=True)
class Problem:
    """A reason why a run must end without a commit: one line, and its exit status."""

    message: str
    exit_code: int = 1

    @classmethod
    def of(cls, error: SentenceBeamError) -> "Problem":
        """The problem that an error of this project describes."""
        return cls(error.line or str(error), error.exit_code)

    def error(self) -> SentenceBeamError:
        """Return the error with which to end the run, of the class with this exit status."""
        return BY_EXIT_STATUS.get(self.exit_code, SentenceBeamError)(self.message)
