"""The work in a plan on record, for an attempt that comes after the one which made it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.groups import AnySpan
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.store.runs.plan import FILE
from sentence_beam.transforms.store.runs.plan_file import PlanFile
from sentence_beam.transforms.store.runs.plan_notes import PlanNotes
from sentence_beam.transforms.store.runs.plan_rows import RowReader


@dataclass(frozen=True)
class CarriedSpan:
    """A span of the last snapshot that a plan carries over; `was` as for PlannedFile."""

    name: str
    file: InputFile
    was: str | None


class RecordedWork:
    """The work in the plan of a run on record; `syntax` is that of its input.

    With `--partition content`, the note `unchanged` says that all units of the last snapshot are
    carried over; otherwise all spans fall into the `buckets` of the notes. All raise
    SentenceBeamError if the plan is missing or was changed.
    """

    def __init__(self, root: str, run: str, syntax: Syntax = AS_FOUND):
        self._file = PlanFile(root, run)
        self._syntax = syntax

    @property
    def notes(self) -> PlanNotes:
        """The metadata of the plan."""
        return self._file.notes

    def spans(self) -> Iterator[AnySpan]:
        """Yield the spans to embed, never all in memory at once."""
        with self._file.refuse_damage():
            for rows in self._file.tables():
                yield from self._reader.spans(rows)

    def carried(self) -> Iterator[CarriedSpan]:
        """Yield the spans to carry over."""
        for rows in self._file.tables((*FILE, "name", "carried", "was")):
            found = rows.filter(rows.column("carried"))
            files = self._reader.files(found)
            for row in found.select(["name", "file", "was"]).to_pylist():
                yield CarriedSpan(row["name"], files[row["file"]], row["was"])

    @property
    def has_carried(self) -> bool:
        """Whether there are spans to carry over."""
        tables = self._file.tables(("carried",))
        return any(pc.any(rows.column("carried")).as_py() for rows in tables)

    @cached_property
    def totals(self) -> tuple[int, int]:
        """The number of spans to embed, and their estimated tokens."""
        count = 0
        tokens = 0
        for rows in self._file.tables(("carried", "tokens")):
            found = rows.filter(pc.equal(rows.column("carried"), False))
            count += len(found)
            tokens += pc.sum(found.column("tokens")).as_py() or 0
        return count, tokens

    @cached_property
    def _reader(self) -> RowReader:
        types = tuple(self.notes.types.items())
        alone = RowReader(self._syntax, types)
        grouped: dict[str, InputFile] = {}
        for rows in self._file.tables((*FILE, "name", "members")):
            is_grouped = pc.or_(rows.column("name").is_null(), rows.column("members").is_valid())
            grouped |= alone.files(rows.filter(is_grouped))
        return RowReader(self._syntax, types, grouped)
