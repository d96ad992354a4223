"""Random nights of a store's two tables against a plain model, and faults in them.

Files come, go, change and are renamed; small ones share groups; nights append, read by content, or
replace units. After each night both tables and all sums are those of the model, parts are those of
the rows alone, and each of many faults is refused.
"""

import hashlib
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from helpers.snapshots import small_parts

from sentence_beam.transforms.base.errors import LedgerError, SentenceBeamError
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS
from sentence_beam.transforms.store.runs import made_units, settled_tables
from sentence_beam.transforms.store.runs.made_units import pack
from sentence_beam.transforms.store.runs.recorded_plan import (
    ALL,
    PLAN,
    SOME,
    PlanNotes,
    RecordedPlan,
)
from sentence_beam.transforms.store.runs.settled_tables import Settled, settle_units
from sentence_beam.transforms.store.tables import table_parts
from sentence_beam.transforms.store.tables.names import find_stretch
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, FILES, MADE, UNITS
from sentence_beam.transforms.store.tables.table_parts import read_table, write_table

Row = dict[str, Any]
FORMS = ("0123456789abcdef", "fedcba9876543210")
RUNS = ("run", "earlier", "")
FIGURE = "read_ms"


class Past(NamedTuple):
    """What the tables are: files by path, units by name."""

    files: dict[str, Row]
    units: dict[str, Row]


@dataclass(frozen=True)
class Night:
    """A plan (rows of `PLAN`), the units that were made for it, and what follows.

    `carried` are units of the last snapshot, under the names that they have now. `buckets` are
    (bits, rows).
    """

    plan: list[Row]
    made: list[Row]
    carried: list[Row]
    buckets: tuple[int, int] | None = None
    replaces: str = ""

    @property
    def units(self) -> dict[str, Row]:
        """The units of the coming snapshot by name, in order."""
        new = [{name: row[name] for name in UNITS.names} for row in self.made]
        return {row["unit"]: row for row in sorted([*self.carried, *new], key=name_of)}

    @property
    def files(self) -> list[Row]:
        """The files of the coming snapshot in order of their paths."""
        counts = {row["path"]: dict.fromkeys(FILE_COUNTS, 0) for row in self.plan}
        if self.buckets is None:
            first = first_of_groups(self.plan)
            for unit in self.units.values():
                path = unit["file"] or first[span_of(unit)]
                counts[path]["units"] += 1
                counts[path]["written"] += written_of(unit)
                for name in ("rows", "read"):
                    counts[path][name] += unit[name]
        rows = [
            {name: row[name] for name in FILES.names} | counts[row["path"]] for row in self.plan
        ]
        return sorted(rows, key=lambda row: row["path"].encode())

    @property
    def sums(self) -> dict[str, Any]:
        """The sums over the units, by the names that a tally and its ledger have."""
        units = self.units.values()
        kept = {name: sum(unit[name] for unit in units) for name in KEPT_COUNTS}
        kept |= {"units": len(units), "written": sum(map(written_of, units))}
        kept["carried"] = sum(unit["rows"] for unit in self.carried)
        if any(unit["documents"] is not None for unit in units):
            kept["pieces"] = kept["rows"]
        work = (*WORK_COUNTS, "lost", "truncated")
        own = [row for row in self.made if row["run"] in ("run", "")]
        return {
            "kept": {name: count for name, count in kept.items() if count},
            "work": {name: sum(row[name] for row in self.made) for name in work},
            "made": len(self.made),
            "own_rows": sum(row["rows"] for row in own),
            "tokens": sum(row["real"] for row in self.made if row["run"] == "run"),
            "resumed": sum(row["run"] == "earlier" for row in self.made),
            "damaged": {path for row in self.made for path in row["damaged"]},
            "devices": {row["device"] for row in self.made} - {""},
            "forms": {unit["form"] for unit in units if unit["path"]},
            "figure": [row[FIGURE] for row in self.made if row[FIGURE] is not None],
        }


def key_of(path: str) -> str:
    """The key of a file in the names of its units."""
    return hashlib.sha256(path.encode()).hexdigest()[:16]


def name_of(row: Row) -> str:
    """The name of a unit."""
    name: str = row["unit"]
    return name


def span_of(row: Row) -> str:
    """The name of a unit's span, group or bucket."""
    return name_of(row).partition(".")[0]


def written_of(unit: Row) -> int:
    """The input rows that a unit has written."""
    count: int = unit["rows"] if unit["documents"] is None else unit["documents"]
    return count


def first_of_groups(plan: Iterable[Row]) -> dict[str, str]:
    """The first path of each group."""
    found: dict[str, str] = {}
    for row in sorted(plan, key=lambda row: row["path"].encode(), reverse=True):
        if row["group"]:
            found[row["group"]] = row["path"]
    return found


def plan_table(rows: Iterable[Row]) -> pa.Table:
    """Rows of a plan, sorted by path."""
    return pa.Table.from_pylist([*rows], PLAN).sort_by("path").combine_chunks()


def travelled(made: Iterable[Row]) -> list[tuple[int, bytes]]:
    """Units as they reach the last step: packed by stretch."""
    found: dict[int, list[Any]] = {}
    for row in made:
        values = tuple(row[name] for name in MADE.names)
        found.setdefault(find_stretch(name_of(row)), []).append(values)
    return [(number, pack(rows)) for number, rows in found.items()]


class World:
    """Random input files, and the nights over them.

    With `by_documents` rows are pieces of documents.
    """

    def __init__(self, seed: int, by_documents: bool):
        self.rng = random.Random(seed)
        self._by_documents = by_documents
        self.files = {f"{folder}/{n}": self._file() for folder in "aü" for n in range(4)}

    def change(self) -> None:
        """Add, edit, rename, move, copy and remove some files."""
        rng = self.rng
        for _ in range(rng.randint(0, 6)):
            what = rng.choice(["add", "add", "edit", "remove", "rename", "move", "copy", "empty"])
            path = rng.choice([*sorted(self.files), None])
            new = f"{rng.choice(['a', 'b', 'ü'])}/{rng.randint(0, 10**6)}"
            if what == "add" or path is None:
                self.files[new] = self._file()
            elif what == "empty":
                self.files[new] = {
                    "spans": {},
                    "mark": "",
                    "size": rng.choice([0, 5]),
                    "small": False,
                }
            elif what == "edit":
                self.files[path] = self._file()
            elif what == "copy":
                self.files[new] = self.files[path]
            elif what == "move":
                self._move(path[0], rng.choice("abc"))
            else:
                file = self.files.pop(path)
                if what == "rename":
                    self.files[new] = file

    def _move(self, folder: str, to: str) -> None:
        """Move all files of a folder into another one."""
        moved = {path for path in self.files if path[0] == folder}
        for path in sorted(moved):
            self.files[to + path[1:]] = self.files.pop(path)

    def _file(self) -> Row:
        """A file: rows by the first byte of its spans of ten bytes; small ones share groups."""
        rng = self.rng
        small = rng.random() < 0.4
        spans = {10 * n: rng.randint(0, 9) for n in range(1 if small else rng.randint(1, 4))}
        mark = f"{rng.random()}"
        return {"spans": spans, "mark": mark, "size": 1 + rng.randint(0, 8), "small": small}

    # ---- by file

    def night(self, past: Past, append: bool = False) -> Night:
        """A night by file on top of a snapshot; one that appends keeps files that are gone."""
        rows = {path: self._listed(path, file) for path, file in self.files.items()}
        if append:
            gone = past.files.keys() - rows.keys()
            groups = {past.files[path]["group"] for path in gone if past.files[path]["group"]}
            members = {path for path, row in past.files.items() if row["group"] in groups}
            # a group with a file that is gone stays as it is, without new members
            rows = {path: row for path, row in rows.items() if row["group"] not in groups}
            rows |= {path: self._carried(past.files[path]) for path in gone | members}
        carried = self._groups(rows, past)
        self._own(rows, past)
        kept = self._with_names(rows, past, carried)
        made = [unit for row in self._work(rows) for unit in row]
        plan = [*rows.values()]
        self.rng.shuffle(plan)
        return Night(plan, made, kept)

    def _listed(self, path: str, file: Row) -> Row:
        row: Row = dict.fromkeys(PLAN.names) | dict.fromkeys(FILE_COUNTS, 0)
        row |= {"path": path, "folder": "/in/", "format": "text", "checksum": file["mark"]}
        row |= {"version": "v", "size": file["size"], "carried": False, "cut": 7}
        row["group"] = f"f1-{int(key_of(path), 16) & 1}" if file["small"] else None
        row["spans"] = [
            {"number": start, "start": start, "stop": start + 10, "tokens": 5, "offset": start}
            | {"rows": self.rng.choice([count, None]), "row_groups": [start]}
            for start, count in file["spans"].items()
        ]
        return row

    def _carried(self, before: Row) -> Row:
        row: Row = dict.fromkeys(PLAN.names) | before
        return row | {"carried": True}

    def _groups(self, rows: dict[str, Row], past: Past) -> set[str]:
        """Carry the groups whose members are as before; return their names."""
        now, before = (
            {
                group: {(row["path"], row["checksum"]) for row in some if row["group"] == group}
                for group in ("f1-0", "f1-1")
            }
            for some in (rows.values(), past.files.values())
        )
        same = {group for group in now if now[group] and now[group] == before[group]}
        for path, row in rows.items():
            if row["group"] in same:
                rows[path] = self._carried(past.files[path])
            elif row["carried"] and row["group"]:
                raise AssertionError("a group that is gone is as before")
        return same

    def _own(self, rows: dict[str, Row], past: Past) -> None:
        """Carry files with own units that are as before, under their own or another name."""
        free = {path: row for path, row in past.files.items() if row["units"] and not row["group"]}
        for path, row in rows.items():
            before = past.files.get(path)
            if row["carried"] or row["group"] or before is None or before["group"]:
                if row["carried"]:
                    free.pop(path, None)
                continue
            if before["checksum"] == row["checksum"] and self.rng.random() < 0.95:  # else damaged
                rows[path] = self._carried(before)
                free.pop(path, None)
            elif self.rng.random() < 0.1:
                rows[path] = self._carried(before) | {"bad": "cannot be read"}
                free.pop(path, None)
        for path, row in rows.items():
            if row["carried"] or row["group"] or not row["spans"]:
                continue
            was = next((was for was in free if free[was]["checksum"] == row["checksum"]), None)
            if was not in (None, path) and was is not None:
                before = free.pop(was)
                key = before["shards_of"] or key_of(was)
                rows[path] = self._carried(before) | {"path": path, "was": was}
                rows[path]["shards_of"] = key if key != key_of(path) else None
            elif self.rng.random() < 0.04:
                row |= {"size": 0, "checksum": "", "version": "", "spans": [], "bad": "new"}

    def _with_names(self, rows: dict[str, Row], past: Past, groups: set[str]) -> list[Row]:
        """The units that are carried, under their names now; some have another checksum."""
        owners = {row["was"] or path: path for path, row in rows.items() if row["carried"]}
        found = []
        for unit in past.units.values():
            path = owners.get(unit["file"]) if unit["file"] else None
            if path is None and span_of(unit) not in groups:
                continue
            kept = dict(unit)
            if self.rng.random() < 0.05:
                kept["checksum"] = f"{self.rng.random()}"
                owner = path or first_of_groups(rows.values())[span_of(unit)]
                change = {"unit": unit["unit"], "checksum": kept["checksum"]}
                rows[owner]["checksums"] = [*(rows[owner]["checksums"] or []), change]
            if path is not None and path != unit["file"]:
                kept |= {"unit": key_of(path) + unit["unit"][16:], "file": path}
            found.append(kept)
        return found

    def _work(self, rows: dict[str, Row]) -> Iterable[list[Row]]:
        """The units of each span and group that is read."""
        groups: dict[str, int] = {}
        for path, row in rows.items():
            if row["carried"]:
                continue
            for span in row["spans"]:
                count = self.files[path]["spans"][span["start"]]
                if row["group"]:
                    groups[row["group"]] = groups.get(row["group"], 0) + count
                    continue
                name = f"{key_of(path)}-{span['number']:012d}"
                yield self._units(name, path, span["start"], span["stop"], count)
        for name, count in groups.items():
            yield self._units(name, None, 0, None, count)

    # ---- by content, and runs that read nothing

    def content_night(self) -> Night:
        """A night by content: all buckets are made anew, some in pieces."""
        rng = self.rng
        bits = rng.choice([0, 1, 2, 3, 4, 5])
        made: list[Row] = []
        for number in range(1 << bits):
            name = f"{bits}-{number:0{max(1, -(-bits // 4))}x}"
            pieces = rng.choice([1, 1, 1, 2, 4])
            names = [name] if pieces == 1 else [f"{name}.{piece}" for piece in range(pieces)]
            for one in names:
                made += self._units(one, None, number, number + 1, rng.randint(0, 5), whole=True)
        plan = [self._listed(path, file) | {"group": None} for path, file in self.files.items()]
        return Night(plan, made, [], (bits, sum(row["read"] for row in made)))

    def replacing(self, past: Past, replaces: str, bits: int | None) -> Night:
        """A run that makes new units for some or all of a snapshot, some with fewer rows."""
        plan = [self._carried(row) for row in past.files.values()]
        made, carried = [], []
        for unit in past.units.values():
            if replaces == SOME and self.rng.random() < 0.7:
                carried.append(unit)
                continue
            row: Row = dict.fromkeys(MADE.names) | dict.fromkeys(WORK_COUNTS, 0) | unit
            row |= {"run": "run", "device": "", "damaged": [], "moved": []}
            if unit["documents"] is None and unit["path"]:
                gone = self.rng.randint(0, unit["rows"])
                row |= {"rows": unit["rows"] - gone, "rejected": unit["rejected"] + gone}
                row |= {"forgotten": unit["forgotten"] + gone, "sha256": self.rng.randbytes(32)}
            made.append(row | {"reused": row["rows"]})
        read = sum(unit["read"] for unit in past.units.values())
        return Night(plan, made, carried, None if bits is None else (bits, read), replaces)

    # ---- units

    def _units(
        self,
        name: str,
        file: str | None,
        start: int,
        stop: int | None,
        read: int,
        whole: bool = False,
    ) -> list[Row]:
        """The units of a span with so many rows: one, or several that tile it."""
        rng = self.rng
        cuts = [start]
        if not whole and rng.random() < 0.4:
            cuts += sorted(start + rng.randint(0, 9) for _ in range(rng.randint(1, 12)))
        stops = [*cuts[1:], stop]
        names = [name] if len(cuts) == 1 else [f"{name}.{n}" for n in range(len(cuts))]
        counts = [0] * len(cuts)
        for _ in range(read):
            counts[rng.randrange(len(cuts))] += 1
        units = [
            self._unit(*values, file=file)
            for values in zip(names, cuts, stops, counts, strict=True)
        ]
        if self._by_documents:
            pieces = sum(unit["pieces_sum"] for unit in units)
            others = sum(unit["documents_sum"] for unit in units[1:])
            units[0]["documents_sum"] = (pieces - others) % (1 << 64)
        return units

    def _unit(self, name: str, start: int, stop: int | None, read: int, file: str | None) -> Row:
        rng = self.rng
        rejected = rng.randint(0, read // 2)
        row: Row = dict.fromkeys(MADE.names) | dict.fromkeys((*KEPT_COUNTS, *WORK_COUNTS), 0)
        row |= {"unit": name, "file": file, "start": start, "stop": stop, "read": read, "bytes": 0}
        row |= {"rejected": rejected, "rows": read - rejected, "blank": rng.randint(0, rejected)}
        if self._by_documents:
            row |= {"documents": row["rows"], "rows": row["rows"] * rng.randint(1, 3)}
            row |= {name: rng.randrange(1 << 64) for name in ("pieces_sum", "documents_sum")}
        digest = f"{rng.randrange(1 << 64):016x}"
        if row["rows"]:
            row |= {"path": f"embeddings/{name}-{digest}.parquet", "sha256": rng.randbytes(32)}
            row |= {"form": rng.choice(FORMS), "bytes": rng.randint(1, 99)}
        if rejected:
            row |= {"rejects": f"rejects/{name}-{digest}.parquet"}
            row |= {"rejects_sha256": rng.randbytes(32)}
        row |= {name: rng.randint(0, 99) for name in ("tokens", "truncated", "lost")}
        ways = rng.choices(("embedded", "reused", "duplicates"), k=row["rows"])
        row |= {way: ways.count(way) for way in ("embedded", "reused", "duplicates")}
        row |= {name: rng.randint(0, 9) for name in ("real", "padded", "known", "unknown")}
        row |= {"run": rng.choice(RUNS), "device": rng.choice(["", "cpu", "H100"]), "moved": []}
        row["damaged"] = rng.choice([[], [], [f"embeddings/{digest}.parquet"]])
        return row | {FIGURE: rng.choice([None, 1.5, 2.5])}


REPLACES = (SOME, ALL)


Tables = tuple[TableEntry, TableEntry]
NOTHING = TableEntry()
NEVER = Past({}, {})
FAULTS_A_NIGHT = 3
SEEDS = [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(3, 80)))]


@pytest.mark.parametrize("seed", SEEDS)
def test_nights_are_those_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rows = (2, 1, 4, 16)[seed % 4]
    small_parts(monkeypatch, rows)
    monkeypatch.setattr(made_units, "ROWS_AT_ONCE", (5, 1, 20, 100_000)[seed // 2 % 4])
    monkeypatch.setattr(settled_tables, "ROWS_AT_ONCE", 3 * rows)
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
