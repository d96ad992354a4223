"""The metadata of a plan's file, beside its rows."""

import json
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import pyarrow as pa

from sentence_beam.transforms.base.entries import dataclass_of, time
from sentence_beam.transforms.base.measures import Summary
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store.runs.carried import NOTHING, Checked

BUCKETS = b"buckets"
CHECKED = b"checked"
BESIDE = b"beside"
MEASURES = b"measures"
WRITTEN = b"written"
UNCHANGED = b"unchanged"
BAD = b"bad"
LACKING = b"lacking"
TYPES = b"types"


def _time(value: Any, where: str) -> str:
    """Return a time, or "" for none."""
    return value if value == "" else time(value, where)


@dataclass(frozen=True)
class PlanNotes:
    """The metadata of a plan's file: see RecordedPlan; `unchanged` as `write_plan` has it."""

    buckets: Buckets | None = None
    checked: Checked = NOTHING
    measures: dict[str, Summary] = field(default_factory=dict)
    written: Annotated[str, _time] = ""
    beside: dict[str, int] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    unchanged: bool = False

    @classmethod
    def of(cls, schema: pa.Schema) -> "PlanNotes":
        """Return the notes in a file's schema. Raises ValueError for notes that no plan has."""
        names = {item.name.encode() for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in (schema.metadata or {}).items():
            if name == WRITTEN:
                values[name.decode()] = value.decode()
            elif name in names:
                values[name.decode()] = json.loads(value.decode())
        notes: PlanNotes = dataclass_of(cls, values)
        return notes
