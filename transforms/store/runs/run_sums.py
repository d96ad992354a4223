"""Sums over the units of a run: the ledger, and what the record of the run tells beside it."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.columns import find_equals, get_column, get_numbers, sum_column
from sentence_beam.transforms.base.measures import OWN_FIGURES, Summary, summarise
from sentence_beam.transforms.calibration.moved import add_sums
from sentence_beam.transforms.store.ledger import Ledger
from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS
from sentence_beam.transforms.store.tables.file_rows import count_written

CUT_OFF = ("lost", "truncated")  # counts that snapshots keep, and of which the work is told too


@dataclass(frozen=True)
class Tally:
    """The sums over the units of a run.

    `units` and `stored` count those of the snapshot, and rows of their shards. `made` units were
    not carried over and have `made_tokens`, those cut off not counted; this run made `own_rows` of
    their rows, and `resumed` counts those of earlier
    attempts, by their run. `tokens` went through the model in this run, `whole` are all tokens of
    the rows that were not cut off, `truncated` are all truncated rows. `moved` are sums as in a
    unit's record, `damaged` shards that could not be reused. `forms` has a shard of each form,
    `devices` the names of the devices that computed vectors.
    """

    ledger: Ledger
    units: int = 0
    stored: int = 0
    truncated: int = 0
    tokens: int = 0
    whole: int = 0
    made: int = 0
    own_rows: int = 0
    made_tokens: int = 0
    resumed: dict[str, int] = field(default_factory=dict)
    moved: tuple[float, ...] = ()
    damaged: frozenset[str] = frozenset()
    forms: dict[str, str] = field(default_factory=dict)
    devices: frozenset[str] = frozenset()


class Sums:
    """Adds up the units of a run, some at a time.

    `pieces_apart` is the sum of the units' pieces less that of their documents' pieces, modulo
    2**64.
    """

    def __init__(self, run: str):
        self._run = run
        self._kept: Counter[str] = Counter()
        self._work: Counter[str] = Counter()
        self._own: Counter[str] = Counter()
        self._resumed: Counter[str] = Counter()
        self._moved: tuple[float, ...] = ()
        self._damaged: set[str] = set()
        self._devices: set[str] = set()
        self._forms: dict[str, str] = {}
        self._has_pieces = False
        self._figures: dict[str, list[np.ndarray]] = {}
        self.pieces_apart = np.zeros(1, np.uint64)

    def add_units(self, units: pa.Table) -> None:
        """Add units of the snapshot, carried or made."""
        for name in KEPT_COUNTS:
            self._kept[name] += sum_column(units, name)
        self._kept["units"] += len(units)
        self._kept["written"] += int(count_written(units).sum())
        documents = units.filter(units.column("documents").is_valid())
        self._has_pieces |= bool(len(documents))
        self._kept["pieces"] += sum_column(documents, "rows")
        self.pieces_apart += np.sum(get_numbers(units, "pieces_sum"), dtype=np.uint64)
        self.pieces_apart -= np.sum(get_numbers(units, "documents_sum"), dtype=np.uint64)
        shards = units.select(["form", "path"]).drop_null()
        for form in shards.column("form").unique().to_pylist():
            place = pc.index(shards.column("form"), form).as_py()
            self._forms.setdefault(form, shards.column("path")[place].as_py())

    def add_carried(self, units: pa.Table) -> None:
        """Count the rows of units that are carried over; `add_units` adds the rest."""
        self._kept["carried"] += sum_column(units, "rows")

    def add_made(self, made: pa.Table) -> None:
        """Add the work of units that were made; `add_units` adds the rest."""
        for name in (*WORK_COUNTS, *CUT_OFF):
            self._work[name] += sum_column(made, name)
        is_own = find_equals(made.column("run"), pa.array([self._run] * len(made), pa.string()))
        is_named = ~find_equals(made.column("run"), pa.array([""] * len(made), pa.string()))
        self._own["made"] += len(made)
        self._own["made_tokens"] += sum_column(made, "tokens") - sum_column(made, "lost")
        self._own["rows"] += int(get_numbers(made, "rows")[is_own | ~is_named].sum())
        self._own["tokens"] += int(get_numbers(made, "real")[is_own].sum())
        others = made.column("run").filter(pa.array(is_named & ~is_own))
        self._resumed.update(others.to_pylist())
        self._damaged.update(get_column(made, "damaged").flatten().to_pylist())
        self._devices.update(filter(None, made.column("device").unique().to_pylist()))
        moved = (tuple(sums) for sums in made.column("moved").to_pylist())
        self._moved = add_sums((self._moved, *moved))
        self._add_figures(made)

    def _add_figures(self, made: pa.Table) -> None:
        figures = {}
        for name in OWN_FIGURES:
            values = pc.fill_null(get_column(made, name), float("nan"))
            figures[name] = np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
        is_measured = ~np.all(np.isnan([*figures.values()]), axis=0)
        tokens = np.where(is_measured, get_numbers(made, "real"), np.nan)
        figures["unit_rows"] = np.where(is_measured, get_numbers(made, "rows"), np.nan)
        figures["unit_tokens"] = tokens
        figures["unit_bytes"] = np.where(is_measured, get_numbers(made, "bytes"), np.nan)
        for name, timed in (("host_tokens_s", "tokenise_ms"), ("device_tokens_s", "forward_ms")):
            there = (figures[timed] > 0) & (tokens > 0)
            spent = np.where(there, figures[timed], np.nan)
            figures[name] = np.round(1000 * tokens / spent, 1)
        for name, values in figures.items():
            kind = np.float32 if name in OWN_FIGURES else np.float64
            there = values[~np.isnan(values)].astype(kind)
            self._figures.setdefault(name, []).append(there)

    @property
    def measures(self) -> dict[str, Summary]:
        """Summaries of the figures of the work; quantiles are exact up to 512 units."""
        summaries: dict[str, Summary] = {}
        for name, parts in self._figures.items():
            values = np.concatenate(parts)
            if len(values):
                summaries[name] = summarise(values.tolist())
        return summaries

    def tally(self) -> Tally:
        """Return the sums over all units."""
        kept = {name: count for name, count in self._kept.items() if name != "pieces"}
        if self._has_pieces:
            kept["pieces"] = self._kept["pieces"]
        return Tally(
            ledger=Ledger(kept, dict(self._work)),
            units=self._kept["units"],
            stored=self._kept["rows"],
            truncated=self._kept["truncated"],
            tokens=self._own["tokens"],
            whole=self._kept["tokens"] - self._kept["lost"],
            made=self._own["made"],
            own_rows=self._own["rows"],
            made_tokens=self._own["made_tokens"],
            resumed=dict(self._resumed),
            moved=self._moved,
            damaged=frozenset(self._damaged),
            forms=self._forms,
            devices=frozenset(self._devices),
        )
