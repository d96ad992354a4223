"""A plan on record: its files and spans are those that were written, however its rows are read."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.snapshots import PlannedFile, planned_files, write_plan
from helpers.unit_records import unit_record

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs import recorded_plan as plans
from sentence_beam.transforms.store.runs.recorded_plan import (
    PLAN,
    PlanNotes,
    RecordedPlan,
    carry_all,
    has_plan,
    read_plan,
)
from sentence_beam.transforms.store.tables.names import find_stretches
from sentence_beam.transforms.store.tables.table_columns import FILES

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


def small(name: str, rows: int | None = 1) -> Span:
    return Span(file(name, 2), 0, 0, None, rows=rows, tokens=5)


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


@pytest.fixture(params=[1, 3, 20_000], ids="{} at a time".format)
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(plans, "ROWS_AT_ONCE", request.param)
    assert write_plan(str(tmp_path), RUN, PLANNED)
    return str(tmp_path)


def work() -> Iterator[AnySpan]:
    return (span for item in PLANNED for span in item.work)


def test_files_and_spans_are_those_that_were_planned(root: str) -> None:
    plan = read_plan(root, RUN)
    rows = {row["path"]: row for row in plan.files.to_pylist()}
    assert [*rows] == sorted(item.file.relative for item in PLANNED)
    for item in PLANNED:
        row = rows[item.file.relative]
        for name in ("format", "size", "checksum", "version", "cut"):
            assert row[name] == getattr(item.file, name)
        assert row["group"] == (item.in_group or None)
        assert plan.file(item.file.relative) == replace(item.file, syntax=plans.AS_FOUND)
    assert [row["source"] for row in planned_files(plan.files)] == [f"/in/{name}" for name in rows]
    assert [name for name, row in rows.items() if row["carried"]] == ["carried.csv", "empty.csv"]
    carried = rows["carried.csv"]
    counts = ("units", "rows", "read", "written", "was", "spans")
    assert [carried[name] for name in counts] == [4, 40, 40, 40, "before.csv", None]
    assert rows["rowless.csv"]["spans"] == []
    assert plan.file("other.csv") is None
    assert (plan.empty_count, plan.tokens, plan.span_count) == (1, 75, 14)
    assert plan.tokens == sum(span.tokens for span in work())


def test_the_spans_are_one_row_each_in_the_order_of_their_stretches(root: str) -> None:
    plan = read_plan(root, RUN)
    paths = plan.files.column("path").to_pylist()
    found = {row["name"]: row for row in plan.spans.to_pylist()}
    assert len(found) == len(plan.spans) == 14
    for span in work():
        row = found[span.name]
        assert (row["start"], row["stop"], row["rows"]) == (span.start, span.stop, span.rows)
        assert paths[row["place"]] == span.file.relative
    order = find_stretches(plan.spans.column("name").combine_chunks()).tolist()
    assert order == sorted(order)


def test_the_work_is_handed_out_again(root: str) -> None:
    syntax = file("a").syntax
    found = list(read_plan(root, RUN).list_spans_to_embed(syntax))
    assert found == list(work())


def test_the_rows_of_a_group_are_unknown_if_those_of_one_file_are(tmp_path: Path) -> None:
    spans = (small("small-0.csv", 4), small("small-1.csv", None), small("small-2.csv", 3))
    for number, some in enumerate((spans, (spans[0], spans[2]))):
        first = PlannedFile(some[0].file, group=GroupSpan("f1-1", some), in_group="f1-1")
        others = [PlannedFile(span.file, in_group="f1-1") for span in some[1:]]
        assert write_plan(str(tmp_path), f"run{number}", [*others, first])
    found = [read_plan(str(tmp_path), f"run{number}").spans.to_pylist() for number in range(2)]
    assert [[row["rows"] for row in rows] for rows in found] == [[None], [7]]


def test_the_first_plan_of_a_run_stays(root: str) -> None:
    assert has_plan(root, RUN)
    assert not has_plan(root, "run2")
    first = read_plan(root, RUN)
    assert not write_plan(root, RUN, PLANNED[:1])
    assert read_plan(root, RUN).files == first.files


def test_files_that_were_left_out_have_their_reasons(tmp_path: Path) -> None:
    left = [PlannedFile(file("bad.csv"), bad="no CSV"), PlannedFile(file("worse.csv"), bad="gone")]
    write_plan(str(tmp_path), RUN, [*PLANNED, *left])
    assert read_plan(str(tmp_path), RUN).bad == {"bad.csv": "no CSV", "worse.csv": "gone"}


def test_a_plan_of_all_files_of_a_snapshot_carries_them() -> None:
    row: dict[str, Any] = dict.fromkeys(FILES.names)
    row |= {"format": "text", "checksum": "c", "version": "v", "size": 3, "group": "f0-0"}
    row |= {"units": 2, "rows": 4, "read": 5, "written": 4}
    files = pa.Table.from_pylist([row | {"path": name} for name in "abc"], FILES)
    found = carry_all(files)
    assert found.schema == PLAN
    assert found.select(FILES.names) == files
    assert set(found.column("carried").to_pylist()) == {True}
    assert RecordedPlan("", found, PlanNotes()).span_count == 0


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _without_a_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["cut"]), path)


def _without_notes(path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_truncate, _without_a_column, _without_notes, _empty])
def test_a_changed_plan_is_one_line(tmp_path: Path, damage: Any) -> None:
    write_plan(str(tmp_path), RUN, PLANNED)
    path = tmp_path / layout.plan(RUN)
    damage(path)
    with pytest.raises(SentenceBeamError, match="is not the plan that was written") as raised:
        read_plan(str(tmp_path), RUN)
    assert "\n" not in str(raised.value)
    path.unlink()
    with pytest.raises(SentenceBeamError, match=f"{path} is missing; run again"):
        read_plan(str(tmp_path), RUN)
