"""The shapes in which other people's pipelines have their rows: their texts taken, their vectors
given back.

A dict, a named row (`beam.Row`, a NamedTuple), a pair of id and text, an Arrow batch of many rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.base.errors import OptionError
from transforms.corpus.column_types import is_bytes
from transforms.corpus.column_values import named_values
from transforms.corpus.files import is_utf8
from transforms.corpus.nested import type_at, value_as_text, value_at
from transforms.corpus.spans import estimated_tokens
from transforms.corpus.template import Template
from transforms.store.shards.columns import ADDED_COLUMNS, ADDED_PIECE_COLUMNS

OF_VECTORS = ADDED_COLUMNS
OF_PIECES = (*ADDED_PIECE_COLUMNS, "headings")
REASON = "reason"
_TYPES = {
    "norm": pa.float32(),
    "truncated": pa.bool_(),
    "headings": pa.string(),
    REASON: pa.string(),
}

MakeRow = Callable[..., Any]  # a named row from its fields
# what stands before the pieces of a row, cut where headings go; None: not UTF-8
Before = tuple[str, ...] | None


class NoField:
    """What stands for the text of a row that lacks the field."""


@dataclass(frozen=True)
class AddedColumns:
    """What is added to rows: `vectors` [n, d] float32, and beside them lists of n values, by name.

    Where documents are cut, the field `text` is the piece's, and `others` has its place.
    """

    vectors: np.ndarray
    others: Mapping[str, Sequence[Any]]
    text: str | None = None

    def fields(self, place: int) -> dict[str, Any]:
        """What one row gets."""
        values = {name: column[place] for name, column in self.others.items()}
        # not a part of all the vectors, which it would keep
        return values | {"embedding": self.vectors[place].copy()}


@dataclass(frozen=True)
class DictRow:
    """A row that is a mapping."""

    row: Mapping[str, Any]

    def names(self) -> Sequence[str]:
        """The fields there are."""
        return list(self.row)

    def texts(self, field: str) -> list[Any]:
        """The texts of the element's rows, in order: here one."""
        return [self.row.get(field, NoField)]

    def before(self, prefix: Template) -> list[Before]:
        """What stands before the pieces of its rows; of a field that it lacks nothing."""
        parts = prefix.around_headings(self._value_as_text)
        return [parts if all(map(is_utf8, parts)) else None]

    def _value_as_text(self, name: str) -> str | None:
        value = value_at(dict(self.row), name)
        if isinstance(value, bytes | bytearray):
            raise OptionError(
                f"field {name!r} of a row is bytes, not text (chunk_prefix); decode it, or leave"
                " it out"
            )
        return value_as_text(value)

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """What its rows become: those at `first` and after it in the columns, of the rows
        `owners`.
        """
        for place in range(first, first + len(owners)):
            yield {**self.row, **columns.fields(place)}

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """Its rows that are not embedded, each with its reason."""
        return {**self.row, REASON: reasons[0]}


@dataclass(frozen=True)
class NamedRow:
    """A row that has named fields; `make` makes another of them."""

    row: Any
    make: MakeRow

    def names(self) -> Sequence[str]:
        """The fields there are."""
        return list(self.row._asdict())

    def texts(self, field: str) -> list[Any]:
        """As of a dict."""
        return DictRow(self.row._asdict()).texts(field)

    def before(self, prefix: Template) -> list[Before]:
        """As of a dict. Raises OptionError for a field that it lacks."""
        check_prefix(prefix, self.names())
        return DictRow(self.row._asdict()).before(prefix)

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """As of a dict, as rows."""
        for made in DictRow(self.row._asdict()).embedded(owners, columns, first):
            yield self.make(**made)

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """As of a dict, as a row."""
        return self.make(**DictRow(self.row._asdict()).rejected(reasons))


@dataclass(frozen=True)
class Pair:
    """A row that is (id, text)."""

    row: tuple[Any, Any]

    def names(self) -> Sequence[str]:
        """None: a pair has no fields."""
        return []

    def texts(self, field: str) -> list[Any]:
        """The text, whatever the field is called."""
        return [self.row[1]]

    def before(self, prefix: Template) -> list[Before]:
        """What stands before its pieces, which can name no field. Raises OptionError if it
        does.
        """
        check_prefix(prefix, [])
        return [prefix.around_headings(lambda _: None)]

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """(id, vector); of a piece ((id, piece), vector)."""
        for place in range(first, first + len(owners)):
            found = columns.fields(place)
            if "piece" in found:
                name = (self.row[0], found["piece"])
            else:
                name = self.row[0]
            yield name, found["embedding"]

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """A pair that was not embedded, as (id, text, reason)."""
        return (*self.row, reasons[0])


@dataclass(frozen=True)
class ArrowRows:
    """Rows that are an Arrow batch or table."""

    rows: pa.RecordBatch | pa.Table

    def names(self) -> Sequence[str]:
        """The columns there are."""
        return list(self.rows.schema.names)

    def texts(self, field: str) -> list[Any]:
        """The texts of its rows. Raises OptionError if it has no such column."""
        if field not in self.rows.schema.names:
            named = ", ".join(self.rows.schema.names)
            raise OptionError(
                f"an Arrow batch has no column {field!r}, but {named}; say text='...'"
            )
        column = self.rows.column(field)
        try:
            found: list[Any] = column.to_pylist()
        except UnicodeDecodeError:  # what is not UTF-8 becomes text that can't be encoded
            parts = column.cast(pa.large_binary()).to_pylist()
            found = [
                part if part is None else part.decode("utf8", "surrogateescape") for part in parts
            ]
        return found

    def before(self, prefix: Template) -> list[Before]:
        """As of a dict, row by row. Raises OptionError for a column that it lacks, and for one of
        bytes.
        """
        check_prefix(prefix, self.names())
        for name in prefix.columns:
            kind = type_at(self.rows.schema, name)
            if kind is not None and is_bytes(kind):
                raise OptionError(
                    f"an Arrow batch's column {name!r} is {kind}, not text (chunk_prefix); cast it"
                )
        found: list[Before] = []
        for batch in (
            [self.rows] if isinstance(self.rows, pa.RecordBatch) else self.rows.to_batches()
        ):
            rows, reasons = named_values(batch, prefix.columns)
            bad = reasons or [None] * len(rows)
            found += [
                None if why else prefix.around_headings(row.get)
                for row, why in zip(rows, bad, strict=True)
            ]
        return found

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """One batch of all its rows that are embedded, with columns more; none if none is."""
        if not owners:
            return
        stop = first + len(owners)
        made = self.rows.take(pa.array(owners, pa.int64()))
        for name, column in columns.others.items():
            values = column[first:stop]
            if name == columns.text:
                place = made.schema.get_field_index(name)
                made = made.set_column(place, name, pa.array(values, made.schema.field(place).type))
            else:
                made = made.append_column(name, pa.array(values, _TYPES.get(name, pa.int32())))
        width = columns.vectors.shape[1]
        flat = pa.array(columns.vectors[first:stop].ravel(), pa.float32())
        yield made.append_column("embedding", pa.FixedSizeListArray.from_arrays(flat, width))

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """One batch of its rows that are not."""
        rows = self.rows.take(pa.array(list(reasons), pa.int64()))
        return rows.append_column(REASON, pa.array(list(reasons.values()), pa.string()))


Element = DictRow | NamedRow | Pair | ArrowRows


def elements_of(
    given: Any, field: str, most_tokens: int, make: MakeRow
) -> Iterator[tuple[Element, list[Any]]]:
    """The element with the texts of its rows; an Arrow batch of far more than `most_tokens` in
    parts.

    Raises OptionError for what is no row.
    """
    if isinstance(given, pa.RecordBatch | pa.Table):
        texts = ArrowRows(given).texts(field)
        for start, stop in _parts([text_tokens(text) for text in texts], most_tokens):
            yield ArrowRows(given.slice(start, stop - start)), texts[start:stop]
        return
    element: Element
    if isinstance(given, Mapping):
        element = DictRow(given)
    elif hasattr(given, "_asdict"):
        element = NamedRow(given, make)
    elif isinstance(given, tuple) and len(given) == 2:
        element = Pair(given)
    else:
        raise OptionError(
            f"an element of type {type(given).__name__} is no row; give dicts, beam.Rows, (id,"
            " text) pairs or Arrow batches"
        )
    yield element, element.texts(field)


def check_prefix(prefix: Template, fields: Iterable[str]) -> None:
    """Raise OptionError if what is to stand before pieces names none of these fields of rows."""
    known = list(fields)
    lacking = [
        name for name in prefix.columns if name not in known and name.partition(".")[0] not in known
    ]
    if lacking:
        said = "being pairs of id and text"
        if known:
            said = f"but {', '.join(known)}"
        raise OptionError(f"rows have no field {lacking[0]!r}, {said} (chunk_prefix)")


def text_tokens(text: Any) -> int:
    """The tokens that a text should have."""
    return estimated_tokens(len(text) if isinstance(text, str) else 0, 1)


def _parts(tokens: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Bounds of parts of about `most` tokens; one part at least."""
    start = 0
    held = 0
    for place, ends in enumerate(accumulate(tokens)):
        if ends - held >= most and place + 1 < len(tokens):
            yield start, place + 1
            start = place + 1
            held = ends
    yield start, len(tokens)
