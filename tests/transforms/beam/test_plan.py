"""The plan of a run, by list in and list out.

Covers transforms/beam/content.py.
Covers transforms/steps/plan/content.py.
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
from sentence_beam.transforms.beam.plan import PlanFilesFn
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.find import find_inputs
from sentence_beam.transforms.index.spec import IndexSpec
from sentence_beam.transforms.steps.embed.units import UnitEmbedder
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content as steps_of_content
from sentence_beam.transforms.steps.plan import elements, footers, planner
from sentence_beam.transforms.steps.plan import files as plan_files
from sentence_beam.transforms.steps.plan.elements import ListedFiles, PlannedFiles
from sentence_beam.transforms.steps.plan.files import file_batches, record
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs import plan as plan_records
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.recorded_plan import read_plan

pytestmark = pytest.mark.usefixtures("plain_beam")

OUTPUTS = ("spans", "carried", "problems")


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


def committed(job: EmbedJob) -> None:
    """Do all that a run does."""
    plan = planned(job)
    made = eager.outputs(Embed(job), plan["spans"], names=("units", "problems"))
    known = made["units"], plan["carried"], [*plan["problems"], *made["problems"]]
    (result,) = eager.run(Commit(job.run), eager.run(Settle(job.run), *known), [])
    assert result.exit_code == 0, result.message


def test_the_lease_is_renewed_while_files_are_read_and_while_the_plan_is_put_together(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(lease, "renew", lambda root, run: renewed.append(run))
    for module, name in ((planner, "check_readable"), (plan_files, "hand_out")):
        quick = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, quick=quick: (time.sleep(0.2), quick(*given))[1]
        )
    job = replace(embed_job(store, model, files), max_bad_files=1)
    (found, *_) = file_batches(str(files), job)
    renewed.clear()
    worker = PlanFilesFn(job)
    worker.setup()
    planned = list(worker.process(found))
    assert set(renewed) == {job.run.id}
    renewed.clear()
    assert list(record(planned, job, 1))
    assert set(renewed) == {job.run.id}


def test_files_become_spans_that_hold_every_row_once(store: Path, model: Path, files: Path) -> None:
    job = embed_job(store, model, files, unit_tokens=80)
    found = planned(job)
    assert (found["carried"], found["problems"]) == ([], [])
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
    on_record = read_plan(job.root, job.run.id)
    assert sorted((span.file, span.start) for span in on_record.spans) == sorted(
        (span.file.relative, span.start) for span in spans
    )


def test_unchanged_files_are_carried_and_changed_ones_read(
    store: Path, model: Path, files: Path
) -> None:
    committed(embed_job(store, model, files))
    with open(files.parent / "b.jsonl", "a") as lines:
        lines.write('{"id": "20", "text": "a new one", "lang": "en"}\n')
    found = planned(embed_job(store, model, files, "run2"))
    assert [(unit.file, unit.rows, unit.carried) for unit in found["carried"]] == [
        ("a.parquet", 16, 16)
    ]
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
    again = planned(embed_job(store, model, files, "run2", partition="content"))
    assert again["spans"] == again["problems"] == []
    assert sum(unit.carried for unit in again["carried"]) == 20


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
    batches: list[list[PlannedFile]] = []
    kept_types, read_footers = footers.kept_types, content.read_footers
    monkeypatch.setattr(
        footers,
        "kept_types",
        lambda file, job: (opened.append(file.relative), kept_types(file, job))[1],
    )
    monkeypatch.setattr(
        content,
        "read_footers",
        lambda files, job: (batches.append(files), read_footers(files, job))[1],
    )
    monkeypatch.setattr(elements, "SLOTS", 1)
    found = planned(job)
    assert (found["carried"], found["problems"]) == ([], [])
    assert sum(span.rows for element in found["spans"] for span in element.spans) == 50
    assert sum(item.is_unopened for files in batches for item in files) == 31, (
        "all but the one that has changed"
    )
    assert max(map(len, batches)) <= 8
    assert sorted(set(opened)) == sorted(path.name for path in files.parent.iterdir())
    assert len(opened) <= 33, "one is asked for its types before the others are opened"
    committed(job)
    opened.clear()
    batches.clear()
    assert planned(embed_job(store, model, files, "run3", partition="content"))["carried"]
    assert (opened, batches) == ([], []), "nothing has changed"


@variants(
    ("values", "status", "said"),
    [
        ({"text_limit": 100}, 2, "--partition content groups the text in memory here"),
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
    assert found["spans"] == found["carried"] == []
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


def test_a_file_that_goes_before_it_is_opened_ends_the_run(
    store: Path, model: Path, files: Path
) -> None:
    job = embed_job(store, model, files, partition="content")
    listed = [
        PlannedFiles((PlannedFile(file),)) for file in find_inputs(str(files), "auto", False).files
    ]
    (files.parent / "a.parquet").unlink()
    opening = content.OpenFilesFn(job)
    opening.setup()
    found = [item for some in listed for item in opening.process(some)]
    assert [type(item) for item in found] == [Problem, PlannedFiles]
    assert "a.parquet" in found[0].message


def handed_out(job: EmbedJob) -> list:
    """What a plan gives to embed and to carry over."""
    found = planned(job)
    assert found["problems"] == []
    return [found["spans"], sorted(found["carried"], key=lambda unit: unit.unit)]


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
    assert partition == "content" or {"other.parquet", None} <= {unit.file for unit in first[1]}
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
    found = find_inputs(str(files), "auto", False).files
    threads = [PlanFilesFn(job) for _ in range(8)]
    for thread in threads:
        thread.setup()
        planned = [item for one in found for item in thread.process(ListedFiles((one,)))]
        assert [file.relative for item in planned for file in item.unchanged] == [
            "a.parquet",
            "b.jsonl",
        ]
        assert [file for item in planned for file in item.files] == []
    embedders = [UnitEmbedder.of_job(job, None, None) for _ in range(8)]
    assert all(embedder.last.is_final for embedder in embedders)
    result = list(record(list(threads[0].process(ListedFiles(tuple(found)))), job, 2))
    assert sum(unit.carried for unit in result) == 20
    asked = [path for _, path in noted]
    assert [path for path in asked if "manifest" in path] == [
        str(store / "manifests" / "run1.json")
    ]
    assert asked.count(str(store / "embeddings")) == 1


def test_a_last_snapshot_that_cannot_be_read_is_a_problem_and_raises_in_no_worker(
    store: Path, model: Path, files: Path
) -> None:
    committed(embed_job(store, model, files))
    job = embed_job(store, model, files, "run2")
    for path in (store / "manifests" / "run1.json", store / "manifest.json"):
        path.write_text("{}")
    step = PlanFilesFn(job)
    step.setup()
    found = list(step.process(ListedFiles(tuple(find_inputs(str(files), "auto", False).files))))
    assert [type(item) for item in found] == [Problem, PlannedFiles]
    assert "run1" in found[0].message


def test_many_files_come_in_batches_and_the_plan_is_the_same(
    store: Path, model: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        write_jsonl(
            files.parent / f"{n}.jsonl", [{"id": f"s{n}", "text": "few words", "lang": "en"}]
        )
    job = embed_job(store, model, files, unit_tokens=80)
    assert [len(item.files) for item in file_batches(str(files), job)] == [1] * 32
    alone = sorted(span.name for element in planned(job)["spans"] for span in element)
    monkeypatch.setattr(elements, "SLOTS", 1)
    assert [len(item.files) for item in file_batches(str(files), job)] == [8] * 4
    monkeypatch.setattr(plan_records, "ROWS_AT_ONCE", 5)
    again = planned(embed_job(store, model, files, "run2", unit_tokens=80))
    assert sorted(span.name for element in again["spans"] for span in element) == alone
    first, second = (read_plan(job.root, run) for run in (job.run.id, "run2"))
    assert (first.files, first.spans) == (second.files, second.spans)
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
    found = find_inputs(str(files), "auto", False).files
    listed = [PlannedFiles(tuple(FilePlanner(job).plan_all(found)))]
    step = (
        plan_files.begin_by_content
        if partition == "content"
        else lambda found, job: list(record(found, job, 1))
    )
    first = step(listed, job)
    assert sum(unit.carried for unit in first) == 20
    monkeypatch.setattr(steps_of_content, "unchanged", lambda *_: pytest.fail("compared again"))
    monkeypatch.setattr(plan_files, "checked_plan", lambda *_: pytest.fail("planned again"))
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
    assert (found["spans"], found["carried"]) == ([], [])
    assert ["bad.parquet" in problem.message for problem in found["problems"]] == [True]
    assert not (store / "runs" / "run1").exists()


def test_a_glob_without_files_is_a_problem(store: Path, model: Path, tmp_path: Path) -> None:
    found = planned(embed_job(store, model, tmp_path / "none" / "*"))
    assert [problem.exit_code for problem in found["problems"]] == [2]
    assert found["spans"] == []
