"""Rows of files on their way into the plan: listed, looked into, opened.

`LISTED` are the columns of `files`, and the row of the last snapshot's file of the same name.
`PLANNED` are those of a plan, and what was seen in a file that was opened.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.columns import (
    get_column,
    make_nulls,
    replace_column,
    take_rows_at,
)
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.store.runs.recorded_plan import PLAN, ROWS_AT_ONCE, SPAN
from sentence_beam.transforms.store.tables.file_rows import split_place
from sentence_beam.transforms.store.tables.table_columns import (
    COUNT,
    FILE_COUNTS,
    FILES,
    PENDING,
    TEXT,
)

LISTED = pa.schema([*FILES, pa.field("last", pa.struct(list(FILES)))])
PLANNED = pa.schema(
    [
        *PLAN,
        # JSON: names and types of the kept columns that it has; null if nobody has opened it
        pa.field("kept", TEXT),
        # JSON: the kept columns, and those of templates, that were seen in it; null without a row
        pa.field("keys", TEXT),
        pa.field("lacks", pa.list_(TEXT)),  # the kept columns that it does not have
        pa.field("ms", pa.float64()),  # that planning it took
    ]
)
NO_COUNTS = dict.fromkeys(FILE_COUNTS, 0)
NOT_PENDING = dict.fromkeys(PENDING)


@dataclass(frozen=True)
class OpenedFile:
    """A file that was opened: its spans, the types of its kept columns, and what it lacks."""

    file: InputFile
    spans: tuple[Span, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] | None = None
    lacks: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return its row of `PLANNED`."""
        return make_row(self.file) | {
            "carried": False,
            "spans": [_make_span_row(span) for span in self.spans],
            "kept": json.dumps(self.kept),
            "keys": None if self.keys is None else json.dumps(self.keys),
            "lacks": list(self.lacks),
        }


def make_row(file: InputFile) -> dict[str, Any]:
    """Return the row of `files` of a file without units."""
    same = {name: getattr(file, name) for name in ("format", "checksum", "version", "size", "cut")}
    return {"path": file.relative, **split_place(file.path, file.relative), **same, **NO_COUNTS}


def _make_span_row(span: Span) -> dict[str, Any]:
    row = {field.name: getattr(span, field.name) for field in SPAN if field.name != "row_groups"}
    return row | {"row_groups": list(span.row_groups)}


def make_listed_rows(files: Sequence[InputFile]) -> pa.Table:
    """Return the rows of `files` of files that were listed."""
    starts = range(0, len(files), ROWS_AT_ONCE)  # dicts of all would take 1 kB a file
    tables = (
        pa.Table.from_pylist(
            [make_row(file) for file in files[start : start + ROWS_AT_ONCE]], FILES
        )
        for start in starts
    )
    return pa.concat_tables([FILES.empty_table(), *tables])


def add_last(listed: pa.Table, last: pa.Table, at: Any) -> pa.Table:
    """Return rows `LISTED`, whose files of the last snapshot are at these places; -1: none."""
    before = take_rows_at(last, at).combine_chunks()
    last_column = pa.StructArray.from_arrays(
        [get_column(before, name) for name in FILES.names],
        fields=[field.with_nullable(True) for field in FILES],
        mask=get_column(before, "path").is_null(),
    )
    schema = pa.schema([*FILES, pa.field("last", last_column.type)])
    return pa.table([*listed.columns, last_column], schema=schema)


def make_planned_rows(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return files as rows of `PLANNED`."""
    return pa.Table.from_pylist(list(rows), PLANNED)


def make_carried_rows(listed: pa.Table, last: pa.Table, at: Any) -> pa.Table:
    """Return rows `PLANNED` of listed files that are as at these places of the last snapshot."""
    before = take_rows_at(last, at)
    for name in ("path", "folder", "source", "version"):
        before = replace_column(before, name, listed.column(name))
    return clear_pending(as_carried(before))


def as_carried(files: pa.Table) -> pa.Table:
    """Return rows `PLANNED` of files that are carried over, in no group yet."""
    rows = len(files)
    columns = {name: files.column(name) for name in FILES.names}
    columns["carried"] = pa.repeat(pa.scalar(True), rows)
    columns["group"] = pa.nulls(rows, TEXT)
    for field in PLANNED:
        if field.name not in columns:
            columns[field.name] = make_nulls(rows, field.type)
    return pa.table([columns[name] for name in PLANNED.names], schema=PLANNED)


def clear_pending(files: pa.Table) -> pa.Table:
    """Return files of a plan that wait for no later run."""
    for name in PENDING:
        files = replace_column(files, name, pa.nulls(len(files), COUNT))
    return files


def list_distinct_values(files: pa.Table, name: str) -> list[Any]:
    """Return the distinct values of a column that is JSON."""
    return [json.loads(text) for text in files.column(name).unique().to_pylist()]


def count_lacking_columns(files: pa.Table) -> dict[str, int]:
    """Return the number of opened files that lack a kept column, by its name."""
    counts = Counter(pc.list_flatten(files.column("lacks")).to_pylist())
    return dict(sorted(counts.items()))


def replace_spans(files: pa.Table, spans: Iterable[Span]) -> pa.Table:
    """Return files that were opened with these spans in place of theirs."""
    of_file: dict[str, list[Span]] = {}
    for span in spans:
        of_file.setdefault(span.file.relative, []).append(span)
    paths = files.column("path").to_pylist()
    had = files.column("spans").is_valid().to_pylist()
    listed = [
        [_make_span_row(span) for span in of_file.get(path, ())] if there else None
        for path, there in zip(paths, had, strict=True)
    ]
    return replace_column(files, "spans", pa.array(listed, PLAN.field("spans").type))
