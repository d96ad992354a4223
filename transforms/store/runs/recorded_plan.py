"""The plan of a run: a row an input file with its spans, written before anything is embedded."""

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_mask_array, read_parquet_bytes
from sentence_beam.transforms.base.columns import (
    get_column,
    get_numbers,
    is_valid,
    look_up,
    make_nulls,
    rank_equals,
    sum_by_place,
    sum_column,
)
from sentence_beam.transforms.base.errors import SentenceBeamError, name_flags, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass, time
from sentence_beam.transforms.base.measures import Summary
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.formats.registry import find_compression
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.counts import PendingCounts
from sentence_beam.transforms.store.runs.carried_check import NOTHING, Checked
from sentence_beam.transforms.store.tables.file_rows import get_full_path
from sentence_beam.transforms.store.tables.names import find_stretches, format_keys
from sentence_beam.transforms.store.tables.table_columns import COUNT, FILES, PENDING, TEXT

SPAN = pa.struct(
    [(name, COUNT) for name in ("number", "start", "stop", "rows", "tokens", "offset")]
    + [("row_groups", pa.list_(COUNT))]
)
PLAN = pa.schema(
    [
        *FILES,
        pa.field("carried", pa.bool_(), False),  # its units of the last snapshot, or its group's
        pa.field("was", TEXT),  # its path in the last snapshot, if it has another one now
        pa.field("bad", TEXT),  # why it cannot be read and is left out
        # null for a carried file; empty if it was opened and has no row
        pa.field("spans", pa.list_(SPAN)),
        # what the listing says of carried shards whose records say otherwise, and that are sound
        pa.field("checksums", pa.list_(pa.struct([("unit", TEXT), ("checksum", TEXT)]))),
    ]
)
SOME = "some"  # of the last snapshot's units are replaced by those of their names
ALL = "all"  # of them are
ROWS_AT_ONCE = 10_000  # of which objects are made


@dataclass(frozen=True)
class BudgetNotes:
    """The budget of a run in tokens, and the estimated ones that it takes.

    `waiting` are those of what it leaves to later runs, in order: a file, or files that share
    units.
    """

    tokens: int
    expected: int
    waiting: tuple[int, ...] = ()

    def to_result(self, share: float) -> dict[str, int]:
        """Return the budget as results have it: with the number of `runs` that the rest takes.

        `share` corrects the tokens of what waits.
        """
        runs = count_runs([share * tokens for tokens in self.waiting], self.tokens)
        return {"tokens": self.tokens, "expected": self.expected, "runs": runs}


def count_runs(waiting: Iterable[float], budget: float) -> int:
    """Return the number of runs of a budget that files with these tokens take, in order.

    >>> count_runs([3, 3, 3], 6), count_runs([9, 1, 1], 6), count_runs([], 6)
    (2, 2, 0)
    """
    runs = 0
    room = 0.0
    for tokens in waiting:
        if not runs or tokens > room:
            runs += 1
            room = budget
        room -= tokens
    return runs


def _read_time(value: Any, where: str) -> str:
    """Return a time, or "" for none."""
    return value if value == "" else time(value, where)


@dataclass(frozen=True)
class PlanNotes:
    """The facts of a plan beside its rows.

    `buckets` are given if these are the units. `replaces` is for a run that reads no file: its
    units take the place of SOME or ALL units of their names in `snapshot`, and it carries the
    others over. `checked` are counts of carried shards, `measures` figures of planning, `written`
    is when it ended.
    `beside` counts the files beside those of the input that were not taken, by reason. `types` are
    those of kept columns that the plan found out, `lacking` counts the files that lack a column.
    `budget` is that of a run that has one. `group_bits` are those of the groups of all files,
    if some files are pending.
    """

    buckets: Buckets | None = None
    replaces: str = ""
    snapshot: str = ""
    checked: Checked = NOTHING
    measures: dict[str, Summary] = field(default_factory=dict)
    written: Annotated[str, _read_time] = ""
    beside: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    budget: BudgetNotes | None = None
    group_bits: int | None = None

    def set_checked(self, checked: Checked) -> "PlanNotes":
        """Return the notes with the counts of the check of carried shards."""
        return replace(self, checked=checked)

    def to_metadata(self) -> dict[str, str]:
        """Return the notes as the metadata of a Parquet file."""
        return {"notes": json.dumps(asdict(self))}

    @classmethod
    def from_schema(cls, schema: pa.Schema) -> "PlanNotes":
        """Return the notes in a file's schema. Raises ValueError for notes that no plan has."""
        notes: PlanNotes = read_dataclass(cls, json.loads((schema.metadata or {})[b"notes"]))
        return notes


def write_plan(root: str, run: str, files: pa.Table, notes: PlanNotes) -> bool:
    """Record a run's plan in its folder, and return whether it is the run's first.

    `files` are rows of `PLAN`, sorted by path.
    """
    sink = io.BytesIO()
    schema = PLAN.with_metadata(notes.to_metadata())
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(files.replace_schema_metadata(schema.metadata))
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).put_if_absent(path, sink.getvalue())


def carry_all(files: pa.Table) -> pa.Table:
    """Return the rows of a plan that carries all files of a snapshot over."""
    rows = len(files)
    columns = {name: files.column(name) for name in files.column_names}
    columns["carried"] = make_mask_array(np.ones(rows, bool))
    for name in PLAN.names:
        if name not in columns:
            columns[name] = make_nulls(rows, PLAN.field(name).type)
    return pa.table(columns, schema=PLAN)


def has_plan(root: str, run: str) -> bool:
    """Return whether a run has recorded its plan."""
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).stat(path) is not None


def read_plan(root: str, run: str) -> "RecordedPlan":
    """Return the plan of a run. Raises SentenceBeamError if it is missing or was changed."""
    path = storage.join(root, layout.plan(run))
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        raise SentenceBeamError(f"{path} is missing; run again")
    with _refuse_damage(path):
        files = read_parquet_bytes(stored[0])
        notes = PlanNotes.from_schema(files.schema)
        return RecordedPlan(path, files.replace_schema_metadata(None).cast(PLAN), notes)


def _refuse_damage(path: str) -> AbstractContextManager[None]:
    return refuse_damage(f"{path} is not the plan that was written", "run again")


@dataclass(frozen=True)
class RecordedPlan:
    """A plan that was read: its file, the rows and the notes."""

    path: str
    files: pa.Table
    notes: PlanNotes

    @cached_property
    def spans(self) -> pa.Table:
        """The spans to embed, as `list_planned_spans` returns them."""
        with _refuse_damage(self.path):
            return list_planned_spans(self.files)

    @property
    def span_count(self) -> int:
        """The number of spans to embed."""
        return len(self.spans)

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of all spans to embed."""
        return pc.sum(get_span_values(self.files, "tokens")).as_py() or 0

    @property
    def bad(self) -> dict[str, str]:
        """The reasons why files were left out, by relative path."""
        return list_bad_files(self.files)

    @property
    def pending(self) -> PendingCounts:
        """Counts of the files that are left to later runs."""
        return count_pending(self.files)

    @property
    def empty_count(self) -> int:
        """The number of input files that could be read and are empty."""
        is_empty = get_numbers(self.files, "size") == 0
        is_empty &= ~is_valid(self.files, "bad") & ~is_valid(self.files, PENDING[0])
        return int(is_empty.sum())

    def file(self, relative: str) -> InputFile | None:
        """Return a file by its relative path; None if the plan has none of this name."""
        row = self.files.filter(pc.equal(self.files.column("path"), relative)).slice(0, 1)
        return next(iter(list_input_files(row)), None)

    def list_spans_to_embed(self, syntax: Syntax = AS_FOUND) -> Iterator[AnySpan]:
        """Yield the spans to embed in order of their files; `syntax` is that of the input.

        The small files of a group give one span, in the place of the first.
        """
        types = tuple(self.notes.types.items())
        with _refuse_damage(self.path):
            yield from list_spans(self.files, syntax, types)


def list_spans(
    files: pa.Table, syntax: Syntax = AS_FOUND, types: tuple[tuple[str, str], ...] = ()
) -> Iterator[AnySpan]:
    """Yield the spans to embed of rows of a plan; `types` are those of kept columns."""
    work = files.filter(pc.greater(pc.list_value_length(files.column("spans")), 0))
    groups = get_column(work, "group")
    first = look_up(groups, groups)
    order = np.argsort(np.where(first < 0, np.arange(len(work)), first), kind="stable")
    starts = range(0, len(work), ROWS_AT_ONCE)
    tables = (work.take(pa.array(order[start : start + ROWS_AT_ONCE])) for start in starts)
    spans_by_file = (each for table in tables for each in _make_spans(table, syntax, types))
    for group, some in groupby(spans_by_file, key=itemgetter(0)):
        spans = (span for _, by_file in some for span in by_file)
        if group is None:
            yield from spans
        else:
            yield GroupSpan(group, tuple(spans))


def _make_spans(
    files: pa.Table, syntax: Syntax, types: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str | None, list[Span]]]:
    """Yield the group and the spans of each row of a plan."""
    groups = files.column("group").to_pylist()
    lists = files.column("spans").to_pylist()
    named = list_input_files(files, syntax, types)
    for file, group, spans in zip(named, groups, lists, strict=True):
        made = [Span(file, **{**span, "row_groups": tuple(span["row_groups"])}) for span in spans]
        yield group, made


def list_input_files(
    files: pa.Table, syntax: Syntax = AS_FOUND, types: tuple[tuple[str, str], ...] = ()
) -> Iterator[InputFile]:
    """Yield the files of rows of `files` or of a plan."""
    wanted = ["path", "folder", "source", "format", "size", "checksum", "version", "cut"]
    for row in files.select(wanted).to_pylist():
        yield InputFile(
            path=get_full_path(row),
            relative=row["path"],
            format=row["format"],
            compression=find_compression(row["path"], row["format"]),
            size=row["size"],
            checksum=row["checksum"],
            version=row["version"],
            syntax=syntax,
            types=types,
            cut=row["cut"],
        )


def list_bad_files(files: pa.Table) -> dict[str, str]:
    """Return the reasons why files of a plan are left out, by relative path."""
    bad = files.filter(files.column("bad").is_valid())
    reasons = map(name_flags, bad.column("bad").to_pylist())
    return dict(zip(bad.column("path").to_pylist(), reasons, strict=True))


def count_pending(files: pa.Table) -> PendingCounts:
    """Return the counts of pending files among rows of `files` or of a plan."""
    sizes, tokens = (sum_column(files, name) for name in PENDING)
    return PendingCounts(int(is_valid(files, PENDING[0]).sum()), sizes, tokens)


def list_planned_spans(files: pa.Table) -> pa.Table:
    """Return the spans to embed, sorted by stretch: name, place of the file, start, stop, rows.

    A group is one span, in the place of its first file; its rows are null if those of a file are
    not known.
    """
    places = np.flatnonzero(~get_numbers(files, "carried"))
    work = files.select(["path", "group", "spans"]).take(pa.array(places))
    lists = get_column(work, "spans")
    parent = pc.list_parent_indices(lists)
    spans = lists.flatten()
    number, start, stop, rows = (
        pc.struct_field(spans, [SPAN.get_field_index(name)])
        for name in ("number", "start", "stop", "rows")
    )
    digits = pc.utf8_lpad(number.cast(TEXT), 12, "0")
    own = pc.binary_join_element_wise(
        format_keys(get_column(work, "path")).take(parent), digits, "-"
    )
    group = get_column(work, "group").take(parent)
    place = pa.array(places[parent.to_numpy()], COUNT)
    table = pa.table(
        {
            "name": pc.coalesce(group, own),
            "place": place,
            "start": start,
            "stop": stop,
            "rows": rows,
        }
    )
    inside = table.filter(group.is_valid())
    alone = table.filter(group.is_null())
    both = pa.concat_tables([alone, _join_groups(inside).cast(alone.schema)])
    order = np.argsort(find_stretches(get_column(both, "name")), kind="stable")
    return both.take(pa.array(order, COUNT))


def _join_groups(inside: pa.Table) -> pa.Table:
    """Return one span for each group, of the spans of its files."""
    names = get_column(inside, "name").unique()
    at = look_up(inside.column("name"), names)
    first = inside.column("place").filter(make_mask_array(rank_equals(at) == 0))
    is_unknown = (~is_valid(inside, "rows")).astype(np.int64)
    counted = sum_by_place(at, len(names), get_numbers(inside, "rows"))
    is_null = sum_by_place(at, len(names), is_unknown) > 0
    nothing = pa.array(np.zeros(len(names), np.int64))
    return pa.table(
        {
            "name": names,
            "place": first,
            "start": nothing,
            "stop": pa.nulls(len(names), COUNT),
            "rows": pa.array(counted, mask=is_null),
        }
    )


def get_span_values(files: pa.Table, name: str) -> pa.Array:
    """Return one value of each span of all files."""
    return pc.struct_field(get_column(files, "spans").flatten(), [SPAN.get_field_index(name)])


@dataclass(frozen=True)
class Standing:
    """A marker that an earlier attempt of the run made the plan, which is used again."""
