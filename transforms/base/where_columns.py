"""Columns of a filter: their types, the values that fit them, their operators."""

import contextlib
import threading
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from operator import eq
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import is_list, is_string
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.values import find_nearest

# returns the word for the numbers that a text column holds, None if it holds other text
NumbersIn = Callable[[str], str | None]


class Words(NamedTuple):
    """Nouns for error messages: the option, one column, the phrase before the list of columns."""

    option: str
    column: str
    having: str


def no_numbers(column: str) -> str | None:
    """Return None: no text column holds numbers."""
    return None


class FilterSchema(NamedTuple):
    """The columns that a filter may name; as text, the list of them for messages."""

    fields: pa.Schema
    words: Words
    numbers_in: NumbersIn = no_numbers

    def __str__(self) -> str:
        columns = ", ".join(f"{field.name} ({field.type})" for field in self.fields)
        return f"{self.words.having} {columns}"

    def error(self, problem: str) -> OptionError:
        """Return the error of a filter that does not fit the columns."""
        return OptionError(f"{self.words.option}: {problem}; {self}")


class FilterColumn(NamedTuple):
    """A column: its name, type and value, and the value that comparisons use (decoded codes)."""

    name: str
    kind: pa.DataType
    value: pc.Expression
    compared: pc.Expression
    schema: FilterSchema

    @classmethod
    def named(cls, name: str, schema: FilterSchema) -> "FilterColumn":
        """Return the column of a name. Raises OptionError if it does not exist."""
        if schema.fields.get_field_index(name) < 0:
            near = find_nearest(name, schema.fields.names)
            hint = "" if near is None else f" (did you mean {near}?)"
            raise schema.error(f"there is no {schema.words.column} {name}{hint}")
        kind = schema.fields.field(name).type
        value = pc.field(name)
        plain = _decode_type(kind)
        compared = value.cast(plain) if plain != kind else value
        return cls(name, plain, value, compared, schema)

    @property
    def is_text(self) -> bool:
        """Whether the values are texts."""
        return is_string(self.kind)

    @property
    def is_boolean(self) -> bool:
        """Whether the values are true and false, so that the column is a condition."""
        return pa.types.is_boolean(self.kind)

    def literal(self, token: str, text: str) -> pa.Scalar:
        """Return a literal as a value to compare with, `token` its kind (text, number, keyword).

        Raises OptionError if it is of another type than the column.
        """
        literals = _choose_literals(self.kind)
        if literals is None:
            hint = f"; say {text} IN {self.name}" if is_list(self.kind) else ""
            raise self.schema.error(f"{self.name} is {self.kind}, which IS NULL or is not{hint}")
        if token == literals.token:
            with contextlib.suppress(pa.ArrowException, ValueError, OverflowError):
                return literals.read(text, self.kind)
        raise self.schema.error(f"{self.name} is {self.kind}, which {text} is not")

    def compare(
        self, operator: Callable[[pc.Expression, pa.Scalar], pc.Expression], value: pa.Scalar
    ) -> pc.Expression:
        """Compare the column with a value of `literal`; integers with a fraction as float64."""
        if pa.types.is_integer(self.kind) and pa.types.is_floating(value.type):
            return operator(self.compared.cast(pa.float64(), safe=False), value)
        return operator(self.compared, value)

    def check_order(self) -> None:
        """Raise OptionError if the column is text that holds numbers: '9' sorts after '100'."""
        if not self.is_text:
            return
        word = self.schema.numbers_in(self.name)
        if word is not None:
            raise self.schema.error(
                f"{self.name} is text, in which '9' comes after '100'; make it numbers with "
                f"embed {cite('keep_columns')} {self.name}:{word}, which runs no model"
            )

    def is_among(self, values: list[pa.Scalar]) -> pc.Expression:
        """Return whether the column is one of some values of `literal`, null if it is null."""
        cast = (_cast(value, self.kind) for value in values)
        same = [value for value in cast if value is not None]
        return self.compare(eq, values[0]) | self.compared.isin(pa.array(same, self.kind))

    def like(self, pattern: pa.Scalar) -> pc.Expression:
        """Return whether the text matches an SQL pattern: % any characters, _ one character.

        Raises OptionError if the column is not text.
        """
        if not self.is_text:
            raise self.schema.error(f"{self.name} is {self.kind}, and LIKE is for text")
        return pc.match_like(self.compared, pattern.as_py())

    def has(self, token: str, text: str) -> pc.Expression:
        """Return whether the list contains a literal, `token` its kind.

        Raises OptionError if the column is not a list, or the literal is of another type.
        """
        if not is_list(self.kind):
            hint = "LIKE '%...%' looks into text" if self.is_text else f"say {self.name} = {text}"
            raise self.schema.error(f"{self.name} is {self.kind} and no list; {hint}")
        value_type = self.kind.value_type
        values = FilterColumn(self.name, value_type, self.value, self.compared, self.schema)
        same = _cast(values.literal(token, text), value_type)
        if same is None:  # 2.5 among whole numbers
            raise self.schema.error(f"{self.name} is {self.kind}, whose values {text} is not")
        return self.value._call(_register_contains(self.kind), [self.value, pc.scalar(same)])


class _Literals(NamedTuple):
    """The kind of token that values of a type are written as, and the function that reads it."""

    token: str
    read: Callable[[str, pa.DataType], pa.Scalar]


def _choose_literals(kind: pa.DataType) -> _Literals | None:
    """Return the literals of a type, None if its values cannot be compared."""
    if is_string(kind):
        return _Literals("text", lambda text, kind: pa.scalar(_unquote(text), kind))
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return _Literals("text", lambda text, kind: _read_time(_unquote(text), kind))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _Literals("number", _read_number)
    if pa.types.is_boolean(kind):
        return _Literals("keyword", lambda text, _: pa.scalar(text == "TRUE"))
    return None


def _decode_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to compare a column as: decoded, and one that Arrow has comparisons for."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return {pa.string_view(): pa.string(), pa.float16(): pa.float32()}.get(kind, kind)


def _cast(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """Return the same value as a type, None if the type cannot hold it."""
    try:
        return value.cast(kind)
    except pa.ArrowException:
        return None


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _read_number(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return a number as the column's type, or as float64 if an integer type cannot hold it."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(text))
    if not pa.types.is_integer(kind):
        return pa.scalar(float(text), kind)
    try:
        return pa.scalar(int(text), kind)
    except (ValueError, OverflowError, pa.ArrowException):  # a fraction, or beyond the type
        return pa.scalar(float(text))


def _read_time(text: str, kind: pa.DataType) -> pa.Scalar:
    """Read a date, time or timestamp; without a zone it is UTC if the column has a zone."""
    if pa.types.is_time(kind):
        return pa.scalar(time.fromisoformat(text), kind)
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowException:
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise
    return pa.scalar(text).cast(pa.timestamp(kind.unit)).cast(kind)


_REGISTERING = threading.Lock()
_REGISTERED: set[str] = set()


def _register_contains(kind: pa.DataType) -> str:
    """Return the name of our Arrow function "list contains value" for a type; Arrow has none."""
    name = f"sentence_beam_contains_{kind}"
    with _REGISTERING:
        if name not in _REGISTERED:
            documentation = {
                "summary": "whether a list has a value",
                "description": "null for a list that is null",
            }
            arguments = {"lists": kind, "value": kind.value_type}
            pc.register_scalar_function(_find_value, name, documentation, arguments, pa.bool_())
            _REGISTERED.add(name)
    return name


def _find_value(_: object, lists: pa.Array, value: pa.Scalar) -> pa.Array:
    """Return which lists contain a value, bool; null for a list that is null."""
    equal = pc.equal(pc.list_flatten(lists), value).fill_null(False)
    rows = pc.list_parent_indices(lists).filter(equal)
    has_value = np.zeros(len(lists), bool)
    has_value[rows.to_numpy()] = True
    return pa.array(has_value, mask=lists.is_null().to_numpy(zero_copy_only=False))
