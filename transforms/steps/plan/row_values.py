"""Rows of a PCollection (dicts, named rows, pairs) as columns of text; reasons against them."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.column_values import (
    KEPT_NOT_UTF8,
    NOT_UTF8,
    Reasons,
    first_reasons,
)
from sentence_beam.transforms.corpus.files import is_utf8
from sentence_beam.transforms.corpus.nested import has_value, value_as_text, value_at
from sentence_beam.transforms.corpus.row_columns import plain_value, read_id, read_text
from sentence_beam.transforms.steps.embed.row_shapes import NoField, faults, no_row

# The name of a column with the reasons against rows of a batch.
AGAINST = "reason against the row"
Row = dict[str, Any]


def fields_of(given: Any, columns: Columns) -> Row:
    """Return the fields of an element. Raises OptionError if it is not a row."""
    if isinstance(given, Mapping):
        return dict(given)
    if hasattr(given, "_asdict"):
        return dict(given._asdict())
    if isinstance(given, tuple) and len(given) == 2:
        return {columns.id or "": given[0], columns.text: given[1]}
    raise no_row(given)


def batch_of(rows: list[Row], columns: Columns) -> pa.RecordBatch:
    """Return rows as a batch of texts, and a column of reasons against them."""
    reasons: Reasons = None
    arrays = {}
    if columns.of_text is None:
        found = faults([_value_or_none(row, columns.text) for row in rows], columns.text)
        reasons = [found.get(place) for place in range(len(rows))]
    for name in columns.wanted:
        if name == columns.id:
            texts, against = _ids(rows, name)
        elif name == columns.text and columns.of_text is None:
            texts, against = _texts(rows, name)
        else:
            texts, against = _values(rows, name, name in columns.keep)
        arrays[name] = pa.array(texts, pa.large_string())
        reasons = first_reasons(reasons, against)
    arrays[AGAINST] = pa.array(reasons or [None] * len(rows), pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def _value_or_none(row: Row, name: str) -> Any:
    """Return the value of a field, or the marker of a row without the field."""
    if has_value(row, name):
        return plain_value(value_at(row, name))
    return NoField


def _texts(rows: list[Row], name: str) -> tuple[list[str | None], Reasons]:
    """Return the values that are texts, in UTF-8; `faults` has the reasons against the others."""
    texts = [read_text(value_at(row, name))[0] for row in rows]
    return list(map(_encodable, texts)), None


def _ids(rows: list[Row], name: str) -> tuple[list[str | None], Reasons]:
    """Return ids as text, and the reasons against values that cannot be ids."""
    ids: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows:
        row_id, reason = read_id(value_at(row, name))
        if not is_utf8(row_id):
            reason = NOT_UTF8
        ids.append(_encodable(row_id))
        reasons.append(reason)
    return ids, reasons


def _values(rows: list[Row], name: str, is_kept: bool) -> tuple[list[str | None], Reasons]:
    """Return the values of a field as text, and reasons against them."""
    bad = KEPT_NOT_UTF8 if is_kept else NOT_UTF8
    texts: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows:
        text = value_as_text(plain_value(value_at(row, name)))
        reasons.append(None if is_utf8(text) else bad)
        texts.append(_encodable(text))
    return texts, reasons


def _encodable(text: str | None) -> str | None:
    """Return a text with question marks for characters that UTF-8 does not have."""
    if text is None or is_utf8(text):
        return text
    return text.encode("utf8", errors="replace").decode("utf8")
