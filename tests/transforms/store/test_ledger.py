"""The rules of the ledger over columns: which counts add up, which units were planned."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.unit_records import made_table, unit_record

from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store.ledger import (
    Ledger,
    check_apart,
    check_bucket_rows,
    check_buckets,
    check_counted,
    check_tiles,
)
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.recorded_plan import PLAN


def record(
    unit: str = "a-0", start: int = 0, stop: int | None = 10, rows: int = 6, **values: object
) -> UnitRecord:
    """A unit with some rows."""
    return unit_record(rows, unit=unit, range=(start, stop), **values)


@pytest.mark.parametrize("way", ["embedded", "reused", "duplicates", "carried"])
def test_each_written_row_got_its_vector_in_one_way(way: str) -> None:
    sums(read=5, written=4, rejected=1, **{way: 4}).check()
    with pytest.raises(LedgerError, match="4 rows written are not"):
        sums(read=5, written=4, rejected=1, **{way: 3}).check()
    with pytest.raises(LedgerError, match="6 rows read are not 4 written"):
        sums(read=6, written=4, rejected=1, **{way: 4}).check()


def sums(**counts: int) -> Ledger:
    """A ledger of these counts, of the run's work and of the snapshot."""
    return Ledger(counts, counts)


def test_documents_are_counted_apart_from_their_pieces() -> None:
    Ledger({"read": 3, "written": 2, "rejected": 1, "pieces": 6}, {"embedded": 6}).check()
    with pytest.raises(LedgerError, match="6 pieces written are not 5 embedded"):
        Ledger({"read": 3, "written": 2, "rejected": 1, "pieces": 6}, {"embedded": 5}).check()


@pytest.mark.parametrize(
    ("known", "unknown", "least", "too_many"),
    [
        (90, 10, 10, False),  # as many as are allowed
        (89, 11, 10, True),
        (89, 11, 11, True),
        (89, 11, 12, False),
        (1, 5, 10, False),
    ],
)
def test_too_many_unknown_tokens_are_a_share_and_a_number(
    known: int, unknown: int, least: int, too_many: bool
) -> None:
    assert sums(known=known, unknown=unknown).has_too_many_unknown(0.1, least) == too_many


@pytest.mark.parametrize(
    ("others", "share", "too_many"),
    [
        ({}, 0.3, True),
        ({}, 1.0, False),
        ({"known": 1}, 0.3, False),
        ({"reused": 1}, 0.3, False),
        ({"carried": 1}, 0.3, False),
    ],
)
def test_one_unknown_token_is_too_many_for_a_store_without_a_known_one(
    others: dict[str, int], share: float, too_many: bool
) -> None:
    assert sums(unknown=1, **others).has_too_many_unknown(share, 100) == too_many
    assert not sums(unknown=0, **others).has_too_many_unknown(share, 100)


def spans(*rows: tuple[str, int, int | None, int | None]) -> pa.Table:
    """Planned spans of the files f0.txt, f1.txt ...: name, start, stop and rows of each."""
    values = [dict(zip(("name", "start", "stop", "rows"), row, strict=True)) for row in rows]
    return pa.Table.from_pylist(
        [{"place": place, **value} for place, value in enumerate(values)],
        pa.schema(
            [("name", pa.string())]
            + [(name, pa.int64()) for name in ("place", "start", "stop", "rows")]
        ),
    )


def tiled(planned: pa.Table, *units: UnitRecord) -> None:
    """Check units against planned spans."""
    paths = pa.chunked_array([[f"f{place}.txt" for place in range(len(planned))]], pa.string())
    check_tiles(planned, made_table(units), paths)


SPAN = spans(("a-0", 0, 10, None))
OPEN = spans(("a-0", 0, None, None))


def test_a_span_is_tiled_by_its_units_in_any_order() -> None:
    tiled(SPAN, record("a-0.1", 4, 10), record("a-0.0", 0, 4))
    tiled(OPEN, record("a-0.0", 0, 4), record("a-0.1", 4, None))
    tiled(SPAN.slice(0, 0))


@pytest.mark.parametrize("count", [2, 3, 11])
@pytest.mark.parametrize("planned", [SPAN, OPEN])
def test_a_document_that_several_units_hold_ends_in_the_last(planned: pa.Table, count: int) -> None:
    """All units but the last have an empty range; names sort `.10` before `.2`."""
    stop = planned.column("stop")[0].as_py()
    units = [record(f"a-0.{n}", 0, 0) for n in range(count - 1)]
    tiled(planned, *units, record(f"a-0.{count - 1}", 0, stop))
    tiled(planned, record(f"a-0.{count - 1}", 0, stop), *units)


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ([], "f0.txt: planned unit a-0 was not finished"),
        ([record(stop=9)], "f0.txt: planned unit a-0 was not finished"),
        ([record(stop=None)], "f0.txt: planned unit a-0 was not finished"),
        ([record(start=1)], "unit a-0 is doubled or out of place"),
        ([record(), record("a-0.1")], "unit a-0.1 is doubled or out of place"),
        ([record(stop=4), record("a-0.1", 5)], "unit a-0.1 is doubled or out of place"),
        ([record(stop=6), record("a-0.1", 5)], "unit a-0.1 is doubled or out of place"),
        ([record(stop=None), record("a-0.1", 10)], "is doubled or out of place"),
        ([record(), record("b-0")], "unit b-0 was never planned"),
        ([record(), record("a-00")], "unit a-00 was never planned"),
    ],
)
def test_units_that_are_not_the_planned_ones_are_refused(
    units: list[UnitRecord], said: str
) -> None:
    with pytest.raises(LedgerError, match=said):
        tiled(SPAN, *units)


def test_an_open_span_needs_a_unit_to_the_end_of_the_file() -> None:
    tiled(OPEN, record(stop=None))
    for units in ([], [record(stop=10)]):
        with pytest.raises(LedgerError, match="was not finished"):
            tiled(OPEN, *units)


def test_the_planned_rows_of_a_span_must_all_be_read() -> None:
    tiled(spans(("a-0", 0, 10, 6)), record())
    tiled(spans(("a-0", 0, 10, 12)), record(stop=4), record("a-0.1", 4))
    for rows in (0, 5, 7):
        with pytest.raises(LedgerError, match=f"f0.txt: 6 rows read of {rows} planned in a-0"):
            tiled(spans(("a-0", 0, 10, rows)), record())


@pytest.mark.parametrize("place", range(3))
def test_the_file_of_the_span_that_lacks_a_unit_is_named(place: int) -> None:
    planned = spans(*((name, 0, 10, None) for name in ("c-0", "a-0", "b-0")))
    units = [record(name) for name in planned.column("name").to_pylist()]
    tiled(planned, *units)
    lost = units.pop(place)
    with pytest.raises(LedgerError, match=f"f{place}.txt: planned unit {lost.unit} was not"):
        tiled(planned, *units)
    with pytest.raises(LedgerError, match=f"f{place}.txt: unit {lost.unit} is doubled or out of"):
        tiled(planned, *units, record(lost.unit, 3))


def plan(*files: dict[str, object]) -> pa.Table:
    """Files of a plan with some values; others are those of a file of nine bytes that is read."""
    counts = {"units": 0, "rows": 0, "read": 0, "written": 0}
    same = {
        "format": "text",
        "checksum": "c",
        "version": "v",
        "size": 9,
        "carried": False,
        **counts,
    }
    rows = [{"path": f"f{place}.txt", **same, **file} for place, file in enumerate(files)]
    return pa.Table.from_pylist(rows, PLAN)


SPANS = [{"number": 0, "start": 0, "row_groups": []}]
GROUP = {"group": "f0-0", "spans": SPANS}


@pytest.mark.parametrize(
    ("files", "units"),
    [
        ([], []),
        ([{"spans": SPANS}], [1]),
        ([{"size": 0}], [0]),
        ([{"spans": []}], [0]),  # opened, and it has no row
        ([{"carried": True, "units": 2}], [2]),
        ([{"carried": True}], [0]),  # it had none before
        ([GROUP, GROUP], [1, 0]),  # a group counts for all its files
        ([GROUP, {"spans": SPANS}, GROUP | {"group": "f0-1"}], [1, 2, 1]),
    ],
)
def test_files_whose_rows_are_counted(files: list[dict], units: list[int]) -> None:
    check_counted(plan(*files), np.array(units, np.int64))


@pytest.mark.parametrize(
    ("files", "units", "said"),
    [
        ([{"spans": SPANS}], [0], r"of f0.txt \(1 such files\)"),
        ([{}], [0], r"of f0.txt \(1 such files\)"),
        ([{"carried": True, "units": 2}], [0], r"of f0.txt \(1 such files\)"),
        ([{"spans": SPANS}] * 3, [1, 0, 0], r"of f1.txt \(2 such files\)"),
        ([GROUP, GROUP], [0, 0], r"of f0.txt \(2 such files\)"),
        ([GROUP, GROUP | {"group": "f0-1"}], [1, 0], r"of f1.txt \(1 such files\)"),
        ([GROUP | {"carried": True}, {"spans": SPANS}], [0, 1], r"of f0.txt \(1 such files\)"),
    ],
)
def test_files_that_no_unit_counts_are_named(
    files: list[dict], units: list[int], said: str
) -> None:
    with pytest.raises(LedgerError, match=f"no unit counts the rows {said}"):
        check_counted(plan(*files), np.array(units, np.int64))


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
    check_buckets(BUCKETS, range(2), made_table(map(record, names)))


def test_buckets_in_the_middle_are_counted_from_the_first_of_them() -> None:
    check_buckets(BUCKETS, range(2, 4), made_table(map(record, ["2-3", "2-2.1", "2-2.0"])))
    check_buckets(BUCKETS, range(4, 4), made_table([]))
    with pytest.raises(LedgerError, match="planned unit 2-3 was not finished"):
        check_buckets(BUCKETS, range(2, 4), made_table([record("2-2")]))
    with pytest.raises(LedgerError, match="unit 2-1 was never planned"):
        check_buckets(BUCKETS, range(2, 4), made_table(map(record, ["2-1", "2-2", "2-3"])))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["2-0"], "planned unit 2-1 was not finished"),
        (["2-0.0", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0.0", "2-0.0", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0.0", "2-0.2", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0.0", "2-0.1", "2-0.3", "2-0.3", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0.0", "2-0.1", "2-0.2", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0", "2-0.0", "2-0.1", "2-1"], "planned unit 2-0 was not finished"),
        (["2-0", "2-1", "2-2"], "unit 2-2 was never planned"),
        (["2-0", "3-1"], "unit 3-1 was never planned"),
        (["2-0", "a-0.1"], "unit a-0.1 was never planned"),
    ],
)
def test_other_buckets_than_the_planned_ones_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        check_buckets(BUCKETS, range(2), made_table(map(record, names)))


def test_buckets_hold_as_many_rows_as_were_planned() -> None:
    check_bucket_rows(BUCKETS, 100)
    for read in (99, 101):
        with pytest.raises(LedgerError, match=f"{read} rows read of 100 planned"):
            check_bucket_rows(BUCKETS, read)


@pytest.mark.parametrize("pieces", [0, 2**64, -(2**64)])
def test_sums_of_pieces_are_equal_modulo_2_to_the_64(pieces: int) -> None:
    check_apart(pieces)
    for apart in (pieces + 1, pieces - 1):
        with pytest.raises(LedgerError, match="lacks pieces or has some twice"):
            check_apart(apart)
