"""A range of a snapshot's files is read from the parts of its manifest that have it.

Covers transforms/store/runs/carried_again.py.
Covers transforms/store/runs/plan_rows.py.
"""

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apache_beam.pvalue import TaggedOutput
from helpers import s3 as s3_server
from helpers.corpora import write_jsonl
from helpers.plans import handed_out, job_of, looked_at, night, planned_by_ranges
from helpers.variants import variants

from sentence_beam.transforms import storage
from sentence_beam.transforms.beam.plan import ReadCarriedFn
from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.steps.plan.files import file_batches, record
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.store import manifest as manifests
from sentence_beam.transforms.store import manifest_parts
from sentence_beam.transforms.store.key_range import ALL_KEYS, KeyRange
from sentence_beam.transforms.store.known_files import KnownFiles, known_files
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord, carried
from sentence_beam.transforms.store.runs import carried_ranges, packed_files
from sentence_beam.transforms.store.runs.carried_ranges import (
    CarriedRange,
    by_ranges,
    cut_ranges,
    units_of_range,
)
from sentence_beam.transforms.store.runs.plan import has_plan
from sentence_beam.transforms.store.runs.recorded_plan import read_plan

FILES = 24
SLOTS = 2  # so many batches of files that a range has several


def write_files(folder: Path) -> Path:
    """Files of a unit each; the glob."""
    for number in range(FILES):
        write_file(folder, number, f"text {number}")
    return folder / "*.jsonl"


def write_file(folder: Path, number: int, text: str) -> None:
    rows = [{"id": f"{number}-{row}", "text": f"{text} {row} " * 8} for row in range(10)]
    write_jsonl(folder / f"{number}.jsonl", rows)


@pytest.fixture
def glob(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Manifests have a part for three units; the parts that were read, by path."""
    monkeypatch.setattr(manifests, "UNITS_IN_ONE_FILE", 1)
    monkeypatch.setattr(packed_files, "LEAST_UNITS", 1)
    monkeypatch.setattr(manifest_parts, "UNITS_IN_A_PART", 3)
    paths: list[str] = []
    original = manifest_parts.read_part

    def noted(root: str, part: Any) -> Any:
        paths.append(part.path)
        return original(root, part)

    monkeypatch.setattr(manifest_parts, "read_part", noted)
    return paths


def large(root: str, *globs: Path, **options: Any) -> Manifest:
    """A snapshot of all files, with a manifest in parts."""
    assert night(root, *globs, unit_tokens=200, **options).message == "committed"
    manifest = read_manifest(root)
    assert manifest is not None
    assert len(manifest.parts) > 4
    return manifest


def in_order(found: list[Any], kind: type = object) -> list[Any]:
    return sorted((item for item in found if isinstance(item, kind)), key=str)


def spans_in(found: list[Any]) -> list[Any]:
    return [span for item in found if isinstance(item, list) for span in item]


def of_ranges(last: Manifest, *bounds: str) -> list[KnownFiles]:
    ends = ["", *bounds, ""]
    return [
        known_files(last, KeyRange(low, high)) for low, high in zip(ends, ends[1:], strict=False)
    ]


def test_ranges_have_all_files_and_units_once(tmp_path: Path, glob: Path, read: list[str]) -> None:
    last = large(str(tmp_path / "store"), glob)
    bounds = ["3", key_of("7.jsonl"), "c0ffee"]
    parts = of_ranges(read_manifest(last.root), *sorted(bounds))
    files = {path: file for part in parts for path, file in part.files_by_path.items()}
    units = {path: some for part in parts for path, some in part.units_by_file.items()}
    assert sum(len(part.files_by_path) for part in parts) == len(last.files) == FILES
    assert files == last.files_by_path
    assert units == last.units_by_file


def test_a_part_has_files_and_their_units(tmp_path: Path, glob: Path, read: list[str]) -> None:
    last = large(str(tmp_path / "store"), glob)
    for part in last.parts:
        found = manifest_parts.read_part(last.root, part)
        with_units = {unit["file"] for unit in found.shards}
        assert {file.path for file in found.files} <= with_units
    assert sum(part.files or 0 for part in last.parts) == FILES


def test_more_files_than_a_part_has_units_have_parts_of_their_own(
    tmp_path: Path, read: list[str]
) -> None:
    write_files(tmp_path / "in")
    for number in range(40):
        (tmp_path / "in" / f"empty-{number}.jsonl").write_text("")
    last = large(str(tmp_path / "store"), tmp_path / "in" / "*.jsonl")
    assert len(last.files) == FILES + 40
    alone = [part for part in last.parts if not part.units]
    assert alone
    for path in (file.path for file in last.files):
        key = key_of(path)
        read.clear()
        assert list(known_files(last, KeyRange(key, key + "~")).files_by_path) == [path]
        assert len(read) <= 2


def test_ranges_of_carried_units_begin_where_parts_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_ranges, "UNITS_IN_A_RANGE", 15)
    keys = {key_of(f"{n}"): f"{n}" for n in range(100)}
    starts = sorted(keys)[::10]
    found = list(cut_ranges(dict.fromkeys(keys.values(), 1), (), starts=starts))
    assert [item.keys.low for item in found] == ["", *starts[1:]]
    assert [item.keys.high for item in found] == [*starts[1:], ""]


def test_a_range_reads_only_parts_that_may_have_it(
    tmp_path: Path, glob: Path, read: list[str]
) -> None:
    last = large(str(tmp_path / "store"), glob)
    key = key_of("7.jsonl")
    read.clear()
    known = known_files(read_manifest(last.root), KeyRange(key, key + "~"))
    assert list(known.files_by_path) == list(known.units_by_file) == ["7.jsonl"]
    assert 0 < len(set(read)) <= 2 < len(last.parts)


def test_carried_units_travel_as_ranges_of_the_last_snapshot(
    tmp_path: Path, glob: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried_ranges, "UNITS_IN_A_RANGE", 5)
    last = large(str(tmp_path / "store"), glob)
    moved = replace(last.units[3], checksum="of a listing")
    changed = last.units_by_file["8.jsonl"]
    units = [unit for unit in last.units if unit not in (last.units[3], *changed)]
    found = list(by_ranges([moved, *units], last))
    ranges = [item for item in found if isinstance(item, CarriedRange)]
    assert 2 < len(ranges) <= 2 * len(units) / 5 + 1
    alone = [item for item in found if isinstance(item, UnitRecord)]
    siblings = [unit for unit in units if unit.file == moved.file]
    assert alone == [carried(unit) for unit in (moved, *siblings)]
    read.clear()
    again = read_manifest(last.root)
    carried_over = [unit for item in ranges for unit in units_of_range(item, again)]
    expected = [carried(unit) for unit in units if unit.file != moved.file]
    assert sorted(carried_over, key=str) == sorted(expected, key=str)
    assert len(read) < len(last.parts) + 2 * len(ranges)
    assert list(by_ranges(units, None)) == [carried(unit) for unit in units]


def test_a_manifest_of_an_earlier_version_is_read_as_a_whole(
    tmp_path: Path, glob: Path, read: list[str]
) -> None:
    last = large(str(tmp_path / "store"), glob)
    old = [replace(part, files=None, first_file="", last_file="") for part in last.parts]
    assert all("files" not in part.to_json() for part in old)
    known = known_files(replace(last, parts=tuple(old)), KeyRange("3", "4"))
    assert known.files_by_path == last.files_by_path
    assert known.units_by_file == last.units_by_file


def test_a_plan_by_ranges_is_the_plan_of_all(tmp_path: Path, glob: Path, read: list[str]) -> None:
    root = str(tmp_path / "store")
    last = large(root, glob)
    write_file(glob.parent, 3, "another text")
    (glob.parent / "4.jsonl").unlink()
    (glob.parent / "5.jsonl").rename(glob.parent / "renamed.jsonl")
    whole = handed_out(job_of(root, glob, number=1, unit_tokens=200))
    found = planned_by_ranges(job_of(root, glob, number=2, unit_tokens=200))
    for kind in (UnitRecord, Problem):
        assert sorted((item for item in found if isinstance(item, kind)), key=str) == sorted(
            (item for item in whole if isinstance(item, kind)), key=str
        )
    carried = [item for item in found if isinstance(item, UnitRecord)]
    assert len({unit.file for unit in carried}) == FILES - 2
    spans = [
        [span for item in one if isinstance(item, list) for span in item] for one in (found, whole)
    ]
    assert spans[0] == spans[1]
    assert {span.file.relative for span in spans[0]} == {"3.jsonl"}
    assert read_manifest(root) == last


@pytest.mark.parametrize(
    ("also", "options"),
    [
        (None, {}),
        ("1*.jsonl", {"id_column": None}),
        ("1*.jsonl", {"keep_columns": ("id",)}),
        pytest.param("1*.jsonl", {}, marks=pytest.mark.slow),
        pytest.param(None, {"id_column": None}, marks=pytest.mark.slow),
        pytest.param(None, {"keep_columns": ("id",)}, marks=pytest.mark.slow),
    ],
)
def test_a_plan_of_packed_files_is_the_plan_without_packing(
    tmp_path: Path,
    glob: Path,
    read: list[str],
    monkeypatch: pytest.MonkeyPatch,
    also: str | None,
    options: dict[str, Any],
) -> None:
    """Files changed, gone, renamed, copied and new; in one group; and a second attempt."""
    root = str(tmp_path / "store")
    for number in range(40):
        write_jsonl(glob.parent / f"small{number}.jsonl", [{"id": f"s{number}", "text": "few"}])
    globs = [glob, *([glob.parent / also] if also else [])]
    last = large(root, *globs, **options)
    assert last.units_by_group
    write_file(glob.parent, 3, "another text")
    write_file(glob.parent, 30, "a new text")
    (glob.parent / "4.jsonl").unlink()
    (glob.parent / "5.jsonl").rename(glob.parent / "renamed.jsonl")
    shutil.copy(glob.parent / "6.jsonl", glob.parent / "copy.jsonl")
    write_jsonl(glob.parent / "small1.jsonl", [{"id": "s1", "text": "another"}])
    jobs = [job_of(root, *globs, number=number, unit_tokens=200, **options) for number in (1, 2, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(FilePlanner, "packs", False)
        whole = planned_by_ranges(jobs[0])
    packed = [planned_by_ranges(job) for job in (jobs[1], replace(jobs[2], retried=True))]
    for found in packed:
        assert in_order(found, UnitRecord) == in_order(whole, UnitRecord)
        assert spans_in(found) == spans_in(whole) != []
    plans = [read_plan(root, job.run.id) for job in jobs[:2]]
    assert plans[0].files == plans[1].files
    assert in_order(plans[0].spans) == in_order(plans[1].spans)
    assert plans[0].checked == plans[1].checked
    assert plans[0].measures["file_ms"]["count"] == plans[1].measures["file_ms"]["count"]


def test_parts_of_the_manifest_without_changed_files_are_read_by_workers_alone(
    tmp_path: Path, glob: Path, read: list[str]
) -> None:
    root = str(tmp_path / "store")
    last = large(root, glob)
    for number, changed in enumerate((None, 3), start=1):
        if changed is not None:
            write_file(glob.parent, changed, "another text")
        job = job_of(root, glob, number=number, unit_tokens=200)
        found = looked_at(job)
        read.clear()
        handed_out = list(record(found, job, 1))
        assert len({*read}) == (0 if changed is None else 1) < len(last.parts)
        ranges = [item for item in handed_out if isinstance(item, CarriedRange)]
        units = [unit for one in ranges for unit in units_of_range(one, read_manifest(root))]
        expected = [unit for unit in last.units if unit.file != f"{changed}.jsonl"]
        assert sorted(units, key=str) == sorted(map(carried, expected), key=str)


def test_the_rows_of_packed_files_count(tmp_path: Path, glob: Path, read: list[str]) -> None:
    root = str(tmp_path / "store")
    last = large(root, glob, id_column=None)
    for number in range(5):
        (glob.parent / f"{number}.jsonl").unlink()
    job = job_of(root, glob, number=1, unit_tokens=200, max_deletes=0.1, id_column=None)
    (problem,) = record(looked_at(job), job, 1)
    assert isinstance(problem, Problem)
    assert f"50 of the {last.rows.written} rows" in problem.message


def test_another_file_with_the_name_of_a_packed_one_is_refused(
    tmp_path: Path, glob: Path, read: list[str]
) -> None:
    root = str(tmp_path / "store")
    large(root, glob)
    write_file(tmp_path / "other", 3, "another text")
    job = job_of(root, glob, tmp_path / "other" / "*.jsonl", number=1, unit_tokens=200)
    (problem,) = record(looked_at(job), job, 1)
    assert isinstance(problem, Problem)
    assert "both give the relative path 3.jsonl" in problem.message


@pytest.mark.parametrize("damage", [None, b"{}"], ids=["missing", "damaged"])
def test_a_part_that_is_missing_or_damaged_ends_the_run_in_one_line(
    tmp_path: Path, glob: Path, read: list[str], damage: bytes | None
) -> None:
    root = str(tmp_path / "store")
    last = large(root, glob)
    path = Path(root, last.parts[2].path)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    result = night(root, glob, number=1, unit_tokens=200)
    assert result.exit_code == 1
    assert str(path) in result.message
    assert "\n" not in result.message
    assert read_manifest(root) == last


@pytest.mark.parametrize("when", ["planned", "carried over"])
@pytest.mark.parametrize("damage", [None, b"{}"], ids=["missing", "damaged"])
def test_a_part_that_is_missing_or_damaged_in_a_range_is_one_problem(
    tmp_path: Path, glob: Path, read: list[str], damage: bytes | None, when: str
) -> None:
    last = large(str(tmp_path / "store"), glob)
    job = job_of(last.root, glob, number=1, unit_tokens=200)
    ranges = []
    if when == "carried over":
        ranges = [item for item in record(looked_at(job), job, 1) if isinstance(item, CarriedRange)]
    path = Path(last.root, last.parts[2].path)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    if when == "planned":
        problems = list(record(looked_at(job), job, 1))
        assert not has_plan(last.root, job.run.id)
    else:
        worker = ReadCarriedFn(job)
        worker.setup()
        found = [item for one in ranges for item in worker.process(one)]
        problems = [item.value for item in found if isinstance(item, TaggedOutput)]
    (message,) = {problem.message for problem in problems}
    assert str(path) in message
    assert "\n" not in message


@contextlib.contextmanager
def counted(request: pytest.FixtureRequest, service: str) -> Iterator[list[str]]:
    """The requests of the block to gs:// or s3://."""
    if service == "gs":
        with request.getfixturevalue("gcs").counted() as requests:
            yield requests
    else:
        with s3_server.disturbed() as proxy:
            yield proxy.requests


@variants("service", ["gs", "s3"], (0,))
def test_all_ranges_together_list_the_store_once_and_read_its_parts_about_once(
    request: pytest.FixtureRequest, glob: Path, read: list[str], service: str
) -> None:
    root = f"{request.getfixturevalue(service)}/store"
    parts = len(large(root, glob).parts)
    job = job_of(root, glob, number=1, unit_tokens=200)
    batches = list(file_batches(str(glob), job, SLOTS))
    planned = []
    read.clear()
    with counted(request, service) as requests:
        for batch in batches:
            planner = FilePlanner(job, batch.keys)
            planned += planner.plan_all(batch.files)
    assert len(planned) == FILES
    assert all(item.carried for item in planned)
    listings = [one for one in requests if re.search("prefix=", one)]
    assert len(listings) == len(batches) == 8
    assert all(re.search("(?i)startOffset=|start-after=", one) for one in listings[1:])
    assert parts <= len(read) < parts + len(batches)


def test_a_listing_of_a_range_has_its_names(gs: str, s3: str, tmp_path: Path) -> None:
    for root in (gs, s3, str(tmp_path)):
        place = storage.storage_of(root)
        for name in ("a1", "a2", "b1", "b2", "c1"):
            place.put_if_absent(f"{root}/in/{name}", b"x")
        for low, high, names in (("a2", "b2", "b1 b2"), ("", "a", ""), ("b", "", "b1 b2 c1")):
            found = place.between(f"{root}/in", low, high)
            assert [entry.path[-2:] for entry in found] == names.split()


def test_the_ranges_of_batches_are_all_keys(tmp_path: Path, glob: Path) -> None:
    job = job_of(str(tmp_path / "store"), glob)
    batches = [item.keys for item in file_batches(str(glob), job, SLOTS)]
    assert batches[0].low == batches[-1].high == ""
    assert [one.high for one in batches[:-1]] == [one.low for one in batches[1:]]
    assert ALL_KEYS.is_all
