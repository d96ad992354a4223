"""Records of units (sidecars, entries in a manifest), and the reason why a run must end."""

import builtins
import json
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Annotated, Any, get_args, get_type_hints

from sentence_beam.transforms.base.compact import pickle_by_values
from sentence_beam.transforms.base.errors import BY_EXIT_STATUS, SentenceBeamError
from sentence_beam.transforms.base.json_entries import (
    WrongFieldError,
    count,
    fail,
    finite,
    matching,
    read_dataclass,
)
from sentence_beam.transforms.base.measures import count_tokens_a_second
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import stored

KEPT = "kept"  # a count in the table `units` of a snapshot
WORK = "work"  # a count of the run that made the unit
Kept = Annotated[int, count, KEPT]
Work = Annotated[int, count, WORK]


def _read_range(value: Any, where: str) -> tuple[int, int | None]:
    """Return a first place and one after the last, None for the end."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        fail(where, "a start and a stop")
    start = count(value[0], where)
    stop = None if value[1] is None else count(value[1], where)
    if stop is not None and stop < start:
        fail(where, "a start and a stop that is not before it")
    return start, stop


def _read_run(value: Any, where: str) -> str:
    """Return the name of a run, or ""."""
    return value if value == "" or layout.is_run(value) else fail(where, "the name of a run")


UnitName = Annotated[str, matching(r"[0-9a-f]+-[0-9a-f]+(?:\.[0-9]+)?", "the name of a unit")]
ShardPath = Annotated[str, stored("shards")]
RejectsPath = Annotated[str, stored("rejects")]
Sum = Annotated[str, matching(r"[0-9a-f]{16}", "16 hex digits")]
Form = Annotated[str, matching(r"[0-9a-f]{16}", "16 hex digits")]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 hex digits")]
Figure = Annotated[float, finite]


@pickle_by_values
@dataclass(frozen=True, slots=True)
class UnitRecord:
    """A unit: a row of the table `units`, and how its rows were made.

    Files: `path` and `rejects` are relative to the store, None if there is no such file. `sha256`
    and `checksum` are the shard's, the latter from listings of its storage (None if they have
    none). `range` is [start, stop) in rows (Parquet) or bytes of the uncompressed text, stop None
    for "to the end". For a group of small files `file` is "", and `range` counts rows. `form` is
    the shard's (`store.forms`).

    Rows: `rows` are those of the shard. `read` and `rejected` count rows of the input: documents if
    they are cut into pieces, of which `documents` begin in the unit. `blank` of the rejected rows
    are blank lines, `forgotten` ones were erased. `pieces_sum` and `documents_sum` are sums modulo
    2**64 that are equal over all units if each document has all its pieces. `tokens` are those
    before truncation, `lost` those that were cut off in `truncated` rows.

    Work: `embedded`, `reused` and `duplicates` count the rows by the origin of their vectors.
    `real` tokens went through the model, `padded` with padding; `fallbacks` and `oom_splits` count
    batches. `known` and `unknown` are tokens of the texts that the vocabulary has and lacks.
    `device` names the devices that computed. `run` made the unit, `worker` is the process.
    `damaged` are old shards, by path, whose vectors could not be reused. `measures` are figures of
    its work by the names of `measures.STAGES`; records that differ only in them are equal. `moved`
    are sums that compare its rows with those of the calibration's fit.
    """

    path: ShardPath | None
    unit: UnitName
    file: str
    range: Annotated[tuple[int, int | None], _read_range]
    rows: Kept
    read: Kept
    rejected: Kept
    rejects: RejectsPath | None
    tokens: Kept
    truncated: Kept
    lost: Kept
    bytes: int
    sha256: Sha256 | None
    embedded: Work = 0
    reused: Work = 0
    duplicates: Work = 0
    carried: int = 0
    real: Work = 0
    padded: Work = 0
    fallbacks: Work = 0
    oom_splits: Work = 0
    worker: str = ""
    damaged: tuple[ShardPath, ...] = ()
    run: Annotated[str, _read_run] = ""
    measures: dict[str, Figure] = field(default_factory=dict, compare=False)
    rejects_sha256: Sha256 | None = None
    checksum: str | None = None
    moved: tuple[Figure, ...] = field(default=(), compare=False)
    documents: int | None = None
    pieces_sum: Sum | None = None
    documents_sum: Sum | None = None
    blank: Kept = 0
    form: Form | None = None
    known: Work = 0
    unknown: Work = 0
    device: str = field(default="", compare=False)
    forgotten: Kept = 0

    @property
    def written(self) -> int:
        """The input rows that are in the shard: its rows, or the documents that begin there."""
        return self.rows if self.documents is None else self.documents

    @property
    def figures(self) -> dict[str, float]:
        """The measures of the unit's work, with its size; empty if nothing was measured."""
        size = {"unit_rows": self.rows, "unit_tokens": self.real, "unit_bytes": self.bytes}
        if self.measures:
            return {**self.measures, **size, **count_tokens_a_second(self.measures | size)}
        return {}

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
            record: UnitRecord = read_dataclass(cls, values)
            if (record.pieces_sum is None) != (record.documents_sum is None):
                fail("pieces_sum", "there with documents_sum")
        except WrongFieldError as error:
            value = str(values.get(error.name))[:80]
            raise SentenceBeamError(
                f"not a unit's record: {error.name} is {value!r}, not {error.wanted}"
            ) from error
        return record


def _list_counts(role: str) -> tuple[str, ...]:
    hints = get_type_hints(UnitRecord, include_extras=True)
    return tuple(name for name, hint in hints.items() if role in get_args(hint))


KEPT_COUNTS = _list_counts(KEPT)
WORK_COUNTS = _list_counts(WORK)
_NAMES = frozenset(item.name for item in fields(UnitRecord))
_NEEDED = frozenset(
    item.name
    for item in fields(UnitRecord)
    if item.default is MISSING and item.default_factory is MISSING
)


def reused(unit: UnitRecord) -> UnitRecord:
    """Return the record of a unit that was read again and equals one of an earlier snapshot.

    Nothing was computed for it.
    """
    work: dict[str, Any] = dict.fromkeys(WORK_COUNTS, 0) | {"reused": unit.rows}
    return replace(unit, **work, measures={}, run="", device="")


@dataclass(frozen=True)
class Problem:
    """A reason why a run must end without a commit: an error's `message`, and its exit status."""

    message: str
    exit_code: int = 1

    @classmethod
    def from_error(cls, error: SentenceBeamError) -> "Problem":
        """The problem that an error of this project describes."""
        return cls(error.message, error.exit_code)

    def error(self) -> SentenceBeamError:
        """Return the error with which to end the run, of the class with this exit status."""
        return BY_EXIT_STATUS.get(self.exit_code, SentenceBeamError)(self.message)
