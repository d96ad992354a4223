"""The commit: check units and ledger, then replace the manifest by one conditional write."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DataGateError, SentenceBeamError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.corpus.arrow_types import NO_TYPE, is_word
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import calibrations, layout
from sentence_beam.transforms.store.counts import RowCounts, TokenCounts, TokenEstimate, WorkCounts
from sentence_beam.transforms.store.entries import Input
from sentence_beam.transforms.store.forms import check_forms, compute_run_form
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.ledger import LEAST_UNKNOWN, LEAST_UNKNOWN_FIRST, Ledger
from sentence_beam.transforms.store.manifest import (
    BegunSnapshot,
    Manifest,
    read_manifest,
    read_resolved,
    read_shared,
)
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.canary import CanaryFile
from sentence_beam.transforms.store.runs.carried_check import ROUND, ShardCheck
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.recorded_plan import RecordedPlan, read_plan
from sentence_beam.transforms.store.runs.rejected_rows import count_reasons, record_rejected
from sentence_beam.transforms.store.runs.run_result import COMMITTED, now
from sentence_beam.transforms.store.runs.run_sums import Tally
from sentence_beam.transforms.store.runs.settled_tables import Settled, settle_units
from sentence_beam.transforms.store.sealed_json import FENCE, sealed, to_bytes
from sentence_beam.transforms.store.shards.precision import needs_ranges, to_float_space
from sentence_beam.transforms.store.tables.table_parts import read_table

MORE_LANGUAGES = (
    f"{cite('model')} sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2 or"
    f" {cite('model')} intfloat/multilingual-e5-small"
)


@dataclass(frozen=True, kw_only=True)
class Run(BegunSnapshot):
    """A run that writes a snapshot.

    `globs` name its input, `earlier_globs` the input of earlier runs whose files stay, `tables` the
    versions of the tables among them. `previous_digest` and `version` belong to the manifest of
    `previous` (None: the store is new). `canary` and `ranges` are entries of the last manifest,
    None if not known. `options` are remembered by the store after the run, `gates` apply to this
    run; `previous_rows` are the last snapshot's, to which the gate `max_deletes` refers. `watch`
    has the last snapshot's answers until the coming ones are known; `changes` are not known until
    the end.

    `leased` says that the run took the store's lease, and so must still have it at the end. Carried
    shards up to `check_stride` after `check_from` are read again (`carried_check.stride`).
    `command` is the command of the run.
    """

    root: str
    id: str
    globs: tuple[str, ...]
    previous: str | None = None
    version: str | None = None
    gates: UsedGates = field(default_factory=UsedGates)
    previous_rows: int = 0
    leased: bool = False
    earlier_globs: tuple[str, ...] = ()
    previous_digest: str | None = None
    check_stride: int = 0
    command: str = ""
    tables: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The store and the run's id, which identify its lease."""
        return self.root, self.id

    @property
    def canary_file(self) -> CanaryFile:
        """The texts that are embedded before all others, with their earlier vectors."""
        return CanaryFile.from_store(self.root, self.space.pooled_id, self.generation, self.canary)

    @property
    def form(self) -> str:
        """The first half of the form of all shards of its snapshot (`store.forms`)."""
        return compute_run_form(self.space, self.generation, self.options)

    @property
    def has_delete_gate(self) -> bool:
        """Whether some number of deleted rows ends the run."""
        return self.previous_rows > 0 and self.gates.max_deletes < 1

    def make_shard_check(self, low: str = "", high: str = "") -> ShardCheck:
        """Return the check of shards that it may carry over; names as for `ShardCheck`."""
        return ShardCheck(self.root, self.check_from, self.check_stride, low, high)

    @property
    def fits_ranges(self) -> bool:
        """Whether this run fits bounds, so that its rows are written as floats first."""
        return self.ranges is None and needs_ranges(self.space)

    @property
    def first_space(self) -> Space:
        """The space in which rows are written first."""
        return to_float_space(self.space) if self.fits_ranges else self.space


def read_last_snapshot(run: Run) -> Manifest | None:
    """Return the snapshot before a run, as it was when the run began; None for a new store.

    Raises SentenceBeamError if it does not exist any more.
    """
    return read_shared(run.root, run.previous, run.previous_digest)


def settle(run: Run, made: Iterable[tuple[int, bytes]], problems: Iterable[Problem]) -> Settled:
    """Return the tables of the coming snapshot and all sums, checked.

    `made` are the packed units of the run by stretch. Raises the error of the first problem,
    LedgerError, or DataGateError for too many rows rejected or deleted.
    """
    every = list(problems)
    if every:
        raise min(every, key=lambda p: (p.exit_code, p.message)).error()
    plan = read_plan(run.root, run.id)
    last = read_last_snapshot(run)
    if plan.notes.snapshot not in ("", run.previous):
        last = read_resolved(run.root, plan.notes.snapshot, None)
    if last is None:
        settled = settle_units(run.root, run.id, plan, made)
    else:
        settled = settle_units(run.root, run.id, plan, made, (last.files, last.units))
    check_forms(run.form, settled.tally.forms)
    _check_rejected(run, plan, settled)
    check_rows_left(run, settled.tally.ledger.written)
    check_unknown(run, settled.tally.ledger)
    return settled


def _check_rejected(run: Run, plan: RecordedPlan, settled: Settled) -> None:
    """Raise DataGateError for too many rejected rows, and list their files."""
    ledger = settled.tally.ledger
    if not ledger.rejects_too_many(run.gates.max_rejects):
        return
    units = read_table(run.root, "units", settled.units, ["rejects"])
    paths = units.column("rejects").drop_null().to_pylist()
    record_rejected(run.root, run.id, paths)
    counted = (
        f"{ledger.rejected - ledger.expected} of {ledger.read - ledger.expected} rows rejected"
    )
    why = count_reasons(run.root, paths, plan)
    mend = "mend the input or raise the limit"
    if cite("keep_columns") in why:  # then more rows of the column would be missing every night
        mend = "mend the input or change the type"
    raise DataGateError(
        f"{counted}, more than {cite('max_rejects')} {run.gates.max_rejects:g} allows: {why};"
        f" `sentence-beam rejects --store {run.root}` lists them; {mend}"
    )


def check_unknown(run: Run, ledger: Ledger) -> None:
    """Raise DataGateError if too many of the tokens that a run embedded are unknown.

    Unknown tokens represent text that the vocabulary lacks.
    """
    least = LEAST_UNKNOWN_FIRST if run.previous is None else LEAST_UNKNOWN
    if ledger.has_too_many_unknown(run.gates.max_unknown, least):
        unknown = ledger.work["unknown"]
        raise DataGateError(
            f"{unknown} of {ledger.work['known'] + unknown} tokens are unknown to the model,"
            f" which cannot tell such words apart, more than {cite('max_unknown')}"
            f" {run.gates.max_unknown:g} allows; take a model that reads more languages, as"
            f" {MORE_LANGUAGES}, for a new {cite('store')}, or say {cite('max_unknown')} 1"
        )


def check_rows_left(run: Run, rows: int) -> None:
    """Raise DataGateError if these rows are too few after those of the last snapshot."""
    check_deletes(run, run.previous_rows - rows)


def check_deletes(run: Run, deleted: int) -> None:
    """Raise DataGateError if a run deletes more rows than its gate allows."""
    if deleted <= run.gates.max_deletes * run.previous_rows:
        return
    can_append = run.partition == "file" and not run.earlier_globs
    keep = f", or say {cite('append=True')} to keep them" if can_append else ""
    rows = format_count(run.previous_rows, "row")
    raise DataGateError(
        f"{deleted:,} of the {rows} of {run.root} would be deleted, more than {cite('max_deletes')}"
        f" {run.gates.max_deletes:g} allows; see whether all input is there{keep}, or name another"
        f" {cite('store')} for another collection; {cite('max_deletes')} 1 lets them go, and"
        f" `sentence-beam rollback -1 --store {run.root}` brings them back"
    )


def commit(run: Run, plan: RecordedPlan, settled: Settled, index: IndexEntry | None) -> str:
    """Write the run's manifest, make it the current one, and return a line about it.

    Raises SentenceBeamError if the current manifest is no longer the one that this run began with,
    and if an earlier execution of the run had other units.
    """
    _mend_previous(run)
    data = sealed(make_manifest(run, plan, settled, index).to_json())
    path = storage.join(run.root, layout.snapshot(run.id))
    store = storage.storage_of(path)
    if not store.put_if_absent(path, to_bytes(data)):
        earlier = read_manifest(run.root, run.id)  # a retried commit: the first attempt's is kept
        if earlier:
            _check_equal_units(earlier, data)
            data = earlier.data
    current = storage.join(run.root, layout.MANIFEST)
    lost = run.leased and not lease.holds(run.root, run.id)
    try:
        if lost or not store.replace_if(current, to_bytes(data), run.version):
            _check_committed(run, data)
    except storage.UnsyncedError as error:
        return (
            f"{COMMITTED}, but the disk did not confirm it ({current}: {error.strerror or error}):"
            " a power cut may bring back the snapshot before; see to the disk, then run again"
        )
    return COMMITTED


def make_manifest(
    run: Run, plan: RecordedPlan, settled: Settled, index: IndexEntry | None
) -> Manifest:
    """Return the manifest of the snapshot that the run is about to commit."""
    ledger = settled.tally.ledger
    embedded, reused, duplicates = ledger.list_work("embedded", "reused", "duplicates")
    versions = dict(run.versions)
    if settled.tally.devices:
        versions["device"] = ", ".join(sorted(settled.tally.devices))
    begun = run.begun_fields() | {
        "options": replace(run.options, keep_types=_keep_types(run, plan)),
        "versions": versions,
        "canary": run.canary_file.entry(),
        "check_from": (run.check_from + run.check_stride) % ROUND,
        "estimate": update_estimate(run, plan, settled.tally),
    }
    return Manifest(
        **begun,
        root=run.root,
        run=run.id,
        rows=RowCounts(ledger.read, ledger.written, ledger.rejected, ledger.pieces),
        work=WorkCounts(embedded, reused, duplicates, ledger.carried),
        tokens=TokenCounts(*ledger.list_work("real", "padded", "truncated", "lost", "unknown")),
        files=settled.files,
        units=settled.units,
        index=index,
        input=Input(tuple(dict.fromkeys((*run.earlier_globs, *run.globs))), run.tables),
        finished=now(),
        buckets=plan.notes.buckets,
        calibration=calibrations.entry(run.space.calibration),
        chunks=run.options.chunks,
        pending=plan.pending,
        group_bits=plan.notes.group_bits,
    )


def update_estimate(run: Run, plan: RecordedPlan, tally: Tally) -> TokenEstimate:
    """Return the sums of estimated tokens after a run; one with a limit reads parts of spans."""
    if run.options.limit is not None:
        return run.estimate
    return run.estimate.after(plan.tokens, tally.made_tokens)


def _check_equal_units(made: Manifest, data: dict[str, Any]) -> None:
    """Raise SentenceBeamError if an earlier attempt at this commit had other units."""
    if any(
        to_bytes({name: made.data.get(name)}) != to_bytes({name: data[name]})
        for name in ("files", "units")
    ):
        raise SentenceBeamError(
            f"{made.root}: run {made.run} was executed before, with other rows, and a run makes one"
            " snapshot; nothing was committed, make a new graph with a run id of its own"
        )


def _mend_previous(run: Run) -> None:
    """Make the manifest of the previous snapshot equal to `manifest.json`.

    The commit is about to replace the latter.
    """
    current = read_manifest(run.root)
    if current is None or current.version != run.version:
        return
    with contextlib.suppress(SentenceBeamError):
        standing = read_manifest(run.root, current.run)
        if standing is not None and standing.digest == current.digest:
            return
    path = storage.join(run.root, layout.snapshot(current.run))
    storage.replace(
        path, to_bytes({name: value for name, value in current.data.items() if name != FENCE})
    )


def _check_committed(run: Run, data: dict[str, Any]) -> None:
    """Raise SentenceBeamError unless an earlier attempt committed this run."""
    current = read_manifest(run.root)
    if current is not None and current.run == run.id:
        _check_equal_units(current, data)
        return
    standing = current.run if current else None
    if standing == run.previous and run.leased:
        raise lease.lost(run.root)
    if standing == run.previous:
        raise SentenceBeamError(
            f"{run.root}: vacuum removed files while this run worked, and may have taken some that"
            " it counts on; nothing was committed, run again"
        )
    raise SentenceBeamError(
        f"{run.root}: run {standing or '?'} committed while this run worked; nothing of it was"
        " touched, run again"
    )


def _keep_types(run: Run, plan: RecordedPlan) -> dict[str, str]:
    """Return the words for types to remember; the shards have the types of tables."""
    named = {name: word for name, word in run.options.keep_types.items() if word != NO_TYPE}
    types = {
        name: code for name, code in plan.notes.types.items() if is_word(code) or code == NO_TYPE
    }
    return {**types, **named}
