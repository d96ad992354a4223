"""The plan of a new store, whose files come packed with their spans: it is the plan of these files
as objects.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import sentences, write_bytes, write_jsonl, write_lines, write_parquet
from helpers.plans import job_of, looked_at, night, planned_by_ranges

from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan, spans_of
from sentence_beam.transforms.index.spec import IndexSpec
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.elements import PlannedFiles
from sentence_beam.transforms.steps.plan.files import put_together, record
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import packed_files
from sentence_beam.transforms.store.runs.packed_files import PackedPlan
from sentence_beam.transforms.store.runs.recorded_plan import read_plan

ROWS = 40  # of a file: more than files have that share units


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few spans are packed too."""
    monkeypatch.setattr(packed_files, "LEAST_UNITS", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of many formats with units of their own, small ones that share units, an empty one."""
    there = tmp_path / "in"
    for number in range(4):
        ids = [f"p{number}-{row}" for row in range(ROWS)]
        texts = sentences(ROWS, 100 * number)
        write_parquet(there / f"{number}.parquet", texts, row_group_size=8, id=ids, n=[1] * ROWS)
        rows = [{"id": f"j{name}", "text": text, "n": 2} for name, text in enumerate(texts)]
        write_jsonl(there / f"{number}.jsonl", rows)
        lines = [f"c{number}-{row};{text};3" for row, text in enumerate(texts)]
        write_lines(there / f"{number}.csv", ["id;text;n", *lines])
    for number in range(40):
        write_jsonl(there / f"small-{number}.jsonl", [{"id": "s", "text": "few", "n": 4}])
    write_bytes(there / "empty.jsonl", b"")
    return there


def job(folder: Path, *globs: str, number: int = 0, **values: Any) -> EmbedJob:
    options = {"unit_tokens": 200, "delimiter": ";", **values}
    root = folder.parent / "store"
    return job_of(root, *(folder / glob for glob in globs or ("*",)), number=number, **options)


def spans_in(found: list[Any]) -> list[AnySpan]:
    spans = [span for item in found if isinstance(item, list) for span in item]
    return sorted(spans, key=lambda span: span.name)


def problem_in(found: list[Any]) -> Problem:
    (problem,) = found
    assert isinstance(problem, Problem)
    assert len(problem.message.splitlines()) == 1
    return problem


def objects_in(found: list[Any]) -> list[Any]:
    """The files that did not travel packed."""
    return [item for some in found if isinstance(some, PlannedFiles) for item in some.files]


@pytest.mark.parametrize("globs", [("*",), ("*", "*.parquet")], ids=["one glob", "files twice"])
def test_the_plan_of_packed_files_is_the_plan_without_packing(
    folder: Path, globs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(folder, *globs, number=number, keep_columns=("n",)) for number in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(FilePlanner, "packs_spans", False)
        whole = planned_by_ranges(jobs[0])
    assert not {"0.csv", "0.jsonl", "0.parquet"} & {
        item.file.relative for item in objects_in(looked_at(jobs[1]))
    }
    packed = planned_by_ranges(jobs[1])
    again = planned_by_ranges(replace(jobs[1], retried=True))
    assert spans_in(packed) == spans_in(again) == spans_in(whole)
    assert any(isinstance(span, GroupSpan) for span in spans_in(whole))
    assert {span.file.types for span in spans_in(packed)} == {(("n", "int"),)}
    plans = [read_plan(one.root, one.run.id) for one in jobs]
    assert plans[0].files == plans[1].files
    assert sorted(plans[0].spans, key=str) == sorted(plans[1].spans, key=str)
    for name in ("tokens", "rows", "types", "file_count", "empty_count", "uncounted"):
        assert getattr(plans[0], name) == getattr(plans[1], name)


def test_a_damaged_plan_on_record_is_a_problem(folder: Path) -> None:
    made = job(folder)
    assert spans_in(planned_by_ranges(made))
    path = Path(made.root, layout.plan(made.run.id))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = planned_by_ranges(replace(made, retried=True))
    problem = problem_in([item for item in found if isinstance(item, Problem)])
    assert f"{path} is not the plan that was written" in problem.message


def test_the_spans_of_a_file_stay_together(folder: Path) -> None:
    found = planned_by_ranges(job(folder, "*.parquet"))
    names = [span.file.relative for item in found if isinstance(item, list) for span in item]
    changes = sum(one != other for one, other in zip(names, names[1:], strict=False))
    assert len(names) > 4 > changes


def test_a_store_that_was_packed_is_unchanged_in_the_next_night(folder: Path) -> None:
    root = folder.parent / "store"
    options = {"unit_tokens": 200, "delimiter": ";"}
    assert night(root, folder / "*", number=0, **options).message == "committed"
    first = read_manifest(str(root))
    result = night(root, folder / "*", number=1, **options)
    assert result.ledger["carried"] == result.ledger["written"] == first.rows.written
    assert read_manifest(str(root)).units == first.units


@pytest.mark.parametrize(
    "values", [{"append": True}, {"limit": 5}, {"partition": "content"}], ids=str
)
def test_files_that_must_be_seen_together_travel_in_full(
    folder: Path, values: dict[str, Any]
) -> None:
    made = job(folder, "*.parquet", "[0-9].csv", **values)
    assert len(objects_in(looked_at(made))) == 8


def test_a_second_night_packs_no_new_files(folder: Path) -> None:
    assert (
        night(folder.parent / "store", folder / "0.*", unit_tokens=200, delimiter=";").message
        == "committed"
    )
    made = job(folder, "[0-9].*", number=1)
    assert len(objects_in(looked_at(made))) == 9
    assert {span.file.relative[0] for span in spans_in(planned_by_ranges(made))} == {*"123"}


def test_another_file_of_the_same_relative_path_is_refused(folder: Path) -> None:
    texts = sentences(ROWS, 1000)
    write_parquet(folder.parent / "also" / "2.parquet", texts, id=[f"a{n}" for n in range(ROWS)])
    made = job(folder, "*.parquet", "../also/*.parquet")
    assert not objects_in(looked_at(made))
    problem = problem_in(list(record(looked_at(made), made, 1)))
    assert "both give the relative path 2.parquet" in problem.message


def test_kept_columns_are_those_of_all_packed_files(folder: Path) -> None:
    ids = [f"x{n}" for n in range(ROWS)]
    texts = sentences(ROWS, 1000)
    write_parquet(folder / "3.parquet", texts, id=ids, n=["text"] * ROWS)
    write_parquet(folder / "4.parquet", texts, id=[f"y{n}" for n in range(ROWS)])
    made = job(folder, "*.parquet", keep_columns=("n",))
    assert not objects_in(looked_at(made))
    spans = spans_in(list(record(looked_at(made), made, 1)))
    assert {span.file.types for span in spans} == {(("n", "arrow:string"),)}
    assert read_plan(made.root, made.run.id).lacking == {"n": 1}
    made = job(folder, "[0-9].jsonl", number=1, keep_columns=("m",))
    problem = problem_in(list(record(looked_at(made), made, 1)))
    assert (problem.exit_code, "has no column m" in problem.message) == (2, True)


def test_packed_files_are_read_again_when_a_column_of_nulls_gets_a_type(folder: Path) -> None:
    root = folder.parent / "store"
    options = {"unit_tokens": 200, "keep_columns": ("m",), "id_column": "id", "delimiter": None}
    for number in range(3):
        texts = sentences(ROWS, 100 * number)
        rows = [{"id": f"{number}-{n}", "text": text, "m": None} for n, text in enumerate(texts)]
        write_jsonl(folder / f"null-{number}.jsonl", rows)
    assert night(root, folder / "null-*", number=0, **options).message == "committed"
    assert read_manifest(str(root)).options.keep_types == {"m": "null"}
    rows = [{"id": f"new-{n}", "text": text, "m": n} for n, text in enumerate(sentences(ROWS, 900))]
    write_jsonl(folder / "null-new.jsonl", rows)
    made = job(folder, "null-*", number=1, **options, keep_types={"m": "null"})
    assert len(objects_in(looked_at(made))) == 1  # the new file
    result = night(root, folder / "null-*", number=1, **options, keep_types={"m": "null"})
    assert (result.message, result.ledger["carried"]) == ("committed", 0)
    assert result.ledger["written"] == 4 * ROWS
    assert read_manifest(str(root)).options.keep_types == {"m": "int"}


def test_bad_files_are_a_share_of_all(folder: Path) -> None:
    write_bytes(folder / "bad.parquet", b"no Parquet")
    made = job(folder, "*.parquet", max_bad_files=0.2)
    assert spans_in(planned_by_ranges(made))
    refused = replace(made, max_bad_files=0.1)
    problem = problem_in(list(record(looked_at(refused), refused, 1)))
    assert "1 of 5 files cannot be read" in problem.message


@pytest.mark.parametrize("glob", ["*.parquet", "*.jsonl"], ids=["rows known", "rows not known"])
def test_rows_of_packed_files_are_counted_for_an_index(folder: Path, glob: str) -> None:
    few, many = (
        job(folder, glob, number=number, index_asked=IndexSpec.parse(spec))
        for number, spec in enumerate(("IVF2,Flat", "IVF4096,Flat"))
    )
    assert spans_in(planned_by_ranges(few))
    problem = problem_in(list(record(looked_at(many), many, 1)))
    assert problem.exit_code == 2
    assert "IVF4096,Flat" in problem.message


def test_a_random_sample_of_spans_is_of_all_files(folder: Path) -> None:
    made = job(folder)
    _, packed = put_together(looked_at(made), made)
    every = list(packed.spans(";"))
    assert packed.total("spans") == len(every) > 20
    some = list(packed.some_spans(10, ";"))
    assert len(set(some)) == 10
    assert set(some) < set(every)
    assert len({span.file.relative for span in some}) > 3
    assert set(packed.some_spans(10_000, ";")) == set(every)
    assert list(PackedPlan().some_spans(10, None)) == []
    uncounted = [part for span in packed.uncounted(";") for part in spans_of(span)]
    assert {span.file.format for span in uncounted} == {"jsonl"}
