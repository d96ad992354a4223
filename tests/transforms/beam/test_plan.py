"""The plan of a run, by list in and list out.

Covers transforms/beam/content.py.
Covers transforms/steps/plan/content_plan.py.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers import eager, fake_storage
from helpers.corpora import sentences, write_jsonl, write_parquet
from helpers.jobs import embed_job
from helpers.variants import variants

from sentence_beam.transforms.beam import Commit, Embed, Plan, Settle, content
from sentence_beam.transforms.beam.plan import LookFn
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.find import find_inputs
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.steps.embed.unit_embedder import UnitEmbedder
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content_plan as steps_of_content
from sentence_beam.transforms.steps.plan import elements, footers, look_into
from sentence_beam.transforms.steps.plan import whole_plan as plan_record
from sentence_beam.transforms.steps.plan.elements import (
    FilesToOpen,
    PlannedFiles,
    ShardStates,
    pack_table,
)
from sentence_beam.transforms.steps.plan.list_files import list_files
from sentence_beam.transforms.steps.plan.look import look_at_all
from sentence_beam.transforms.steps.plan.planned import make_planned_rows, make_row
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs import recorded_plan as plan_records
from sentence_beam.transforms.store.runs.recorded_plan import read_plan

pytestmark = pytest.mark.usefixtures("plain_beam")

OUTPUTS = ("spans", "problems")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Twenty rows in a Parquet file of four row groups and a file of lines; the glob."""
    ids, langs = [str(i) for i in range(16)], pa.array(["de"] * 16)
    write_parquet(
        tmp_path / "in" / "a.parquet", sentences(16), row_group_size=4, id=pa.array(ids), lang=langs
    )
    rows = [
        {"id": str(i), "text": text, "lang": "en"} for i, text in enumerate(sentences(4, 16), 16)
    ]
    write_jsonl(tmp_path / "in" / "b.jsonl", rows)
    return tmp_path / "in" / "*"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def planned(job: EmbedJob) -> dict[str, list]:
    return eager.outputs(Plan(job), list(job.run.globs), names=OUTPUTS)


def carried_files(job: EmbedJob) -> dict[str, int]:
    """The files that the plan on record carries over, and their rows."""
    rows = read_plan(job.root, job.run.id).files.to_pylist()
    return {row["path"]: row["rows"] for row in rows if row["carried"]}


def committed(job: EmbedJob) -> None:
    """Do all that a run does."""
    plan = planned(job)
    made = eager.outputs(Embed(job), plan["spans"], names=("units", "problems"))
    known = made["units"], [*plan["problems"], *made["problems"]]
    (result,) = eager.run(Commit(job.run), eager.run(Settle(job.run), *known), [])
    assert result.exit_code == 0, result.message


def test_the_lease_is_renewed_while_files_are_read_and_while_the_plan_is_put_together(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(lease, "renew", lambda root, run: renewed.append(run))
    for module, name in ((look_into, "check_readable"), (plan_record, "read_plan")):
        quick = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, quick=quick: (time.sleep(0.2), quick(*given))[1]
        )
    job = replace(embed_job(store, model, files), max_bad_files=1)
    (found, *_) = list_files(str(files), job)
    renewed.clear()
    worker = LookFn(job)
    worker.setup()
    planned = list(worker.process(found))
    assert set(renewed) == {job.run.id}
    renewed.clear()
    assert list(plan_record.record(planned, job, 1))
    assert set(renewed) == {job.run.id}


def test_files_become_spans_that_hold_every_row_once(store: Path, model: Path, files: Path) -> None:
    job = embed_job(store, model, files, unit_tokens=80)
    found = planned(job)
    assert (carried_files(job), found["problems"]) == ({}, [])
    spans: list[Span] = [span for element in found["spans"] for span in element]
    groups = [
        group for span in spans if span.file.relative == "a.parquet" for group in span.row_groups
    ]
    assert sorted(groups) == [0, 1, 2, 3]
    assert len(spans) > 2
    lines = sorted((span.start, span.stop) for span in spans if span.file.relative == "b.jsonl")
    assert lines[0][0] == 0
    assert lines[-1][1] == (files.parent / "b.jsonl").stat().st_size
    assert all(before[1] == after[0] for before, after in zip(lines, lines[1:], strict=False))
    on_record = read_plan(job.root, job.run.id).list_spans_to_embed()
    assert sorted((span.file.relative, span.start) for span in on_record) == sorted(
        (span.file.relative, span.start) for span in spans
    )


def test_unchanged_files_are_carried_and_changed_ones_read(
    store: Path, model: Path, files: Path
) -> None:
    committed(embed_job(store, model, files))
    with open(files.parent / "b.jsonl", "a") as lines:
        lines.write('{"id": "20", "text": "a new one", "lang": "en"}\n')
    job = embed_job(store, model, files, "run2")
    found = planned(job)
    assert carried_files(job) == {"a.parquet": 16}
    assert [span.file.relative for element in found["spans"] for span in element] == ["b.jsonl"]


def test_by_content_all_files_are_read_or_none(store: Path, model: Path, files: Path) -> None:
    job = embed_job(store, model, files, partition="content")
    found = planned(job)
    assert {span.file.relative for element in found["spans"] for span in element.spans} == {
        "a.parquet",
        "b.jsonl",
    }
    assert sum(span.rows for element in found["spans"] for span in element.spans) == 20
    assert sum(element.first for element in found["spans"]) == 1
    committed(job)
    second = embed_job(store, model, files, "run2", partition="content")
    again = planned(second)
    assert again["spans"] == again["problems"] == []
    assert read_plan(second.root, "run2").notes.replaces == plan_records.SOME
    committed(second)
    assert read_manifest(second.root).work.carried == 20


def test_by_content_the_footers_of_unchanged_files_are_opened_by_many_and_each_once(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        write_jsonl(
            files.parent / f"{n}.jsonl", [{"id": f"s{n}", "text": "few words", "lang": "en"}]
        )
    committed(embed_job(store, model, files, partition="content"))
    write_jsonl(files.parent / "7.jsonl", [{"id": "s7", "text": "other words", "lang": "en"}])
    job = embed_job(store, model, files, "run2", partition="content")
    opened: list[str] = []
    batches: list[pa.Table] = []
    kept_types, open_files = footers.read_kept_types, steps_of_content.open_files
    monkeypatch.setattr(
        footers,
        "read_kept_types",
        lambda file, job: (opened.append(file.relative), kept_types(file, job))[1],
    )
    monkeypatch.setattr(
        steps_of_content,
        "open_files",
        lambda files, job: (batches.append(files), open_files(files, job))[1],
    )
    monkeypatch.setattr(steps_of_content, "FILES_PER_ELEMENT", 8)
    found = planned(job)
    assert found["problems"] == []
    assert sum(span.rows for element in found["spans"] for span in element.spans) == 50
    assert sum(files.column("kept").null_count for files in batches) == 31, (
        "all but the one that has changed"
    )
    assert max(map(len, batches)) <= 8
    assert sorted(set(opened)) == sorted(path.name for path in files.parent.iterdir())
    assert len(opened) <= 33, "one is asked for its types before the others are opened"
    committed(job)
    opened.clear()
    batches.clear()
    assert planned(embed_job(store, model, files, "run3", partition="content"))["spans"] == []
    assert read_plan(job.root, "run3").notes.replaces == plan_records.SOME
    assert (opened, batches) == ([], []), "nothing has changed"


@variants(
    ("values", "status", "said"),
    [
        ({"text_limit": 100}, 2, "groups the text in memory here"),
        ({"index_asked": IndexSpec.parse("IVF64,Flat")}, 2, "IVF64,Flat"),
    ],
    (0,),
)
def test_by_content_what_all_files_have_to_allow_is_looked_at_before_rows_are(
    store: Path,
    model: Path,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    status: int,
    said: str,
) -> None:
    # how many rows a file of lines has is known when it was read
    (files.parent / "b.jsonl").unlink()
    committed(embed_job(store, model, files, partition="content"))
    write_parquet(files.parent / "b.parquet", ["a new one"], id=["20"], lang=["en"])
    monkeypatch.setattr(steps_of_content, "count_rows", lambda *_: pytest.fail("rows were counted"))
    found = planned(embed_job(store, model, files, "run2", partition="content", **values))
    assert [(problem.exit_code, said in problem.message) for problem in found["problems"]] == [
        (status, True)
    ]
    assert found["spans"] == []
    assert not (store / "runs" / "run2").exists()


def test_by_content_changed_files_have_the_stores_types(
    store: Path, model: Path, files: Path
) -> None:
    committed(embed_job(store, model, files, partition="content"))
    write_parquet(files.parent / "c.parquet", ["a new one"], id=["20"], lang=pa.array([1]))
    found = planned(embed_job(store, model, files, "run2", partition="content"))
    assert found["problems"] == []
    spans = [span for work in found["spans"] for span in work.spans]
    assert {span.file.types for span in spans} == {(("lang", "str"),)}


def test_by_content_a_file_that_changes_before_its_rows_are_counted_is_a_problem(
    store: Path, model: Path, files: Path
) -> None:
    job = embed_job(store, model, files, partition="content")
    path = files.parent / "b.jsonl"
    (file,) = find_inputs(str(path), "auto", False).files
    write_jsonl(path, [{"id": "20", "text": "another one", "lang": "en"}])
    found = steps_of_content.count_rows(
        steps_of_content.ToCount(Span(file, 0, 0, None), exact=True), job
    )
    assert isinstance(found, Problem)
    assert f"{path} changed while the run read it" in found.message


def test_a_file_that_goes_before_it_is_opened_ends_the_run(
    store: Path, model: Path, files: Path
) -> None:
    job = embed_job(store, model, files, partition="content")
    listed = [
        FilesToOpen(pack_table(make_planned_rows([make_row(file) | {"carried": True}])))
        for file in find_inputs(str(files), "auto", False).files
    ]
    (files.parent / "a.parquet").unlink()
    opening = content.OpenFilesFn(job)
    opening.setup()
    found = [item for some in listed for item in opening.process(some)]
    assert [type(item) for item in found] == [Problem, PlannedFiles]
    assert "a.parquet" in found[0].message


def handed_out(job: EmbedJob) -> list:
    """What a plan gives to embed, and the files that it carries over."""
    found = planned(job)
    assert found["problems"] == []
    return [found["spans"], carried_files(job)]


@pytest.mark.parametrize("partition", [pytest.param("file", marks=pytest.mark.slow), "content"])
def test_an_attempt_after_the_first_hands_out_the_plan_that_stands(
    store: Path, model: Path, files: Path, partition: str
) -> None:
    for n in range(100):  # in two groups
        write_jsonl(
            files.parent / f"small{n}.jsonl", [{"id": f"s{n}", "text": "few words", "lang": "en"}]
        )
    committed(embed_job(store, model, files, partition=partition))
    (files.parent / "a.parquet").rename(files.parent / "other.parquet")
    write_jsonl(files.parent / "small3.jsonl", [{"id": "s3", "text": "other words", "lang": "en"}])
    with open(files.parent / "b.jsonl", "a") as lines:
        lines.write('{"id": "20", "text": "a new one", "lang": "en"}\n')
    job = embed_job(store, model, files, "run2", partition=partition, retried=True)
    first = handed_out(job)
    assert first[0]
    assert partition == "content" or {"other.parquet", "small1.jsonl"} <= first[1].keys()
    write_jsonl(files.parent / "late.jsonl", [{"id": "l", "text": "added meanwhile", "lang": "en"}])
    (files.parent / "bad.parquet").write_bytes(b"PAR1")
    assert handed_out(job) == first
    committed(job)


def test_a_process_reads_the_last_snapshot_and_lists_the_store_once(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(embed_job(store, model, files))
    job = embed_job(store, model, files, "run2")
    job = replace(job, run=replace(job.run, previous_digest=read_manifest(str(store)).digest))
    noted = fake_storage.note(monkeypatch, "read_versioned", "below")
    found = list(list_files(str(files), job))
    threads = [LookFn(job) for _ in range(8)]
    for thread in threads:
        thread.setup()
        looked = [item for one in found for item in thread.process(one)]
        assert {type(item) for item in looked} == {PlannedFiles, ShardStates}
    embedders = [UnitEmbedder.from_job(job, None, None) for _ in range(8)]
    assert all(embedder.last.is_final for embedder in embedders)
    assert list(plan_record.record(looked, job, 2)) == []
    asked = [path for _, path in noted]
    assert [path for path in asked if path.endswith(".json")] == [
        str(store / "manifests" / "run1.json")
    ]
    assert asked.count(str(store / "embeddings")) == 1
    assert carried_files(job) == {"a.parquet": 16, "b.jsonl": 4}


def test_a_last_snapshot_that_cannot_be_read_is_a_problem_and_raises_in_no_worker(
    store: Path, model: Path, files: Path
) -> None:
    committed(embed_job(store, model, files))
    job = embed_job(store, model, files, "run2")
    for path in (store / "manifests" / "run1.json", store / "manifest.json"):
        path.write_text("{}")
    (problem,) = list_files(str(files), job)
    assert isinstance(problem, Problem)
    assert "run1" in problem.message


def test_many_files_come_in_batches_and_the_plan_is_the_same(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        write_jsonl(
            files.parent / f"{n}.jsonl", [{"id": f"s{n}", "text": "few words", "lang": "en"}]
        )
    job = embed_job(store, model, files, unit_tokens=80)
    assert [len(item.table) for item in list_files(str(files), job)] == [1] * 32
    alone = sorted(span.name for element in planned(job)["spans"] for span in element)
    monkeypatch.setattr(elements, "SLOTS", 1)
    assert [len(item.table) for item in list_files(str(files), job)] == [8] * 4
    monkeypatch.setattr(plan_records, "ROWS_AT_ONCE", 5)
    again = planned(embed_job(store, model, files, "run2", unit_tokens=80))
    assert sorted(span.name for element in again["spans"] for span in element) == alone
    first, second = (read_plan(job.root, run) for run in (job.run.id, "run2"))
    assert first.files.equals(second.files)
    assert first.spans.equals(second.spans)
    assert len(second.files) == 32


def test_an_unchanged_corpus_stays_so_for_later_attempts(
    store: Path, model: Path, files: Path
) -> None:
    committed(embed_job(store, model, files, partition="content"))
    job = embed_job(store, model, files, "run2", partition="content", retried=True)
    first = handed_out(job)
    (files.parent / "b.jsonl").unlink()
    assert handed_out(job) == first
    committed(job)


@pytest.mark.parametrize("partition", [pytest.param("file", marks=pytest.mark.slow), "content"])
def test_a_step_that_is_done_again_after_it_made_the_plan_hands_that_out(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch, partition: str
) -> None:
    committed(embed_job(store, model, files, partition=partition))
    job = embed_job(store, model, files, "run2", partition=partition, retried=True)
    listed = look_at_all(job)
    step = (
        steps_of_content.begin
        if partition == "content"
        else lambda found, job: list(plan_record.record(found, job, 1))
    )
    first = step(listed, job)
    assert carried_files(job).keys() == {"a.parquet", "b.jsonl"}
    monkeypatch.setattr(
        steps_of_content, "find_unchanged", lambda *_: pytest.fail("compared again")
    )
    monkeypatch.setattr(plan_record, "check_plan", lambda *_: pytest.fail("planned again"))
    assert sorted(step(listed, job), key=str) == sorted(first, key=str)


def test_of_two_attempts_that_plan_at_once_the_later_hands_out_the_plan_of_the_first(
    store: Path, model: Path, files: Path
) -> None:
    job = embed_job(store, model, files)
    first = handed_out(job)
    write_jsonl(files.parent / "late.jsonl", [{"id": "l", "text": "added meanwhile", "lang": "en"}])
    assert handed_out(job) == first  # this one did not look for a plan before it listed the files


@pytest.mark.parametrize("partition", ["file", "content"])
def test_a_file_that_cannot_be_read_ends_the_run(
    store: Path, model: Path, files: Path, partition: str
) -> None:
    (files.parent / "bad.parquet").write_bytes(b"PAR1")
    found = planned(embed_job(store, model, files, partition=partition))
    assert found["spans"] == []
    assert ["bad.parquet" in problem.message for problem in found["problems"]] == [True]
    assert not (store / "runs" / "run1").exists()


def test_a_glob_without_files_is_a_problem(store: Path, model: Path, tmp_path: Path) -> None:
    found = planned(embed_job(store, model, tmp_path / "none" / "*"))
    assert [problem.exit_code for problem in found["problems"]] == [2]
    assert found["spans"] == []
