"""Shapes of rows in other people's pipelines: read their texts, return their vectors.

A dict, a named row (`beam.Row`, a NamedTuple), a pair of id and text, an Arrow batch of many rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_selectable, is_string
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.column_values import NOT_UTF8, read_named_values
from sentence_beam.transforms.corpus.files import is_utf8
from sentence_beam.transforms.corpus.nested import find_value, format_value
from sentence_beam.transforms.corpus.row_blocks import (
    EMPTY_TEXT,
    NULL_TEXT,
    TEXT_NOT_STRING,
    Columns,
)
from sentence_beam.transforms.corpus.row_columns import as_plain_value, read_columns
from sentence_beam.transforms.corpus.spans import estimate_tokens
from sentence_beam.transforms.corpus.text_template import Template
from sentence_beam.transforms.store.shards.shard_columns import ADDED_COLUMNS, ADDED_PIECE_COLUMNS

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
# the prefix of a row's pieces, cut at the headings; None: not UTF-8
Before = tuple[str, ...] | None


class NoField:
    """The marker for a row that lacks the text's field."""


@dataclass(frozen=True)
class AddedColumns:
    """The columns that rows get: `vectors` [n, d] float32, and lists of n values by name.

    If documents are cut, the field `text` is the piece's, and `others` has its place.
    """

    vectors: np.ndarray
    others: Mapping[str, Sequence[Any]]
    text: str | None = None

    def fields(self, place: int) -> dict[str, Any]:
        """Return the fields that one row gets."""
        values = {name: column[place] for name, column in self.others.items()}
        # not a part of all the vectors, which it would keep
        return values | {"embedding": self.vectors[place].copy()}


@dataclass(frozen=True)
class DictRow:
    """A row that is a mapping."""

    row: Mapping[str, Any]

    def names(self) -> Sequence[str]:
        """Return the names of the fields."""
        return list(self.row)

    def texts(self, field: str) -> list[Any]:
        """Return the texts of the element's rows, in order: here one."""
        return [as_plain_value(self.row.get(field, NoField))]

    def before(self, prefix: Template) -> list[Before]:
        """Return the prefix of the pieces of its rows; a missing field adds nothing."""
        parts = prefix.fill_around_headings(self._read_as_text)
        return [parts if all(map(is_utf8, parts)) else None]

    def _read_as_text(self, name: str) -> str | None:
        return format_value(as_plain_value(find_value(dict(self.row), name)))

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """Yield its embedded rows, of the rows `owners`, from `first` on in the columns."""
        for place in range(first, first + len(owners)):
            yield {**self.row, **columns.fields(place)}

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """Return its rows that are not embedded, each with its reason."""
        return {**self.row, REASON: reasons[0]}


@dataclass(frozen=True)
class NamedRow(DictRow):
    """The mapping of a row that has named fields; `make` makes another of them."""

    make: MakeRow

    def before(self, prefix: Template) -> list[Before]:
        """Return the prefix as a dict's. Raises OptionError for a missing field."""
        check_prefix(prefix, self.names())
        return super().before(prefix)

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """Yield the rows as those of a dict, made by `make`."""
        for made in super().embedded(owners, columns, first):
            yield self.make(**made)

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """Return the row as that of a dict, made by `make`."""
        return self.make(**super().rejected(reasons))


@dataclass(frozen=True)
class Pair:
    """A row that is (id, text)."""

    row: tuple[Any, Any]

    def names(self) -> Sequence[str]:
        """Return no name: a pair has no fields."""
        return []

    def texts(self, field: str) -> list[Any]:
        """Return the text, whatever the field is called."""
        return [as_plain_value(self.row[1])]

    def before(self, prefix: Template) -> list[Before]:
        """Return the prefix of its pieces. Raises OptionError if it names a field."""
        check_prefix(prefix, [])
        return [prefix.fill_around_headings(lambda _: None)]

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """Yield (id, vector); for a piece ((id, piece), vector)."""
        for place in range(first, first + len(owners)):
            added = columns.fields(place)
            name = (self.row[0], added["piece"]) if "piece" in added else self.row[0]
            yield name, added["embedding"]

    def rejected(self, reasons: Mapping[int, str]) -> Any:
        """Return (id, text, reason) of a pair that was not embedded."""
        return (*self.row, reasons[0])


@dataclass(frozen=True)
class ArrowRows:
    """Rows that are an Arrow batch or table."""

    rows: pa.RecordBatch | pa.Table

    def names(self) -> Sequence[str]:
        """Return the names of the columns."""
        return list(self.rows.schema.names)

    def texts(self, field: str) -> list[Any]:
        """Return the texts of its rows. Raises OptionError if the column is missing."""
        if field not in self.rows.schema.names:
            named = ", ".join(self.rows.schema.names)
            raise OptionError(
                f"an Arrow batch has no column {field!r}, but {named}; say text='...'"
            )
        column = read_columns(self.rows, Columns(field)).column(field)
        if is_string(column.type):
            column = column.cast(pa.large_binary())  # text need not be UTF-8
        return list(map(as_plain_value, column.to_pylist()))

    def before(self, prefix: Template) -> list[Before]:
        """Return the prefix of each row, as for a dict. Raises OptionError for a missing column."""
        check_prefix(prefix, self.names())
        prefixes: list[Before] = []
        batches = [self.rows] if isinstance(self.rows, pa.RecordBatch) else self.rows.to_batches()
        for batch in batches:
            rows, reasons = read_named_values(batch, prefix.columns)
            bad = reasons or [None] * len(rows)
            for row, reason in zip(rows, bad, strict=True):
                prefixes.append(None if reason else prefix.fill_around_headings(row.get))
        return prefixes

    def embedded(self, owners: Sequence[int], columns: AddedColumns, first: int) -> Iterator[Any]:
        """Yield one batch of its embedded rows, with added columns; none without rows."""
        if not owners:
            return
        stop = first + len(owners)
        made = as_selectable(self.rows).take(pa.array(owners, pa.int64()))
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
        """Return one batch of its rows that are not embedded."""
        rows = as_selectable(self.rows).take(pa.array(list(reasons), pa.int64()))
        return rows.append_column(REASON, pa.array(list(reasons.values()), pa.string()))


Element = DictRow | NamedRow | Pair | ArrowRows


def read_elements(
    row: Any, field: str, most_tokens: int, make: MakeRow
) -> Iterator[tuple[Element, list[Any]]]:
    """Yield the element with the texts of its rows; a large Arrow batch in parts.

    A batch is large if it has far more than `most_tokens`. Raises OptionError for anything that is
    not a row, and for a dict with a key that is not a string.
    """
    if isinstance(row, pa.RecordBatch | pa.Table):
        texts = ArrowRows(row).texts(field)
        for start, stop in _split([estimate_text_tokens(text) for text in texts], most_tokens):
            yield ArrowRows(row.slice(start, stop - start)), texts[start:stop]
        return
    element: Element
    if isinstance(row, Mapping):
        check_keys(row)
        element = DictRow(row)
    elif hasattr(row, "_asdict"):
        element = NamedRow(row._asdict(), make)
    elif isinstance(row, tuple) and len(row) == 2:
        element = Pair(row)
    else:
        raise make_row_error(row)
    yield element, element.texts(field)


def check_keys(row: Mapping[Any, Any]) -> None:
    """Raise OptionError for a key that is not a string: keys are the names of fields."""
    for key in row:
        if not isinstance(key, str):
            raise OptionError(
                f"a row has the key {key!r} of type {type(key).__name__}, and names of fields are"
                " strings; rename it before"
            )


def make_row_error(element: Any) -> OptionError:
    """Return the error for an element that is not a row."""
    return OptionError(
        f"an element of type {type(element).__name__} is no row; give dicts, beam.Rows, (id, text)"
        " pairs or Arrow batches"
    )


def check_prefix(prefix: Template, fields: Iterable[str]) -> None:
    """Raise OptionError if the prefix of pieces names a field that rows lack."""
    names = list(fields)
    lacking = [
        name for name in prefix.columns if name not in names and name.partition(".")[0] not in names
    ]
    if lacking:
        existing = f"but {', '.join(names)}" if names else "being pairs of id and text"
        raise OptionError(f"rows have no field {lacking[0]!r}, {existing} (chunk_prefix)")


def estimate_text_tokens(text: Any) -> int:
    """Return the estimated tokens of a text."""
    length = len(text) if isinstance(text, str) else 0
    return estimate_tokens(length, 1)


def _split(tokens: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts of about `most` tokens; at least one part."""
    start = 0
    held = 0
    for place, ends in enumerate(accumulate(tokens)):
        if ends - held >= most and place + 1 < len(tokens):
            yield start, place + 1
            start = place + 1
            held = ends
    yield start, len(tokens)


def find_faults(texts: list[Any], name: str) -> dict[int, str]:
    """Return the reasons against texts that cannot be embedded, by place, ascending.

    `name` is their field's.
    """
    reasons = {}
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            missing = f"no field {name!r}" if text is NoField else TEXT_NOT_STRING
            reasons[place] = NULL_TEXT if text is None else missing
        elif not text or text.isspace():
            reasons[place] = EMPTY_TEXT
        elif not text.isascii() and not _is_unicode(text):
            reasons[place] = NOT_UTF8
    return reasons


def _is_unicode(text: str) -> bool:
    """Return whether no character is half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
