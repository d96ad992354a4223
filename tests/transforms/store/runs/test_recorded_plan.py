"""A plan on record: its files and spans are those that were written, however its rows are read.

Covers transforms/store/runs/plan_work.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.unit_records import unit_record

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.runs import plan_file
from sentence_beam.transforms.store.runs.plan import ADDED, PlannedFile
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.plan_work import CarriedSpan, RecordedWork
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.runs.stretches import STRETCHES

RUN = "run1"


def file(name: str, size: int = 100) -> InputFile:
    return InputFile(f"/in/{name}", name, "csv", "", size, f"sum of {name}", "v", ";", cut=7)


def of_spans(name: str, count: int, rows: int | None = 10) -> PlannedFile:
    """A file of so many spans, each with its place in the file and 5 tokens."""
    own = file(name)
    spans = (
        Span(own, n, 10 * n, 10 * n + 10, (n,), rows, tokens=5, offset=3 * n) for n in range(count)
    )
    return PlannedFile(own, tuple(spans))


def small(name: str) -> Span:
    return Span(file(name, 2), 0, 0, None, rows=1, tokens=5)


CARRIED = of_spans("carried.csv", 0).file
UNITS = tuple(
    unit_record(10, unit=f"{CARRIED.key}-{n:012d}", file=CARRIED.relative, range=(n, n + 1))
    for n in range(4)
)
GROUPED = ("small-0.csv", "small-1.csv")
PLANNED = [
    of_spans("a.csv", 7),
    of_spans("b.csv", 1, rows=None),
    PlannedFile(CARRIED, carried=UNITS, was="before.csv"),
    PlannedFile(file("empty.csv", 0)),
    PlannedFile(file("rowless.csv"), is_rowless=True),
    PlannedFile(
        small(GROUPED[0]).file, group=GroupSpan("f0-0", tuple(map(small, GROUPED))), in_group="f0-0"
    ),
    PlannedFile(small(GROUPED[1]).file, in_group="f0-0"),
    of_spans("z.csv", 5),
]


@pytest.fixture(params=[3, 20_000], ids=["three rows at a time", "all rows at once"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(plan_file, "ROWS_AT_ONCE", request.param)
    assert write_plan(str(tmp_path), RUN, PLANNED)
    return str(tmp_path)


def work() -> Iterator[AnySpan]:
    return (span for item in PLANNED for span in item.work)


def test_files_and_spans_are_those_that_were_planned(root: str) -> None:
    plan = read_plan(root, RUN)
    planned = [span for item in PLANNED for span, _ in item.planned]
    assert plan.spans == planned
    entries = [
        InputEntry(f.relative, f.path, f.format, f.checksum, f.version, f.size, cut=7)
        for f in (item.file for item in PLANNED)
    ]
    in_group = [replace(one, group="f0-0") if "small" in one.path else one for one in entries]
    assert plan.files == sorted(in_group, key=lambda entry: entry.path)
    assert (plan.file_count, plan.empty_count, plan.uncounted) == (len(PLANNED), 1, [])
    assert plan.tokens == sum(span.tokens for span in work()) == 75
    assert plan.rows is None, "b.csv has a span whose rows are not known"


def test_stretches_have_all_files_and_spans_once(root: str) -> None:
    plan = read_plan(root, RUN)
    files = [entry for number in range(STRETCHES) for entry in plan.files_in(number)]
    spans = [span for number in range(STRETCHES) for span in plan.spans_in(number)]
    assert sorted(files, key=lambda entry: entry.path) == plan.files
    assert sorted(spans, key=str) == sorted(plan.spans, key=str)


def test_the_work_is_handed_out_again(root: str) -> None:
    found = RecordedWork(root, RUN, ";")
    assert list(found.spans()) == list(work())
    assert found.totals == (14, 75)
    names = [f"{CARRIED.key}-{n:012d}" for n in range(4)]
    assert list(found.carried()) == [CarriedSpan(name, CARRIED, "before.csv") for name in names]


def test_files_without_a_planned_span_are_named(tmp_path: Path) -> None:
    lost = [PlannedFile(file("lost.csv")), PlannedFile(file("lost too.csv"), in_group="f0-1")]
    write_plan(str(tmp_path), RUN, [*PLANNED, *lost])
    assert read_plan(str(tmp_path), RUN).uncounted == ["lost.csv", "lost too.csv"]


def test_a_plan_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    write_plan(str(tmp_path), RUN, PLANNED[:2])
    path = tmp_path / layout.plan(RUN)
    whole = pq.read_table(path)
    pq.write_table(whole.drop_columns(list(ADDED)), path)
    plan = read_plan(str(tmp_path), RUN)
    assert plan.spans == [span for item in PLANNED[:2] for span, _ in item.planned]
    assert [entry.cut for entry in plan.files] == [0, 0]
    with pytest.raises(SentenceBeamError, match="is not the plan that was written"):
        list(RecordedWork(str(tmp_path), RUN).spans())
    pq.write_table(whole.drop_columns(["rows"]), path)
    with pytest.raises(SentenceBeamError, match="is not the plan that was written"):
        read_plan(str(tmp_path), RUN)
