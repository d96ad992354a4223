"""Random nights of a store's two tables against a plain model, and faults in them.

Files come, go, change and are renamed; small ones share groups; nights append, read by content, or
replace units. After each night both tables and all sums are those of the model, parts are those of
the rows alone, and each of many faults is refused.
"""

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.ledger_model import REPLACES, Night, Past, Row, World, name_of, plan_table, travelled
from helpers.snapshots import small_parts

from sentence_beam.transforms.base.errors import LedgerError, SentenceBeamError
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.runs import made, settling
from sentence_beam.transforms.store.runs.recorded_plan import PlanNotes, RecordedPlan
from sentence_beam.transforms.store.runs.settling import Settled, settle_units
from sentence_beam.transforms.store.tables import table_parts
from sentence_beam.transforms.store.tables.table_columns import FILES, UNITS
from sentence_beam.transforms.store.tables.table_parts import read_table, write_table

Tables = tuple[TableEntry, TableEntry]
NOTHING = TableEntry()
NEVER = Past({}, {})
FAULTS_A_NIGHT = 3
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 80))]


@pytest.mark.parametrize("seed", SEEDS)
def test_nights_are_those_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rows = (2, 1, 4, 16)[seed % 4]
    small_parts(monkeypatch, rows)
    monkeypatch.setattr(made, "ROWS_AT_ONCE", (5, 1, 20, 100_000)[seed // 2 % 4])
    monkeypatch.setattr(settling, "ROWS_AT_ONCE", 3 * rows)
    world = World(seed, by_documents=seed % 3 == 2)
    kinds = Counter(kind for kind in nights(str(tmp_path), world, 6))
    assert {"by file", "by content"} <= kinds.keys()


def nights(root: str, world: World, count: int) -> Iterator[str]:
    """Go through nights, by file and by content beside each other; yield what each was."""
    rng = world.rng
    by_file: tuple[Tables, Past] = ((NOTHING, NOTHING), NEVER)
    by_content = by_file
    bits = 0
    for _ in range(count):
        world.change()
        append = rng.random() < 0.2
        by_file = settled(root, world.night(by_file[1], append), *by_file, rng)
        yield "appended" if append else "by file"
        if rng.random() < 0.3:
            replaces = rng.choice(REPLACES)
            by_file = settled(root, world.replacing(by_file[1], replaces, None), *by_file, rng)
            yield replaces
        if by_content[1].units and rng.random() < 0.4:
            replaced = world.replacing(by_content[1], rng.choice(REPLACES), bits)
            by_content = settled(root, replaced, *by_content, rng)
            yield "replaced by content"
            continue
        night = world.content_night()
        assert night.buckets is not None
        bits = night.buckets[0]
        by_content = settled(root, night, *by_content, rng)
        yield "by content"


def settled(
    root: str, night: Night, last: Tables, past: Past, rng: random.Random
) -> tuple[tuple[TableEntry, TableEntry], Past]:
    """Settle a night, and compare it with the model; its faults are refused before."""
    for fault in rng.sample(FAULTS, FAULTS_A_NIGHT):
        for place in (0, -1):
            fault(root, night, last, past, place, f"{fault.__name__} {place}")
    before = {path: path.stat().st_mtime_ns for path in Path(root).rglob("*.parquet")}
    several = [*night.made, *rng.sample(night.made, min(2, len(night.made)))]  # delivered twice
    rng.shuffle(several)
    found = run(root, night, several, last)
    compare(root, night, found)
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before, "a part was written again"
    new = {f"{part.path}" for table in (found.files, found.units) for part in table.parts}
    there = {str(path.relative_to(root)) for path in Path(root).rglob("*.parquet")}
    assert new <= there
    return (found.files, found.units), Past(
        {row["path"]: row for row in night.files}, dict(night.units)
    )


def run(root: str, night: Night, units: list[Row], last: Tables) -> Settled:
    """Settle a plan and units on top of a snapshot."""
    return run_packed(root, night, travelled(units), last)


def run_packed(root: str, night: Night, packed: list[tuple[int, bytes]], last: Tables) -> Settled:
    """Settle a plan and units by stretch on top of a snapshot."""
    buckets = night.buckets and Buckets(night.buckets[0], night.buckets[1], 1, 1)
    notes = PlanNotes(buckets=buckets, replaces=night.replaces)
    plan = RecordedPlan("plan.parquet", plan_table(night.plan), notes)
    return settle_units(root, "run", plan, packed, last)


def compare(root: str, night: Night, found: Settled) -> None:
    """Check the tables and the sums of a night."""
    assert read_table(root, "units", found.units).to_pylist() == [*night.units.values()]
    files = night.files
    if night.replaces and night.buckets is not None:  # by content no file counts units
        files = [row | dict.fromkeys(("units", "rows", "read", "written"), 0) for row in files]
    assert read_table(root, "files", found.files).to_pylist() == files
    for kind, table, rows in (
        ("units", found.units, pa.Table.from_pylist([*night.units.values()], UNITS)),
        ("files", found.files, pa.Table.from_pylist(files, FILES)),
    ):
        assert write_table(f"{root}-fresh", kind, rows, NOTHING) == table, "parts have a history"
    tally, sums = found.tally, night.sums
    assert {name: count for name, count in tally.ledger.kept.items() if count} == sums["kept"]
    assert tally.ledger.work == sums["work"]
    assert (tally.units, tally.stored) == (len(night.units), sums["kept"].get("rows", 0))
    assert (tally.made, tally.own_rows, tally.tokens) == (
        sums["made"],
        sums["own_rows"],
        sums["tokens"],
    )
    assert sum(tally.resumed.values()) == sums["resumed"]
    assert (tally.damaged, tally.devices) == (sums["damaged"], sums["devices"])
    assert tally.forms.keys() == sums["forms"]
    figure = found.measures.get("read_ms")
    assert (figure["count"] if figure else 0) == len(sums["figure"])
    assert (figure["sum"] if figure else 0.0) == pytest.approx(sum(sums["figure"]))


# ---- faults: each takes the first or the last unit, file or part that can have it


def refuse(
    root: str,
    night: Night,
    last: Tables,
    said: str,
    label: str,
    plan: list[Row] | None = None,
    units: list[Row] | None = None,
) -> None:
    """A night with another plan or other units is refused with these words."""
    if plan is not None:
        night = replace(night, plan=plan)
    message = refusal(root, night, night.made if units is None else units, last)
    assert re.search(said, message), f"{label}: {message}"
    assert "\n" not in message


def refusal(root: str, night: Night, units: list[Row], last: Tables) -> str:
    """What is said of a night that is refused, "" if it is not."""
    try:
        run(root, night, units, last)
    except SentenceBeamError as error:
        return str(error)
    return ""


def chosen(rows: list[Row], place: int) -> tuple[Row, list[Row]] | None:
    """The first or last row by name, and the others."""
    if not rows:
        return None
    some = sorted(rows, key=name_of)
    return some[place], [row for row in some if row is not some[place]]


def _spans(night: Night) -> bool:
    return night.buckets is None and not night.replaces


def unit_twice(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    found = chosen([row for row in night.made if row["path"]], place)
    if found:
        other = found[0] | {"sha256": b"\1" * 32}
        refuse(root, night, last, "written twice", label, units=[*night.made, other])


def unit_lost(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    """An empty unit that holds a place between others of its span is missed by nobody."""
    rows = night.made
    if _spans(night):
        rows = [row for row in rows if row["start"] != row["stop"]]
    if night.replaces == "some":
        return
    found = chosen(rows, place)
    if found:
        units = [row for row in night.made if row is not found[0]]
        refuse(root, night, last, "not finished|out of place|never planned", label, units=units)


def unit_of_nobody(
    root: str, night: Night, last: Tables, past: Past, place: int, label: str
) -> None:
    found = chosen(night.made, place)
    if found:
        names = ["f1-f.7", f"{'0' * 16}-{0:012d}", f"{'f' * 16}-{0:012d}.3"]
        for name in names:
            other = found[0] | {"unit": name}
            units = [*night.made, other]
            said = f"unit {name} was never planned|not finished"
            refuse(root, night, last, said, label, units=units)


def range_moved(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    if night.buckets is not None and not night.replaces:
        return
    found = chosen(night.made, place)
    if found:
        row, others = found
        said = "out of place|not finished|never planned"
        refuse(root, night, last, said, label, units=[*others, row | {"start": row["start"] + 1}])
        stop = 10**6 if row["stop"] is None else row["stop"] + 1
        refuse(root, night, last, said, label, units=[*others, row | {"stop": stop}])


def sums_apart(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    found = chosen(night.made, place)
    if found:
        row, others = found
        for change, said in (
            ({"embedded": row["embedded"] + 1}, "written are not"),
            ({"rejected": row["rejected"] + 1}, "rows read are not"),
        ):
            refuse(root, night, last, said, label, units=[*others, row | change])


def rows_apart(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    """A row too many, counted everywhere: the plan knows how many a span or all buckets have."""
    known = {
        f"{row['path']}": {span["start"] for span in row["spans"] if span["rows"] is not None}
        for row in night.plan
        if row["spans"]
    }
    rows = night.made
    if _spans(night):
        firsts = {
            row["unit"].partition(".")[0]
            for row in rows
            if row["file"] and row["start"] in known[row["file"]]
        }
        rows = [row for row in rows if row["unit"].partition(".")[0] in firsts]
    found = chosen(rows, place)
    if found:
        row = found[0]
        units = [other for other in night.made if other is not row]
        names = ["read", "documents" if row["documents"] is not None else "rows"]
        names += ["embedded"] * (row["documents"] is None)
        more = row | {name: row[name] + 1 for name in names}
        refuse(root, night, last, "rows read of|never planned", label, units=[*units, more])


def pieces_apart(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    found = chosen([row for row in night.made if row["documents"] is not None], place)
    if found:
        row = found[0]
        other = row | {"pieces_sum": (row["pieces_sum"] + 1) % (1 << 64)}
        units = [*(one for one in night.made if one is not row), other]
        refuse(root, night, last, "a document lacks pieces", label, units=units)


def count_apart(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    """A count of a carried file that its units do not have."""
    if night.buckets is not None:
        return
    rows = sorted((row for row in night.plan if row["carried"]), key=lambda row: row["path"])
    if not rows:
        return
    row = rows[place]
    names = ("units", "read") if night.replaces else ("units", "rows", "read", "written")
    for name in names:
        others = [other for other in night.plan if other is not row]
        plan = [*others, row | {name: row[name] + 1}]
        said = f"the units of {row['path']}, which is carried over"
        refuse(root, night, last, said, label, plan=plan)


def last_units_missing(
    root: str, night: Night, last: Tables, past: Past, place: int, label: str
) -> None:
    """The last snapshot lacks a unit that is carried, under its own name or another."""
    if not _spans(night):
        return
    renamed = {row["was"] for row in night.plan if row["was"]}
    own = {row["path"] for row in night.plan if row["carried"] and not row["was"]}
    for owners in (renamed, own):
        units = [unit for unit in past.units.values() if unit["file"] in owners]
        found = chosen(units, place)
        if found:
            left = [unit for unit in past.units.values() if unit is not found[0]]
            table = pa.Table.from_pylist(left, UNITS)
            other = write_table(f"{root}", "units", table, NOTHING)
            refuse(root, night, (last[0], other), "which is carried over", label)


def part_flipped(root: str, night: Night, last: Tables, past: Past, place: int, label: str) -> None:
    """A byte of a part of the last snapshot, all of which are read."""
    some = last[1].parts
    if not some or (night.buckets is not None and not night.replaces):
        return
    path = Path(root, some[place].path)
    whole, times = path.read_bytes(), path.stat()
    data = bytearray(whole)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    table_parts.read_anew()
    refuse(root, night, last, f"{path.name} is not the part", label)
    path.write_bytes(whole)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def stretch_twice(
    root: str, night: Night, last: Tables, past: Past, place: int, label: str
) -> None:
    packed = sorted(travelled(night.made))
    if packed:
        with pytest.raises(LedgerError, match="came twice"):
            run_packed(root, night, [*packed, packed[place]], last)


Fault = Callable[[str, Night, Tables, Past, int, str], Any]
FAULTS: tuple[Fault, ...] = (
    unit_twice, unit_lost, unit_of_nobody, range_moved, sums_apart, rows_apart, pieces_apart,
    count_apart, last_units_missing, part_flipped, stretch_twice,
)  # fmt: skip
