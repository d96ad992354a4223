"""Rows of a plan's table: a row for each span of a file, or one row for a file without spans."""

import json
from typing import Any

from transforms.corpus import Span
from transforms.corpus.groups import AnySpan
from transforms.store.ledger import PLAN_FIELDS
from transforms.store.runs.plan import MEMBER, PlannedFile


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
