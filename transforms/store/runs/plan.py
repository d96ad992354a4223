"""The plan on record: every file and span of a run, written before anything is embedded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms import storage
from transforms.base.arrow import table_of
from transforms.base.compact import by_values
from transforms.base.errors import SentenceBeamError, refuse_damage
from transforms.corpus import InputFile, Span
from transforms.corpus.formats.registry import compression_of
from transforms.corpus.groups import AnySpan, GroupSpan
from transforms.corpus.spans import BYTES_PER_TOKEN, CUT_BYTES
from transforms.store import layout
from transforms.store.entries import InputEntry
from transforms.store.kept import Kept
from transforms.store.ledger import PLAN_FIELDS, PlannedSpan, place_of, span_name
from transforms.store.records import UnitRecord
from transforms.store.runs.carried import NOTHING, Checked
from transforms.store.runs.plan_notes import PlanNotes
from transforms.store.runs.stretches import stretch_of, stretch_of_file

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
# What the ledger and a manifest need; ten million rows of them take 1.2 GB.
RECORDED = tuple(
    name
    for name in SCHEMA.names
    if name not in ("number", "row_groups", "members", "was", "offset")
)
REPEATED = ("file", "path", "format", "checksum", "version", "group")  # by each span of a file
FILE = ("file", "path", "format", "size", "checksum", "version", "group", "cut")
MEMBER = ("number", "start", "stop", "row_groups", "rows", "tokens", "offset")
Plan = TypeVar("Plan")
ROWS_AT_ONCE = 20_000  # of a plan that are dicts, when it is written or read


@by_values
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """An input file and its work: spans to embed, or units of the last snapshot to carry over.

    Small files have none if they are in a group, which `in_group` names: the first of them has the
    `group`'s span, or its units. `is_rowless`: the file is known to have no row, so that no unit
    counts any.

    `kept` is the type of each kept column, None for a file that was not opened because it has not
    changed; `open_types` has the columns whose type the plan must find, with the word for their
    first values. `keys` are the columns that were seen in it, None without a row. `checked` counts
    the checks of the shards that might be carried over. `ms` are the milliseconds that planning it
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
    open_types: tuple[tuple[str, str], ...] = ()

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


class RecordedPlan:
    """A plan that was read: files as in manifests, spans or buckets as the ledger checks them.

    Files and spans are made from the table on demand, all of them or those of one stretch.
    `measures` are the figures of planning, `written` is when it ended ("" if an earlier version
    wrote it). `beside` counts the files beside those of the input that were not taken, by reason;
    `bad` are files that were left out, by relative path, with the reason. `types` are those of kept
    columns that the plan found out.
    """

    def __init__(self, table: pa.Table):
        notes = PlanNotes.of(table.schema)
        self._table = table.unify_dictionaries()
        self.buckets = notes.buckets
        self.checked = notes.checked
        self.measures = notes.measures
        self.written = notes.written
        self.beside = notes.beside
        self.bad = notes.bad
        self.types = notes.types

    @cached_property
    def files(self) -> list[InputEntry]:
        """The entries of all input files, by relative path."""
        return sorted(self._entries(self._file_rows), key=lambda entry: entry.path)

    @cached_property
    def spans(self) -> list[PlannedSpan]:
        """The spans of all files, to embed and carried over."""
        return self._planned(self._span_rows)

    @property
    def tokens(self) -> int:
        """The estimated tokens of the spans to embed."""
        return pc.sum(self._table.column("tokens")).as_py() or 0

    @property
    def has_long_spans(self) -> bool:
        """Whether a span to embed may have more text than one worker should read and embed."""
        return (pc.max(self._table.column("tokens")).as_py() or 0) * BYTES_PER_TOKEN > CUT_BYTES

    @property
    def rows(self) -> int | None:
        """The rows of the corpus, None if the plan does not know them all."""
        rows = self._table.column("rows").take(pa.array(self._span_rows))
        return None if rows.null_count else pc.sum(rows).as_py() or 0

    @property
    def file_count(self) -> int:
        """The number of input files."""
        return len(self._file_rows)

    @property
    def empty_count(self) -> int:
        """The number of input files that could be read and are empty."""
        files = self._table.select(["file", "size"]).take(pa.array(self._file_rows))
        empty = files.filter(pc.equal(files.column("size"), 0)).column("file").to_pylist()
        return sum(file not in self.bad for file in empty)

    @property
    def uncounted(self) -> list[str]:
        """The relative paths of files with rows that no planned span has.

        The span may be one of their own or a group's.
        """
        files = self._table.select(["file", "size", "rows", "name", "group"]).take(
            pa.array(self._file_rows)
        )
        groups = files.column("group").unique().cast(pa.string())
        planned = self._table.column("name").filter(
            pc.is_in(self._table.column("name"), groups.drop_null())
        )
        is_counted = pc.or_(
            pc.is_valid(files.column("name")),
            pc.is_in(files.column("group").cast(pa.string()), planned.unique()),
        )
        has_rows = pc.greater(pc.coalesce(files.column("rows"), files.column("size")), 0)
        return files.filter(pc.and_not(has_rows, is_counted)).column("file").to_pylist()

    def files_in(self, stretch: int) -> list[InputEntry]:
        """The entries of the input files of a stretch."""
        return self._entries(self._file_rows[self._file_stretches == stretch])

    def spans_in(self, stretch: int) -> list[PlannedSpan]:
        """The spans whose units are in a stretch."""
        return self._planned(self._span_rows[self._span_stretches == stretch])

    @cached_property
    def _file_rows(self) -> np.ndarray:
        """The first row of each file."""
        # the rows of a file follow each other
        file = pa.chunked_array(
            [chunk.indices for chunk in self._table.column("file").chunks], pa.int32()
        ).combine_chunks()
        is_other = pc.not_equal(file.slice(1), file.slice(0, max(0, len(file) - 1))).to_numpy(
            zero_copy_only=False
        )
        return np.flatnonzero(np.concatenate([np.ones(min(1, len(file)), bool), is_other]))

    @cached_property
    def _span_rows(self) -> np.ndarray:
        return np.flatnonzero(self._table.column("name").is_valid().to_numpy())

    @cached_property
    def _file_stretches(self) -> np.ndarray:
        files = self._table.column("file").take(pa.array(self._file_rows))
        return np.fromiter(map(stretch_of_file, values_of(files)), np.int64, len(files))

    @cached_property
    def _span_stretches(self) -> np.ndarray:
        names = self._table.column("name").take(pa.array(self._span_rows))
        return np.fromiter(map(stretch_of, values_of(names)), np.int64, len(names))

    def _entries(self, rows: np.ndarray) -> list[InputEntry]:
        if not len(rows):
            return []  # most stretches of a small plan have none
        return [entry_of(row) for row in self._table.take(pa.array(rows)).to_pylist()]

    def _planned(self, rows: np.ndarray) -> list[PlannedSpan]:
        if not len(rows):
            return []
        return [
            PlannedSpan(**row)
            for row in self._table.select(PLAN_FIELDS).take(pa.array(rows)).to_pylist()
        ]


def values_of(found: pa.ChunkedArray | pa.Table) -> Iterator[Any]:
    """Yield the values of a column, or the rows of a table, never all in memory at once."""
    for start in range(0, len(found), ROWS_AT_ONCE):
        yield from found.slice(start, ROWS_AT_ONCE).to_pylist()


@dataclass(frozen=True)
class Standing:
    """A marker that an earlier attempt of the run made the plan, which is used again."""


def has_plan(root: str, run: str) -> bool:
    """Return whether a run has recorded its plan."""
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).stat(path) is not None


def read_plan(root: str, run: str) -> RecordedPlan:
    """Return the plan of a run. Raises SentenceBeamError if it is missing or was changed."""
    return read_as(root, run, RecordedPlan, RECORDED, REPEATED)


_SHARED: Kept[RecordedPlan] = Kept()


def shared_plan(root: str, run: str) -> RecordedPlan:
    """Return the plan of a run as `read_plan` does, once for a process."""
    return _SHARED.get((root, run), lambda: read_plan(root, run))


def read_as(
    root: str,
    run: str,
    read: Callable[[pa.Table], Plan],
    columns: Sequence[str] = tuple(SCHEMA.names),
    repeated: Sequence[str] = (),
) -> Plan:
    """Return what `read` makes of these columns of a run's plan, those `repeated` as dictionaries.

    Raises as `read_plan` does.
    """
    path = storage.join(root, layout.plan(run))
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path} is missing; run again")
    kinds = {name: SCHEMA.field(name).type for name in columns}
    kinds |= {name: pa.dictionary(pa.int32(), kinds[name]) for name in repeated}
    with refuse_damage(f"{path} is not the plan that was written", "run again"):
        table = table_of(found[0], columns, repeated)
        for name in ADDED:
            if name in columns and name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table), kinds[name]))
        schema = pa.schema(list(kinds.items()), table.schema.metadata)
        return read(table.select(list(columns)).cast(schema))


def entry_of(row: dict[str, Any]) -> InputEntry:
    """Return the entry of the file of a row in a plan's table."""
    kept = {name: row[name] for name in ("format", "size", "checksum", "version")}
    return InputEntry(
        row["file"], row["path"], **kept, group=row["group"] or "", cut=row["cut"] or 0
    )
