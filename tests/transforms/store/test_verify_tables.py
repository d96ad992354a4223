"""What `verify` finds in the tables of a snapshot: in their parts, and in the counts.

Covers transforms/store/verify_tables.py.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import edit_manifest
from helpers.snapshots import (
    changed,
    edit_files,
    edit_units,
    night,
    numbered,
    parts_of,
    small_parts,
)

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS
from sentence_beam.transforms.store.verification import Extent, faults

UNITS = 9
Entry = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of nine units in several parts."""
    small_parts(monkeypatch)
    night(str(tmp_path / "store"), 0, *(numbered(3 * n, 3 * n + 3) for n in range(UNITS)))
    assert len(parts_of(tmp_path / "store")) > 2
    return tmp_path / "store"


def current(store: Path) -> Manifest:
    found = read_manifest(str(store))
    assert found is not None
    return found


def lines(store: Path, extent: Extent | None = None) -> list[str]:
    return faults(current(store), extent or Extent())


def edit(store: Path, change: Callable[[Entry], object]) -> None:
    """Write both copies of the manifest with something else."""
    data = json.loads((store / "manifest.json").read_text())
    change(data)
    for name in ("manifest.json", layout.snapshot(data["run"])):
        edit_manifest(store / name, data)


def part(store: Path, number: int) -> Path:
    return store / parts_of(store)[number]["path"]


def test_a_sound_store_has_no_fault(store: Path) -> None:
    assert lines(store) == []
    assert lines(store, Extent(0.0)) == []


def test_other_cuts_are_no_fault(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch, 1000)
    assert lines(store) == []


@pytest.mark.parametrize("count", FILE_COUNTS)
def test_a_count_of_a_file_that_is_not_the_sum_of_its_units(store: Path, count: str) -> None:
    edit_files(store, changed(0, **{count: 999}))
    [line] = lines(store)
    assert line.startswith(f"ledger: a.txt: the sum of {count} over its units is ")
    assert line.endswith("the list of files says 999")


def test_counts_of_a_unit_are_those_of_its_file_and_of_the_manifest(store: Path) -> None:
    edit_units(store, changed(2, read=4, rejected=1))
    assert lines(store, Extent(0.0)) == [
        "ledger: units have 28 rows read, the manifest says 27",
        "ledger: units have 1 rows rejected, the manifest says 0",
        "ledger: a.txt: the sum of read over its units is 28, the list of files says 27",
    ]


def test_a_unit_of_no_file(store: Path) -> None:
    edit_files(store, lambda files: [{**files[0], "path": "b.txt"}])
    found = lines(store)
    assert sum("is of no input file" in line for line in found) == UNITS


def twice(units: list[Entry]) -> list[Entry]:
    return [*units[:4], units[3], *units[4:]]


def swapped(units: list[Entry]) -> list[Entry]:
    return [*units[:3], units[4], units[3], *units[5:]]


@pytest.mark.parametrize(
    ("change", "said"), [(twice, "is listed twice"), (swapped, "out of order")]
)
@pytest.mark.parametrize("rows", [2, 1000], ids=["parts", "part"])
def test_units_twice_or_out_of_order(
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[Entry]], list[Entry]],
    said: str,
    rows: int,
) -> None:
    small_parts(monkeypatch, rows)
    edit_units(store, change)
    [line] = [line for line in lines(store) if said in line]
    assert str(store / "manifests/parts") in line


def edited_part(store: Path, number: int, **values: Any) -> None:
    """Let the manifest say something else of a part of the units."""

    def change(data: Entry) -> None:
        data["units"]["parts"][number] |= values

    edit(store, change)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rows": 77}, "the manifest says 77"),
        ({"first": "00"}, "the manifest says '00'"),
        ({"last": "ff"}, "the manifest says 'ff'"),
    ],
)
def test_what_the_manifest_says_of_a_part(store: Path, values: Entry, said: str) -> None:
    edited_part(store, 0, **values)
    found = [line for line in lines(store) if said in line]
    assert any(str(part(store, 0)) in line for line in found)


def test_rows_of_all_parts(store: Path) -> None:
    edit(store, lambda data: data["files"].update(rows=2))
    assert lines(store) == ["files: 1 rows in all parts, the manifest says 2"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [Path.unlink, flip, cut])
@pytest.mark.parametrize("sample", [1.0, 0.0])
def test_each_damaged_part_is_one_line(
    store: Path, damage: Callable[[Path], None], sample: float
) -> None:
    for number in (0, 2):
        damage(part(store, number))
    found = lines(store, Extent(sample))
    assert len(found) == 2
    assert all(str(part(store, number)) in "".join(found) for number in (0, 2))


@pytest.mark.parametrize("name", ["path", "rejects"])
def test_a_path_outside_the_store(store: Path, name: str) -> None:
    edit_units(store, changed(5, **{name: "../x.parquet"}))
    [line] = lines(store)
    assert "'../x.parquet' is no path of this store's" in line


@pytest.mark.parametrize("path", ["../x", "calibrations/../x", "/etc", ""])
def test_a_calibration_outside_the_store(store: Path, path: str) -> None:
    edit(store, lambda data: data.update(calibration={"digest": "ab", "path": path}))
    with pytest.raises(SentenceBeamError, match=r"manifest\.json is corrupt .*calibration"):
        read_manifest(str(store))


def test_a_calibration_that_is_not_the_spaces(store: Path) -> None:
    entry = {"digest": "ab", "path": "calibrations/ab"}
    edit(store, lambda data: data.update(calibration=entry))
    assert lines(store) == ["calibration: the manifest names another one than its space"]


@pytest.mark.parametrize("kind", ["files", "units"])
def test_a_part_of_the_other_table(store: Path, kind: str) -> None:
    def change(data: Entry) -> None:
        tables = [data[name]["parts"] for name in ("files", "units")]
        tables[kind == "units"][0] = tables[kind != "units"][0]

    edit(store, change)
    path = json.loads((store / "manifest.json").read_text())[kind]["parts"][0]["path"]
    found = [line for line in lines(store) if "is no part of a manifest" in line]
    assert found
    assert all(str(store / path) in line for line in found)
