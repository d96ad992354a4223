"""Sums over rows of a PCollection, the same in any order, and the fields that rows have."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_plain_type
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns, InputFile, Span
from sentence_beam.transforms.corpus.batch_rows import read_batch_rows
from sentence_beam.transforms.corpus.casts import can_read
from sentence_beam.transforms.corpus.column_checks import can_be_kept, is_id, is_text
from sentence_beam.transforms.corpus.column_types import find_word_of_value
from sentence_beam.transforms.corpus.column_values import merge_reasons
from sentence_beam.transforms.corpus.nested import find_column, find_type, find_value, has_value
from sentence_beam.transforms.corpus.row_blocks import Rows
from sentence_beam.transforms.corpus.row_columns import as_plain_value
from sentence_beam.transforms.corpus.rows import make_unit
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, estimate_tokens
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.options.rows_options import NAME, SOURCE
from sentence_beam.transforms.steps.plan.row_values import AGAINST, Row
from sentence_beam.transforms.store.records import Problem

NAMES = 50  # of fields, for messages
LANES = 2  # of 64 bits each, in a digest


@dataclass(frozen=True)
class RowsSummary:
    """Sums over rows, the same in any order and in any batches.

    `tokens` are estimated, `size` is the bytes of all texts. `digest` sums hashes of ids, texts and
    kept values, modulo 2**64 each. `words` are the words for the types of values of kept columns
    without a requested type, `types` the types of such columns of Arrow tables. `seen` are the
    fields that options name and some row has, `names` up to 50 of all fields.
    """

    rows: int = 0
    tokens: int = 0
    size: int = 0
    digest: tuple[int, ...] = (0,) * LANES
    words: frozenset[tuple[str, str]] = frozenset()
    types: frozenset[tuple[str, pa.DataType]] = frozenset()
    seen: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    problem: Problem | None = None

    def merge(self, other: "RowsSummary") -> "RowsSummary":
        """Return the sums over the rows of both."""
        lanes = zip(self.digest, other.digest, strict=True)
        problems = [problem for problem in (self.problem, other.problem) if problem is not None]
        return RowsSummary(
            rows=self.rows + other.rows,
            tokens=self.tokens + other.tokens,
            size=self.size + other.size,
            digest=tuple((a + b) % (1 << 64) for a, b in lanes),
            words=self.words | other.words,
            types=self.types | other.types,
            seen=self.seen | other.seen,
            names=frozenset(sorted(self.names | other.names)[:NAMES]),
            problem=min(
                problems, key=lambda problem: (problem.exit_code, problem.message), default=None
            ),
        )

    @property
    def checksum(self) -> str:
        """The number of rows and their digest, in hex."""
        return f"{self.rows:x}-" + "".join(f"{lane:016x}" for lane in self.digest)

    @property
    def file(self) -> InputFile:
        """The file as which the rows are on record."""
        return InputFile(SOURCE, NAME, "parquet", "", self.size, self.checksum, self.checksum)


def summarise_fields(rows: list[Row], columns: Columns) -> RowsSummary:
    """Return the fields of rows, and the types of their kept values."""
    names = frozenset(name for row in rows for name in row)
    return RowsSummary(
        words=frozenset(_find_words(rows, columns)),
        seen=frozenset(name for name in columns.wanted if _has_field(rows, names, name)),
        names=frozenset(map(str, names)),
    )


def _has_field(rows: list[Row], names: Container[str], name: str) -> bool:
    """Return whether some row has a field, or a nested one by its dotted name."""
    return name in names or ("." in name and any(has_value(row, name) for row in rows))


def _find_words(rows: list[Row], columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield (column, word for a value's type) for kept columns without a requested type."""
    for name in columns.keep:
        if name not in columns.kinds:
            values = (as_plain_value(find_value(row, name)) for row in rows)
            yield from ((name, find_word_of_value(value)) for value in values if value is not None)


def summarise_schema(schema: pa.Schema, columns: Columns) -> RowsSummary:
    """Return the columns of a table, and the types of kept ones.

    Raises OptionError for a missing text or id, or a column whose type does not fit its use. A
    table may lack kept columns, which are null then.
    """
    kinds = {name: find_type(schema, name) for name in columns.wanted}
    required = {}
    if columns.of_text is None:
        required[columns.text] = "text"
    if columns.id is not None:
        required[columns.id] = "id"
    for name, option in required.items():
        if kinds[name] is None:
            listed = ", ".join(schema.names) or "none"
            raise OptionError(f"an Arrow table has no column {name!r} ({option}), but {listed}")
    _check_types(kinds, columns)
    types = {
        (name, as_plain_type(kind))
        for name, kind in kinds.items()
        if name in columns.keep and name not in columns.kinds
        if kind is not None and not pa.types.is_null(kind)
    }
    seen = frozenset(name for name, kind in kinds.items() if kind is not None)
    return RowsSummary(types=frozenset(types), seen=seen, names=frozenset(schema.names))


def _check_types(kinds: Mapping[str, pa.DataType | None], columns: Columns) -> None:
    """Raise OptionError for a text, an id or a kept column whose type cannot be used."""
    text = kinds.get(columns.text)
    if columns.of_text is None and not is_text(text):
        raise OptionError(
            f"an Arrow table's column {columns.text!r} is {text}, not string; say text='...', or"
            " cast it"
        )
    if columns.id is not None and not is_id(kinds[columns.id]):
        raise OptionError(
            f"an Arrow table's column {columns.id!r} is {kinds[columns.id]}; ids must be strings,"
            " whole numbers, UUIDs or bytes (id)"
        )
    for name in columns.keep:
        kind = kinds[name]
        if kind is None:
            continue
        read_as = columns.kinds.get(name)
        fits = can_be_kept(kind) if read_as is None else can_read(kind, read_as)
        if not fits:
            raise OptionError(
                f"an Arrow table's column {name!r} is {kind}, which cannot be kept"
                " (keep_columns); cast it, or leave it out"
            )


def sum_batch(batch: pa.RecordBatch, summary: RowsSummary, columns: Columns) -> RowsSummary:
    """Return the sums over a batch, with its fields and types, which `summary` has."""
    rows = read_batch(batch, columns)
    unit = make_unit(make_whole_span(), "", (0, None), rows)
    sizes = [len(text.encode()) for text in unit.texts]
    tokens = sum(estimate_tokens(size + BYTES_PER_TOKEN - 1, 1) for size in sizes)
    tokens += estimate_tokens(0, len(unit.rejects))
    return replace(
        summary,
        rows=batch.num_rows,
        tokens=tokens,
        size=sum(sizes),
        digest=_sum_hashes(batch, rows, columns),
    )


def _sum_hashes(batch: pa.RecordBatch, rows: Rows, columns: Columns) -> tuple[int, ...]:
    """Return the sums of the halves of the rows' hashes.

    A row's hash is over its id, text, reason, prefix and kept values, these as they came, so that
    it does not change once the types of columns are known.
    """
    kept = [
        find_column(batch, name) if find_type(batch.schema, name) else pa.nulls(batch.num_rows)
        for name in columns.keep
    ]
    reasons = [None] * batch.num_rows
    if AGAINST in batch.schema.names:
        reasons = batch.column(AGAINST).to_pylist()
    prefixes = rows.prefixes or reasons
    parts = zip(
        rows.ids,
        rows.texts,
        reasons,
        prefixes,
        *(_read_values(column) for column in kept),
        strict=True,
    )
    hashes = b"".join(row_hashes(map(repr, parts)))
    lanes = np.frombuffer(hashes, np.uint64).reshape(-1, LANES)
    return tuple(lanes.sum(axis=0, dtype=np.uint64).tolist())


def _read_values(column: pa.Array) -> list[Any]:
    """Return the values of a column; bytes for strings that are not UTF-8."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return [str(value.as_buffer().to_pybytes()) for value in column]
    return values


def read_batch(batch: pa.RecordBatch, columns: Columns) -> Rows:
    """Return the rows of a batch, all at position 0: a PCollection has no order."""
    rows, _ = read_batch_rows(RowsSummary().file, columns, batch, 0)
    rows.positions = [0] * batch.num_rows
    if AGAINST in batch.schema.names:
        against = batch.column(AGAINST).to_pylist()
        rows.reasons = merge_reasons(against, rows.reasons) or rows.reasons
    return rows


def make_whole_span() -> Span:
    return Span(RowsSummary().file, 0, 0, None)
