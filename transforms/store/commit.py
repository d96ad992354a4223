"""The commit: every planned unit once, the ledger balanced, then one conditional write moves the store on."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from transforms import storage
from transforms.calibration.moved import Moved
from transforms.errors import DataGateError, LedgerError, SentenceBeamError, first_line
from transforms.measures import Measures, Stopwatch, Summary, limit_of, summed
from transforms.space import Space
from transforms.store import calibrations, layout, lease
from transforms.store.canary import CanaryFile
from transforms.store.carried import ROUND, CarriedShards, step
from transforms.store.changes import Changes
from transforms.store.entries import (
    CanaryEntry,
    IndexEntry,
    Input,
    Options,
    RangesEntry,
    RowCounts,
    TokenCounts,
    WorkCounts,
)
from transforms.store.kept import Kept
from transforms.store.ledger import Ledger, check_buckets, check_pieces, check_plan
from transforms.store.manifest import (
    Manifest,
    mend_copy,
    read_manifest,
    read_shared,
    sealed,
    to_bytes,
    with_units,
)
from transforms.store.plan import RecordedPlan, read_plan
from transforms.store.precision import needs_ranges, of_floats
from transforms.store.records import Problem, UnitRecord
from transforms.store.rejected import reasons, record_rejected
from transforms.store.runs import COMMITTED, Result, now, record_result, timestamp


@dataclass(frozen=True)
class Run:
    """One execution that writes a snapshot: what its manifest will say beside counts and units, known before it starts.

    `globs` name its input, `earlier_globs` that of earlier runs whose files stay, `tables` the versions of the tables
    among them; `previous` is the run whose snapshot it replaces, `previous_digest` and `version` are that manifest's
    (None: the store is new); `generation` counts how often the whole store was embedded again; `canary` is the last
    manifest's entry, `ranges` what the manifest says of them, if known. `previous_rows` are the last snapshot's, of
    which the fraction `max_deletes` may go. `leased` says that the run took the store's lease, and so must still have
    it in the end. Of the shards that are carried over, the fraction `check_carried` is read again, from the place
    `check_from` on. `command` is the one that was given.
    """

    root: str
    id: str
    space: Space
    partition: str
    unit_tokens: int
    globs: tuple[str, ...]
    options: Options
    versions: dict[str, str]
    started: str
    previous: str | None = None
    version: str | None = None
    max_rejects: float = 0.01
    max_deletes: float = 1.0
    previous_rows: int = 0
    price_per_hour: float | None = None
    generation: int = 0
    canary: CanaryEntry | None = None
    ranges: RangesEntry | None = None
    leased: bool = False
    earlier_globs: tuple[str, ...] = ()
    previous_digest: str | None = None
    check_from: int = 0
    check_carried: float = 0.0
    command: str = ""
    tables: dict[str, str] = field(default_factory=dict)

    @property
    def canary_file(self) -> CanaryFile:
        """The texts that are embedded before all others, with the vectors they had."""
        return CanaryFile.of(self.root, self.space.pooled_id, self.generation, self.canary)

    @property
    def fits_ranges(self) -> bool:
        """Whether bounds are fitted in this run, so that its rows are written as floats first."""
        return self.ranges is None and needs_ranges(self.space)

    @property
    def first_space(self) -> Space:
        """The space in which rows are written first."""
        return of_floats(self.space) if self.fits_ranges else self.space


def last_snapshot(run: Run) -> Manifest | None:
    """The snapshot that a run goes on from, as it was when the run began; None for a new store.

    Raises SentenceBeamError where that one is not there any more.
    """
    return read_shared(run.root, run.previous, run.previous_digest)


_SHARED: Kept[CarriedShards] = Kept()


def carried_shards(run: Run) -> CarriedShards:
    """The shards that a run may carry over: one for all steps of it in a process, so that the store is listed once."""
    what = run.root, run.check_from, run.check_carried
    return _SHARED.get((run.id, *what), lambda: CarriedShards(*what))


def settle(run: Run, units: list[UnitRecord], problems: list[Problem]) -> tuple[RecordedPlan, list[UnitRecord], Ledger]:
    """The plan, all units of the snapshot (carried ones included) and their sums, once every check has passed.

    Raises the error that the first problem is, LedgerError, or DataGateError for too many rows rejected or deleted.
    """
    if problems:
        raise min(problems, key=lambda p: (p.exit_code, p.message)).error()
    plan = read_plan(run.root, run.id)
    everything = sorted(_once(units), key=lambda u: u.unit)
    if plan.buckets is not None:
        check_buckets(plan.buckets, everything)
    else:
        check_plan(plan.spans, everything)
    ledger = Ledger.of(everything)
    ledger.check()
    check_pieces(everything)
    if ledger.rejected > run.max_rejects * ledger.read:
        paths = [unit.rejects for unit in everything if unit.rejects]
        record_rejected(run.root, run.id, paths)
        raise DataGateError(
            f"{ledger.rejected} of {ledger.read} rows rejected, more than --max-rejects {run.max_rejects:g} "
            f"allows: {reasons(run.root, paths, plan)}; `sentence-beam rejects --store {run.root}` lists them; "
            "mend the input or raise the limit"
        )
    check_deletes(run, ledger.written)
    return plan, everything, ledger


def check_deletes(run: Run, rows: int) -> None:
    """Raise DataGateError where so many rows are too few after those of the last snapshot; ids play no part in it."""
    deleted = run.previous_rows - rows
    if deleted > run.max_deletes * run.previous_rows:
        raise DataGateError(
            f"{deleted} of the {run.previous_rows} rows of {run.root} would be deleted, more than --max-deletes "
            f"{run.max_deletes:g} allows; see whether all input is there, or say --max-deletes 1 to let it through"
        )


def _once(units: list[UnitRecord]) -> list[UnitRecord]:
    """Units that an engine delivered twice (a retried bundle) count once; two different ones are a fault."""
    seen: dict[str, UnitRecord] = {}
    for unit in units:
        other = seen.setdefault(unit.unit, unit)
        if (other.path, other.sha256, other.range) != (unit.path, unit.sha256, unit.range):
            raise LedgerError(f"ledger: unit {unit.unit} was written twice with different rows; nothing committed")
    return list(seen.values())


def commit(run: Run, settled: tuple[RecordedPlan, list[UnitRecord], Ledger], index: IndexEntry | None) -> str:
    """Write the run's manifest, then make it the current one if nobody else committed meanwhile; a line about it.

    Raises SentenceBeamError where the current manifest is no longer the one that this run began with, and where an
    earlier execution of the run had other units.
    """
    plan, units, ledger = settled
    _mend_previous(run)
    data = sealed(with_units(_manifest(run, plan, ledger, index), units, plan.files).to_json())
    path = storage.join(run.root, layout.snapshot(run.id))
    store = storage.storage_of(path)
    if not store.put_if_absent(path, to_bytes(data)):
        earlier = read_manifest(run.root, run.id)  # a retried commit: the first attempt's is kept
        data = _with_equal_units(earlier, units).data if earlier else data
    current = storage.join(run.root, layout.MANIFEST)
    lost = run.leased and not lease.holds(run.root, run.id)
    try:
        if lost or not store.replace_if(current, to_bytes(data), run.version):
            _check_committed(run, units)
    except storage.UnsyncedError as error:
        return (
            f"{COMMITTED}, but the disk did not confirm it ({current}: {error.strerror or error}): a power cut may "
            "bring back the snapshot before; see to the disk, then run again"
        )
    return COMMITTED


def _with_equal_units(made: Manifest, units: list[UnitRecord]) -> Manifest:
    """The manifest of an earlier attempt at this commit. Raises SentenceBeamError where its units are others."""
    if [unit.to_manifest() for unit in made.units] != [unit.to_manifest() for unit in units]:
        raise SentenceBeamError(
            f"{made.root}: run {made.run} was executed before, with other rows, and a run makes one snapshot; nothing "
            "was committed, make a new graph with a run id of its own"
        )
    return made


def _mend_previous(run: Run) -> None:
    """Make the manifest of the snapshot before equal to `manifest.json`, which is about to be replaced."""
    current = read_manifest(run.root)
    if current is not None and current.version == run.version:
        mend_copy(current)


def _check_committed(run: Run, units: list[UnitRecord]) -> None:
    """Raise SentenceBeamError unless the current snapshot is this run's, by an earlier attempt at the commit."""
    current = read_manifest(run.root)
    if current is not None and current.run == run.id:
        _with_equal_units(current, units)
        return
    standing = current.run if current else None
    if standing == run.previous and run.leased:
        raise lease.lost(run.root)
    if standing == run.previous:
        raise SentenceBeamError(
            f"{run.root}: vacuum removed files while this run worked, and may have taken some that it counts on; "
            "nothing was committed, run again"
        )
    raise SentenceBeamError(
        f"{run.root}: run {standing or '?'} committed while this run worked; nothing of it was touched, run again"
    )


def _manifest(run: Run, plan: RecordedPlan, ledger: Ledger, index: IndexEntry | None) -> Manifest:
    return Manifest(
        root=run.root,
        run=run.id,
        previous=run.previous,
        space=run.space,
        partition=run.partition,
        unit_tokens=run.unit_tokens,
        rows=RowCounts(ledger.read, ledger.written, ledger.rejected, ledger.pieces),
        work=WorkCounts(ledger.embedded, ledger.reused, ledger.duplicates, ledger.carried),
        tokens=TokenCounts(ledger.real, ledger.padded, ledger.truncated_rows, ledger.lost),
        shards=(),
        index=index,
        input=Input(tuple(dict.fromkeys((*run.earlier_globs, *run.globs))), (), run.tables),
        options=run.options,
        started=run.started,
        finished=now(),
        buckets=plan.buckets,
        ranges=run.ranges,
        canary=run.canary_file.entry(),
        calibration=calibrations.entry(run.space.calibration),
        generation=run.generation,
        versions=run.versions,
        chunks=run.options.chunks,
        check_from=(run.check_from + step(run.check_carried)) % ROUND,
    )


def finish(
    run: Run,
    units: Iterable[UnitRecord],
    problems: Iterable[Problem],
    index: IndexEntry | None = None,
    duplicate_ids: int = 0,
    changes: Changes | None = None,
    index_measures: dict[str, Summary] | None = None,
) -> Result:
    """Settle, commit, put the result on record and give the store back; a failed check is a result, not an error."""
    watch = Stopwatch()
    try:
        with watch.time("settle_ms"):
            settled = settle(run, list(units), list(problems))
        with watch.time("manifest_ms"):
            message = commit(run, settled, index)
        measures = _measures(run, settled, index_measures or {}, watch)
        result = replace(
            _committed(run, settled, message),
            measures=measures,
            limit=limit_of(measures["embed"]),
            index=index,
            duplicate_ids=duplicate_ids,
            changes=asdict(changes) if changes else None,
        )
    except SentenceBeamError as error:
        result = failed(run, error)
    with contextlib.suppress(storage.UnsyncedError):  # it stands; the manifest's own is said
        record_result(run.root, result)
    with contextlib.suppress(Exception):  # the run has ended, and a raise would repeat it; a lease grows stale
        lease.release(run.root, run.id)
    return result


def _committed(run: Run, settled: tuple[RecordedPlan, list[UnitRecord], Ledger], message: str) -> Result:
    plan, units, ledger = settled
    checked = plan.checked
    made = [unit for unit in units if not unit.carried]
    resumed = [unit for unit in made if unit.run not in (run.id, "")]
    moved = Moved.of(unit.moved for unit in made)
    return replace(
        _ended(run, COMMITTED, message),
        ledger=asdict(ledger),
        damaged=sorted({*checked.damaged, *(path for unit in units for path in unit.damaged)}),
        checked={**asdict(checked), "damaged": len(checked.damaged)},
        truncated=sum(unit.truncated for unit in units),
        spared=max(sum(unit.tokens - unit.lost for unit in units) - ledger.real, 0),
        tokens=sum(unit.real for unit in units if unit.run == run.id),
        input=_input(plan, run),
        resumed=dict(Counter(unit.run for unit in resumed)),
        made=len(made),
        own_rows=sum(unit.rows for unit in made) - sum(unit.rows for unit in resumed),
        moved=moved.to_json() if moved else None,
    )


def _measures(
    run: Run, settled: tuple[RecordedPlan, list[UnitRecord], Ledger], index: dict[str, Summary], watch: Stopwatch
) -> Measures:
    plan, units, _ = settled
    planned = 1000 * (timestamp(plan.written) - timestamp(run.started)) if plan.written else None
    return {
        "plan": plan.measures | ({} if planned is None else summed([{"planned_ms": round(planned, 3)}])),
        "embed": summed(unit.figures for unit in units),
        "index": index,
        "commit": summed([watch.figures]),
    }


def _input(plan: RecordedPlan, run: Run) -> dict[str, Any]:
    empty = sum(file.size == 0 and file.path not in plan.bad for file in plan.files)
    sometimes = {"bad": plan.bad, "tables": run.tables}
    found = {"files": len(plan.files), "empty": empty, "beside": plan.beside}
    return found | {name: value for name, value in sometimes.items() if value}


def failed(run: Run, error: Exception) -> Result:
    """The result of a run that left the manifest alone."""
    exit_code = error.exit_code if isinstance(error, SentenceBeamError) else 1
    return replace(_ended(run, "failed", first_line(error)), exit_code=exit_code)


def _ended(run: Run, status: str, message: str) -> Result:
    return Result(
        run=run.id,
        status=status,
        exit_code=0,
        message=message,
        finished=now(),
        seconds=round(time.time() - timestamp(run.started), 3),
        started=run.started,
        previous=run.previous,
        space=run.space.id,
        pooled=run.space.pooled_id,
        price_per_hour=run.price_per_hour,
        currency=run.options.currency,
        command=run.command,
    )
