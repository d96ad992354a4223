"""The types that kept columns can be given, and values of any column read as one of them.

A value is read from its text: what a CSV file has, what JSON writes. Columns of Arrow types of the
same kind are cast.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from transforms.base.errors import OptionError
from transforms.base.values import nearest
from transforms.corpus.column_values import Reasons, first_reasons, values_as_text

# What other programs call the same thing.
MEANT = {
    "string": "str", "text": "str", "varchar": "str", "utf8": "str", "char": "str",
    "integer": "int", "int32": "int", "int64": "int", "long": "int", "bigint": "int",
    "double": "float", "real": "float", "float32": "float", "float64": "float", "number": "float",
    "decimal": "float", "numeric": "float", "boolean": "bool", "datetime": "timestamp",
    "timestamptz": "timestamp",
}  # fmt: skip
# The beginnings of Arrow's names of types.
_NEAREST = {
    "int": "int", "uint": "int", "double": "float", "float": "float", "halffloat": "float",
    "decimal": "float", "bool": "bool", "date": "date", "timestamp": "timestamp",
}  # fmt: skip
_INT = re.compile(r"([-+]?[0-9]+)(?:\.0*)?")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_BOOLS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
# A column in a list: its name in quotes with a type or without one, or all that a comma ends.
_ITEM = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"(?::(?P<kind>\w*))?\s*|(?P<plain>(?!")[^,]*))(?:,|$)'
)


@dataclass(frozen=True)
class ColumnType:
    """A type by the word for it: the type of its column in a shard, and the function that reads a
    value's text.

    `read` raises ValueError or OverflowError for text that is no value of the type.
    """

    word: str
    arrow: pa.DataType
    read: Callable[[str], Any]


class KeptColumn(NamedTuple):
    """A column to keep, and the word for the type that it is given (None: none)."""

    name: str
    kind: str | None = None

    def __str__(self) -> str:
        kind = f":{self.kind}" if self.kind else ""
        if (
            self.name.strip() == self.name
            and not self.name.startswith('"')
            and not set(self.name) & set(",:")
        ):
            return self.name + kind
        quoted = self.name.replace('"', '""')
        return f'"{quoted}"{kind}'


def _read_int(text: str) -> int:
    found = _INT.fullmatch(text.strip())
    number = int(found[1]) if found else _MOST + 1
    if not _LEAST <= number <= _MOST:
        raise ValueError
    return number


def _read_float(text: str) -> float:
    number = float(text)
    if "_" in text or (math.isinf(number) and "inf" not in text.lower()):
        raise ValueError
    return number


def _read_bool(text: str) -> bool:
    found = _BOOLS.get(text.strip().lower())
    if found is None:
        raise ValueError
    return found


def _read_date(text: str) -> date:
    return date.fromisoformat(text.strip())


def _read_timestamp(text: str) -> datetime:
    """A moment; one without a zone is in UTC."""
    moment = datetime.fromisoformat(text.strip())
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


TYPES = {
    kind.word: kind
    for kind in (
        ColumnType("str", pa.string(), str),
        ColumnType("int", pa.int64(), _read_int),
        ColumnType("float", pa.float64(), _read_float),
        ColumnType("bool", pa.bool_(), _read_bool),
        ColumnType("date", pa.date32(), _read_date),
        ColumnType("timestamp", pa.timestamp("us", "UTC"), _read_timestamp),
    )
}


STR = TYPES["str"]  # what CSV and JSON give where nothing else is said


def parse_columns(text: str) -> tuple[KeptColumn, ...]:
    """The columns in a comma-separated list, each with a type after a colon or without one; none
    for an empty text.

    A name that has a comma, or a colon before the word for a type, stands in double quotes, its own
    quotes doubled. Raises OptionError for a name that comes twice, and for what is nearly the word
    for a type.

    >>> [str(column) for column in parse_columns('price:int,dc:title,"dc:date","a,b":str')]
    ['price:int', '"dc:title"', '"dc:date"', '"a,b":str']
    """
    found, at = [], 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise OptionError(
                f"{text}: {text[at:][:40]!r} is not a name in quotes, a type and a comma"
            )
        at = item.end()
        if item["quoted"] is not None:
            found.append(KeptColumn(item["quoted"].replace('""', '"'), _kind(item["kind"])))
        elif item["plain"].strip():
            found.append(_plain_column(item["plain"].strip()))
    if len({column.name for column in found}) != len(found):
        raise OptionError(f"{text} names a column twice")
    return tuple(found)


def _kind(word: str | None) -> str | None:
    """Check the word after a quoted name."""
    if word is not None and word not in TYPES:
        raise _no_type(word)
    return word


def _plain_column(text: str) -> KeptColumn:
    """Parse an item without quotes; what follows a colon and is far from every type belongs to the
    name.
    """
    name, _, word = text.rpartition(":")
    if not name:
        return KeptColumn(text)
    if word in TYPES:
        return KeptColumn(name, word)
    if _meant(word):
        raise _no_type(word, f" If {text} is a column's name, put it in double quotes")
    return KeptColumn(text)


def _meant(word: str) -> str | None:
    return MEANT.get(word.lower()) or nearest(word.lower(), TYPES)


def _no_type(word: str, otherwise: str = "") -> OptionError:
    meant = _meant(word)
    near = f"; did you mean {meant}?" if meant else ""
    return OptionError(
        f"{word!r} is no type of a column (choose from {', '.join(TYPES)}){near}{otherwise}"
    )


def not_of_type(name: str, kind: ColumnType) -> str:
    """The reason against a row whose kept value cannot be read as the column's type."""
    return f"kept column {name} is not {kind.word}"


def word_for(arrow: str) -> str:
    """The word for the type that is nearest to an Arrow type, by its name; str if no other is.

    >>> word_for("uint8"), word_for("decimal128(5, 2)"), word_for("list<item: int64>")
    ('int', 'float', 'str')
    """
    return next((word for begin, word in _NEAREST.items() if arrow.startswith(begin)), "str")


def word_for_values(values: Iterable[Any]) -> str:
    """The word for the type of a column with these JSON values, "" if all are null.

    Whole numbers and others are floats. Values of several types, lists and objects are str: they
    are kept as text.
    """
    words = {_word_for_value(value) for value in values if value is not None}
    if words == {"int", "float"}:
        return "float"
    return words.pop() if len(words) == 1 else "str" if words else ""


def _word_for_value(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if _LEAST <= value <= _MOST else "str"  # as text it keeps all of its digits
    return "float" if isinstance(value, float) else "str"


def word_for_numbers(texts: Sequence[str]) -> str | None:
    """The type, int or float, for texts of which most are numbers; None for others."""
    for word in ("int", "float"):
        _, reasons = read_texts(texts, "", TYPES[word])
        others = sum(reason is not None for reason in reasons or ())
        if 2 * others < len(texts):
            return word
    return None


def can_read(found: pa.DataType, kind: ColumnType) -> bool:
    """Whether a column of an Arrow type can be read as a type, but for values that are none."""
    found = _plain(found)
    if _is_text(found) or _casts(found, kind) or pa.types.is_null(found):
        return True
    if kind.word == "str":
        return not _is_bytes(found)
    return kind.word == "bool" and pa.types.is_integer(found)


def as_type(column: pa.Array, name: str, kind: ColumnType) -> tuple[pa.Array, Reasons]:
    """A column that `can_read` accepted, as a type, and reasons against the values that are none,
    null there.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == kind.arrow:
        return column, None
    if _casts(column.type, kind):
        return _cast(column, name, kind)
    texts, reasons = values_as_text(column)
    values, others = read_texts(texts, name, kind)
    return pa.array(values, kind.arrow), first_reasons(reasons, others)


def read_texts(
    texts: Iterable[str | None], name: str, kind: ColumnType
) -> tuple[list[Any], Reasons]:
    """The values of a column's texts, None for a null, and reasons against texts that are no value
    of its type.
    """
    values: list[Any] = []
    reasons: list[str | None] = []
    for text in texts:
        value, reason = None, None
        if text is not None:
            try:
                value = kind.read(text)
            except (ValueError, OverflowError):
                reason = not_of_type(name, kind)
        values.append(value)
        reasons.append(reason)
    return values, reasons if any(reasons) else None


def _plain(found: pa.DataType) -> pa.DataType:
    return found.value_type if pa.types.is_dictionary(found) else found


def _is_text(found: pa.DataType) -> bool:
    return (
        pa.types.is_string(found)
        or pa.types.is_large_string(found)
        or pa.types.is_string_view(found)
    )


def _is_bytes(found: pa.DataType) -> bool:
    return (
        pa.types.is_binary(found)
        or pa.types.is_large_binary(found)
        or pa.types.is_binary_view(found)
    )


def _casts(found: pa.DataType, kind: ColumnType) -> bool:
    """Whether Arrow has the values of one type as another: the same numbers, the same times."""
    if kind.word in ("int", "float"):
        return (
            pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
        )
    if kind.word == "date":
        return pa.types.is_date(found)
    if kind.word == "timestamp":
        return pa.types.is_timestamp(found) or pa.types.is_date(found)
    if kind.word == "str":
        return _is_text(found)
    return pa.types.is_boolean(found)


def _cast(column: pa.Array, name: str, kind: ColumnType) -> tuple[pa.Array, Reasons]:
    """A column cast; numbers to the nearest of floats, times to the microsecond below."""
    if kind.word == "float":
        return column.cast(kind.arrow, safe=False), None
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    try:
        return column.cast(kind.arrow), None
    except pa.ArrowInvalid:  # of some values: a fraction, or more than the type holds
        cast = [_cast_or_null(value, kind) for value in column]
    reason = not_of_type(name, kind)
    reasons: Reasons = [
        reason if before.is_valid and not after.is_valid else None
        for before, after in zip(column, cast, strict=True)
    ]
    return pa.array(cast, kind.arrow), reasons


def _cast_or_null(value: pa.Scalar, kind: ColumnType) -> pa.Scalar:
    try:
        return value.cast(kind.arrow)
    except pa.ArrowInvalid:
        return pa.scalar(None, kind.arrow)
