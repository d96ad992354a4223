"""Parse the text of a filter: cut it into tokens, read them into an expression of Arrow's."""

import re
from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.where_columns import FilterColumn, FilterSchema

EXAMPLE = "write it as in lang = 'en' AND (year >= 2020 OR NOT tag IN ('a', 'b'))"
MAX_DEPTH = 100  # nested parentheses and NOTs
MAX_CONDITIONS = 1000  # Arrow walks them on the stack
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
_ORDERS = ("<", "<=", ">", ">=")
_OPERATOR_EXPECTED = "=, <, IN, LIKE, BETWEEN or IS has to come here"


class _Token(NamedTuple):
    """A token of a filter: kind (text, number, column, keyword, sign or end), text, first index."""

    kind: str
    text: str
    start: int


class FilterParser:
    """A recursive-descent parser of one filter; `columns` lists the columns in reading order."""

    def __init__(self, text: str, schema: FilterSchema):
        self._text = text
        self._schema = schema
        self._option = schema.words.option
        self._tokens = list(self._tokenize())
        self.columns: list[str] = []
        self._next = 0
        self._depth = 0
        self._conditions = 0

    def parse(self) -> pc.Expression:
        """Parse the whole text. Raises OptionError if it is not a filter over the schema."""
        expression = self._parse_disjunction()
        if self._current.kind != "end":
            raise self._make_error(self._current.start, "AND, OR or the end has to come here")
        return expression

    def _tokenize(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise self._make_error(position)
            position = match.end()
            kind = str(match.lastgroup)
            text = match[kind]
            if kind == "column" and text.upper() in _KEYWORDS:
                kind = "keyword"
                text = text.upper()
            if kind != "end":
                yield _Token(kind, text, match.start(str(match.lastgroup)))
        yield _Token("end", "", len(self._text))

    def _make_error(self, start: int, expected: str = "") -> OptionError:
        rest = self._text[start:].strip()
        place = f"at {rest[:40]!r}" if rest else "at its end"
        if expected:
            place += f" ({expected})"
        return OptionError(f"{self._option} cannot be read {place}; {EXAMPLE}")

    @property
    def _current(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *words: str) -> bool:
        """Skip the current token if it is one of these keywords or signs; return whether it was."""
        is_match = self._current.kind in ("keyword", "sign") and self._current.text in words
        self._next += is_match
        return is_match

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._make_error(self._current.start, f"{word!r} has to come here")

    def _take_word(self, word: str) -> bool:
        """Like `_take`, for LIKE and BETWEEN, which may also be names of columns."""
        is_match = self._current.kind == "column" and self._current.text.upper() == word
        self._next += is_match
        return is_match

    def _parse_disjunction(self) -> pc.Expression:
        parts = [self._parse_conjunction()]
        while self._take("OR"):
            parts.append(self._parse_conjunction())
        return _join(or_, parts)

    def _parse_conjunction(self) -> pc.Expression:
        parts = [self._parse_term()]
        while self._take("AND"):
            parts.append(self._parse_term())
        return _join(and_, parts)

    def _parse_term(self) -> pc.Expression:
        """Parse `NOT x`, `(x)` or one condition."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise OptionError(
                f"{self._option}: more than {MAX_DEPTH} parentheses and NOTs are in each other; "
                "make it shorter"
            )
        if self._take("NOT"):
            expression = ~self._parse_term()
        elif self._take("("):
            expression = self._parse_disjunction()
            self._expect(")")
        else:
            expression = self._parse_condition()
        self._depth -= 1
        return expression

    def _parse_condition(self) -> pc.Expression:
        """Parse a comparison, or a column of booleans."""
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise OptionError(
                f"{self._option}: more than {MAX_CONDITIONS:,} conditions; say column IN (...) "
                "instead of many ORs"
            )
        if self._current.kind in _LITERALS:
            return self._parse_value_in_list()
        column = self._parse_column()
        if self._take("IS"):
            return self._parse_null_test(column)
        if self._take("NOT"):
            return ~self._parse_membership(column)
        sign = self._current.text
        if self._take(*_COMPARE):
            value = self._parse_literal(column)
            if sign in _ORDERS:
                column.check_order()
            return column.compare(_COMPARE[sign], value)
        if column.is_boolean and not self._is_membership:
            return column.compared
        return self._parse_membership(column)

    def _parse_column(self) -> FilterColumn:
        token = self._current
        if token.kind != "column":
            raise self._make_error(token.start, "a column has to come here")
        self._next += 1
        name = token.text
        if name.startswith('"'):
            name = name[1:-1].replace('""', '"')
        column = FilterColumn.named(name, self._schema)
        self.columns.append(name)
        return column

    def _parse_value_in_list(self) -> pc.Expression:
        """Parse `'a' IN tags` or `'a' NOT IN tags`, for a column of lists."""
        value = self._current
        self._next += 1
        is_negated = self._take("NOT")
        self._expect("IN")
        expression = self._parse_column().has(value.kind, value.text)
        return ~expression if is_negated else expression

    def _parse_null_test(self, column: FilterColumn) -> pc.Expression:
        is_negated = self._take("NOT")
        self._expect("NULL")
        return column.value.is_valid() if is_negated else column.value.is_null()

    @property
    def _is_membership(self) -> bool:
        return self._current.text.upper() in ("IN", "LIKE", "BETWEEN")

    def _parse_membership(self, column: FilterColumn) -> pc.Expression:
        """Parse IN, LIKE or BETWEEN after a column."""
        if self._take("IN"):
            return column.is_among(self._parse_literals(column))
        if self._take_word("LIKE"):
            return column.like(self._parse_literal(column))
        if self._take_word("BETWEEN"):
            low = self._parse_literal(column)
            self._expect("AND")
            high = self._parse_literal(column)
            column.check_order()
            return column.compare(ge, low) & column.compare(le, high)
        raise self._make_error(self._current.start, _OPERATOR_EXPECTED)

    def _parse_literals(self, column: FilterColumn) -> list[pa.Scalar]:
        self._expect("(")
        values = [self._parse_literal(column)]
        while self._take(","):
            values.append(self._parse_literal(column))
        self._expect(")")
        return values

    def _parse_literal(self, column: FilterColumn) -> pa.Scalar:
        token = self._current
        if token.kind not in _LITERALS and token.text not in ("TRUE", "FALSE"):
            raise self._make_error(
                token.start, "a number, a text in single quotes, true or false has to come here"
            )
        self._next += 1
        return column.literal(token.kind, token.text)


def _join(
    join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: list[pc.Expression]
) -> pc.Expression:
    """Join expressions as a balanced tree, so that thousands are not thousands of levels deep."""
    while len(parts) > 1:
        parts = [reduce(join, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts[0]
