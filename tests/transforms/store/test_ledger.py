"""The rules of the ledger, on made-up records: which counts add up, which units were planned."""

from dataclasses import replace

import pytest
from helpers.unit_records import unit_record

from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store.ledger import (
    Ledger,
    PlannedSpan,
    check_bucket_rows,
    check_buckets,
    check_counted,
    check_pieces,
    check_plan,
)
from sentence_beam.transforms.store.records import UnitRecord

COUNTS = {
    "embedded": 1,
    "reused": 2,
    "duplicates": 3,
    "real": 5,
    "padded": 7,
    "truncated": 11,
    "lost": 13,
    "fallbacks": 17,
    "oom_splits": 19,
    "known": 23,
    "unknown": 29,
}


def record(
    unit: str = "a-0", start: int = 0, stop: int | None = 10, rows: int = 6, **values: object
) -> UnitRecord:
    """A unit with some rows."""
    return unit_record(rows, unit=unit, range=(start, stop), **values)


def test_every_count_of_two_units_is_summed() -> None:
    unit = record(read=10, rejected=4, blank=2, forgotten=1, **COUNTS)
    found = vars(Ledger.of([unit, unit]))
    expected = {name: 2 * value for name, value in COUNTS.items() if name != "truncated"}
    whole = {"read": 20, "written": 12, "rejected": 8, "blank": 4, "forgotten": 2, "carried": 0}
    assert found == expected | whole | {"truncated_rows": 22, "pieces": None}


def test_a_carried_unit_counts_rows_alone() -> None:
    unit = record(read=10, rejected=4, blank=2, carried=6, **COUNTS)
    counted = {name: value for name, value in vars(Ledger.of([unit])).items() if value}
    assert counted == {"read": 10, "written": 6, "rejected": 4, "blank": 2, "carried": 6}


def test_documents_are_counted_apart_from_their_pieces() -> None:
    ledger = Ledger.of([record(documents=2, read=3, rejected=1, embedded=6)])
    assert (ledger.read, ledger.written, ledger.pieces) == (3, 2, 6)
    ledger.check()
    with pytest.raises(LedgerError, match="6 pieces written are not 5 embedded"):
        replace(ledger, embedded=5).check()


@pytest.mark.parametrize(
    ("first", "second", "pieces"), [(None, None, None), (3, None, 3), (None, 4, 4), (3, 4, 7)]
)
def test_pieces_of_two_ledgers_are_added_if_any_has_pieces(
    first: int | None, second: int | None, pieces: int | None
) -> None:
    total = Ledger(read=1, unknown=2, pieces=first) + Ledger(read=10, unknown=20, pieces=second)
    assert (total.read, total.unknown, total.pieces) == (11, 22, pieces)


@pytest.mark.parametrize("way", ["embedded", "reused", "duplicates", "carried"])
def test_each_written_row_got_its_vector_in_one_way(way: str) -> None:
    Ledger(read=5, written=4, rejected=1, **{way: 4}).check()
    with pytest.raises(LedgerError, match="4 rows written are not"):
        Ledger(read=5, written=4, rejected=1, **{way: 3}).check()
    with pytest.raises(LedgerError, match="6 rows read are not 4 written"):
        Ledger(read=6, written=4, rejected=1, **{way: 4}).check()


@pytest.mark.parametrize(
    ("known", "unknown", "least", "too_many"),
    [
        (90, 10, 10, False),  # as many as are allowed
        (89, 11, 10, True),
        (89, 11, 11, True),
        (89, 11, 12, False),
        (0, 5, 10, False),
    ],
)
def test_too_many_unknown_tokens_are_a_share_and_a_number(
    known: int, unknown: int, least: int, too_many: bool
) -> None:
    assert Ledger(known=known, unknown=unknown).has_too_many_unknown(0.1, least) == too_many


SPAN = PlannedSpan("a-0", "a.txt", 0, 10, None, carried=False)


def test_a_span_is_tiled_by_its_units_in_any_order() -> None:
    check_plan([SPAN], [record("a-0.1", 4, 10), record("a-0.0", 0, 4)])
    check_plan([replace(SPAN, stop=None)], [record("a-0.0", 0, 4), record("a-0.1", 4, None)])
    # Two units share a document: the first has an empty range.
    check_plan([SPAN], [record("a-0.1", 0, 10), record("a-0.0", 0, 0)])


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ([], "a.txt: planned unit a-0 was not finished"),
        ([record(stop=9)], "a.txt: planned unit a-0 was not finished"),
        ([record(stop=None)], "a.txt: planned unit a-0 was not finished"),
        ([record(start=1)], "unit a-0 is doubled or out of place"),
        ([record(), record("a-0.1")], "unit a-0.1 is doubled or out of place"),
        ([record(stop=None), record("a-0.1", 10)], "is doubled or out of place"),
        ([record(), record("b-0")], "unit b-0 was never planned"),
    ],
)
def test_units_that_are_not_the_planned_ones_are_refused(
    units: list[UnitRecord], said: str
) -> None:
    with pytest.raises(LedgerError, match=said):
        check_plan([SPAN], units)


def test_an_open_span_needs_a_unit_to_the_end_of_the_file() -> None:
    check_plan([replace(SPAN, stop=None)], [record(stop=None)])
    with pytest.raises(LedgerError, match="was not finished"):
        check_plan([replace(SPAN, stop=None)], [record(stop=10)])
    with pytest.raises(LedgerError, match="was not finished"):
        check_plan([replace(SPAN, stop=None)], [])


def test_the_planned_rows_of_a_span_must_all_be_read() -> None:
    check_plan([replace(SPAN, rows=6)], [record()])
    check_plan([replace(SPAN, rows=12)], [record(stop=4), record("a-0.1", 4)])
    with pytest.raises(LedgerError, match="a.txt: 6 rows read of 0 planned in a-0"):
        check_plan([replace(SPAN, rows=0)], [record()])


def test_files_that_no_unit_counts_are_named() -> None:
    check_counted([])
    with pytest.raises(LedgerError, match=r"of a\.txt \(2 such files\)"):
        check_counted(["b.txt", "a.txt"])


BUCKETS = Buckets(bits=2, rows=100, chosen_rows=100, chosen_tokens=1000)


@pytest.mark.parametrize(
    "names",
    [
        ["2-0", "2-1"],
        ["2-1", "2-0.1", "2-0.0"],
        ["2-0.0", "2-0.1", "2-0.2", "2-0.3", "2-1"],
    ],
)
def test_buckets_are_there_whole_or_in_all_their_pieces(names: list[str]) -> None:
    check_buckets(BUCKETS, range(2), map(record, names))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["2-0"], "planned unit 2-1 was not finished"),
        (["2-0.0", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0.0", "2-0.0", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0.0", "2-0.1", "2-0.2", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0", "2-1", "2-2"], "unit 2-2 was never planned"),
        (["2-0", "3-1"], "unit 3-1 was never planned"),
        (["2-0", "a-0.1"], "unit a-0.1 was never planned"),
    ],
)
def test_other_buckets_than_the_planned_ones_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        check_buckets(BUCKETS, range(2), map(record, names))


def test_buckets_hold_as_many_rows_as_were_planned() -> None:
    check_bucket_rows(BUCKETS, 100)
    for read in (99, 101):
        with pytest.raises(LedgerError, match=f"{read} rows read of 100 planned"):
            check_bucket_rows(BUCKETS, read)


def test_pieces_of_a_document_may_be_in_other_units() -> None:
    """The sums over all units agree modulo 2**64."""
    most = f"{2**64 - 1:016x}"
    check_pieces([record(), record(pieces_sum=most), record(pieces_sum="2", documents_sum="1")])
    check_pieces([record(documents_sum="ff"), record(pieces_sum="ff", documents_sum=None)])
    for pieces, documents in (("2", None), (None, "2"), ("ff", "fe")):
        with pytest.raises(LedgerError, match="lacks pieces or has some twice"):
            check_pieces([record(pieces_sum=pieces, documents_sum=documents)])


def test_the_pieces_of_all_units_are_summed() -> None:
    units = [record(documents=2, rows=6), record(documents=1, rows=4), record(rows=3, documents=0)]
    ledger = Ledger.of(units)
    assert (ledger.written, ledger.pieces) == (3, 13)


def test_an_empty_unit_may_begin_where_the_last_one_does() -> None:
    """Of a document that several units hold, all but the last have an empty range."""
    span = replace(SPAN, stop=None)
    check_plan([span], [record("a-0.1", 0, None), record("a-0.0", 0, 0)])
