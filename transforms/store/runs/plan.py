"""The plan on record: every file and span of a run, written before anything is embedded."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.compact import by_values
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.formats.registry import compression_of
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.ledger import PlannedSpan, place_of, span_name
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.carried import NOTHING, Checked

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("path", pa.string()),
        ("format", pa.string()),
        ("size", pa.int64()),
        ("checksum", pa.string()),
        ("version", pa.string()),
        ("name", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("rows", pa.int64()),
        ("tokens", pa.int64()),
        ("carried", pa.bool_()),
        # What is needed to hand the plan out again; earlier versions did not write it.
        ("number", pa.int64()),
        ("row_groups", pa.list_(pa.int64())),
        ("members", pa.string()),
        ("was", pa.string()),
        ("group", pa.string()),
        ("cut", pa.int64()),
        ("offset", pa.int64()),
    ]
)
ADDED = ("number", "row_groups", "members", "was", "group", "cut", "offset")
FILE = ("file", "path", "format", "size", "checksum", "version", "group", "cut")
MEMBER = ("number", "start", "stop", "row_groups", "rows", "tokens", "offset")
ROWS_AT_ONCE = 20_000  # of a plan, when it is written or read


@by_values
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """An input file and its work: spans to embed, or units of the last snapshot to carry over.

    Small files have none if they are in a group, which `in_group` names: the first of them has the
    `group`'s span, or its units. `is_rowless`: the file is known to have no row, so that no unit
    counts any.

    `kept` has the code of the type of each kept column that the file has; None for a file that was
    not opened because it has not changed. `keys` are the columns that were seen in it, None without
    a row; `lacks` are the kept columns that an opened file does not have. `checked` counts the
    checks of the shards that might be carried over. `ms` are the milliseconds that planning it
    took. `was` is the relative path of a renamed file in the last snapshot. `bad` says why a file
    cannot be read and is left out, except for the units that it had.
    """

    file: InputFile
    spans: tuple[Span, ...] = ()
    carried: tuple[UnitRecord, ...] = ()
    kept: tuple[tuple[str, str], ...] | None = None
    checked: Checked = NOTHING
    ms: float | None = field(default=None, compare=False)
    keys: tuple[str, ...] | None = None
    group: GroupSpan | None = None
    was: str | None = None
    bad: str = ""
    in_group: str = ""
    is_rowless: bool = False
    lacks: tuple[str, ...] = ()

    @property
    def is_unopened(self) -> bool:
        """Whether nobody has opened the file, which could be read."""
        return self.kept is None and not self.bad

    def reading(self, types: tuple[tuple[str, str], ...]) -> "PlannedFile":
        """Return the file with the types that its kept columns are read as."""
        spans = tuple(_reading(span, types) for span in self.spans)
        group = self.group and replace(
            self.group, spans=tuple(_reading(span, types) for span in self.group.spans)
        )
        return replace(self, file=replace(self.file, types=types), spans=spans, group=group)

    @property
    def is_bare(self) -> bool:
        """Whether the file may have rows, but neither spans nor units are planned yet."""
        return not self.spans and not self.carried and not self.bad and not self.is_rowless

    @property
    def work(self) -> list[AnySpan]:
        """The spans to embed, including that of a group."""
        if self.group:
            return [*self.spans, self.group]
        return [*self.spans]

    @property
    def planned(self) -> list[tuple[PlannedSpan, int]]:
        """The spans that the ledger will require, each with its estimated tokens."""
        name = self.file.relative
        spans = [
            (PlannedSpan(s.name, name, s.start, s.stop, s.rows, False), s.tokens) for s in self.work
        ]
        return spans + [(span, 0) for span in _carried_spans(name, self.carried)]


def _reading(span: Span, types: tuple[tuple[str, str], ...]) -> Span:
    return replace(span, file=replace(span.file, types=types))


def file_of(entry: InputEntry) -> InputFile:
    """Return the input file of an entry in a manifest."""
    compression = compression_of(entry.path, entry.format)
    return InputFile(
        entry.source,
        entry.path,
        entry.format,
        compression,
        entry.size,
        entry.checksum,
        entry.version,
        cut=entry.cut,
    )


def rows_at_most(planned: Iterable[PlannedFile]) -> int | None:
    """Return the rows of all files, including rows that may be rejected.

    Returns None if the rows of a file are not known.
    """
    items = list(planned)
    read = [span.rows for item in items for span in item.work]
    if None in read:
        return None
    return sum(filter(None, read)) + sum(unit.written for item in items for unit in item.carried)


def _carried_spans(file: str, units: tuple[UnitRecord, ...]) -> list[PlannedSpan]:
    spans: dict[str, list[UnitRecord]] = {}
    for unit in sorted(units, key=place_of):
        spans.setdefault(span_name(unit.unit), []).append(unit)
    return [
        PlannedSpan(
            name, file, parts[0].range[0], parts[-1].range[1], sum(p.read for p in parts), True
        )
        for name, parts in spans.items()
    ]


@dataclass(frozen=True)
class Standing:
    """A marker that an earlier attempt of the run made the plan, which is used again."""


def has_plan(root: str, run: str) -> bool:
    """Return whether a run has recorded its plan."""
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).stat(path) is not None


def entry_of(row: dict[str, Any]) -> InputEntry:
    """Return the entry of the file of a row in a plan's table."""
    kept = {name: row[name] for name in ("format", "size", "checksum", "version")}
    return InputEntry(
        row["file"], row["path"], **kept, group=row["group"] or "", cut=row["cut"] or 0
    )
