"""Types of kept columns that no option names: their codes in plans, and how texts are read as them.

A store that was begun with a table keeps the table's types, such as int32 or a list.
"""

import base64
import functools
import json
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import is_bytes, is_string
from sentence_beam.transforms.corpus.column_types import STR, TYPES, ColumnType

# the word for the type of a column without a value so far, which is text until then
NO_TYPE = "null"
_MOST_DIGITS = 100
_ARROW = "arrow:"
_BYTES = "schema:"


def make_code(kind: pa.DataType) -> str:
    """Return the code of an Arrow type, with which `parse_type` returns the type again."""
    name = str(kind)
    try:
        if pa.type_for_alias(name) == kind:
            return _ARROW + name
    except ValueError:  # Arrow has no short name for it
        pass
    data = pa.schema([("", kind)]).serialize().to_pybytes()
    return _BYTES + base64.b85encode(data).decode()


def join_words(words: Iterable[str]) -> str:
    """Return the word for values of these types together, NO_TYPE without a value.

    Ints and floats together are float; values of other types together are kept as text.
    """
    distinct = set(words)
    if not distinct:
        return NO_TYPE
    if len(distinct) == 1:
        return distinct.pop()
    return "float" if distinct == {"int", "float"} else STR.word


def is_word(code: str) -> bool:
    """Whether a code is the word for a type that options name."""
    return code in TYPES


@functools.lru_cache(256)
def parse_type(code: str) -> ColumnType:
    """Return the type of a word or of a code."""
    if is_word(code):
        return TYPES[code]
    if code == NO_TYPE:
        return ColumnType(NO_TYPE, pa.string(), str)
    if code.startswith(_ARROW):
        kind = pa.type_for_alias(code.removeprefix(_ARROW))
    else:
        data = base64.b85decode(code.removeprefix(_BYTES))
        kind = pa.ipc.read_schema(pa.py_buffer(data)).field(0).type
    return ColumnType(str(kind), kind, _make_reader(kind))


def _make_reader(kind: pa.DataType) -> Callable[[str], Any]:
    """Return the function that reads a text as a value of an Arrow type, a scalar of Arrow."""
    parse = _choose_parser(kind)

    def read(text: str) -> Any:
        try:
            return pa.scalar(parse(text), kind)
        except (pa.ArrowException, TypeError, InvalidOperation, RecursionError) as error:
            raise ValueError from error

    return str if is_string(kind) else read


def _choose_parser(kind: pa.DataType) -> Callable[[str], Any]:
    """Return the function that makes Python's value of a text; Arrow checks that it fits."""
    if pa.types.is_integer(kind):
        return _parse_int
    if pa.types.is_decimal(kind):
        return _parse_decimal
    if pa.types.is_timestamp(kind):
        return functools.partial(_parse_moment, kind)
    for word, is_kind in _LIKE_WORDS:
        if is_kind(kind):
            return TYPES[word].read
    if is_bytes(kind):
        return str.encode
    if pa.types.is_fixed_size_binary(kind):
        return bytes.fromhex
    if isinstance(kind, pa.UuidType):
        return lambda text: uuid.UUID(text).bytes
    if pa.types.is_time(kind):
        return time.fromisoformat
    return functools.partial(_parse_nested, kind)


_LIKE_WORDS = (
    ("float", pa.types.is_floating),
    ("bool", pa.types.is_boolean),
    ("date", pa.types.is_date),
)


def _parse_nested(kind: pa.DataType, text: str) -> Any:
    """Parse a list, a struct or a map from JSON; for other types Arrow refuses the value."""
    value = json.loads(text)
    if not _fits(value, kind):
        raise ValueError
    return value


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether structs have no other fields, which Arrow would leave out."""
    if value is None:
        return True
    if pa.types.is_struct(kind):
        kinds = {field.name: field.type for field in kind}
        return isinstance(value, dict) and all(
            name in kinds and _fits(inside, kinds[name]) for name, inside in value.items()
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return isinstance(value, list) and all(_fits(inside, kind.value_type) for inside in value)
    return True


def _parse_decimal(text: str) -> Decimal:
    number = Decimal(text.strip())
    if number.is_finite() and number.adjusted() > _MOST_DIGITS:
        raise ValueError  # it would take as many bytes as it has digits
    return number


def _parse_int(text: str) -> int:
    number = _parse_decimal(text)
    if number != number.to_integral_value():
        raise ValueError
    return int(number)


def _parse_moment(kind: pa.TimestampType, text: str) -> pa.Scalar:
    """Parse a moment, which is in UTC without a zone, and cast it without loss."""
    moment = TYPES["timestamp"].read(text).astimezone(UTC)
    return pa.scalar(moment, pa.timestamp("us", "UTC")).cast(kind)
