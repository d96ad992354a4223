"""Settling: each way in which a plan, the units of a run and the last snapshot may not fit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers import fake_storage
from helpers.settled import packed
from helpers.snapshots import small_parts, watch_parts
from helpers.unit_records import unit_record

from sentence_beam.transforms.base.errors import LedgerError, SentenceBeamError
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.recorded_plan import (
    ALL,
    PLAN,
    SOME,
    PlanNotes,
    RecordedPlan,
)
from sentence_beam.transforms.store.runs.settled_tables import Settled, settle_units
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, make_records
from sentence_beam.transforms.store.tables.table_parts import read_table

PATHS = ("a", "b", "c", "d")
GROUP = "f0-0"
NOTHING = TableEntry()


def name(path: str, number: int = 0) -> str:
    return f"{make_key(path)}-{number:012d}"


def unit(path: str, rows: int = 4, number: int = 0, **values: Any) -> UnitRecord:
    """A unit of a file with embedded rows."""
    named = name(path, number)
    shard = {"path": layout.shard(named, "0" * 16), "sha256": make_key(path) * 4, "form": "0" * 16}
    made = unit_record(rows, unit=named, file=path, range=(0, None), embedded=rows, **shard)
    return replace(made, **values)


def file(path: str, **values: Any) -> dict[str, Any]:
    """A file of a plan that is read as one span."""
    row: dict[str, Any] = dict.fromkeys(PLAN.names) | dict.fromkeys(FILE_COUNTS, 0)
    row |= {"path": path, "folder": "/in/", "format": "text", "checksum": "c", "version": "v"}
    spans = [{"number": 0, "start": 0, "row_groups": []}]
    return row | {"size": 9, "carried": False, "spans": spans} | values


def kept(path: str, was: str | None = None, rows: int = 4, **values: Any) -> dict[str, Any]:
    """A file of a plan that is carried over with its one unit."""
    counts = {"units": 1, "rows": rows, "read": rows, "written": rows}
    return file(path, carried=True, spans=None, was=was, **counts) | values


@dataclass
class Store:
    """A store, and the tables of its last snapshot."""

    root: str
    files: TableEntry = NOTHING
    units: TableEntry = NOTHING

    def settle(
        self,
        files: Sequence[dict[str, Any]],
        units: Sequence[UnitRecord] = (),
        buckets: Buckets | None = None,
        replaces: str = "",
    ) -> Settled:
        """Settle a night on top of the last snapshot."""
        rows = pa.Table.from_pylist([*files], PLAN).sort_by("path")
        plan = RecordedPlan("plan", rows, PlanNotes(buckets=buckets, replaces=replaces))
        return settle_units(self.root, "run", plan, packed(units), (self.files, self.units))

    def commit(self, found: Settled) -> "Store":
        """The store after a night."""
        return Store(self.root, found.files, found.units)

    def rows(self, found: Settled) -> dict[str, dict[str, Any]]:
        """The units of a night by name."""
        rows = read_table(self.root, "units", found.units).to_pylist()
        return {row["unit"]: row for row in rows}

    def file_rows(self, found: Settled) -> dict[str, dict[str, Any]]:
        """The files of a night by path."""
        return {row["path"]: row for row in read_table(self.root, "files", found.files).to_pylist()}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store without a snapshot."""
    small_parts(monkeypatch)
    return Store(str(tmp_path))


@pytest.fixture
def store(empty: Store) -> Store:
    """A store of four files with a unit each, and two that share a unit."""
    files = [*map(file, PATHS), file("g1", group=GROUP), file("g2", group=GROUP)]
    units = [*map(unit, PATHS), unit("", 6, unit=GROUP)]
    return empty.commit(empty.settle(files, units))


GROUPED = [kept("g1", rows=6, group=GROUP), kept("g2", group=GROUP) | dict.fromkeys(FILE_COUNTS, 0)]
CARRIED = [*map(kept, PATHS), *GROUPED]


def refused(store: Store, said: str, *args: Any, **values: Any) -> None:
    with pytest.raises(LedgerError) as raised:
        store.settle(*args, **values)
    assert str(raised.value) == f"ledger: {said}; nothing committed"


def test_an_unchanged_night_reads_every_part_once_and_writes_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = watch_parts(monkeypatch)
    written = fake_storage.note(monkeypatch, "put_if_absent")
    found = store.settle(CARRIED)
    assert (found.units, found.files) == (store.units, store.files)
    assert sorted(read) == sorted(part.path for part in store.units.parts)
    assert written == []
    assert (found.tally.ledger.carried, found.tally.made) == (22, 0)


def test_counts_of_files_are_those_of_their_units(store: Store) -> None:
    found = store.settle(
        [file("a"), *CARRIED[1:]], [unit("a", 7, read=9, rejected=2, rejects=None)]
    )
    rows = store.file_rows(found)
    assert {path: [row[name] for name in FILE_COUNTS] for path, row in rows.items()} == {
        "a": [1, 7, 9, 7],
        **{path: [1, 4, 4, 4] for path in "bcd"},
        "g1": [1, 6, 6, 6],
        "g2": [0, 0, 0, 0],
    }
    assert found.tally.ledger.written == 25


def test_a_renamed_file_keeps_its_shards_under_other_names(store: Store) -> None:
    files = [kept("new", "a"), kept("a", "b"), *CARRIED[2:]]
    found = store.settle(files)
    rows = store.rows(found)
    assert rows.keys() == {*map(name, ("new", "a", "c", "d")), GROUP}
    for now, was in (("new", "a"), ("a", "b"), ("c", "c")):
        row = rows[name(now)]
        assert (row["file"], row["path"]) == (now, layout.shard(name(was), "0" * 16))
        assert row["sha256"].hex() == make_key(was) * 4
    assert found.tally.ledger.carried == 22


def test_all_files_of_a_folder_that_is_renamed_are_found_in_all_parts(empty: Store) -> None:
    paths = [f"{n}" for n in range(40)]
    last = empty.commit(empty.settle([*map(file, paths)], [*map(unit, paths)]))
    assert len(last.units.parts) > 5
    found = last.settle([kept(f"x/{path}", path) for path in paths])
    assert store_paths(last.rows(found)) == {
        name(f"x/{path}"): layout.shard(name(path), "0" * 16) for path in paths
    }


def store_paths(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The shard of each unit."""
    return {key: row["path"] for key, row in rows.items()}


def test_files_that_leave_take_their_units_with_them(store: Store) -> None:
    found = store.settle(CARRIED[1:4])
    assert store.rows(found).keys() == {*map(name, "bcd")}
    assert store.file_rows(found).keys() == {*"bcd"}


def test_a_group_that_lost_a_file_is_read_again(store: Store) -> None:
    files = [*CARRIED[:4], file("g2", group=GROUP)]
    found = store.settle(files, [unit("", 3, unit=f"{GROUP}.0")])
    assert store.rows(found).keys() == {*map(name, PATHS), f"{GROUP}.0"}
    assert store.file_rows(found)["g2"]["rows"] == 3


@pytest.mark.parametrize("renamed", [False, True])
def test_checksums_of_the_listing_replace_those_on_record(store: Store, renamed: bool) -> None:
    change = [{"unit": name("b"), "checksum": "new"}]
    moved = kept("e", "b", checksums=change) if renamed else kept("b", checksums=change)
    found = store.settle([CARRIED[0], moved, *CARRIED[2:]])
    checksums = {row["unit"]: row["checksum"] for row in store.rows(found).values()}
    assert checksums.pop(name("e" if renamed else "b")) == "new"
    assert set(checksums.values()) == {None}


@pytest.mark.parametrize("path", PATHS)
def test_a_planned_unit_that_is_missing(store: Store, path: str) -> None:
    files = [file(one) if one == path else kept(one) for one in PATHS] + GROUPED
    refused(store, f"{path}: planned unit {name(path)} was not finished", files)


@pytest.mark.parametrize("path", PATHS)
def test_a_unit_of_a_file_that_is_carried_was_never_planned(store: Store, path: str) -> None:
    refused(store, f"unit {name(path)} was never planned", CARRIED, [unit(path)])


def test_a_unit_of_no_file_was_never_planned(store: Store) -> None:
    for other in (name("x"), "f1-0", "3-1", name("a", 1)):
        said = f"unit {other} was never planned"
        refused(store, said, [file("a"), *CARRIED[1:]], [unit("a"), unit("a", unit=other)])


def test_rows_that_were_not_read(store: Store) -> None:
    known = [{"number": 0, "start": 0, "rows": 5, "row_groups": []}]
    files = [*CARRIED[:3], file("d", spans=known), *GROUPED]
    refused(store, f"d: 4 rows read of 5 planned in {name('d')}", files, [unit("d")])


def test_sums_that_do_not_add_up(store: Store) -> None:
    files = [file("a"), *CARRIED[1:]]
    refused(
        store,
        "22 rows written are not 3 embedded + 0 reused + 0 duplicates + 18 carried",
        files,
        [unit("a", embedded=3)],
    )
    refused(store, "23 rows read are not 22 written + 0 rejected", files, [unit("a", read=5)])


def test_a_document_that_lacks_a_piece(empty: Store) -> None:
    sums = {"documents": 4, "pieces_sum": "0" * 15 + "3"}
    files, units = [file("a")], [unit("a", documents_sum="0" * 15 + "3", **sums)]
    last = empty.commit(empty.settle(files, units))
    said = "a document lacks pieces or has some twice"
    refused(empty, said, files, [unit("a", documents_sum="0" * 15 + "4", **sums)])
    added = unit("b", documents=4, pieces_sum="0" * 16, documents_sum="0" * 15 + "1")
    refused(last, said, [kept("a"), file("b")], [added])


@pytest.mark.parametrize("count", FILE_COUNTS)
@pytest.mark.parametrize("place", [0, 3, 4])
def test_a_carried_file_whose_counts_are_others(store: Store, count: str, place: int) -> None:
    for more in (1, -1):
        files = [*CARRIED]
        files[place] = files[place] | {count: files[place][count] + more}
        said = (
            f"the units of {files[place]['path']}, which is carried over, are not those of the plan"
        )
        refused(store, said, files)


def test_a_file_that_the_last_snapshot_does_not_have(store: Store) -> None:
    said = "the units of {}, which is carried over, are not those of the plan"
    refused(store, said.format("x"), [*CARRIED, kept("x")])
    refused(store, said.format("x"), [*CARRIED, kept("x", "y")])
    refused(store, said.format("g1"), [*CARRIED[:4], *(row | {"group": "f9-0"} for row in GROUPED)])


def test_files_whose_group_has_no_unit(empty: Store) -> None:
    files = [row | dict.fromkeys(FILE_COUNTS, 0) for row in GROUPED]
    refused(empty, "no unit counts the rows of g1 (2 such files)", files)


@pytest.mark.parametrize("place", [0, -1])
def test_a_part_of_the_last_snapshot_that_was_changed_is_one_line(store: Store, place: int) -> None:
    path = Path(store.root, store.units.parts[place].path)
    path.write_bytes(path.read_bytes()[:-1])
    for files in (CARRIED, [file("a"), *CARRIED[1:]], [kept("new", "a"), *CARRIED[1:]]):
        with pytest.raises(SentenceBeamError, match=f"{path} is not the part that the manifest"):
            store.settle(files, [unit("a")] if not files[0]["carried"] else [])


def test_some_units_are_replaced_and_the_others_carried(store: Store) -> None:
    fewer = unit("b", 1, read=4, rejected=3, forgotten=3, embedded=0, reused=1)
    found = store.settle(CARRIED, [fewer], replaces=SOME)
    assert {key: row["rows"] for key, row in store.rows(found).items()} == {
        **{name(path): 4 for path in "acd"},
        name("b"): 1,
        GROUP: 6,
    }
    assert (found.tally.ledger.carried, found.tally.made) == (18, 1)
    assert [store.file_rows(found)["b"][count] for count in FILE_COUNTS] == [1, 1, 4, 1]


def test_nothing_is_replaced_by_nothing(store: Store) -> None:
    found = store.settle(CARRIED, replaces=SOME)
    assert (found.units, found.files) == (store.units, store.files)


@pytest.mark.parametrize("change", [{"range": (0, 5)}, {"range": (1, None)}, {"read": 5}])
@pytest.mark.parametrize("replaces", [SOME, ALL])
def test_a_unit_that_replaces_one_of_other_rows_was_never_planned(
    store: Store, change: dict[str, Any], replaces: str
) -> None:
    for path in PATHS:
        others = [unit(one) for one in PATHS if one != path] + [unit("", 6, unit=GROUP)]
        refused(
            store,
            f"unit {name(path)} was never planned",
            CARRIED,
            [*others, unit(path, **change)],
            replaces=replaces,
        )


@pytest.mark.parametrize("other", [f"{'0' * 16}-{0:012d}", name("x"), f"{'f' * 16}-{0:012d}"])
def test_a_unit_that_replaces_none_was_never_planned(store: Store, other: str) -> None:
    said = f"unit {other} was never planned"
    refused(store, said, CARRIED, [unit("a", unit=other)], replaces=SOME)


def test_if_all_units_are_replaced_none_may_be_missing(store: Store) -> None:
    units = [*map(unit, PATHS), unit("", 6, unit=GROUP)]
    assert len(store.rows(store.settle(CARRIED, units, replaces=ALL))) == 5
    for lost in units:
        left = [one for one in units if one is not lost]
        refused(store, f"planned unit {lost.unit} was not finished", CARRIED, left, replaces=ALL)


BUCKETS = Buckets(bits=3, rows=32, chosen_rows=32, chosen_tokens=1)
BY_CONTENT = [unit("", unit=BUCKETS.name(n), range=(n, n + 1)) for n in range(8)]


def by_content(units: Sequence[UnitRecord]) -> dict[str, Any]:
    return {"files": [file("a", spans=[])], "units": units, "buckets": BUCKETS}


def test_by_content_the_units_of_the_last_snapshot_make_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = watch_parts(monkeypatch)
    found = store.settle(**by_content(BY_CONTENT))
    assert read == []
    assert make_records(read_table(store.root, "units", found.units)) == [
        replace(one, embedded=0) for one in BY_CONTENT
    ]
    assert store.file_rows(found)["a"]["units"] == 0
    again = store.commit(found).settle([kept("a", units=0)], buckets=BUCKETS, replaces=SOME)
    assert (again.units, again.tally.ledger.carried) == (found.units, 32)


@pytest.mark.parametrize("place", range(8))
def test_by_content_no_bucket_may_be_missing_or_strange(store: Store, place: int) -> None:
    left = [*BY_CONTENT[:place], *BY_CONTENT[place + 1 :]]
    lost = BY_CONTENT[place].unit
    refused(store, f"planned unit {lost} was not finished", **by_content(left))
    refused(
        store,
        f"planned unit {lost} was not finished",
        **by_content([*BY_CONTENT, unit("", 0, unit=f"{lost}.0")]),
    )
    strange = unit("", unit=f"4-{place:x}")
    refused(store, f"unit 4-{place:x} was never planned", **by_content([*BY_CONTENT, strange]))
    more = [*left, replace(BY_CONTENT[place], rows=5, read=5, embedded=5)]
    refused(store, "33 rows read of 32 planned", **by_content(more))
