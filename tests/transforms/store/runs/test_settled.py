"""Units settled by stretches: sums over them, and which sets of units and stretches are refused.

Covers transforms/store/runs/plan.py.
Covers transforms/store/runs/plan_file.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.unit_records import unit_record

from sentence_beam.transforms.base.errors import LedgerError, SentenceBeamError
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store import layout, manifest
from sentence_beam.transforms.store.ledger import Ledger
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.record_bytes import pack
from sentence_beam.transforms.store.runs.recorded_plan import RecordedPlan, read_plan
from sentence_beam.transforms.store.runs.settled import SettledStretch, Settler, Tally, join
from sentence_beam.transforms.store.runs.stretches import STRETCHES, stretch_of

FILE = InputFile("/in/a.txt", "a.txt", "text", "", 100, "sum", "v")
NAME = f"{FILE.key}-{0:012d}"
MOVED = tuple(map(float, range(34)))  # rows, squares, 32 products


def record(unit: str = NAME, rows: int = 4, **values: object) -> UnitRecord:
    """A unit with some embedded rows."""
    given = {"path": layout.shard(unit, "0" * 16), "sha256": "s", "embedded": rows, "run": "run1"}
    return unit_record(rows, unit=unit, **{**given, **values})


def test_a_tally_tells_units_of_this_run_from_resumed_and_carried_ones() -> None:
    units = [
        record(rows=1, real=10, tokens=20, lost=3, truncated=1, form="f" * 16),
        record(rows=2, run="", damaged=("x.parquet",)),
        record(rows=4, run="run0", real=100, pieces_sum="5"),
        record(rows=8, run="run0", damaged=("y.parquet",), moved=MOVED),
        record(rows=16, carried=16, embedded=0, run="run0", form="e" * 16, path=None),
    ]
    found = Tally.of(units, "run1")
    assert (found.units, found.stored, found.made, found.own_rows) == (5, 31, 4, 3)
    assert (found.resumed, found.tokens, found.truncated) == ({"run0": 2}, 10, 1)
    assert (found.whole, found.pieces_apart) == (17 + 4 * 9, 5)
    assert found.ledger.carried == 16
    assert found.damaged == {"x.parquet", "y.parquet"}
    assert found.moved == MOVED
    assert found.forms == {"f" * 16: units[0].path}


def test_the_sum_of_two_tallies_is_the_tally_of_all_units() -> None:
    units = [
        record(rows=1, real=10, truncated=1, form="f" * 16, moved=MOVED, run="run0"),
        record(rows=2, real=20, form="e" * 16, damaged=("x.parquet",), moved=MOVED),
        record(rows=4, run="run0", damaged=("y.parquet",), pieces_sum="7"),
        record(rows=8, run="run2", documents_sum="2", lost=2),
    ]
    whole = Tally.of(units, "run1")
    assert Tally.of(units[:2], "run1") + Tally.of(units[2:], "run1") == whole
    assert whole.resumed == {"run0": 2, "run2": 1}


@pytest.fixture
def plan(tmp_path: Path) -> RecordedPlan:
    """The plan of a run over one file of one span."""
    write_plan(str(tmp_path), "run1", [PlannedFile(FILE, (Span(FILE, 0, 0, 100, tokens=10),))])
    return read_plan(str(tmp_path), "run1")


def settled(root: Path, units: list[UnitRecord]) -> list[SettledStretch]:
    """All stretches of a run with these units."""
    settler = Settler(str(root), "run1")
    return [
        settler.settle(number, [pack(unit) for unit in units if stretch_of(unit.unit) == number])
        for number in range(STRETCHES)
    ]


def test_a_unit_that_is_delivered_twice_counts_once(tmp_path: Path, plan: RecordedPlan) -> None:
    made = join(str(tmp_path), plan, settled(tmp_path, [record(), record(worker="w2")]))
    assert made.tally.units == 1
    assert made.tally.ledger == Ledger(read=4, written=4, embedded=4)
    assert [unit.rows for unit in made.units(str(tmp_path))] == [4]
    assert made.ms > 0


@pytest.mark.parametrize(
    "other", [{"path": layout.shard(NAME, "1" * 16)}, {"sha256": "t"}, {"range": (0, None)}]
)
def test_two_shards_of_one_unit_are_a_fault(
    tmp_path: Path, plan: RecordedPlan, other: dict
) -> None:
    with pytest.raises(LedgerError, match="was written twice with different rows"):
        join(str(tmp_path), plan, settled(tmp_path, [record(), record(**other)]))


def test_the_first_fault_is_raised(tmp_path: Path, plan: RecordedPlan) -> None:
    stretches = settled(tmp_path, [record()])
    stretches[3] = SettledStretch(3, fault=Problem("the first", 3))
    stretches[5] = SettledStretch(5, fault=Problem("the second", 4))
    with pytest.raises(SentenceBeamError, match="the first") as caught:
        join(str(tmp_path), plan, reversed(stretches))
    assert caught.value.exit_code == 3


def test_every_stretch_arrives_once(tmp_path: Path, plan: RecordedPlan) -> None:
    stretches = settled(tmp_path, [record()])
    join(str(tmp_path), plan, reversed(stretches))
    for wrong in (stretches[:-1], [*stretches[:-1], stretches[0]], [*stretches, stretches[0]]):
        with pytest.raises(LedgerError, match=f"{len(wrong)} of 64 parts of the units arrived"):
            join(str(tmp_path), plan, wrong)


def test_documents_without_all_their_pieces_are_refused(tmp_path: Path, plan: RecordedPlan) -> None:
    with pytest.raises(LedgerError, match="a document lacks pieces"):
        join(str(tmp_path), plan, settled(tmp_path, [record(pieces_sum="7", documents_sum="5")]))


def test_measures_of_the_work_stay_out_of_what_is_sent(tmp_path: Path, plan: RecordedPlan) -> None:
    units = [record(measures={"read_ms": 2.5}, moved=MOVED)]
    made = join(str(tmp_path), plan, settled(tmp_path, units))
    assert made.measures["read_ms"]["sum"] == 2.5
    assert made.tally.moved == MOVED
    (sent,) = made.units(str(tmp_path))
    assert (sent.measures, sent.moved) == ({}, ())


BUCKETS = Buckets(bits=1, rows=8, chosen_rows=8, chosen_tokens=80)


@pytest.mark.parametrize(
    ("names", "rows", "said"),
    [
        (["1-0", "1-1"], 4, None),
        (["1-0", "1-1"], 5, "10 rows read of 8 planned"),
        (["1-0"], 8, "planned unit 1-1 was not finished"),
        (["1-0", "1-1", "2-3"], 4, "unit 2-3 was never planned"),
    ],
)
def test_units_by_content_are_checked_by_bucket(
    tmp_path: Path, names: list[str], rows: int, said: str | None
) -> None:
    write_plan(str(tmp_path), "run1", [PlannedFile(FILE)], BUCKETS)
    plan = read_plan(str(tmp_path), "run1")
    stretches = settled(tmp_path, [record(name, rows, file="") for name in names])
    if said is None:
        assert join(str(tmp_path), plan, stretches).tally.ledger.written == 8
        return
    with pytest.raises(LedgerError, match=said):
        join(str(tmp_path), plan, stretches)


@pytest.mark.parametrize(("files", "in_parts"), [(64, False), (65, True)])
def test_units_beyond_those_of_one_file_are_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, in_parts: bool
) -> None:
    monkeypatch.setattr(manifest, "UNITS_IN_ONE_FILE", 64)
    inputs = [replace(FILE, path=f"/in/{n}", relative=f"{n}.txt") for n in range(files)]
    planned = [PlannedFile(file, (Span(file, 0, 0, 100, tokens=10),)) for file in inputs]
    write_plan(str(tmp_path), "run1", planned)
    plan = read_plan(str(tmp_path), "run1")
    units = [record(f"{file.key}-{0:012d}", file=file.relative) for file in inputs]
    stretches = settled(tmp_path, units)
    assert any(stretch.parts for stretch in stretches)
    assert any(stretch.sent for stretch in stretches)
    made = join(str(tmp_path), plan, stretches)
    assert made.in_parts == in_parts
    assert bool(made.sent) == (not in_parts)
    assert sorted(unit.unit for unit in made.units(str(tmp_path))) == sorted(
        unit.unit for unit in units
    )
    if made.parts:
        rest = list(made.units(str(tmp_path), made.parts[:1]))
        assert len(rest) == files - made.parts[0].units
