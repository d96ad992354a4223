"""The commit: every planned unit once, the ledger balanced, then one conditional write moves the store on."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from transforms.errors import DataGateError, LedgerError, SentenceBeamError
from transforms.space import Space
from transforms.store import calibrations, layout, lease, storage
from transforms.store.canary import CanaryFile
from transforms.store.ledger import Ledger, check_buckets, check_plan
from transforms.store.manifest import FORMAT, Manifest, read_manifest, to_bytes, with_units
from transforms.store.plan import Plan, read_plan
from transforms.store.ranges import needs_ranges, of_floats
from transforms.store.records import Problem, UnitRecord


@dataclass(frozen=True)
class Snapshot:
    """What a run will write into its manifest beside counts and units, known before it starts.

    `previous` is the run whose snapshot it replaces, `version` that manifest's version (None: the store is new);
    `generation` counts how often the store was embedded anew; `canary` is the last manifest's entry, `ranges` what the
    manifest says of them, if known.
    """

    root: str
    run: str
    space: dict[str, Any]
    partition: str
    unit_tokens: int
    globs: tuple[str, ...]
    options: dict[str, Any]
    versions: dict[str, str]
    started: str
    previous: str | None = None
    version: str | None = None
    max_rejects: float = 0.01
    generation: int = 0
    canary: dict[str, str] | None = None
    ranges: dict[str, Any] | None = None

    @property
    def canary_file(self) -> CanaryFile:
        """The texts that are embedded before all others, with the vectors they had."""
        return CanaryFile.of(self.root, self.space["pooled_id"], self.generation, self.canary)

    @property
    def fits_ranges(self) -> bool:
        """Whether bounds are fitted in this run, so that its rows are written as floats first."""
        return self.ranges is None and needs_ranges(Space.from_json(self.space))

    @property
    def first_space(self) -> Space:
        """The space in which rows are written first."""
        space = Space.from_json(self.space)
        return of_floats(space) if self.fits_ranges else space


@dataclass(frozen=True)
class Result:
    """How a run ended: `status` is "committed" or "failed", `message` one line, `ledger` the counts.

    `damaged` are shards of the last snapshot that were missing or changed, so that their rows were embedded again.
    """

    run: str
    status: str
    exit_code: int
    message: str
    finished: str
    seconds: float
    ledger: dict[str, int] = field(default_factory=dict)
    index: dict[str, Any] | None = None
    duplicate_ids: int = 0
    damaged: list[str] = field(default_factory=list)


def now() -> str:
    """The time as manifests write it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def settle(
    snapshot: Snapshot, units: list[UnitRecord], problems: list[Problem]
) -> tuple[Plan, list[UnitRecord], Ledger]:
    """The plan, all units of the snapshot (carried ones included) and their sums, once every check has passed.

    Raises the error that the first problem is, LedgerError, or DataGateError for too many rejected rows.
    """
    if problems:
        raise min(problems, key=lambda p: (p.exit_code, p.message)).error()
    plan = read_plan(snapshot.root, snapshot.run)
    everything = sorted(_once(units), key=lambda u: u.unit)
    if plan.buckets is not None:
        check_buckets(plan.buckets, everything)
    else:
        check_plan(plan.spans, everything)
    ledger = Ledger.of(everything)
    ledger.check()
    if ledger.rejected > snapshot.max_rejects * ledger.read:
        raise DataGateError(
            f"{ledger.rejected} of {ledger.read} rows rejected, more than --max-rejects {snapshot.max_rejects:g} "
            f"allows; see {storage.join(snapshot.root, 'rejects')}, mend the input or raise the limit"
        )
    return plan, everything, ledger


def _once(units: list[UnitRecord]) -> list[UnitRecord]:
    """Units that an engine delivered twice (a retried bundle) count once; two different ones are a fault."""
    seen: dict[str, UnitRecord] = {}
    for unit in units:
        other = seen.setdefault(unit.unit, unit)
        if (other.path, other.sha256, other.range) != (unit.path, unit.sha256, unit.range):
            raise LedgerError(f"ledger: unit {unit.unit} was written twice with different rows; nothing committed")
    return list(seen.values())


def commit(
    snapshot: Snapshot, settled: tuple[Plan, list[UnitRecord], Ledger], index: dict[str, Any] | None
) -> Manifest:
    """Write the run's manifest, then make it the current one if nobody else committed meanwhile.

    Raises SentenceBeamError where another run's snapshot has taken the place of the one this run began with.
    """
    plan, units, ledger = settled
    data = with_units(snapshot.root, _manifest(snapshot, plan, ledger, index), units, plan.files)
    path = storage.join(snapshot.root, layout.snapshot(snapshot.run))
    store = storage.storage_of(path)
    if not store.put_if_absent(path, to_bytes(data)):
        earlier = read_manifest(snapshot.root, snapshot.run)  # a retried commit: the first attempt's stands
        data = earlier.data if earlier else data
    current = storage.join(snapshot.root, layout.MANIFEST)
    if not store.replace_if(current, to_bytes(data), snapshot.version):
        standing = read_manifest(snapshot.root)
        if standing is None or standing.run != snapshot.run:
            raise SentenceBeamError(
                f"{snapshot.root}: run {standing.run if standing else '?'} committed while this run worked; "
                "nothing of it was touched, run again"
            )
    return Manifest(snapshot.root, data)


def _manifest(snapshot: Snapshot, plan: Plan, ledger: Ledger, index: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run": snapshot.run,
        "space": snapshot.space,
        "partition": snapshot.partition,
        "unit_tokens": snapshot.unit_tokens,
        "generation": snapshot.generation,
        "buckets": asdict(plan.buckets) if plan.buckets else None,
        "rows": _pick(ledger, "read", "written", "rejected"),
        "work": _pick(ledger, "embedded", "reused", "duplicates", "carried"),
        "tokens": _pick(ledger, "real", "padded", "truncated_rows", "lost"),
        "index": index,
        "ranges": snapshot.ranges,
        "calibration": calibrations.entry(snapshot.space["calibration"]),
        "input": {"globs": list(snapshot.globs), "files": []},
        "canary": snapshot.canary_file.entry(),
        "options": snapshot.options,
        "versions": snapshot.versions,
        "started": snapshot.started,
        "finished": now(),
        "previous": snapshot.previous,
    }


def _pick(ledger: Ledger, *names: str) -> dict[str, int]:
    return {name: getattr(ledger, name) for name in names}


def finish(
    snapshot: Snapshot,
    units: Iterable[UnitRecord],
    problems: Iterable[Problem],
    index: dict[str, Any] | None = None,
    duplicate_ids: int = 0,
) -> Result:
    """Settle, commit, put the result on record and give the store back; a failed check is a result, not an error."""
    try:
        settled = settle(snapshot, list(units), list(problems))
        commit(snapshot, settled, index)
        result = _committed(snapshot, settled, index, duplicate_ids)
    except SentenceBeamError as error:
        result = failed(snapshot, error)
    record_result(snapshot, result)
    lease.release(snapshot.root, snapshot.run)
    return result


def _committed(
    snapshot: Snapshot,
    settled: tuple[Plan, list[UnitRecord], Ledger],
    index: dict[str, Any] | None,
    duplicate_ids: int,
) -> Result:
    _, units, ledger = settled
    damaged = sorted({path for unit in units for path in unit.damaged})
    seconds = _seconds(snapshot)
    return Result(
        snapshot.run, "committed", 0, "committed", now(), seconds, ledger.to_json(), index, duplicate_ids, damaged
    )


def failed(snapshot: Snapshot, error: Exception) -> Result:
    """The result of a run that left the manifest alone."""
    exit_code = error.exit_code if isinstance(error, SentenceBeamError) else 1
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Result(snapshot.run, "failed", exit_code, line, now(), _seconds(snapshot))


def _seconds(snapshot: Snapshot) -> float:
    started = datetime.fromisoformat(snapshot.started.replace("Z", "+00:00"))
    return round(time.time() - started.timestamp(), 3)


def record_result(snapshot: Snapshot, result: Result) -> None:
    """Write `runs/<run>/result.json`; a retried last step leaves the first one."""
    path = storage.join(snapshot.root, layout.result(snapshot.run))
    storage.storage_of(path).put_if_absent(path, to_bytes(asdict(result)))


def read_result(root: str, run: str) -> Result | None:
    """How a run ended, or None where it has not."""
    path = storage.join(root, layout.result(run))
    found = storage.storage_of(path).read_versioned(path)
    return Result(**json.loads(found[0])) if found else None
