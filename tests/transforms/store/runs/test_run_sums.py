"""Sums over the units of a run: the ledger, and what its record tells."""

from dataclasses import replace

import pytest
from helpers.unit_records import made_table, unit_record

from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.calibration.moved import DIRECTIONS
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.ledger import check_apart
from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS, UnitRecord
from sentence_beam.transforms.store.runs.run_sums import Sums, Tally
from sentence_beam.transforms.store.tables.table_columns import make_units_table

WORK = {name: 3 + place for place, name in enumerate(WORK_COUNTS)}
KEPT = {"read": 10, "rejected": 4, "blank": 2, "forgotten": 1, "truncated": 11, "lost": 13}


def summed(made: list[UnitRecord], carried: list[UnitRecord] | None = None) -> Sums:
    """The sums of a run with these units."""
    sums = Sums("run2")
    sums.add_made(made_table(made))
    sums.add_carried(make_units_table(carried or []))
    sums.add_units(make_units_table(carried or []))
    sums.add_units(make_units_table(made))
    return sums


def tally(made: list[UnitRecord], carried: list[UnitRecord] | None = None) -> Tally:
    return summed(made, carried).tally()


def test_every_count_of_two_units_is_summed() -> None:
    unit = unit_record(6, **KEPT, **WORK)
    ledger = tally([unit, unit]).ledger
    kept = {name: 2 * getattr(unit, name) for name in KEPT_COUNTS}
    assert ledger.kept == {**kept, "units": 2, "written": 12, "carried": 0}
    assert ledger.work == {
        **{name: 2 * value for name, value in WORK.items()},
        "lost": 26,
        "truncated": 22,
    }
    said = ledger.to_json()
    assert (said["read"], said["truncated_rows"], said["lost"], said["pieces"]) == (
        20,
        22,
        26,
        None,
    )


def test_a_carried_unit_counts_its_rows_and_no_work() -> None:
    found = tally([], [unit_record(6, **KEPT, **WORK)])
    ledger = found.ledger
    assert (ledger.read, ledger.written, ledger.rejected, ledger.carried) == (10, 6, 4, 6)
    assert ledger.expected == 3
    assert set(ledger.work.values()) == {0}
    assert (found.units, found.stored, found.truncated, found.made) == (1, 6, 11, 0)
    ledger.check()


def test_of_carried_and_made_units_both_are_in_the_sums() -> None:
    found = tally([unit_record(5, embedded=5)], [unit_record(7, tokens=20, lost=3)])
    found.ledger.check()
    assert (found.ledger.written, found.ledger.carried, found.units, found.stored) == (12, 7, 2, 12)
    assert found.whole == 9 + 17


def test_documents_are_counted_apart_from_their_pieces() -> None:
    units = [unit_record(rows, documents=n) for rows, n in ((6, 2), (4, 1), (3, 0))]
    ledger = tally(units[:2], units[2:]).ledger
    assert (ledger.written, ledger.pieces, ledger.carried) == (3, 13, 3)


def test_pieces_of_a_document_may_be_in_other_units() -> None:
    """The sums over all units agree modulo 2**64."""
    most = f"{2**64 - 1:016x}"
    zero, one, two = (f"{n:016x}" for n in range(3))
    for pieces in (
        [(None, None), (most, zero), (two, one)],
        [(zero, f"{255:016x}"), (f"{255:016x}", zero)],
    ):
        units = [unit_record(1, pieces_sum=a, documents_sum=b) for a, b in pieces]
        for made in range(len(units) + 1):
            check_apart(int(summed(units[:made], units[made:]).pieces_apart[0]))
    with pytest.raises(LedgerError, match="lacks pieces or has some twice"):
        check_apart(
            int(summed([unit_record(1, pieces_sum=two, documents_sum=one)]).pieces_apart[0])
        )


def test_the_work_of_other_attempts_is_resumed() -> None:
    units = [
        unit_record(1, run="run2", real=10),
        unit_record(2, run="run1", real=20),
        unit_record(3, run="run1", real=30),
        unit_record(4, run="", real=40),  # was found as it stood
    ]
    found = tally(units, [unit_record(5, run="run1")])
    assert (found.made, found.own_rows, found.tokens) == (4, 5, 10)
    assert found.resumed == {"run1": 2}


def test_devices_damage_and_sums_of_moves_are_put_together() -> None:
    path = layout.shard("0123456789abcdef-000000000000", "0" * 16)
    units = [
        unit_record(1, device="cpu", damaged=(path,), moved=(1.0,) * (2 + DIRECTIONS)),
        unit_record(1, device="H100", damaged=(path, path.replace("0", "1"))),
        unit_record(1, moved=(0.5,) * (2 + DIRECTIONS)),
    ]
    found = tally(units)
    assert found.devices == {"cpu", "H100"}
    assert found.damaged == {path, path.replace("0", "1")}
    assert found.moved == (1.5,) * (2 + DIRECTIONS)


def test_each_form_has_a_shard() -> None:
    shards = [layout.shard(f"{n:016x}-{0:012d}", "0" * 16) for n in range(3)]
    forms = ["a" * 16, "b" * 16, "a" * 16]
    units = [
        unit_record(1, unit=f"{n:016x}-{0:012d}", path=shards[n], form=forms[n]) for n in range(3)
    ]
    empty = replace(units[0], path=None, form="c" * 16)
    assert tally(units[:1], [*units[1:], empty]).forms == {
        "a" * 16: shards[2],
        "b" * 16: shards[1],
    }


def test_figures_are_of_units_that_were_measured() -> None:
    units = [
        unit_record(4, real=100, bytes=7, measures={"read_ms": 1.5, "forward_ms": 50.0}),
        unit_record(6, real=300, bytes=9, measures={"read_ms": 2.5}),
        unit_record(8, real=500),
    ]
    sums = Sums("run")
    for unit in units:
        sums.add_made(made_table([unit]))
    found = sums.measures
    assert {name: (figure["count"], figure["sum"]) for name, figure in found.items()} == {
        "read_ms": (2, 4.0),
        "forward_ms": (1, 50.0),
        "unit_rows": (2, 10),
        "unit_tokens": (2, 400),
        "unit_bytes": (2, 16),
        "device_tokens_s": (1, 2000.0),
    }
    assert Sums("run").measures == {}


def test_of_many_units_counts_and_sums_are_exact_and_quantiles_close() -> None:
    sums = Sums("run")
    for start in range(0, 3000, 1000):
        units = [unit_record(1, measures={"read_ms": float(n)}) for n in range(start, start + 1000)]
        sums.add_made(made_table(units))
    found = sums.measures["read_ms"]
    assert (found["count"], found["sum"], found["max"]) == (3000, 3000 * 2999 / 2, 2999)
    assert abs(found["p50"] - 1500) < 10
    assert abs(found["p95"] - 2850) < 10


def test_the_share_of_unknown_tokens_is_of_what_a_run_embedded() -> None:
    ledger = tally(
        [unit_record(1, known=60, unknown=40)], [unit_record(1, known=0, unknown=500)]
    ).ledger
    assert ledger.list_work("known", "unknown") == [60, 40]
    assert ledger.has_too_many_unknown(0.3, 10)
    assert not ledger.has_too_many_unknown(0.4, 10)
    assert not ledger.has_too_many_unknown(0.3, 41)
    assert not tally([]).ledger.has_too_many_unknown(0, 1)
