"""Rows of a PCollection (dicts, named rows, pairs) as columns of text; reasons against them."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.column_values import (
    KEPT_NOT_UTF8,
    Reasons,
    merge_reasons,
)
from sentence_beam.transforms.corpus.nested import find_value, has_value
from sentence_beam.transforms.corpus.row_columns import as_plain_value, format_texts
from sentence_beam.transforms.steps.embed.row_shapes import NoField, find_faults, make_row_error

# The name of a column with the reasons against rows of a batch.
AGAINST = "reason against the row"
Row = dict[str, Any]


def read_fields(element: Any, columns: Columns) -> Row:
    """Return the fields of an element. Raises OptionError if it is not a row."""
    if isinstance(element, Mapping):
        return dict(element)
    if hasattr(element, "_asdict"):
        return dict(element._asdict())
    if isinstance(element, tuple) and len(element) == 2:
        return {columns.id or "": element[0], columns.text: element[1]}
    raise make_row_error(element)


def make_batch(rows: list[Row], columns: Columns) -> pa.RecordBatch:
    """Return rows as a batch of texts, and a column of reasons against them."""
    reasons = _find_faults(rows, columns.text) if columns.of_text is None else None
    arrays = {}
    for name in columns.wanted:
        texts, against = format_texts((find_value(row, name) for row in rows), name, columns)
        arrays[name] = pa.array(texts, pa.large_string())
        if name == columns.text and columns.of_text is None and name != columns.id:
            continue  # `find_faults` has the reasons against texts
        if name in columns.keep and name != columns.id:
            against = [reason and KEPT_NOT_UTF8 for reason in against]
        reasons = merge_reasons(reasons, against)
    arrays[AGAINST] = pa.array(reasons or [None] * len(rows), pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def _find_faults(rows: list[Row], name: str) -> Reasons:
    """Return the reason against the text of each row; None for a good one."""
    texts = [
        as_plain_value(find_value(row, name)) if has_value(row, name) else NoField for row in rows
    ]
    reasons = find_faults(texts, name)
    return [reasons.get(place) for place in range(len(rows))]
