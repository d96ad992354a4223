"""The file of a run's plan, as it is written."""

import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.base.measures import summed
from transforms.corpus import Span
from transforms.corpus.beside import Beside
from transforms.corpus.buckets import Buckets
from transforms.corpus.groups import AnySpan
from transforms.store import layout
from transforms.store.ledger import PLAN_FIELDS
from transforms.store.runs.carried import Checked
from transforms.store.runs.plan import (
    BAD,
    BESIDE,
    BUCKETS,
    CHECKED,
    MEASURES,
    MEMBER,
    ROWS_AT_ONCE,
    SCHEMA,
    TYPES,
    UNCHANGED,
    WRITTEN,
    PlannedFile,
)
from transforms.store.runs.result import now


def write_plan(
    root: str,
    run: str,
    files: Iterable[PlannedFile],
    buckets: Buckets | None = None,
    beside: Beside | None = None,
    unchanged: bool = False,
) -> bool:
    """Record a run's plan in its folder, and return whether it is the run's first.

    `buckets` are given if these are the units. `unchanged`: with `--partition content`, all units
    of the last snapshot are carried over.
    """
    listed = list(files)
    metadata = {CHECKED: json.dumps(asdict(Checked.sum(file.checked for file in listed)))}
    metadata |= {
        MEASURES: json.dumps(
            summed({"file_ms": file.ms} for file in listed if file.ms is not None)
        ),
        WRITTEN: now(),
    }
    if buckets:
        metadata |= {BUCKETS: json.dumps(asdict(buckets))}
    if beside:
        metadata |= {BESIDE: json.dumps(beside.total())}
    bad = {file.file.relative: file.bad for file in listed if file.bad}
    if bad:
        metadata |= {BAD: json.dumps(bad)}
    types = next((file.file.types for file in listed if file.file.types), ())
    if types:
        metadata |= {TYPES: json.dumps(dict(types))}
    if unchanged:
        metadata |= {UNCHANGED: "true"}
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).put_if_absent(path, _plan_bytes(listed, metadata))


def _plan_bytes(files: list[PlannedFile], metadata: dict[bytes, str]) -> bytes:
    """Return the plan as a Parquet file, put together from some of its rows at a time."""
    sink = io.BytesIO()
    schema = SCHEMA.with_metadata(metadata)
    rows = (row for file in files for row in _table_rows(file))
    with pq.ParquetWriter(sink, schema, write_page_checksum=True) as writer:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
    return sink.getvalue()


def _table_rows(planned: PlannedFile) -> list[dict[str, Any]]:
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
