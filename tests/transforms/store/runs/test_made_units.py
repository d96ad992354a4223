"""Units on their way to the commit: packed by stretch, each once."""

import random
from dataclasses import replace

import pytest
from helpers.unit_records import made_table, unit_record

from sentence_beam.transforms.base.arrow_arrays import read_stream
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import made_units
from sentence_beam.transforms.store.runs.made_units import (
    assign_stretch,
    drop_repeated,
    join_stretches,
    pack,
)
from sentence_beam.transforms.store.tables.table_columns import list_values, make_records

SHARD = {
    "path": f"embeddings/{make_key('a')}-{0:012d}-{'0' * 16}.parquet",
    "sha256": "5" * 64,
    "form": "6" * 16,
}


def unit(name: str = "a", **values: object) -> UnitRecord:
    """The first unit of a file, with a shard."""
    return unit_record(3, unit=f"{make_key(name)}-{0:012d}", file=name, **SHARD, **values)


EMPTY = unit_record(0, unit=f"{make_key('empty')}-{0:012d}", file="empty", range=(0, None))


def test_units_come_back_sorted_and_each_once() -> None:
    units = [*map(unit, "abcdef"), EMPTY]
    several = [list_values(one) for one in (*units, units[2], EMPTY, units[2])]
    for seed in range(3):
        random.Random(seed).shuffle(several)
        found = make_records(read_stream(pack(several)))
        assert found == sorted(units, key=lambda one: one.unit)
    assert not len(read_stream(pack([])))


def test_the_same_units_are_the_same_bytes() -> None:
    units = [list_values(unit(name)) for name in "abc"]
    assert pack(units) == pack([*reversed(units), units[0]])


@pytest.mark.parametrize(
    "other",
    [
        {"sha256": "7" * 64},
        {"sha256": None, "path": None},
        {"path": SHARD["path"].replace("0" * 16, "1" * 16)},
        {"range": (0, 99)},
        {"range": (1, 100)},
        {"range": (0, None)},
    ],
)
def test_two_different_units_of_one_name_are_refused(other: dict) -> None:
    first = unit()
    second = replace(first, **other)
    said = f"^ledger: unit {first.unit} was written twice with different rows; nothing committed$"
    for pair in ((first, second), (second, first)):
        with pytest.raises(LedgerError, match=said):
            pack(map(list_values, [unit("b"), *pair, unit("b")]))
        with pytest.raises(LedgerError, match=said):
            drop_repeated(made_table([unit("b"), unit("c"), *pair]))


def test_a_unit_that_another_attempt_made_is_the_same_unit() -> None:
    """Its counts of work may differ: a retried bundle finds the shard instead of making it."""
    (found,) = make_records(
        drop_repeated(made_table([unit(embedded=3, run="run1"), unit(reused=3, run="run2")]))
    )
    assert found.run == "run1"


def test_the_stretch_of_a_unit_is_the_order_of_its_name() -> None:
    units = [unit(f"{n}") for n in range(300)]
    found = sorted((assign_stretch(one)[0], one.unit) for one in units)
    assert [name for _, name in found] == sorted(one.unit for one in units)
    assert {number for number, _ in found} <= {*range(64)}
    assert len({number for number, _ in found}) > 50


def stretches(*numbers: int) -> list[tuple[int, bytes]]:
    """Packed units of these stretches, two of each."""
    names = [[f"{number * 4:02x}{n}{'0' * 13}-{0:012d}" for n in range(2)] for number in numbers]
    units = [[replace(unit(), unit=name) for name in some] for some in names]
    return [
        (number, pack(map(list_values, some))) for number, some in zip(numbers, units, strict=True)
    ]


@pytest.mark.parametrize(
    ("rows", "bounds"),
    [
        (100_000, [(0, 64)]),
        (4, [(0, 5), (5, 64)]),
        (3, [(0, 2), (2, 5), (5, 63), (63, 64)]),
        (1, [(0, 0), (0, 2), (2, 5), (5, 63), (63, 64)]),
    ],
)
def test_all_stretches_are_yielded_some_rows_together(
    monkeypatch: pytest.MonkeyPatch, rows: int, bounds: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(made_units, "ROWS_AT_ONCE", rows)
    found = list(join_stretches(stretches(63, 2, 5, 0)))
    assert [(first, after) for first, after, _ in found] == bounds
    names = [name for *_, table in found for name in table["unit"].to_pylist()]
    assert names == sorted(names)
    assert len(names) == 8


def test_without_a_unit_there_is_one_table_of_all_stretches() -> None:
    ((first, after, table),) = join_stretches([])
    assert (first, after, len(table)) == (0, 64, 0)


@pytest.mark.parametrize("number", [0, 7, 63])
@pytest.mark.parametrize("rows", [1, 100_000])
def test_a_stretch_that_came_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch, number: int, rows: int
) -> None:
    monkeypatch.setattr(made_units, "ROWS_AT_ONCE", rows)
    twice = [*stretches(0, 7, 63), *stretches(number)]
    with pytest.raises(LedgerError, match=f"part {number} of the units came twice"):
        list(join_stretches(twice))
