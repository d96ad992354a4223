"""Rows of a plan's table: a row for each span of a file, or one row for a file without spans."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow import mask_array, mask_of
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.store.ledger import PLAN_FIELDS
from sentence_beam.transforms.store.runs.plan import FILE, MEMBER, PlannedFile, entry_of, file_of


def table_rows(planned: PlannedFile) -> list[dict[str, Any]]:
    """Return the rows of a file in a plan's table."""
    f = planned.file
    file = {"file": f.relative, "path": f.path, "format": f.format, "size": f.size}
    file |= {"checksum": f.checksum, "version": f.version, "group": planned.in_group or None}
    file |= {"cut": f.cut}
    spans = [
        {
            **file,
            "tokens": tokens,
            "was": planned.was,
            **{name: getattr(span, name) for name in PLAN_FIELDS},
        }
        for span, tokens in planned.planned
    ]
    # those that are carried come after them
    for row, span in zip(spans, planned.work, strict=False):
        row |= _work_of(span)
    if spans:
        return spans
    rows = 0 if planned.is_rowless else None
    return [file | {"rows": rows}]


def _work_of(span: AnySpan) -> dict[str, Any]:
    """Return the columns that tell what to read of a span."""
    if isinstance(span, Span):
        return {"number": span.number, "row_groups": span.row_groups, "offset": span.offset}
    members = [
        {"file": one.file.relative, **{name: getattr(one, name) for name in MEMBER}}
        for one in span.spans
    ]
    return {"members": json.dumps(members)}


def is_first_of_file(files: pa.ChunkedArray, before: str | None = None) -> np.ndarray:
    """Return for each row whether it is its file's first, bool [n].

    `files` are the relative paths, of which equal ones follow each other; `before` is that of the
    row before these.
    """
    paths = files.combine_chunks()
    is_other = np.ones(len(paths), bool)
    if len(paths):
        is_other[0] = paths[0].as_py() != before
        is_other[1:] = mask_of(pc.not_equal(paths[1:], paths[:-1]))
    return is_other


@dataclass(frozen=True)
class RowReader:
    """Makes files and spans from rows of a plan's table.

    `syntax` is the run's, `types` are the words for the types of kept columns. `grouped` are the
    files that share units, by relative path.
    """

    syntax: Syntax = AS_FOUND
    types: tuple[tuple[str, str], ...] = ()
    grouped: Mapping[str, InputFile] = field(default_factory=dict)

    def files(self, rows: pa.Table) -> dict[str, InputFile]:
        """Return the files of some rows by relative path."""
        found = rows.select(FILE).filter(mask_array(is_first_of_file(rows.column("file"))))
        return {row["file"]: self._file(row) for row in found.to_pylist()}

    def _file(self, row: dict[str, Any]) -> InputFile:
        return replace(file_of(entry_of(row)), syntax=self.syntax, types=self.types)

    def spans(self, rows: pa.Table) -> Iterator[AnySpan]:
        """Yield the spans to embed."""
        found = rows.filter(pc.equal(rows.column("carried"), False))  # null without a span
        files = self.files(found)
        columns = found.select(["file", "name", "members", *MEMBER]).drop_columns(["row_groups"])
        row_groups = _tuples(found.column("row_groups"))
        for row, groups in zip(columns.to_pylist(), row_groups, strict=True):
            if row["members"] is None:
                yield _span_of(files[row["file"]], row, groups)
                continue
            parts = [
                _span_of(self.grouped[member["file"]], member, tuple(member["row_groups"]))
                for member in json.loads(row["members"])
            ]
            yield GroupSpan(row["name"], tuple(parts))


def _tuples(lists: pa.ChunkedArray) -> Iterator[tuple[int, ...]]:
    """Yield the lists of a column; `to_pylist` takes ten times as long."""
    column = lists.combine_chunks()
    values = column.flatten().to_pylist()
    start = 0
    for length in column.value_lengths().to_pylist():
        stop = start + (length or 0)
        yield tuple(values[start:stop])
        start = stop


def _span_of(file: InputFile, values: dict[str, Any], row_groups: tuple[int, ...]) -> Span:
    return Span(
        file,
        int(values["number"]),  # no plan of an earlier version, which had none
        values["start"],
        values["stop"],
        row_groups,
        values["rows"],
        values["tokens"],
        values.get("offset") or 0,  # earlier versions wrote none
    )
