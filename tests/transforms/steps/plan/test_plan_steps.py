"""Steps of a plan by themselves: files listed, planned, left out and limited, plans on record.

Damaged shards, patterns that overlap and names that change again are met when the plan is checked.

Covers transforms/steps/plan/checked.py.
Covers transforms/steps/plan/list_files.py.
Covers transforms/steps/plan/look_into.py.
Covers transforms/steps/plan/planned.py.
Covers transforms/steps/plan/whole_plan.py.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_jsonl
from helpers.plans import handed_out, ids_in, job_of, night, rows_of
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.base.errors import InputChangedError, SentenceBeamError
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content_plan, look_into
from sentence_beam.transforms.steps.plan import list_files as list_files_module
from sentence_beam.transforms.steps.plan import whole_plan as plan_record
from sentence_beam.transforms.steps.plan.checked import check_plan
from sentence_beam.transforms.steps.plan.elements import FilesToLookInto, FilesToOpen
from sentence_beam.transforms.steps.plan.list_files import list_files
from sentence_beam.transforms.steps.plan.look import look_at_all
from sentence_beam.transforms.steps.plan.planned import make_planned_rows, make_row
from sentence_beam.transforms.steps.plan.whole_plan import find_problems, join_files
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried_check import STATES
from sentence_beam.transforms.store.runs.recorded_plan import Standing, has_plan, read_plan

LARGE = 60  # rows: more than files have that share units


def write(path: Path, name: str, rows: int = LARGE) -> None:
    """A file of rows whose ids begin with a name."""
    write_jsonl(
        path, [{"id": f"{name}-{row}", "text": f"text {name} {row}"} for row in range(rows)]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two files with units of their own."""
    for name in "ab":
        write(tmp_path / "in" / f"{name}.jsonl", name)
    return tmp_path / "in"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def planned(job: EmbedJob) -> list[Any]:
    """The files of a job with what is done with each, or why that is not possible."""
    found = look_at_all(job)
    return find_problems(found) or rows_of(join_files(found).sort_by("path"))


def work(found: list[Any]) -> list[tuple[str, int, int | None]]:
    """The spans that a plan hands out."""
    spans = [span for item in found if isinstance(item, list) for span in item]
    return sorted((span.file.relative, span.start, span.stop) for span in spans)


def carried_in(job: EmbedJob) -> list[str]:
    """The files that the plan on record carries over."""
    files = read_plan(job.root, job.run.id).files
    return files.filter(files.column("carried")).column("path").to_pylist()


def file_of(store: Path, path: str) -> dict[str, Any]:
    """An input file of the current snapshot."""
    return next(file for file in files_of(store) if file["path"] == path)


def syntaxes(found: list[Any]) -> list[Syntax]:
    """The syntax of the file of each span that a plan hands out."""
    return [span.file.syntax for item in found if isinstance(item, list) for span in item]


def test_files_are_listed_in_batches(folder: Path, store: Path) -> None:
    job = job_of(store, folder / "*.jsonl")
    found = list(list_files(str(folder / "*.jsonl"), job, 1))
    assert all(isinstance(batch, FilesToLookInto) for batch in found)
    names = [name for batch in found for name in batch.table.column("path").to_pylist()]
    assert names == ["a.jsonl", "b.jsonl"]
    (problem,) = list_files(str(folder / "*.csv"), job)
    assert isinstance(problem, Problem)
    assert str(folder / "*.csv") in problem.message


def test_an_unchanged_file_is_carried_and_a_changed_one_is_read(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    write(folder / "b.jsonl", "c", LARGE + 1)
    a, b = planned(job_of(store, glob, number=1))
    own = [unit["unit"] for unit in units_of(store) if unit["file"] == "a.jsonl"]
    assert (a["carried"], a["units"], a["spans"]) == (True, len(own), None)
    assert (b["carried"], [span["start"] for span in b["spans"]]) == (False, [0])
    assert (a["ms"], b["ms"] > 0) == (None, True), "nobody had to look into an unchanged file"


def test_the_same_bytes_of_another_time_are_carried(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    write(folder / "a.jsonl", "a")
    a, b = planned(job_of(store, glob, number=1))
    assert (a["carried"], b["carried"]) == (True, True)
    a, b = planned(job_of(store, glob, number=1, carry=False))
    assert (a["carried"], b["carried"]) == (False, False)
    assert a["checksum"] == file_of(store, "a.jsonl")["checksum"]


def test_a_file_that_cannot_be_read_is_left_out_with_the_units_it_had(
    folder: Path, store: Path
) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    for name in "ac":
        path = folder / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        path.symlink_to(folder / "nothing")
    a, b, c = planned(job_of(store, glob, number=1, max_bad_files=2))
    old = file_of(store, "a.jsonl")
    kept = ("version", "size", "checksum", "units")
    assert [a[name] for name in kept] == [old[name] for name in kept]
    assert (a["carried"], b["carried"], c["carried"]) == (True, True, False)
    assert "a.jsonl" in a["bad"]
    assert (b["bad"], c["spans"]) == (None, [])
    assert (c["size"], c["checksum"], c["version"]) == (0, "", "")
    found = handed_out(job_of(store, glob, number=1))
    assert {type(item) for item in found} == {Problem}
    assert night(store, glob, number=1, max_bad_files=2).message == "committed"
    assert len(ids_in(store)) == 2 * LARGE


def test_a_bad_file_that_had_no_rows_is_not_what_it_was(folder: Path, store: Path) -> None:
    """Whatever it has when it is mended is read then."""
    glob = folder / "*.jsonl"
    (folder / "e.jsonl").write_bytes(b"")
    night(store, glob)
    (folder / "e.jsonl").unlink()
    (folder / "e.jsonl").symlink_to(folder / "nothing")
    *_, bad = planned(job_of(store, glob, number=1, max_bad_files=1))
    assert (bad["size"], bad["version"], bad["carried"]) == (0, "", False)
    assert "e.jsonl" in bad["bad"]


def test_a_link_to_nothing_in_the_place_of_a_folder_ends_the_run(folder: Path, store: Path) -> None:
    glob = folder / "**" / "*.jsonl"
    below = folder / "sub.jsonl" / "d.jsonl"
    write(below, "d")
    night(store, glob)
    below.unlink()
    below.parent.rmdir()
    below.parent.symlink_to(folder / "nothing")
    *_, found = planned(job_of(store, glob, number=1, max_bad_files=1))
    assert isinstance(found, Problem)
    assert "sub.jsonl" in found.message


@pytest.mark.parametrize(
    ("bad", "files", "most", "fails"),
    [
        (1, 2, 1, False),
        (2, 2, 1, True),
        (29, 100, 0.29, False),  # 0.29 * 100 is less than 29 in binary
        (30, 100, 0.29, True),
        (1, 1, 0.5, True),
        (1, 2, 0.5, False),
        (5, 5, 0.999, True),
        (1, 1, 1, False),
        (5, 5, 7, False),
        (0, 1, 0, False),
        (1, 5, 0, True),
    ],
)
def test_so_many_files_may_be_left_out(
    store: Path, bad: int, files: int, most: float, fails: bool
) -> None:
    job = job_of(store, "in/*", max_bad_files=most)
    rows = make_planned_rows(
        [
            make_row(InputFile(f"/in/{n:03d}", f"{n:03d}", "text", "", 0, "", ""))
            | {"carried": False, "spans": [], "bad": f"reason {n:03d}" if n < bad else None}
            for n in reversed(range(files))
        ]
    )
    if not fails:
        assert len(check_plan(rows, STATES.empty_table(), job).files) == files
        return
    with pytest.raises(SentenceBeamError) as caught:
        check_plan(rows, STATES.empty_table(), job)
    assert str(caught.value) == (
        f"{bad} of {files} files cannot be read, more than max_bad_files {most:g} allows:"
        " reason 000"
    )


def test_a_limit_takes_the_first_rows(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    spans = work(handed_out(job_of(store, glob, limit=LARGE // 2)))
    assert [name for name, _, _ in spans] == ["a.jsonl"]
    spans = work(handed_out(job_of(store, glob, number=1, limit=LARGE + 1)))
    assert [name for name, _, _ in spans] == ["a.jsonl", "b.jsonl"]
    assert spans[1][2] < (folder / "b.jsonl").stat().st_size
    assert night(store, glob, number=2, limit=LARGE + 1).message == "committed"
    assert len(ids_in(store)) == LARGE + 1


SYNTAXES = {  # files with ten rows, and the options that say how to read them
    "rows.json": ('{"n": 1, "data": {"rows": %s}}', {"json_rows": "data.rows"}),
    "rows.tsv": ("above\n" * 4 + "id\ttext\n%s", {"csv": "skip=4"}),
    "quotes.csv": ('id,text\nr,"one\n%s', {"csv": "quote=none"}),
}

IDS = [f"r{n}" for n in range(10)]


def write_ten(folder: Path, name: str) -> dict[str, Any]:
    """Write a file of `SYNTAXES`; returns its options."""
    text, options = SYNTAXES[name]
    rows = [{"id": row_id, "text": f"row {row_id}"} for row_id in IDS]
    mark = "\t" if name.endswith(".tsv") else ","
    lines = "".join(f"{row['id']}{mark}{row['text']}\n" for row in rows)
    folder.mkdir()
    (folder / name).write_text(text % (json.dumps(rows) if name.endswith(".json") else lines))
    return options


@pytest.mark.parametrize("name", SYNTAXES)
def test_a_limit_counts_rows_as_options_say_how_to_read_them(
    tmp_path: Path, store: Path, name: str
) -> None:
    options = write_ten(tmp_path / "in", name)
    assert night(store, tmp_path / "in", limit=4, **options).message == "committed"
    assert ids_in(store) == (["r", "r0", "r1", "r2"] if name == "quotes.csv" else IDS[:4])


@pytest.mark.parametrize("name", SYNTAXES)
def test_an_index_needs_its_rows_as_options_say_how_to_read_them(
    tmp_path: Path, store: Path, name: str
) -> None:
    options = write_ten(tmp_path / "in", name)
    rows = 11 if name == "quotes.csv" else 10
    for lists in (rows, rows + 1):
        spec = IndexSpec.parse(f"IVF{lists},Flat")
        job = job_of(store, tmp_path / "in", index_asked=spec, **options)
        found = [item.message for item in handed_out(job) if isinstance(item, Problem)]
        wanted = f"{spec} has to be trained on {lists} rows or more, and there are {rows}"
        assert [wanted in message for message in found] == [True] * (lists > rows)


def test_a_kept_column_that_no_file_has_is_named_beside_those_there_are(
    tmp_path: Path, store: Path
) -> None:
    options = write_ten(tmp_path / "in", "rows.json")
    job = job_of(store, tmp_path / "in", keep_columns=("n",), **options)
    (problem,) = handed_out(job)
    assert (problem.exit_code, "id, text" in problem.message) == (2, True), problem.message


@pytest.mark.parametrize("delimiter", [None, ";"])
def test_a_run_that_is_done_again_takes_the_plan_on_record(
    folder: Path, store: Path, delimiter: str | None
) -> None:
    glob = folder / "*"
    (folder / "t.csv").write_text("id;text\nx;one\n")
    values = {"delimiter": ";"} if delimiter else {}
    if delimiter is None:
        (folder / "t.csv").unlink()
    night(store, glob, **values)
    (folder / "a.jsonl").rename(folder / "z.jsonl")
    write(folder / "c.jsonl", "c")
    job = job_of(store, glob, number=1, **values)
    first = handed_out(job)
    assert [name for name, _, _ in work(first)] == ["c.jsonl"]
    carried = ["b.jsonl", *(["t.csv"] if delimiter else []), "z.jsonl"]
    assert carried_in(job) == carried
    write(folder / "d.jsonl", "d")
    again = handed_out(replace(job, retried=True))
    assert work(again) == work(first)
    assert carried_in(job) == carried
    assert list(list_files(str(glob), replace(job, retried=True))) == [Standing()]
    assert syntaxes(again) == syntaxes(first)


def test_a_copy_under_a_second_name_is_read(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    (folder / "z.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
    job = job_of(store, glob, number=1)
    assert [name for name, _, _ in work(handed_out(job))] == ["z.jsonl"]
    assert carried_in(job) == ["a.jsonl", "b.jsonl"]


def test_a_plan_by_content_begins_with_all_files_or_the_problems_alone(
    folder: Path, store: Path
) -> None:
    job = job_of(store, folder / "*.jsonl", partition="content")
    assert job.by_content
    found = look_at_all(job)
    begun = content_plan.begin(found, job)
    (files,) = (item.table for item in begun if isinstance(item, FilesToOpen))
    assert files.column("path").to_pylist() == ["a.jsonl", "b.jsonl"]
    problem = Problem("it broke", 2)
    assert content_plan.begin([*found, problem], job) == [problem]
    missing = replace(job, run=replace(job.run, previous="run0"), carry=True)
    (error,) = content_plan.begin(found, missing)
    assert isinstance(error, Problem)


def test_problems_hand_out_nothing(folder: Path, store: Path) -> None:
    job = job_of(store, folder / "*.jsonl")
    problem = Problem("it broke", 2)
    assert list(plan_record.record([*look_at_all(job), problem], job, 1)) == [problem]
    assert not has_plan(job.root, job.run.id)


@pytest.mark.parametrize(("slots", "elements"), [(1, 2), (None, 2), (100, 2)])
def test_all_spans_are_handed_out_once(
    folder: Path, store: Path, slots: int | None, elements: int
) -> None:
    job = job_of(store, folder / "*.jsonl")
    spans = work(list(plan_record.record(look_at_all(job), job, slots)))
    assert len(spans) == elements
    assert [name for name, _, _ in spans] == ["a.jsonl", "b.jsonl"]


def test_a_worker_that_died_after_the_plan_hands_out_the_same(folder: Path, store: Path) -> None:
    job = job_of(store, folder / "*.jsonl")
    first = work(list(plan_record.record(look_at_all(job), job, 1)))
    (folder / "b.jsonl").unlink()
    again = replace(job, retried=True)
    assert work(list(plan_record.record(look_at_all(job), again, 1))) == first


def test_a_file_that_changes_while_it_is_read_is_not_left_out(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_: object) -> None:
        raise InputChangedError("a.jsonl has changed")

    monkeypatch.setattr(look_into, "open_file", changed)
    found = planned(job_of(store, folder / "a.jsonl", max_bad_files=1))
    assert [item.message for item in found] == ["a.jsonl has changed"]


def test_a_folder_in_the_place_of_a_file_ends_the_run(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "in"
    for name in "ab":
        write(folder / name, name)
    night(store, folder, input_format="jsonl")
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (problem,) = planned(job_of(store, folder, number=1, input_format="jsonl"))
    assert f"{folder / 'a'} is a folder without files of input now" in str(problem.error())
    for other, values in ((store, {"append": True}), (store.with_name("new"), {})):
        job = job_of(other, folder, number=1, input_format="jsonl", **values)
        assert [row["path"] for row in planned(job)] == ["b"]


def test_a_renamed_file_is_read_if_another_took_its_name(folder: Path, store: Path) -> None:
    """The new file could write over the shard, which has the name of the old one."""
    glob = folder / "*.jsonl"
    night(store, glob)
    (folder / "a.jsonl").rename(folder / "z.jsonl")
    write(folder / "a.jsonl", "new", LARGE + 1)
    job = job_of(store, glob, number=1)
    assert [name for name, _, _ in work(handed_out(job))] == ["a.jsonl", "z.jsonl"]
    assert carried_in(job) == ["b.jsonl"]
    assert night(store, glob, number=2).message == "committed"
    assert len(ids_in(store)) == 3 * LARGE + 1


def test_the_lease_is_renewed_while_a_run_is_planned(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def kept_alive(root: str, run: str) -> Iterator[None]:
        kept.append((root, run))
        yield

    for module in (list_files_module, plan_record, content_plan):
        monkeypatch.setattr(module, "kept_alive", kept_alive)
    job = job_of(store, folder / "*.jsonl")
    found = look_at_all(job)
    assert kept == [job.run.key]
    list(plan_record.record(found, job, 1))
    content_plan.begin(found, job_of(store, folder / "*.jsonl", partition="content"))
    assert kept == [job.run.key] * 3


def test_more_files_than_are_looked_at_at_once_are_planned_once(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_into, "FILES_AT_ONCE", 2)
    for name in "cde":
        write(folder / f"{name}.jsonl", name)
    found = planned(job_of(store, folder / "*.jsonl"))
    assert [row["path"] for row in found] == [f"{name}.jsonl" for name in "abcde"]


def test_spans_know_the_units_that_the_store_has_of_their_files(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    write(folder / "a.jsonl", "new")
    for reuse in (True, False):
        found = handed_out(job_of(store, glob, number=1 + reuse, reuse=reuse))
        (span,) = (span for item in found if isinstance(item, list) for span in item)
        assert bool(span.file.before[0]) == reuse


def test_an_element_has_spans_for_its_share_of_the_slots(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int | None]] = []

    def spans_per_element(spans: int, slots: int | None) -> int:
        asked.append((spans, slots))
        return 2

    monkeypatch.setattr(plan_record, "count_spans_per_element", spans_per_element)
    job = job_of(store, folder / "*.jsonl")
    (element,) = plan_record.record(look_at_all(job), job, 3)
    assert (len(element), asked) == (2, [(2, 3)])


def test_the_plan_on_record_counts_files_that_were_not_taken(folder: Path, store: Path) -> None:
    (folder / "notes.xyz").write_text("no input")
    job = job_of(store, folder)
    handed_out(job)
    assert sum(read_plan(job.root, job.run.id).notes.beside.values()) == 1


def damage(store: Path, path: str, how: str = "cut") -> Path:
    """Damage a shard of a file, or of its group; returns where it is."""
    file = file_of(store, path)
    unit = next(
        unit
        for unit in units_of(store)
        if unit["file"] == path or (file["group"] and unit["unit"].startswith(file["group"]))
    )
    shard = store / unit["path"]
    data = shard.read_bytes()
    shard.unlink()
    if how == "cut":
        shard.write_bytes(data[:-1])
    return shard


@pytest.mark.parametrize("how", ["removed", "cut"])
def test_an_unchanged_file_is_read_if_its_shard_is_damaged(
    folder: Path, store: Path, how: str
) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    ids = ids_in(store)
    shard = damage(store, "b.jsonl", how)
    a, b = planned(job_of(store, glob, number=1))
    assert (a["carried"], b["carried"]) == (True, True), "nobody knows while files are listed"
    assert [name for name, _, _ in work(handed_out(job_of(store, glob, number=1)))] == ["b.jsonl"]
    assert night(store, glob, number=2).ledger["carried"] == LARGE
    assert shard.exists()
    assert ids_in(store) == ids
    assert work(handed_out(job_of(store, glob, number=3))) == []


def test_a_damaged_shard_does_not_go_to_a_renamed_file(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    damage(store, "b.jsonl")
    for name in "ab":
        (folder / f"{name}.jsonl").rename(folder / f"{name * 2}.jsonl")
    job = job_of(store, glob, number=1)
    assert [name for name, _, _ in work(handed_out(job))] == ["bb.jsonl"]
    assert carried_in(job) == ["aa.jsonl"]


def test_a_group_with_a_damaged_shard_is_read_and_other_files_are_not(
    folder: Path, store: Path
) -> None:
    glob = folder / "*.jsonl"
    small = [f"{number:02d}" for number in range(20)]
    for name in small:
        write(folder / f"{name}.jsonl", name, 3)
    night(store, glob)
    damage(store, "07.jsonl")
    job = job_of(store, glob, number=1)
    assert [span[0] for span in spans_of_groups(handed_out(job))] == [f"{n}.jsonl" for n in small]
    assert carried_in(job) == ["a.jsonl", "b.jsonl"]


def spans_of_groups(found: list[Any]) -> list[tuple[str, int]]:
    """File and start of each span of the groups that a plan hands out."""
    spans = [span for item in found for span in item]
    return sorted((one.file.relative, one.start) for group in spans for one in group.spans)


def test_a_damaged_shard_of_a_file_that_cannot_be_read_ends_the_run(
    folder: Path, store: Path
) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    damage(store, "a.jsonl")
    (folder / "a.jsonl").unlink()
    (folder / "a.jsonl").symlink_to(folder / "nothing")
    (problem,) = handed_out(job_of(store, glob, number=1, max_bad_files=1))
    assert "a.jsonl" in problem.message
    assert problem.exit_code == 1
    (folder / "a.jsonl").unlink()
    write(folder / "a.jsonl", "a")
    found = handed_out(job_of(store, glob, number=2, max_bad_files=1))
    assert [name for name, _, _ in work(found)] == ["a.jsonl"]


def test_a_group_stays_for_a_file_that_cannot_be_read_unless_its_shard_is_damaged(
    folder: Path, store: Path
) -> None:
    glob = folder / "*.jsonl"
    for number in range(20):
        write(folder / f"{number:02d}.jsonl", f"{number:02d}", 3)
    night(store, glob)
    (folder / "03.jsonl").unlink()
    (folder / "03.jsonl").symlink_to(folder / "nothing")
    assert handed_out(job_of(store, glob, number=1, max_bad_files=1)) == []
    damage(store, "07.jsonl")
    (problem,) = handed_out(job_of(store, glob, number=2, max_bad_files=1))
    assert "03.jsonl" in problem.message


def test_a_run_that_appends_names_the_file_of_a_damaged_shard(folder: Path, store: Path) -> None:
    night(store, folder / "*.jsonl")
    shard = damage(store, "b.jsonl")
    write(folder / "c.jsonl", "c")
    (problem,) = handed_out(job_of(store, folder / "c.jsonl", number=1, append=True))
    assert str(problem.error()) == (
        f"{shard} is missing or was changed; name {folder / 'b.jsonl'} with input too, to embed"
        " it again"
    )
    found = handed_out(job_of(store, folder / "[bc].jsonl", number=2, append=True))
    assert [name for name, _, _ in work(found)] == ["b.jsonl", "c.jsonl"]


def test_a_file_of_two_patterns_is_planned_once(folder: Path, store: Path) -> None:
    globs = (folder / "*.jsonl", folder / "[bc].jsonl", folder / "b*")
    write(folder / "c.jsonl", "c")
    spans = work(handed_out(job_of(store, *globs)))
    assert [name for name, _, _ in spans] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert night(store, *globs, number=1).ledger["read"] == 3 * LARGE
    write(folder / "b.jsonl", "new")
    job = job_of(store, *globs, number=2)
    assert [name for name, _, _ in work(handed_out(job))] == ["b.jsonl"]
    assert carried_in(job) == ["a.jsonl", "c.jsonl"]


def test_two_files_of_one_relative_path_end_the_run(folder: Path, store: Path) -> None:
    write(folder / "sub" / "b.jsonl", "sub")
    (problem,) = handed_out(job_of(store, folder / "*.jsonl", folder / "sub" / "*.jsonl"))
    assert problem.exit_code == 2
    for path in (folder / "b.jsonl", folder / "sub" / "b.jsonl"):
        assert str(path) in problem.message


def rename(folder: Path, *names: str) -> None:
    """Rename files, each to the name that comes next."""
    for old, new in reversed([*zip(names, names[1:], strict=False)]):
        (folder / f"{old}.jsonl").rename(folder / f"{new}.jsonl")


def former_names(store: Path, run: str) -> dict[str, str | None]:
    """The former names of the carried files in the plan on record."""
    files = read_plan(str(store), run).files
    carried = files.filter(files.column("carried"))
    return dict(zip(carried["path"].to_pylist(), carried["was"].to_pylist(), strict=True))


def test_a_file_that_is_renamed_again_still_has_its_first_shard(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    shard = store / next(unit["path"] for unit in units_of(store) if unit["file"] == "a.jsonl")
    ids = ids_in(store)
    for number, (old, new) in enumerate([("a", "m"), ("m", "z")], 1):
        rename(folder, old, new)
        job = job_of(store, glob, number=number)
        assert work(handed_out(job)) == []
        assert former_names(store, job.run.id) == {
            "b.jsonl": None, f"{new}.jsonl": f"{old}.jsonl",
        }  # fmt: skip
        assert night(store, glob, number=number).message == "committed"
        assert file_of(store, f"{new}.jsonl")["shards_of"] == make_key("a.jsonl")
        assert ids_in(store) == ids
    assert [unit["path"] for unit in units_of(store) if unit["file"] == "z.jsonl"] == [
        str(shard.relative_to(store))
    ]
    rename(folder, "z", "a")
    job = job_of(store, glob, number=3)
    assert work(handed_out(job)) == [], "no other file has the name of its shards"
    assert carried_in(job) == ["a.jsonl", "b.jsonl"]


def test_files_that_take_each_others_names_are_carried(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    ids = ids_in(store)
    rename(folder, "b", "c")
    rename(folder, "a", "b")
    rename(folder, "c", "a")
    job = job_of(store, glob, number=1)
    assert work(handed_out(job)) == []
    assert former_names(store, job.run.id) == {"a.jsonl": "b.jsonl", "b.jsonl": "a.jsonl"}
    assert night(store, glob, number=1).message == "committed"
    assert ids_in(store) == ids
    write(folder / "b.jsonl", "new")
    job = job_of(store, glob, number=2)
    assert [name for name, _, _ in work(handed_out(job))] == ["a.jsonl", "b.jsonl"]
    assert night(store, glob, number=2).message == "committed"
    assert ids_in(store) == sorted(id_ for name in ("b", "new") for id_ in ids_of(name))


def ids_of(name: str) -> list[str]:
    """The ids of the rows of a file that `write` wrote."""
    return [f"{name}-{row}" for row in range(LARGE)]


@pytest.mark.parametrize(
    ("new", "read"),
    [
        ("a", ["a", "b", "c", "d"]),  # it could write over the shards of b, that over those of c
        ("b", ["b", "c", "d"]),
        ("d", ["d"]),
        ("e", ["e"]),
    ],
)
def test_files_make_way_one_after_the_other(
    folder: Path, store: Path, new: str, read: list[str]
) -> None:
    """Each file got the name of the next one: its shards are named after the one before."""
    glob = folder / "*.jsonl"
    write(folder / "c.jsonl", "c")
    night(store, glob)
    rename(folder, "a", "b", "c", "d")
    assert work(handed_out(job_of(store, glob, number=1))) == []
    assert night(store, glob, number=1).message == "committed"
    held = {name: file for name, file in zip("bcd", "abc", strict=True) if name != new}
    write(folder / f"{new}.jsonl", "new")
    job = job_of(store, glob, number=2)
    assert [name for name, _, _ in work(handed_out(job))] == [f"{name}.jsonl" for name in read]
    assert night(store, glob, number=2).message == "committed"
    assert ids_in(store) == sorted(id_ for name in (*held.values(), "new") for id_ in ids_of(name))


def test_a_shard_that_is_damaged_under_a_former_name_is_written_under_the_own(
    folder: Path, store: Path
) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    rename(folder, "a", "z")
    night(store, glob, number=1)
    damage(store, "z.jsonl")
    job = job_of(store, glob, number=2)
    assert [name for name, _, _ in work(handed_out(job))] == ["z.jsonl"]
    assert night(store, glob, number=2).message == "committed"
    assert file_of(store, "z.jsonl")["shards_of"] is None
    assert ids_in(store) == sorted([*ids_of("a"), *ids_of("b")])


def test_a_column_that_gets_its_first_values_has_all_files_read(folder: Path, store: Path) -> None:
    """The shards have nulls of another type."""
    glob, keep = folder / "*.jsonl", {"keep_columns": ("n",)}
    for name in "ab":
        rows = [{"id": f"{name}-{row}", "text": f"{name} {row}", "n": None} for row in range(LARGE)]
        write_jsonl(folder / f"{name}.jsonl", rows)
    night(store, glob, **keep)
    write_jsonl(folder / "c.jsonl", [{"id": "c", "text": "c", "n": "word"}])
    job = job_of(store, glob, number=1, **keep)
    assert [name for name, _, _ in work(handed_out(job))] == ["c.jsonl"]
    write_jsonl(folder / "c.jsonl", [{"id": "c", "text": "c", "n": 1}])
    job = job_of(store, glob, number=2, **keep)
    assert [name for name, _, _ in work(handed_out(job))] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert read_plan(job.root, job.run.id).notes.types == {"n": "int"}
    (folder / "a.jsonl").unlink()
    (folder / "a.jsonl").symlink_to(folder / "nothing")
    (problem,) = handed_out(job_of(store, glob, number=3, max_bad_files=1, **keep))
    assert "a.jsonl" in problem.message
