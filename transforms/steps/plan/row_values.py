"""Rows of a PCollection (dicts, named rows, pairs) as columns of text; reasons against them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from transforms.base.errors import OptionError
from transforms.corpus import Columns
from transforms.corpus.column_values import KEPT_NOT_UTF8, NOT_UTF8, Reasons, first_reasons
from transforms.corpus.files import is_utf8
from transforms.corpus.nested import has_value, value_as_text, value_at
from transforms.corpus.row_blocks import ID_NOT_STRING, NULL_ID
from transforms.steps.embed.row_shapes import NoField, faults, no_row

# The name of a column with the reasons against rows of a batch.
AGAINST = "reason against the row"
PLAIN = frozenset((str, int, float, bool, type(None)))
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
    """Return rows as a batch of texts, and a column of reasons against them.

    Raises OptionError for bytes in a column that is kept or part of a template.
    """
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
        return value_at(row, name)
    return NoField


def _texts(rows: list[Row], name: str) -> tuple[list[str | None], Reasons]:
    """Return the values that are texts, in UTF-8; `faults` has the reasons against the others."""
    texts: list[str | None] = []
    for row in rows:
        value = value_at(row, name)
        text = None
        if isinstance(value, str):
            text = _encodable(value)
        texts.append(text)
    return texts, None


def _ids(rows: list[Row], name: str) -> tuple[list[str | None], Reasons]:
    """Return ids as text, and the reasons against those that are neither text nor integers."""
    ids: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows:
        value = plain_value(value_at(row, name))
        row_id = None
        reason = None
        if isinstance(value, str):
            row_id = _encodable(value)
            if row_id != value:
                reason = NOT_UTF8
        elif isinstance(value, int) and not isinstance(value, bool):
            row_id = str(value)
        elif value is None:
            reason = NULL_ID
        else:
            reason = ID_NOT_STRING
        ids.append(row_id)
        reasons.append(reason)
    return ids, reasons


def _values(rows: list[Row], name: str, is_kept: bool) -> tuple[list[str | None], Reasons]:
    """Return the values of a field as text, and reasons against them."""
    bad = NOT_UTF8
    if is_kept:
        bad = KEPT_NOT_UTF8
    texts: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows:
        value = plain_value(value_at(row, name))
        if isinstance(value, bytes | bytearray | memoryview):
            raise OptionError(
                f"field {name!r} of a row is bytes, not text; decode it, or leave it out"
            )
        text = value_as_text(value)
        reason = None
        if not is_utf8(text):
            reason = bad
            text = _encodable(text or "")
        texts.append(text)
        reasons.append(reason)
    return texts, reasons


def _encodable(text: str) -> str:
    """Return a text with question marks for characters that UTF-8 does not have."""
    if text.isascii() or is_utf8(text):
        return text
    return text.encode("utf8", errors="replace").decode("utf8")


def plain_value(value: Any) -> Any:
    """Return a value as a type of Python's own; times of Beam, which JDBC gives, as moments."""
    if type(value) in PLAIN:
        return value
    if hasattr(value, "to_utc_datetime"):
        return value.to_utc_datetime(has_tz=True)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return value
