"""Filters of rows, as `lang = 'en' AND year >= 2020`: read, checked against the columns there are,
and evaluated.

As in SQL a comparison with a null is neither true nor false, and a row is wanted only where the
whole is true.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from datetime import time
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.base.errors import OptionError, first_line
from transforms.base.values import nearest

EXAMPLE = "write it as in lang = 'en' AND (year >= 2020 OR NOT tag IN ('a', 'b'))"
DEEPEST = 100  # parentheses and NOTs in each other
MOST = 1000  # conditions; Arrow walks them on the stack
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))"
    r'|(?P<column>[^\W\d][\w.]*|"(?:[^"]|"")+")'
    r"|(?P<sign>!=|<>|<=|>=|==|[=<>(),])"
    r"|(?P<end>$))"
)
_KEYWORDS = {"AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE"}
_LITERALS = ("text", "number")
_COMPARE: dict[str, Callable[[pc.Expression, pa.Scalar], pc.Expression]] = {
    "=": eq, "==": eq, "!=": ne, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip


class Words(NamedTuple):
    """What messages call a filter, a column that it may name, and those that there are."""

    option: str
    column: str
    having: str


WHERE = Words("--where", "column", "the store keeps")
# the word for the numbers that a text column holds, None if it holds others
NumbersIn = Callable[[str], str | None]
_ORDERS = ("<", "<=", ">", ">=")
_FOLLOWING = "=, <, IN, LIKE, BETWEEN or IS has to come here"


def _no_numbers(column: str) -> str | None:
    return None


class _Token(NamedTuple):
    """A word of a filter: its kind (text, number, column, keyword, sign or end), what it says, and
    where it begins.
    """

    kind: str
    said: str
    start: int


def checked(
    where: str | pc.Expression,
    schema: pa.Schema,
    words: Words = WHERE,
    numbers_in: NumbersIn = _no_numbers,
) -> pc.Expression:
    """A filter as an expression over the columns of `schema`, which are all that it may name.

    Raises OptionError, naming the columns, for a filter that cannot be read, names another column,
    compares a column with a value of another type, or asks for the order of texts that are numbers.
    """
    expression = (
        _Reader(where, _Schema(schema, words, numbers_in)).read()
        if isinstance(where, str)
        else where
    )
    try:
        kind = evaluated(expression, schema.empty_table()).type
    except (pa.ArrowException, TypeError) as error:
        raise OptionError(
            f"{words.option}: {first_line(error)}; {_Schema(schema, words)}"
        ) from error
    if not pa.types.is_boolean(kind):
        raise OptionError(f"{words.option}: it gives {kind} and not true or false; {EXAMPLE}")
    return expression


def columns_named(where: str, schema: pa.Schema) -> list[str]:
    """The columns of `schema` that a filter names, each once. Raises OptionError as `checked`
    does.
    """
    reader = _Reader(where, _Schema(schema, WHERE))
    reader.read()
    return list(dict.fromkeys(reader.columns))


def evaluated(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """What an expression gives for each row of a table."""
    import pyarrow.dataset as ds  # brings pandas along where it is installed

    return ds.dataset(table).to_table(columns={"wanted": expression}).column(0)


class _Schema(NamedTuple):
    """The columns that a filter may name."""

    fields: pa.Schema
    words: Words
    numbers_in: NumbersIn = _no_numbers

    def __str__(self) -> str:
        return f"{self.words.having} " + ", ".join(
            f"{field.name} ({field.type})" for field in self.fields
        )

    def unfit(self, what: str) -> OptionError:
        """The error of a filter that asks for what the columns do not give."""
        return OptionError(f"{self.words.option}: {what}; {self}")


class _Reader:
    """A filter being read from left to right: `either` reads all up to a closing parenthesis or the
    end.
    """

    def __init__(self, text: str, schema: _Schema):
        self._text, self._schema, self._option = text, schema, schema.words.option
        self._tokens = list(self._cut())
        self.columns: list[str] = []
        self._next = self._depth = self._conditions = 0

    def _cut(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._unread(at, "")
            kind = str(found.lastgroup)
            said = found[kind]
            start, at = found.start(kind), found.end()
            if kind == "column" and said.upper() in _KEYWORDS:
                kind, said = "keyword", said.upper()
            if kind != "end":
                yield _Token(kind, said, start)
        yield _Token("end", "", len(self._text))

    def read(self) -> pc.Expression:
        """The filter that the whole text is, as an expression of Arrow's."""
        found = self._either()
        if self._here.kind != "end":
            raise self._unread(self._here.start, "AND, OR or the end has to come here")
        return found

    def _unread(self, start: int, why: str) -> OptionError:
        rest = self._text[start:].strip()
        place = f"at {rest[:40]!r}" if rest else "at its end"
        return OptionError(
            f"{self._option} cannot be read {place}{f' ({why})' if why else ''}; {EXAMPLE}"
        )

    @property
    def _here(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *said: str) -> bool:
        """Whether the next word is one of these keywords or signs, which is then behind."""
        found = self._here.kind in ("keyword", "sign") and self._here.said in said
        self._next += found
        return found

    def _expect(self, said: str) -> None:
        if not self._take(said):
            raise self._unread(self._here.start, f"{said!r} has to come here")

    def _take_word(self, said: str) -> bool:
        """Whether the next word is this one, which columns may be named too and is then behind."""
        found = self._here.kind == "column" and self._here.said.upper() == said
        self._next += found
        return found

    def _either(self) -> pc.Expression:
        parts = [self._both()]
        while self._take("OR"):
            parts.append(self._both())
        return _joined(or_, parts)

    def _both(self) -> pc.Expression:
        parts = [self._one()]
        while self._take("AND"):
            parts.append(self._one())
        return _joined(and_, parts)

    def _one(self) -> pc.Expression:
        """What NOT stands before, what is in parentheses, or a condition."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise OptionError(
                f"{self._option}: more than {DEEPEST} parentheses and NOTs are in each other; make"
                " it shorter"
            )
        if self._take("NOT"):
            found = ~self._one()
        elif self._take("("):
            found = self._either()
            self._expect(")")
        else:
            found = self._condition()
        self._depth -= 1
        return found

    def _condition(self) -> pc.Expression:
        """A comparison, or a column that is true or false by itself."""
        self._conditions += 1
        if self._conditions > MOST:
            raise OptionError(
                f"{self._option}: more than {MOST:,} conditions; say column IN (...) instead of"
                " many ORs"
            )
        if self._here.kind in _LITERALS:
            return self._in_list()
        column = self._column()
        if self._take("IS"):
            absent = not self._take("NOT")
            self._expect("NULL")
            return column.value.is_null() if absent else column.value.is_valid()
        if self._take("NOT"):
            return ~self._matching(column, self._following)
        sign = self._here.said
        if self._take(*_COMPARE):
            value = self._literal(column)
            if sign in _ORDERS:
                column.check_order()
            return column.compare(_COMPARE[sign], value)
        return self._matching(column, lambda: column.as_condition(self._following))

    def _column(self) -> "_FilterColumn":
        token = self._here
        if token.kind != "column":
            raise self._unread(token.start, "a column has to come here")
        self._next += 1
        name = token.said[1:-1].replace('""', '"') if token.said.startswith('"') else token.said
        column = _FilterColumn.of(name, self._schema)
        self.columns.append(name)
        return column

    def _in_list(self) -> pc.Expression:
        """A value that is among those of a column of lists, or is not."""
        value = self._here
        self._next += 1
        negated = self._take("NOT")
        self._expect("IN")
        found = self._column().has(value)
        return ~found if negated else found

    def _following(self) -> NoReturn:
        raise self._unread(self._here.start, _FOLLOWING)

    def _matching(
        self, column: "_FilterColumn", otherwise: Callable[[], pc.Expression]
    ) -> pc.Expression:
        """IN, LIKE or BETWEEN behind a column, which NOT may stand before."""
        if self._take("IN"):
            return self._among(column)
        if self._take_word("LIKE"):
            return column.like(self._literal(column))
        if self._take_word("BETWEEN"):
            low = self._literal(column)
            self._expect("AND")
            high = self._literal(column)
            column.check_order()
            return column.compare(ge, low) & column.compare(le, high)
        return otherwise()

    def _among(self, column: "_FilterColumn") -> pc.Expression:
        self._expect("(")
        values = [self._literal(column)]
        while self._take(","):
            values.append(self._literal(column))
        self._expect(")")
        return column.among(values)

    def _literal(self, column: "_FilterColumn") -> pa.Scalar:
        token = self._here
        if token.kind not in ("text", "number") and token.said not in ("TRUE", "FALSE"):
            raise self._unread(
                token.start, "a number, a text in single quotes, true or false has to come here"
            )
        self._next += 1
        return column.literal(token)


def _joined(
    how: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: list[pc.Expression]
) -> pc.Expression:
    """The parts joined two by two, so that thousands of them are not thousands of steps deep."""
    while len(parts) > 1:
        parts = [reduce(how, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts[0]


class _FilterColumn(NamedTuple):
    """A column: its name, type, value, and the value as it is compared (of codes what they stand
    for).
    """

    name: str
    kind: pa.DataType
    value: pc.Expression
    compared: pc.Expression
    schema: _Schema

    @classmethod
    def of(cls, name: str, schema: _Schema) -> "_FilterColumn":
        """The column of a name. Raises OptionError where there is none."""
        if schema.fields.get_field_index(name) < 0:
            near = nearest(name, schema.fields.names)
            hint = "" if near is None else f" (did you mean {near}?)"
            raise schema.unfit(f"there is no {schema.words.column} {name}{hint}")
        kind, value = schema.fields.field(name).type, pc.field(name)
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        plain = {pa.string_view(): pa.string(), pa.float16(): pa.float32()}.get(plain, plain)
        return cls(name, plain, value, value if plain == kind else value.cast(plain), schema)

    def compare(
        self, how: Callable[[pc.Expression, pa.Scalar], pc.Expression], value: pa.Scalar
    ) -> pc.Expression:
        """The column compared with a value that `literal` gave: whole numbers with one that is
        none, as floats.
        """
        rounds = pa.types.is_integer(self.kind) and pa.types.is_floating(value.type)
        return how(self.compared.cast(pa.float64(), safe=False) if rounds else self.compared, value)

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return pa.types.is_string(self.kind) or pa.types.is_large_string(self.kind)

    def check_order(self) -> None:
        """Raise OptionError for text that holds numbers, whose order is another: '9' comes after
        '100'.
        """
        word = self.schema.numbers_in(self.name) if self.is_text else None
        if word is not None:
            raise self.schema.unfit(
                f"{self.name} is text, in which '9' comes after '100'; make it numbers with "
                f"embed --keep-columns {self.name}:{word}, which runs no model"
            )

    def among(self, values: list[pa.Scalar]) -> pc.Expression:
        """Whether the column is one of some values that `literal` gave, null where it is null."""
        same = [found for value in values if (found := _as(value, self.kind)) is not None]
        return self.compare(eq, values[0]) | self.compared.isin(pa.array(same, self.kind))

    def like(self, pattern: pa.Scalar) -> pc.Expression:
        """Whether the text is as an SQL pattern has it: % for any characters, _ for one.
        OptionError for no text.
        """
        if not self.is_text:
            raise self.schema.unfit(f"{self.name} is {self.kind}, and LIKE is for text")
        return pc.match_like(self.compared, pattern.as_py())

    def has(self, token: _Token) -> pc.Expression:
        """Whether a list has a value. Raises OptionError for a column of other than lists of plain
        values.
        """
        if not _is_list(self.kind):
            hint = (
                "LIKE '%...%' looks into text"
                if self.is_text
                else f"say {self.name} = {token.said}"
            )
            raise self.schema.unfit(f"{self.name} is {self.kind} and no list; {hint}")
        one = _FilterColumn(self.name, self.kind.value_type, self.value, self.compared, self.schema)
        value = one.literal(token)
        same = _as(value, self.kind.value_type)
        if same is None:  # 2.5 among whole numbers
            raise self.schema.unfit(f"{self.name} is {self.kind}, whose values {token.said} is not")
        return self.value._call(_contains(self.kind), [self.value, pc.scalar(same)])

    def as_condition(self, otherwise: Callable[[], pc.Expression]) -> pc.Expression:
        """The column itself if it holds true and false."""
        return self.compared if pa.types.is_boolean(self.kind) else otherwise()

    def literal(self, token: _Token) -> pa.Scalar:
        """A value to compare the column with. Raises OptionError for one of another type."""
        kind, given = self.kind, token.said
        reads = _reads(kind)
        if reads is None:
            hint = f"; say {given} IN {self.name}" if _is_list(kind) else ""
            raise self.schema.unfit(f"{self.name} is {kind}, which IS NULL or is not{hint}")
        if token.kind == reads[0]:
            with contextlib.suppress(pa.ArrowException, ValueError, OverflowError):
                return reads[1](given, kind)
        raise self.schema.unfit(f"{self.name} is {kind}, which {given} is not")


def _reads(kind: pa.DataType) -> tuple[str, Callable[[str, pa.DataType], pa.Scalar]] | None:
    """The kind of word that a column's values are written as, and what reads it; None where nothing
    compares.
    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text", lambda said, kind: pa.scalar(_text(said), kind)
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return "text", lambda said, kind: _time(_text(said), kind)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number", _number
    return (
        ("keyword", lambda said, _: pa.scalar(said == "TRUE"))
        if pa.types.is_boolean(kind)
        else None
    )


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


_REGISTERING = threading.Lock()
_REGISTERED: set[str] = set()


def _contains(kind: pa.DataType) -> str:
    """The function of Arrow's, made here since it has none, that says which lists of a type have a
    value.
    """
    name = f"sentence_beam_contains_{kind}"
    with _REGISTERING:
        if name not in _REGISTERED:
            about = {
                "summary": "whether a list has a value",
                "description": "null for a list that is null",
            }
            arguments = {"lists": kind, "value": kind.value_type}
            pc.register_scalar_function(_have_value, name, about, arguments, pa.bool_())
            _REGISTERED.add(name)
    return name


def _have_value(_: object, lists: pa.Array, value: pa.Scalar) -> pa.Array:
    """Which lists have a value, bool; null for a list that is null."""
    equal = pc.equal(pc.list_flatten(lists), value).fill_null(False)
    rows = pc.list_parent_indices(lists).filter(equal)
    found = np.zeros(len(lists), bool)
    found[rows.to_numpy()] = True
    return pa.array(found, mask=lists.is_null().to_numpy(zero_copy_only=False))


def _as(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """The same value in a column's type; None where the column cannot hold it."""
    try:
        return value.cast(kind)
    except pa.ArrowException:
        return None


def _text(quoted: str) -> str:
    return quoted[1:-1].replace("''", "'")


def _number(said: str, kind: pa.DataType) -> pa.Scalar:
    """A number of the column's type where it has that one, else the nearest of its own."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(said))
    if pa.types.is_integer(kind):
        try:
            return pa.scalar(int(said), kind)
        except (
            ValueError,
            OverflowError,
            pa.ArrowException,
        ):  # with a fraction, or beyond the type
            return pa.scalar(float(said))
    return pa.scalar(float(said), kind)


def _time(said: str, kind: pa.DataType) -> pa.Scalar:
    """A date, time or moment written as a text; a moment without a zone is one in UTC where the
    column has a zone.
    """
    if pa.types.is_time(kind):
        return pa.scalar(time.fromisoformat(said), kind)
    try:
        return pa.scalar(said).cast(kind)
    except pa.ArrowException:
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise
    return pa.scalar(said).cast(pa.timestamp(kind.unit)).cast(kind)
