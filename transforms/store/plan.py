"""The plan on record: every file and span of a run, written before anything is embedded."""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms import storage
from transforms.arrow import table_of
from transforms.compact import by_values
from transforms.corpus import InputFile, Span
from transforms.corpus.beside import Beside
from transforms.corpus.buckets import Buckets
from transforms.corpus.files import compression_of
from transforms.corpus.groups import AnySpan, GroupSpan
from transforms.errors import SentenceBeamError, first_line
from transforms.measures import Summary, summed
from transforms.store import layout
from transforms.store.carried import NOTHING, Checked
from transforms.store.entries import InputEntry
from transforms.store.kept import Kept
from transforms.store.ledger import PLAN_FIELDS, PlannedSpan, place_of, span_name
from transforms.store.records import UnitRecord
from transforms.store.runs import now
from transforms.store.stretches import stretch_of, stretch_of_file

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
    ]
)
ADDED = ("number", "row_groups", "members", "was")
_FILE = ("file", "path", "format", "size", "checksum", "version")
_MEMBER = ("number", "start", "stop", "row_groups", "rows", "tokens")
Plan = TypeVar("Plan")
ROWS_AT_ONCE = 20_000  # of a plan that are dicts, when it is written or read
# in the file's metadata
BUCKETS, CHECKED, BESIDE = b"buckets", b"checked", b"beside"
MEASURES, WRITTEN, UNCHANGED, BAD = b"measures", b"written", b"unchanged", b"bad"


@by_values
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """An input file and what a run does with it: spans to embed, or units of the last snapshot to carry over.

    Small files have none where they are in a group: the first of them has the `group`'s span, or its units.

    `kept` is the type of each kept column, None for a file that was not opened, since it has not changed; `keys` are
    those of them that it is seen to have, None where there was no row to tell. `checked` is what came of looking at the
    shards that might be carried over. `ms` are the milliseconds that planning it took. `was` is the relative path under
    which the last snapshot has a file that was renamed. `bad` says why a file cannot be read and is left out, but for
    the units that it had.
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

    @property
    def is_unopened(self) -> bool:
        """Whether nobody has looked into the file, which could be read."""
        return self.kept is None and not self.bad

    @property
    def work(self) -> list[AnySpan]:
        """The spans to embed, that of a group too."""
        return [*self.spans, self.group] if self.group else [*self.spans]

    @property
    def planned(self) -> list[tuple[PlannedSpan, int]]:
        """The spans that the ledger will demand, each with its estimated tokens."""
        name = self.file.relative
        spans = [(PlannedSpan(s.name, name, s.start, s.stop, s.rows, False), s.tokens) for s in self.work]
        return spans + [(span, 0) for span in _carried_spans(name, self.carried)]


def file_of(entry: InputEntry) -> InputFile:
    """The input file of an entry in a manifest."""
    compression = compression_of(entry.path, entry.format)
    return InputFile(entry.source, entry.path, entry.format, compression, entry.size, entry.checksum, entry.version)


def rows_at_most(planned: Iterable[PlannedFile]) -> int | None:
    """The rows of all files, those that may be rejected included; None where a file's are not known."""
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
        PlannedSpan(name, file, parts[0].range[0], parts[-1].range[1], sum(p.read for p in parts), True)
        for name, parts in spans.items()
    ]


class RecordedPlan:
    """A plan that was read back: files as manifests list them, spans or buckets as the ledger checks them.

    Files and spans are made of the table when they are asked for, all of them or those of one stretch. `measures` say
    what planning took, `written` when it ended ("" where an earlier version wrote it). `beside` are the files that lie
    beside those of the input and were not taken, by reason; `bad` are files that were left out, by relative path,
    with the reason.
    """

    def __init__(self, table: pa.Table):
        metadata = table.schema.metadata or {}
        self._table = table
        self.buckets = Buckets(**json.loads(metadata[BUCKETS])) if BUCKETS in metadata else None
        self.checked = Checked(**json.loads(metadata.get(CHECKED, b"{}")))
        self.measures: dict[str, Summary] = json.loads(metadata.get(MEASURES, b"{}"))
        self.written: str = metadata.get(WRITTEN, b"").decode()
        self.beside: dict[str, int] = json.loads(metadata.get(BESIDE, b"{}"))
        self.bad: dict[str, str] = json.loads(metadata.get(BAD, b"{}"))

    @cached_property
    def files(self) -> list[InputEntry]:
        """The entries of all input files."""
        return self._entries(self._file_rows)

    @cached_property
    def spans(self) -> list[PlannedSpan]:
        """The spans of all files, those to embed and those whose units are carried over."""
        return self._planned(self._span_rows)

    @property
    def tokens(self) -> int:
        """The estimated tokens of the spans that are to be embedded."""
        return pc.sum(self._table.column("tokens")).as_py() or 0

    @property
    def rows(self) -> int | None:
        """The rows of the corpus, None where the plan does not know them all."""
        rows = self._table.column("rows").take(pa.array(self._span_rows))
        return None if rows.null_count else pc.sum(rows).as_py() or 0

    @property
    def file_count(self) -> int:
        """The number of input files."""
        return len(self._file_rows)

    @property
    def empty_count(self) -> int:
        """The number of input files that could be read and hold nothing."""
        files = self._table.select(["file", "size"]).take(pa.array(self._file_rows))
        empty = files.filter(pc.equal(files.column("size"), 0)).column("file").to_pylist()
        return sum(file not in self.bad for file in empty)

    def files_in(self, stretch: int) -> list[InputEntry]:
        """The entries of the input files of a stretch."""
        return self._entries(self._file_rows[self._file_stretches == stretch])

    def spans_in(self, stretch: int) -> list[PlannedSpan]:
        """The spans whose units are in a stretch."""
        return self._planned(self._span_rows[self._span_stretches == stretch])

    @cached_property
    def _file_rows(self) -> np.ndarray:
        """The first row of each file."""
        file = self._table.column("file").combine_chunks()  # whose rows follow each other
        is_other = pc.not_equal(file.slice(1), file.slice(0, max(0, len(file) - 1))).to_numpy(zero_copy_only=False)
        return np.flatnonzero(np.concatenate([np.ones(min(1, len(file)), bool), is_other]))

    @cached_property
    def _span_rows(self) -> np.ndarray:
        return np.flatnonzero(self._table.column("name").is_valid().to_numpy())

    @cached_property
    def _file_stretches(self) -> np.ndarray:
        files = self._table.column("file").take(pa.array(self._file_rows))
        return np.fromiter(map(stretch_of_file, _values(files)), np.int64, len(files))

    @cached_property
    def _span_stretches(self) -> np.ndarray:
        names = self._table.column("name").take(pa.array(self._span_rows))
        return np.fromiter(map(stretch_of, _values(names)), np.int64, len(names))

    def _entries(self, rows: np.ndarray) -> list[InputEntry]:
        return [_entry_of(row) for row in self._table.take(pa.array(rows)).to_pylist()]

    def _planned(self, rows: np.ndarray) -> list[PlannedSpan]:
        return [PlannedSpan(**row) for row in self._table.select(PLAN_FIELDS).take(pa.array(rows)).to_pylist()]


def _values(found: pa.ChunkedArray | pa.Table) -> Iterator[Any]:
    """The values of a column, or the rows of a table, never all of them at once."""
    for start in range(0, len(found), ROWS_AT_ONCE):
        yield from found.slice(start, ROWS_AT_ONCE).to_pylist()


@dataclass(frozen=True)
class Standing:
    """Says that a run has a plan on record: an attempt before this one made it, and it is to be handed out again."""


@dataclass(frozen=True)
class CarriedSpan:
    """A span of the last snapshot that a plan carries over; `was` as for PlannedFile."""

    name: str
    file: InputFile
    was: str | None


@dataclass(frozen=True)
class RecordedWork:
    """What a plan on record hands out: spans to embed, and spans to carry over.

    By content `unchanged` says that all units of the last snapshot are carried; else all spans fall into `buckets`.
    """

    spans: list[AnySpan]
    carried: list[CarriedSpan]
    buckets: Buckets | None
    unchanged: bool


def write_plan(
    root: str,
    run: str,
    files: Iterable[PlannedFile],
    buckets: Buckets | None = None,
    beside: Beside | None = None,
    unchanged: bool = False,
) -> bool:
    """Record a run's plan in its folder, and say whether it is the run's first; `buckets` where these are the units.

    `unchanged` says that by content all units of the last snapshot are carried over.
    """
    listed = list(files)
    metadata = {CHECKED: json.dumps(asdict(Checked.sum(file.checked for file in listed)))}
    metadata |= {
        MEASURES: json.dumps(summed({"file_ms": file.ms} for file in listed if file.ms is not None)),
        WRITTEN: now(),
    }
    metadata |= {BUCKETS: json.dumps(asdict(buckets))} if buckets else {}
    metadata |= {BESIDE: json.dumps(beside.total())} if beside else {}
    bad = {file.file.relative: file.bad for file in listed if file.bad}
    metadata |= {BAD: json.dumps(bad)} if bad else {}
    metadata |= {UNCHANGED: "true"} if unchanged else {}
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).put_if_absent(path, _plan_bytes(listed, metadata))


def _plan_bytes(files: list[PlannedFile], metadata: dict[bytes, str]) -> bytes:
    """The plan as a Parquet file, put together from some of its rows at a time."""
    sink, schema = io.BytesIO(), SCHEMA.with_metadata(metadata)
    rows = (row for file in files for row in _table_rows(file))
    with pq.ParquetWriter(sink, schema, write_page_checksum=True) as writer:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
    return sink.getvalue()


def _table_rows(planned: PlannedFile) -> list[dict[str, Any]]:
    f = planned.file
    file = {"file": f.relative, "path": f.path, "format": f.format, "size": f.size}
    file |= {"checksum": f.checksum, "version": f.version}
    spans = [
        {**file, "tokens": tokens, "was": planned.was, **{name: getattr(span, name) for name in PLAN_FIELDS}}
        for span, tokens in planned.planned
    ]
    for row, span in zip(spans, planned.work, strict=False):  # those that are carried come after them
        row |= _work_of(span)
    return spans or [file]


def _work_of(span: AnySpan) -> dict[str, Any]:
    """The columns that say what to read of a span."""
    if isinstance(span, Span):
        return {"number": span.number, "row_groups": span.row_groups}
    members = [{"file": one.file.relative, **{name: getattr(one, name) for name in _MEMBER}} for one in span.spans]
    return {"members": json.dumps(members)}


def has_plan(root: str, run: str) -> bool:
    """Whether a run has recorded its plan."""
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).stat(path) is not None


def read_plan(root: str, run: str) -> RecordedPlan:
    """The plan of a run. Raises SentenceBeamError where it has none, or where that was changed."""
    return _read(root, run, RecordedPlan)


_SHARED: Kept[RecordedPlan] = Kept()


def shared_plan(root: str, run: str) -> RecordedPlan:
    """As `read_plan`; one that is held in this process already is not read again, since it never changes."""
    return _SHARED.get((root, run), lambda: read_plan(root, run))


def read_work(root: str, run: str, delimiter: str | None = None) -> RecordedWork:
    """What the plan of a run hands out; `delimiter` is that of its input. Raises as `read_plan` does."""
    return _read(root, run, partial(_work, delimiter=delimiter))


def _read(root: str, run: str, read: Callable[[pa.Table], Plan]) -> Plan:
    path = storage.join(root, layout.plan(run))
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path} is missing; run again")
    try:
        table = table_of(found[0])
        for name in ADDED:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table)))
        return read(table.cast(SCHEMA.with_metadata(table.schema.metadata)))
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise SentenceBeamError(f"{path} is not the plan that was written ({first_line(error)}); run again") from error


def _work(table: pa.Table, delimiter: str | None) -> RecordedWork:
    metadata = table.schema.metadata or {}
    rows = _values(table.select(_FILE))
    files = {row["file"]: replace(file_of(_entry_of(row)), delimiter=delimiter) for row in rows}
    spans: list[AnySpan] = []
    carried = []
    for row in _values(table.filter(table.column("name").is_valid())):
        file = files[row["file"]]
        if row["carried"]:
            carried.append(CarriedSpan(row["name"], file, row["was"]))
        elif row["members"] is not None:
            members = json.loads(row["members"])
            spans.append(GroupSpan(row["name"], tuple(_span_of(files[member["file"]], member) for member in members)))
        else:
            spans.append(_span_of(file, row))
    buckets = Buckets(**json.loads(metadata[BUCKETS])) if BUCKETS in metadata else None
    return RecordedWork(spans, carried, buckets, UNCHANGED in metadata)


def _span_of(file: InputFile, values: dict[str, Any]) -> Span:
    return Span(file, **{name: values[name] for name in _MEMBER} | {"row_groups": tuple(values["row_groups"])})


def _entry_of(row: dict[str, Any]) -> InputEntry:
    kept = {name: row[name] for name in ("format", "size", "checksum", "version")}
    return InputEntry(row["file"], row["path"], **kept)
