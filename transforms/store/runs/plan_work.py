"""The work in a plan on record, for an attempt that comes after the one which made it."""

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from transforms.corpus import InputFile, Span
from transforms.corpus.buckets import Buckets
from transforms.corpus.groups import AnySpan, GroupSpan
from transforms.store.runs.plan import FILE, MEMBER, entry_of, file_of, read_as, values_of
from transforms.store.runs.plan_notes import PlanNotes


@dataclass(frozen=True)
class CarriedSpan:
    """A span of the last snapshot that a plan carries over; `was` as for PlannedFile."""

    name: str
    file: InputFile
    was: str | None


@dataclass(frozen=True)
class RecordedWork:
    """The work in a plan on record: spans to embed, and spans to carry over.

    With `--partition content`, `unchanged` says that all units of the last snapshot are carried
    over; otherwise all spans fall into `buckets`.
    """

    spans: list[AnySpan]
    carried: list[CarriedSpan]
    buckets: Buckets | None
    unchanged: bool


def read_work(root: str, run: str, delimiter: str | None = None) -> RecordedWork:
    """Return the work in the plan of a run; `delimiter` is that of its input.

    Raises as `read_plan` does.
    """
    return read_as(root, run, partial(_work, delimiter=delimiter))


def _work(table: pa.Table, delimiter: str | None) -> RecordedWork:
    notes = PlanNotes.of(table.schema)
    rows = values_of(table.select(FILE))
    types = tuple(notes.types.items())
    files = {
        row["file"]: replace(file_of(entry_of(row)), delimiter=delimiter, types=types)
        for row in rows
    }
    spans: list[AnySpan] = []
    carried = []
    for row in values_of(table.filter(table.column("name").is_valid())):
        file = files[row["file"]]
        if row["carried"]:
            carried.append(CarriedSpan(row["name"], file, row["was"]))
        elif row["members"] is not None:
            members = json.loads(row["members"])
            spans.append(
                GroupSpan(
                    row["name"],
                    tuple(_span_of(files[member["file"]], member) for member in members),
                )
            )
        else:
            spans.append(_span_of(file, row))
    return RecordedWork(spans, carried, notes.buckets, notes.unchanged)


def _span_of(file: InputFile, values: dict[str, Any]) -> Span:
    known = {name: values[name] for name in MEMBER if name != "offset"}
    known["row_groups"] = tuple(values["row_groups"])
    # earlier versions wrote none
    return Span(file, **known, offset=values.get("offset") or 0)
