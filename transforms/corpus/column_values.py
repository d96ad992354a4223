"""Values of a batch's columns as text, and reasons against values that cannot be used."""

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_plain, as_plain_type, is_bytes, is_string
from sentence_beam.transforms.corpus.nested import find_column, find_type, format_value

EXCERPT = 80
NOT_UTF8 = "not UTF-8"
KEPT_NOT_UTF8 = "kept column not UTF-8"
KEPT_NULL_LIST = "kept column null, which lists of a fixed number cannot be in Parquet"

_FLOATS: dict[int, Callable[[float], Any]] = {16: np.float16, 32: np.float32, 64: float}

Reasons = list[str | None] | None  # None if no row has a reason


def read_named_values(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> tuple[list[dict[str, str | None]], Reasons]:
    """The values of the existing columns as text, row by row, and reasons against them."""
    values: dict[str, list[str | None]] = {}
    reasons: Reasons = None
    for name in names:
        if find_type(batch.schema, name) is not None:
            values[name], others = format_values(find_column(batch, name))
            reasons = merge_reasons(reasons, others)
    rows = range(batch.num_rows)
    return [{name: column[row] for name, column in values.items()} for row in rows], reasons


def format_values(column: pa.Array) -> tuple[list[str | None], Reasons]:
    """Values for a template, and reasons against them.

    Lists and structs are JSON, all other values as ids.
    """
    column = as_plain(column)
    if not pa.types.is_nested(column.type):
        return decode_texts(as_strings(column))
    faults = _find_undecodable(column)
    if faults is None:
        return [format_value(value) for value in column.to_pylist()], None
    pairs = zip(column, faults, strict=True)
    texts = [None if fault else format_value(value.as_py()) for value, fault in pairs]
    return texts, _give_reason(faults, NOT_UTF8)


def as_strings(column: pa.Array) -> pa.Array:
    """Values that are neither lists nor structs as text: integers in decimal, floats as JSON.

    UUIDs are 8-4-4-4-12 hex digits, other bytes of a fixed number are in hex. The text of other
    bytes may not be UTF-8: see `decode_texts`.
    """
    column = as_plain(column)
    kind = column.type
    if isinstance(kind, pa.UuidType):
        return _convert(column.storage, lambda value: str(uuid.UUID(bytes=value)))
    if pa.types.is_fixed_size_binary(kind):
        return _convert(column, bytes.hex)
    if is_bytes(kind):
        return column.cast(pa.large_binary()).view(pa.large_string())
    if pa.types.is_floating(kind):
        digits = _FLOATS[kind.bit_width]  # of float32, fewer than Python writes
        return _convert(column, lambda value: format_value(float(str(digits(value)))))
    if pa.types.is_decimal(kind) and kind.scale < 0:
        return _convert(column, lambda value: format(value, "f"))
    return column.cast(pa.large_string())


def _convert(column: pa.Array, convert: Callable[[Any], str | None]) -> pa.Array:
    texts = [None if value is None else convert(value) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def merge_reasons(reasons: Reasons, others: Reasons) -> Reasons:
    """The first reason against each row."""
    if reasons is None or others is None:
        return reasons or others
    return [a or b for a, b in zip(reasons, others, strict=True)]


def find_kept_faults(column: pa.Array) -> Reasons:
    """Reasons against kept values that readers of the shard could not decode."""
    if pa.types.is_fixed_size_list(column.type) and column.null_count:
        return _give_reason(column.is_null().to_pylist(), KEPT_NULL_LIST)
    faults = _find_undecodable(column)
    return _give_reason(faults, KEPT_NOT_UTF8) if faults is not None else None


def _find_undecodable(column: pa.Array) -> list[bool] | None:
    """Whether each value has text that is not UTF-8; None if none has."""
    try:
        column.validate(full=True)
        return None
    except pa.ArrowInvalid:
        return [not _decodes(value) for value in column]


def _give_reason(is_bad: list[bool], reason: str) -> list[str | None]:
    return [reason if bad else None for bad in is_bad]


def _decodes(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def has_samples(kind: pa.DataType) -> bool:
    """Whether columns of this type are looked at for texts and ids: strings and numbers."""
    kind = as_plain_type(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_string(kind) or is_number or isinstance(kind, pa.UuidType)


def take_samples(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values of such a type: numbers as they are, others as text."""
    kind = as_plain_type(column.type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return list(column.to_pylist())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return decode_texts(as_strings(column))[0]


def decode_texts(text: pa.Array) -> tuple[list[str | None], Reasons]:
    """Texts and reasons against them; some tools write strings that are not UTF-8."""
    try:
        return text.to_pylist(), None
    except UnicodeDecodeError:
        values = text.cast(pa.large_binary()).to_pylist()
        pairs = [(None, None) if value is None else decode(value) for value in values]
        return [own_text for own_text, _ in pairs], [reason for _, reason in pairs]


def decode(line: bytes) -> tuple[str, str | None]:
    """Bytes as text without a reason; if they are not UTF-8, an excerpt and the reason."""
    try:
        return line.decode("utf8"), None
    except UnicodeDecodeError:
        return line[: 4 * EXCERPT].decode("utf8", errors="replace"), NOT_UTF8
