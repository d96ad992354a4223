"""Types of kept columns: the words for them in options, and functions that read texts as them.

Columns of tables are cast: see `casts`.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.values import find_nearest
from sentence_beam.transforms.corpus.column_values import Reasons

# Names that other programs have for these types.
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
_LEAST = -(1 << 63)
_MOST = (1 << 63) - 1
_BOOLS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
# A column in a list: a quoted name with an optional type, or any text up to a comma.
_ITEM = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"(?::(?P<kind>\w*))?\s*|(?P<plain>(?!")[^,]*))(?:,|$)'
)


@dataclass(frozen=True)
class ColumnType:
    """A type: its word in options, its Arrow type in shards, and a function that reads a text.

    `read` raises ValueError or OverflowError if the text is not a value of the type. A type that no
    option names has Arrow's name as its word.
    """

    word: str
    arrow: pa.DataType
    read: Callable[[str], Any]


class KeptColumn(NamedTuple):
    """A column to keep, and the word for its requested type (None: no type was requested)."""

    name: str
    kind: str | None = None

    def __str__(self) -> str:
        name = self.name
        if name.strip() != name or name.startswith('"') or set(name) & set(",:"):
            name = '"' + name.replace('"', '""') + '"'
        return f"{name}:{self.kind}" if self.kind else name


def _read_int(text: str) -> int:
    match = _INT.fullmatch(text.strip())
    if match is None:
        raise ValueError
    number = int(match[1])
    if not _LEAST <= number <= _MOST:
        raise ValueError
    return number


def _read_float(text: str) -> float:
    number = float(text)
    if "_" in text or (math.isinf(number) and "inf" not in text.lower()):
        raise ValueError
    return number


def _read_bool(text: str) -> bool:
    value = _BOOLS.get(text.strip().lower())
    if value is None:
        raise ValueError
    return value


def _read_date(text: str) -> date:
    return date.fromisoformat(text.strip())


def _read_timestamp(text: str) -> datetime:
    """Read a moment; without a zone it is in UTC. BigQuery writes ` UTC` for `+00:00`."""
    text = text.strip()
    if text.endswith((" UTC", " utc")):
        text = text[:-4].rstrip()
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


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


STR = TYPES["str"]  # the type of columns of CSV and JSON if none is requested


def parse_columns(text: str) -> tuple[KeptColumn, ...]:
    """Parse a comma-separated list of columns, each with an optional type after a colon.

    A name with a comma, or with a colon before the word for a type, is put in double quotes; quotes
    in it are doubled. Raises OptionError for a duplicate name and for a misspelt type.

    >>> [str(column) for column in parse_columns('price:int,dc:title,"dc:date","a,b":str')]
    ['price:int', '"dc:title"', '"dc:date"', '"a,b":str']
    """
    columns: list[KeptColumn] = []
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise OptionError(
                f"{text}: {text[at:][:40]!r} is not a name in quotes, a type and a comma"
            )
        at = item.end()
        if item["quoted"] is not None:
            name = item["quoted"].replace('""', '"')
            columns.append(KeptColumn(name, _check_type(item["kind"])))
        elif item["plain"].strip():
            columns.append(_parse_plain(item["plain"].strip()))
    if len({column.name for column in columns}) != len(columns):
        raise OptionError(f"{text} names a column twice")
    return tuple(columns)


def _check_type(word: str | None) -> str | None:
    if word is not None and word not in TYPES:
        raise _make_type_error(word)
    return word


def _parse_plain(text: str) -> KeptColumn:
    """Parse an item without quotes; a text after a colon that is not like a type is part of it."""
    name, _, word = text.rpartition(":")
    if not name:
        return KeptColumn(text)
    if word in TYPES:
        return KeptColumn(name, word)
    if _find_nearest_type(word):
        raise _make_type_error(word, f" If {text} is a column's name, put it in double quotes")
    return KeptColumn(text)


def _find_nearest_type(word: str) -> str | None:
    return MEANT.get(word.lower()) or find_nearest(word.lower(), TYPES)


def _make_type_error(word: str, otherwise: str = "") -> OptionError:
    meant = _find_nearest_type(word)
    near = f"; did you mean {meant}?" if meant else ""
    return OptionError(
        f"{word!r} is no type of a column (choose from {', '.join(TYPES)}){near}{otherwise}"
    )


# The types that take some of the values that a type does not.
WIDER = {"int": "float", "date": "timestamp"}
NOT_OF_TYPE = re.compile("kept column (?P<name>.*) is not (?P<word>.+)", re.DOTALL)


def make_type_reason(name: str, kind: ColumnType) -> str:
    """Return the reason for rejecting a row whose kept value is not of the column's type."""
    return f"kept column {name} is not {kind.word}"


def find_word(arrow: str) -> str:
    """Return the word for the type that is nearest to an Arrow type, by its name; else str.

    >>> word_for("uint8"), word_for("decimal128(5, 2)"), word_for("list<item: int64>")
    ('int', 'float', 'str')
    """
    for begin, word in _NEAREST.items():
        if arrow.startswith(begin):
            return word
    return "str"


def find_word_of_value(value: Any) -> str:
    """Return the word for the type of a value of JSON, or of a row of a database.

    >>> [word_for_value(value) for value in (True, 2**70, Decimal("1.5"), date.min, [1])]
    ['bool', 'str', 'float', 'date', 'str']
    """
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if _LEAST <= value <= _MOST else "str"  # text keeps all digits
    if isinstance(value, float | Decimal):
        return "float"
    if isinstance(value, datetime):
        return "timestamp"
    if isinstance(value, date):
        return "date"
    return "str"


def find_word_of_numbers(texts: Sequence[str]) -> str | None:
    """Return int or float for texts of which most are numbers; None for others."""
    for word in ("int", "float"):
        _, reasons = read_texts(texts, "", TYPES[word])
        others = sum(reason is not None for reason in reasons or ())
        if 2 * others < len(texts):
            return word
    return None


def read_texts(
    texts: Iterable[str | None], name: str, kind: ColumnType
) -> tuple[list[Any], Reasons]:
    """Read the values of a column's texts, None for a null, with reasons for the invalid texts."""
    values: list[Any] = []
    reasons: list[str | None] = []
    for text in texts:
        try:
            values.append(None if text is None else kind.read(text))
            reasons.append(None)
        except (ValueError, OverflowError):
            values.append(None)
            reasons.append(make_type_reason(name, kind))
    return values, (reasons if any(reasons) else None)
