"""Settling: check every planned unit and sum the ledger, by stretches of the units' names.

A stretch with many units writes its parts of the manifest; the few units of another travel on,
packed. So no step has to take more than a few thousand records. `join` sums over all stretches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from sentence_beam.transforms.base.errors import LedgerError, SentenceBeamError
from sentence_beam.transforms.base.measures import Sketches, Stopwatch, Summary, sketched, summaries
from sentence_beam.transforms.calibration.moved import add_sums
from sentence_beam.transforms.store import manifest
from sentence_beam.transforms.store.entries import PartEntry
from sentence_beam.transforms.store.ledger import (
    Ledger,
    check_apart,
    check_bucket_rows,
    check_buckets,
    check_plan,
    pieces_apart,
)
from sentence_beam.transforms.store.manifest_parts import read_parts, write_parts
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.record_bytes import pack, unpack
from sentence_beam.transforms.store.runs.recorded_plan import RecordedPlan, shared_plan
from sentence_beam.transforms.store.runs.stretches import STRETCHES, buckets_in

PARTS_AT_ONCE = 16


@dataclass(frozen=True)
class Tally:
    """Sums over units: the ledger, and other counts of a run's result.

    `stored` are rows of shards. `made` units were not carried over; this run made `own_rows` of
    their rows, and `resumed` counts those of earlier attempts, by their run. `tokens` went through
    the model in this run, `whole` are all tokens of the rows that were not cut off. `moved` are
    sums as in a unit's record, `damaged` shards that could not be reused. `forms` has a shard of
    each form, `devices` the names of the devices that computed vectors.
    """

    units: int = 0
    stored: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    pieces_apart: int = 0
    truncated: int = 0
    tokens: int = 0
    whole: int = 0
    made: int = 0
    own_rows: int = 0
    resumed: dict[str, int] = field(default_factory=dict)
    moved: tuple[float, ...] = ()
    damaged: frozenset[str] = frozenset()
    forms: dict[str, str] = field(default_factory=dict)
    devices: frozenset[str] = frozenset()

    @classmethod
    def of(cls, units: list[UnitRecord], run: str) -> "Tally":
        """Return the sums over the units of a run."""
        made = [unit for unit in units if not unit.carried]
        return cls(
            units=len(units),
            stored=sum(unit.rows for unit in units),
            ledger=Ledger.of(units),
            pieces_apart=pieces_apart(units),
            truncated=sum(unit.truncated for unit in units),
            tokens=sum(unit.real for unit in units if unit.run == run),
            whole=sum(unit.tokens - unit.lost for unit in units),
            made=len(made),
            own_rows=sum(unit.rows for unit in made if unit.run in (run, "")),
            resumed=_count_resumed(made, run),
            moved=add_sums(unit.moved for unit in made),
            damaged=frozenset(path for unit in units for path in unit.damaged),
            forms=_one_shard_a_form(units),
            devices=frozenset(unit.device for unit in made if unit.device),
        )

    def __add__(self, other: "Tally") -> "Tally":
        summed = (
            "units",
            "stored",
            "ledger",
            "pieces_apart",
            "truncated",
            "tokens",
            "whole",
            "made",
            "own_rows",
        )
        return Tally(
            **{name: getattr(self, name) + getattr(other, name) for name in summed},
            resumed=dict(Counter(self.resumed) + Counter(other.resumed)),
            moved=add_sums((self.moved, other.moved)),
            damaged=self.damaged | other.damaged,
            forms=self.forms | other.forms,
            devices=self.devices | other.devices,
        )


def _count_resumed(made: list[UnitRecord], run: str) -> dict[str, int]:
    """Count the units that earlier attempts made, by their run."""
    return dict(Counter(unit.run for unit in made if unit.run not in (run, "")))


def _one_shard_a_form(units: list[UnitRecord]) -> dict[str, str]:
    return {unit.form: unit.path for unit in units if unit.form and unit.path}


@dataclass(frozen=True)
class SettledStretch:
    """The units of a stretch that passed every check.

    They are in `parts` of the manifest, or packed in `sent` if they are few. `figures` are those of
    the units' work, `ms` the time of settling. `fault` says why they did not pass.
    """

    number: int
    tally: Tally = field(default_factory=Tally)
    parts: tuple[PartEntry, ...] = ()
    sent: tuple[bytes, ...] = ()
    figures: Sketches = field(default_factory=dict)
    ms: float = 0.0
    fault: Problem | None = None


@dataclass(frozen=True)
class Settled:
    """All units of a run, checked: in `parts` of the manifest, or packed in `sent`.

    `in_parts` says that the manifest names the parts. `measures` are those of the units' work, `ms`
    is the time of settling.
    """

    tally: Tally
    in_parts: bool
    parts: tuple[PartEntry, ...]
    sent: tuple[bytes, ...]
    measures: dict[str, Summary]
    ms: float

    def units(self, root: str, but: Iterable[PartEntry] = ()) -> Iterator[UnitRecord]:
        """Yield the records of all units except those in some parts, part by part."""
        yield from map(unpack, self.sent)
        for part in read_parts(root, [part for part in self.parts if part not in but]):
            yield from map(UnitRecord.from_dict, part.shards)


class Settler:
    """The check of a run's stretches against its plan, which is read once."""

    def __init__(self, root: str, run: str):
        self._root = root
        self._run = run

    @cached_property
    def _plan(self) -> RecordedPlan:
        return shared_plan(self._root, self._run)

    def settle(self, number: int, packed: Iterable[bytes]) -> SettledStretch:
        """Check the units of a stretch, packed; count a unit that was sent twice once."""
        watch = Stopwatch()
        try:
            with watch.time("settle_ms"):
                made = self._settled(
                    number, sorted(_once(map(unpack, packed)), key=lambda unit: unit.unit)
                )
        except SentenceBeamError as error:
            return SettledStretch(number, fault=Problem.of(error))
        return replace(made, ms=watch.figures["settle_ms"])

    def _settled(self, number: int, units: list[UnitRecord]) -> SettledStretch:
        plan = self._plan
        if plan.buckets is not None:
            check_buckets(plan.buckets, buckets_in(number, plan.buckets.bits), units)
        else:
            check_plan(plan.spans_in(number), units)
        figures = sketched(unit.figures for unit in units)
        made = SettledStretch(number, Tally.of(units, self._run), figures=figures)
        # Twice a stretch's share of the units that fit into the manifest: few parts are written
        # in vain.
        if len(units) > 2 * manifest.UNITS_IN_ONE_FILE // STRETCHES:
            return replace(made, parts=tuple(write_parts(self._root, units, plan.files_in(number))))
        return replace(
            made, sent=tuple(pack(replace(unit, measures={}, moved=())) for unit in units)
        )


def _once(units: Iterable[UnitRecord]) -> list[UnitRecord]:
    """Return the units, each once; raise LedgerError for two different units of one name.

    An engine delivers a unit twice if it retries a bundle.
    """
    seen: dict[str, UnitRecord] = {}
    for unit in units:
        other = seen.setdefault(unit.unit, unit)
        if (other.path, other.sha256, other.range) != (unit.path, unit.sha256, unit.range):
            raise LedgerError(
                f"ledger: unit {unit.unit} was written twice with different rows; nothing committed"
            )
    return list(seen.values())


def join(root: str, plan: RecordedPlan, stretches: Iterable[SettledStretch]) -> Settled:
    """Return all stretches of a run together.

    If units are very many, those that were sent are also written into parts. Raises the error of
    the first fault, and LedgerError if the sums do not add up.
    """
    found = sorted(stretches, key=lambda stretch: stretch.number)
    _check_complete(found)
    tally = reduce(lambda total, stretch: total + stretch.tally, found, Tally())
    tally.ledger.check()
    check_apart(tally.pieces_apart)
    if plan.buckets is not None:
        check_bucket_rows(plan.buckets, tally.ledger.read)
    in_parts = max(tally.units, plan.file_count) > manifest.UNITS_IN_ONE_FILE
    if in_parts:
        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            found = list(pool.map(lambda stretch: _in_parts(root, plan, stretch), found))
    return Settled(
        tally=tally,
        in_parts=in_parts,
        parts=tuple(part for stretch in found for part in stretch.parts),
        sent=tuple(data for stretch in found for data in stretch.sent),
        measures=summaries(stretch.figures for stretch in found),
        ms=sum(stretch.ms for stretch in found),
    )


def _check_complete(found: list[SettledStretch]) -> None:
    """Raise the error of the first fault, or LedgerError unless every stretch is there."""
    for stretch in found:
        if stretch.fault is not None:
            raise stretch.fault.error()
    if [stretch.number for stretch in found] != list(range(STRETCHES)):
        raise LedgerError(
            f"ledger: {len(found)} of {STRETCHES} parts of the units arrived; nothing committed"
        )


def _in_parts(root: str, plan: RecordedPlan, stretch: SettledStretch) -> SettledStretch:
    if stretch.parts:
        return stretch
    units = [unpack(data) for data in stretch.sent]
    files = plan.files_in(stretch.number)
    return replace(stretch, sent=(), parts=tuple(write_parts(root, units, files)))
