"""Steps of a plan by themselves: files listed, planned, left out and limited, plans on record.

Covers transforms/steps/plan/checked.py.
Covers transforms/steps/plan/planner.py.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_jsonl
from helpers.plans import handed_out, ids_in, job_of, night

from sentence_beam.transforms.base.errors import InputChangedError, SentenceBeamError
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import files as plan_files
from sentence_beam.transforms.steps.plan import planner
from sentence_beam.transforms.steps.plan.checked import check_bad
from sentence_beam.transforms.steps.plan.elements import ListedFiles
from sentence_beam.transforms.steps.plan.files import (
    begin_by_content,
    check_were_no_files,
    file_batches,
    list_files,
)
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.plan import PlannedFile, Standing
from sentence_beam.transforms.store.runs.recorded_plan import read_plan

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


def listed(job: EmbedJob) -> list[InputFile]:
    """The files of a job."""
    found = [item for glob in job.run.globs for item in list_files(glob, job)]
    return [item for item in found if isinstance(item, InputFile)]


def planned(job: EmbedJob) -> list[Any]:
    """The files of a job with what is done with each, or why that is not possible."""
    return FilePlanner(job).plan_all(listed(job))


def work(found: list[Any]) -> tuple[list[tuple[str, int, int | None]], list[tuple[str, str]]]:
    """The spans and carried units that a plan hands out."""
    spans = [
        (span.file.relative, span.start, span.stop)
        for item in found
        if isinstance(item, list)
        for span in item
    ]
    units = [(unit.file, unit.unit) for unit in found if isinstance(unit, UnitRecord)]
    return sorted(spans), sorted(units)


def units_of(found: list[Any]) -> list[UnitRecord]:
    """The carried units that a plan hands out."""
    units = [item for item in found if isinstance(item, UnitRecord)]
    return sorted(units, key=lambda unit: unit.unit)


def syntaxes(found: list[Any]) -> list[Syntax]:
    """The syntax of the file of each span that a plan hands out."""
    return [span.file.syntax for item in found if isinstance(item, list) for span in item]


def test_files_are_listed_in_batches(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(store, folder / "*.jsonl")
    found = list(file_batches(str(folder / "*.jsonl"), job))
    names = [file.relative for batch in found for file in batch.files]
    assert sorted(names) == ["a.jsonl", "b.jsonl"]
    assert [key_of(name) for name in names] == sorted(map(key_of, names))
    assert all(isinstance(batch, ListedFiles) for batch in found)
    (problem,) = file_batches(str(folder / "*.csv"), job)
    assert isinstance(problem, Problem)
    assert str(folder / "*.csv") in problem.message


def test_an_unchanged_file_is_carried_and_a_changed_one_is_read(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    write(folder / "b.jsonl", "c", LARGE + 1)
    a, b = planned(job_of(store, glob, number=1))
    last = read_manifest(str(store))
    assert a.carried == tuple(last.units_by_file["a.jsonl"])
    assert (a.spans, b.carried) == ((), ())
    assert [span.start for span in b.spans] == [0]
    assert a.ms > 0
    assert b.ms > 0


def test_the_same_bytes_of_another_time_are_carried(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    write(folder / "a.jsonl", "a")
    a, b = planned(job_of(store, glob, number=1))
    assert len(a.carried) == len(b.carried) == 1
    a, b = planned(job_of(store, glob, number=1, carry=False))
    assert a.carried == b.carried == ()
    assert a.file.checksum == read_manifest(str(store)).files_by_path["a.jsonl"].checksum


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
    old = read_manifest(str(store)).files_by_path["a.jsonl"]
    assert (a.file.version, a.file.size, a.file.checksum) == (old.version, old.size, old.checksum)
    assert len(a.carried) == len(b.carried) == 1
    assert "a.jsonl" in a.bad
    assert (b.bad, c.carried) == ("", ())
    assert (c.file.size, c.file.checksum, c.file.version) == (0, "", "")
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
    assert (bad.file.size, bad.file.version, bad.carried) == (0, "", ())
    assert "e.jsonl" in bad.bad


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
        (0, 1, 0, False),
    ],
)
def test_so_many_files_may_be_left_out(
    store: Path, bad: int, files: int, most: float, fails: bool
) -> None:
    job = job_of(store, "in/*", max_bad_files=most)
    items = [
        PlannedFile(
            InputFile(f"/in/{n:03d}", f"{n:03d}", "text", "", 0, "", ""), bad=f"reason {n:03d}"
        )
        for n in reversed(range(bad))
    ]
    if not fails:
        check_bad(items, files, job)
        return
    with pytest.raises(SentenceBeamError) as caught:
        check_bad(items, files, job)
    assert str(caught.value) == (
        f"{bad} of {files} files cannot be read, more than --max-bad-files {most:g} allows:"
        " reason 000"
    )


def test_a_limit_takes_the_first_rows(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    spans, _ = work(handed_out(job_of(store, glob, limit=LARGE // 2)))
    assert [name for name, _, _ in spans] == ["a.jsonl"]
    spans, _ = work(handed_out(job_of(store, glob, number=1, limit=LARGE + 1)))
    assert [name for name, _, _ in spans] == ["a.jsonl", "b.jsonl"]
    assert spans[1][2] < (folder / "b.jsonl").stat().st_size
    assert night(store, glob, number=2, limit=LARGE + 1).message == "committed"
    assert len(ids_in(store)) == LARGE + 1


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
    spans, units = work(first)
    assert [name for name, _, _ in spans] == ["c.jsonl"]
    carried = {"b.jsonl", "z.jsonl"}
    if delimiter:
        carried.add("t.csv")
    assert {name for name, _ in units} == carried
    key = InputFile("/z", "z.jsonl", "jsonl", "", 0, "", "").key
    assert any(unit.startswith(key) for _, unit in units)
    write(folder / "d.jsonl", "d")
    again = handed_out(replace(job, retried=True))
    assert work(again) == (spans, units)
    assert units_of(again) == units_of(first)
    assert list(list_files(str(glob), replace(job, retried=True))) == [Standing()]
    assert syntaxes(again) == syntaxes(first)


def test_a_copy_under_a_second_name_is_read(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    (folder / "z.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
    spans, units = work(handed_out(job_of(store, glob, number=1)))
    assert [name for name, _, _ in spans] == ["z.jsonl"]
    assert [name for name, _ in units] == ["a.jsonl", "b.jsonl"]


def test_a_plan_by_content_begins_with_all_files_or_the_problems_alone(
    folder: Path, store: Path
) -> None:
    job = job_of(store, folder / "*.jsonl", partition="content")
    assert job.by_content
    items = planned(job)
    found = [FilePlanner(job).in_short(items)]
    begun = begin_by_content(found, job)
    files = [file.file.relative for item in begun for file in getattr(item, "files", ())]
    assert files == ["a.jsonl", "b.jsonl"]
    problem = Problem("it broke", 2)
    assert begin_by_content([*found, problem], job) == [problem]
    twice = FilePlanner(job).in_short([items[0], replace(items[1], file=items[0].file)])
    missing = replace(job, run=replace(job.run, previous="run0"), carry=True)
    (error,) = begin_by_content([twice], missing)
    assert isinstance(error, Problem)


def test_problems_hand_out_nothing(folder: Path, store: Path) -> None:
    job = job_of(store, folder / "*.jsonl")
    problem = Problem("it broke", 2)
    found = [FilePlanner(job).in_short(planned(job)), problem]
    assert list(plan_files.record(found, job, 1)) == [problem]
    assert not plan_files.has_plan(job.root, job.run.id)


@pytest.mark.parametrize(("slots", "elements"), [(1, 2), (None, 2), (100, 2)])
def test_all_spans_are_handed_out_once(
    folder: Path, store: Path, slots: int | None, elements: int
) -> None:
    job = job_of(store, folder / "*.jsonl")
    found = [FilePlanner(job).in_short(planned(job))]
    spans, units = work(list(plan_files.record(found, job, slots)))
    assert (len(spans), units) == (elements, [])
    assert [name for name, _, _ in spans] == ["a.jsonl", "b.jsonl"]


def test_a_worker_that_died_after_the_plan_hands_out_the_same(folder: Path, store: Path) -> None:
    job = job_of(store, folder / "*.jsonl")
    found = [FilePlanner(job).in_short(planned(job))]
    first = work(list(plan_files.record(found, job, 1)))
    (folder / "b.jsonl").unlink()
    less = [FilePlanner(job).in_short(planned(job))]
    assert work(list(plan_files.record(less, replace(job, retried=True), 1))) == first


def test_a_file_that_changes_while_it_is_read_is_not_left_out(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_: object) -> None:
        raise InputChangedError("a.jsonl has changed")

    monkeypatch.setattr(planner, "read_footer", changed)
    found = planned(job_of(store, folder / "a.jsonl", max_bad_files=1))
    assert [item.message for item in found] == ["a.jsonl has changed"]


def test_a_folder_in_the_place_of_a_file_ends_the_run(folder: Path, store: Path) -> None:
    glob = folder / "*.jsonl"
    night(store, glob)
    last = read_manifest(str(store)).files_by_path["a.jsonl"].source
    job = job_of(store, glob, number=1)
    check_were_no_files([str(folder / "new")], job)
    with pytest.raises(SentenceBeamError, match="is a folder without files of --input now"):
        check_were_no_files([last], job)
    check_were_no_files([last], replace(job, append=True))
    check_were_no_files([last], job_of(store.with_name("new"), glob))


def test_a_renamed_file_is_read_if_another_took_its_name(folder: Path, store: Path) -> None:
    """The new file could write over the shard, which has the name of the old one."""
    glob = folder / "*.jsonl"
    night(store, glob)
    (folder / "a.jsonl").rename(folder / "z.jsonl")
    write(folder / "a.jsonl", "new", LARGE + 1)
    spans, units = work(handed_out(job_of(store, glob, number=1)))
    assert [name for name, _, _ in spans] == ["a.jsonl", "z.jsonl"]
    assert [name for name, _ in units] == ["b.jsonl"]
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

    monkeypatch.setattr(plan_files, "kept_alive", kept_alive)
    job = job_of(store, folder / "*.jsonl")
    found = [FilePlanner(job).in_short(planned(job))]
    assert kept == [job.run.key]
    list(plan_files.record(found, job, 1))
    begin_by_content(found, job_of(store, folder / "*.jsonl", partition="content"))
    assert kept == [job.run.key] * 3


def test_more_files_than_are_looked_at_at_once_are_planned_once(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FILES_AT_ONCE", 2)
    for name in "cde":
        write(folder / f"{name}.jsonl", name)
    found = planned(job_of(store, folder / "*.jsonl"))
    assert [item.file.relative for item in found] == [f"{name}.jsonl" for name in "abcde"]


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

    monkeypatch.setattr(plan_files, "spans_per_element", spans_per_element)
    job = job_of(store, folder / "*.jsonl")
    found = [FilePlanner(job).in_short(planned(job))]
    (element,) = plan_files.record(found, job, 3)
    assert (len(element), asked) == (2, [(2, 3)])


def test_the_plan_on_record_counts_files_that_were_not_taken(folder: Path, store: Path) -> None:
    (folder / "notes.xyz").write_text("no input")
    job = job_of(store, folder)
    handed_out(job)
    assert sum(read_plan(job.root, job.run.id).beside.values()) == 1
