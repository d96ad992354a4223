"""Plans over real files: which of them are read, carried over, left out, and which end the run."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import edit_manifest, write_jsonl, write_lines
from helpers.plans import UNIT_TOKENS, handed_out, ids_in, job_of, night
from helpers.settled import finish
from helpers.snapshots import (
    SPACE,
    files_of,
    run_name,
    small_parts,
)

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import name_keywords
from sentence_beam.transforms.steps.options.from_snapshot import (
    make_run_like,
    record_plan,
)
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease

LARGE, ROWS = 60, 3
# What has a run read all files again, each with the name that its line has.
READ_AGAIN: list[tuple[str, dict[str, Any]]] = [
    ("reembed", {"reembed": True}),
    ("keep_columns", {"keep_columns": ("n",)}),
    ("keep_text", {"keep_text": True}),
    ("id_column", {"id_column": None}),
    ("unit_tokens", {"unit_tokens": 500}),
    ("weights", {"space": replace(SPACE, weights="other")}),
    ("calibration", {"space": replace(SPACE, calibration="c" * 64)}),
    ("truncate_dim", {"space": replace(SPACE, truncate_dim=3, dim=3)}),
    ("precision", {"space": replace(SPACE, precision="int8")}),
]
SETS = [values for _, values in READ_AGAIN]


def write(path: Path, number: int, rows: int = ROWS) -> None:
    """A file of rows with ids of its own."""
    write_jsonl(
        path,
        [
            {"id": f"{number}-{row}", "text": f"text {number} {row}", "n": row}
            for row in range(rows)
        ],
    )


def break_(path: Path) -> None:
    """Make a file one that cannot be read."""
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


def rewrite(store: Path, data: dict[str, Any]) -> None:
    """Write another manifest in the place of the current one."""
    for path in (store / "manifest.json", store / "manifests" / f"{data['run']}.json"):
        edit_manifest(path, data)


@pytest.fixture
def glob(tmp_path: Path) -> Path:
    """Twenty small files, which share units, and one with units of its own."""
    for number in range(20):
        write(tmp_path / "in" / f"{number:02d}.jsonl", number)
    write(tmp_path / "in" / "large.jsonl", 99, LARGE)
    return tmp_path / "in" / "*.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("name", "option", "values"),
    [("07.jsonl", *READ_AGAIN[0]), *(("large.jsonl", *again) for again in READ_AGAIN)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_nothing_may_be_carried_over_a_bad_file_with_rows_ends_the_run(
    glob: Path, store: Path, name: str, option: str, values: dict[str, Any]
) -> None:
    assert night(store, glob).exit_code == 0
    break_(glob.parent / name)
    before, rows = read_manifest(str(store)), ids_in(store)
    result = night(store, glob, number=1, max_bad_files=1, **values)
    assert (result.exit_code, result.message.count(name)) == (1, 1)
    assert f"max_bad_files cannot keep its rows, because {option}" in name_keywords(result.message)
    assert read_manifest(str(store)) == before
    assert ids_in(store) == rows


@pytest.mark.parametrize(
    "values", [values for values in SETS if "unit_tokens" not in values], ids=str
)
def test_the_commit_refuses_shards_of_other_options_whatever_the_plan_says(
    glob: Path, store: Path, values: dict[str, Any]
) -> None:
    assert night(store, glob).exit_code == 0
    before = read_manifest(str(store))
    result = night(store, glob, number=1, carry=True, **values)
    assert (
        result.exit_code,
        "is of another space, or has other kept columns" in result.message,
    ) == (4, True)
    assert read_manifest(str(store)) == before


@pytest.mark.parametrize("values", [{}, SETS[0]], ids=["", READ_AGAIN[0][0]])
def test_a_bad_file_without_rows_is_left_out_whatever_is_read(
    glob: Path, store: Path, values: dict[str, Any]
) -> None:
    new = glob.parent / "new.jsonl"
    new.symlink_to(glob.with_name("nothing"))
    assert night(store, glob, max_bad_files=1).exit_code == 0
    rows = ids_in(store)
    found = handed_out(job_of(store, glob, number=1, max_bad_files=1, **values))
    assert not [item for item in found if isinstance(item, Problem)]
    assert len(rows) == 20 * ROWS + LARGE
    if not values:
        assert night(store, glob, number=1, max_bad_files=1).exit_code == 0
        assert ids_in(store) == rows


@pytest.mark.parametrize("units_in_one_file", [1, 20_000])
def test_the_manifest_says_which_files_share_units(
    glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch, units_in_one_file: int
) -> None:
    small_parts(monkeypatch, units_in_one_file)
    night(store, glob)
    files = files_of(store)
    groups = {file["path"]: file["group"] for file in files}
    assert groups.pop("large.jsonl") is None
    assert set(groups.values()) == {"f0-0"}
    night(store, glob, number=1)
    again = read_manifest(str(store))
    assert files_of(store) == files
    assert again.work.carried == again.rows.written == len(ids_in(store))


@pytest.mark.parametrize("unit_tokens", [100, 500, UNIT_TOKENS, 100_000])
def test_files_of_a_group_are_those_on_record_whatever_is_small_now(
    glob: Path, store: Path, unit_tokens: int
) -> None:
    night(store, glob)
    rewrite(store, {**read_manifest(str(store)).data, "unit_tokens": unit_tokens})
    rows = ids_in(store)
    manifest = read_manifest(str(store))
    assert sum(file["group"] is not None for file in files_of(store)) == 20
    run = make_run_like(manifest, run_name(1), "index")
    record_plan(manifest, run.id)
    lease.acquire(str(store), lease.Lease.from_this_process(run.id, "FnApiRunner", run.id, True))
    assert finish(run, [], []).message == "committed"
    for number in (2, 3):
        assert night(store, glob, number=number, unit_tokens=unit_tokens).message == "committed"
        assert ids_in(store) == rows
    assert [file["checksum"] for file in files_of(store)] == [
        file["checksum"] for file in files_of(store, manifest.data)
    ]


def test_a_file_without_rows_is_looked_into_and_counts_as_planned(glob: Path, store: Path) -> None:
    empty = glob.parent / "empty.parquet"
    pq.write_table(pa.table({"id": ["a"], "text": ["b"], "padding": ["x"]}).slice(1), empty)
    (glob.parent / "nothing.jsonl").touch()
    globs = (glob, empty)
    for number in range(3):
        assert night(store, *globs, number=number, unit_tokens=900).message == "committed"
    assert len(ids_in(store)) == 20 * ROWS + LARGE


def test_small_files_that_grow_too_large_for_their_group_stay_with_a_bad_one(
    glob: Path, store: Path
) -> None:
    night(store, glob)
    rows = ids_in(store)
    write(glob.parent / "03.jsonl", 3, LARGE)
    break_(glob.parent / "07.jsonl")
    (glob.parent / "08.jsonl").unlink()
    result = night(store, glob, number=1, max_bad_files=1)
    assert ids_in(store) == rows
    assert "has changed and stays as it was" in result.input["bad"]["03.jsonl"]
    assert "is gone and stays in the store" in result.input["bad"]["08.jsonl"]


def empty(path: Path) -> None:
    path.mkdir()


def of_another_kind(path: Path) -> None:
    write_lines(path / "part-0.dat", ["a line"])


def linked_folder(path: Path) -> None:
    path.with_name("elsewhere").mkdir()
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (empty, "*.jsonl"),
        (of_another_kind, "**/*.jsonl"),
        (linked_folder, ""),
        (os.mkfifo, "*.jsonl"),
    ],
)
def test_what_came_in_the_place_of_a_file_and_is_none_ends_the_run(
    glob: Path, store: Path, make: Callable[[Path], None], pattern: str
) -> None:
    name = "07.jsonl"
    assert night(store, glob.parent / pattern).message == "committed"
    before = read_manifest(str(store))
    (glob.parent / name).unlink()
    make(glob.parent / name)
    for max_bad_files in (0, 3):
        result = night(
            store, glob.parent / pattern, number=1, max_bad_files=max_bad_files, max_deletes=1.0
        )
        assert (result.status, f"{glob.parent / name} is " in result.message) == ("failed", True)
    assert read_manifest(str(store)) == before


@pytest.mark.parametrize("pattern", ["*.jsonl", "**/*.jsonl", ""])
def test_a_file_that_became_a_folder_of_parts_is_read_as_these(
    glob: Path, store: Path, pattern: str
) -> None:
    assert night(store, glob.parent / pattern).message == "committed"
    (glob.parent / "large.jsonl").unlink()
    for part in range(3):
        write(glob.parent / "large.jsonl" / f"part-{part}.jsonl", 90 + part)
    (glob.parent / "large.jsonl" / "_SUCCESS").touch()
    assert night(store, glob.parent / pattern, number=1).message == "committed"
    assert {row.partition("-")[0] for row in ids_in(store)} == {
        *map(str, range(20)),
        "90",
        "91",
        "92",
    }
    assert {file["path"] for file in files_of(store)} >= {
        "large.jsonl/part-2.jsonl",
        "07.jsonl",
    }


def test_a_file_without_an_ending_that_became_a_folder(tmp_path: Path, store: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "in" / name, ord(name))
    assert night(store, tmp_path / "in", input_format="jsonl").message == "committed"
    (tmp_path / "in" / "b").unlink()
    (tmp_path / "in" / "b").mkdir()
    result = night(store, tmp_path / "in", number=1, input_format="jsonl")
    assert f"{tmp_path / 'in' / 'b'} is a folder without files" in result.message
    (tmp_path / "in" / "b").rmdir()
    assert night(store, tmp_path / "in", number=2, input_format="jsonl").message == "committed"


def test_objects_below_the_name_of_one_that_was_there(s3: str, store: Path, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, ord(name[0]))
        storage.overwrite(f"{s3}/{name}", (tmp_path / name).read_bytes())
    assert night(store, f"{s3}/*.jsonl").message == "committed"
    storage.storage_of(s3).delete(f"{s3}/b.jsonl")
    storage.overwrite(f"{s3}/b.jsonl/part-0.bin", b"x")
    before = read_manifest(str(store))
    result = night(store, f"{s3}/*.jsonl", number=1)
    assert f"{s3}/b.jsonl is a folder without a file of a known format" in result.message
    assert read_manifest(str(store)) == before
    storage.storage_of(s3).delete(f"{s3}/b.jsonl/part-0.bin")
    storage.overwrite(f"{s3}/b.jsonl/part-0.jsonl", (tmp_path / "b.jsonl").read_bytes())
    assert night(store, f"{s3}/*.jsonl", number=2).message == "committed"
    assert [file["path"] for file in files_of(store)] == [
        "a.jsonl",
        "b.jsonl/part-0.jsonl",
    ]
