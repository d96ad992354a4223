"""Rows of Arrow batches, in which tables are read: Parquet, Arrow, ORC and Avro."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import as_plain
from sentence_beam.transforms.corpus.casts import as_type
from sentence_beam.transforms.corpus.column_values import (
    Reasons,
    as_strings,
    decode_texts,
    find_kept_faults,
    merge_reasons,
    read_named_values,
)
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.nested import find_column, find_type
from sentence_beam.transforms.corpus.path_values import add_path_values
from sentence_beam.transforms.corpus.row_blocks import Block, Columns, Rows


def read_batch_rows(
    file: InputFile, columns: Columns, batch: pa.RecordBatch, position: int
) -> Block:
    """The rows of a batch, whose first row has the number `position` in its file."""
    batch = add_path_values(batch, columns.path_values)
    n = batch.num_rows
    positions = list(range(position, position + n))
    texts, reasons, sizes = _read_texts(batch, columns)
    prefixes, others = _read_prefixes(batch, columns)
    reasons = merge_reasons(reasons, others)
    if columns.id:
        ids, id_reasons = decode_texts(as_strings(find_column(batch, columns.id)))
        reasons = merge_reasons(reasons, id_reasons)
    else:
        ids = [f"{file.relative}#{p}" for p in positions]
    carried = []
    for name in columns.keep:
        column, others = _read_kept(batch, columns, name)
        reasons = merge_reasons(reasons, others)
        carried.append(column)
    kept = [pa.table(carried, list(columns.keep))] if columns.keep else []
    return Rows(positions, texts, ids, reasons or [None] * n, kept, prefixes), sizes


def _read_kept(batch: pa.RecordBatch, columns: Columns, name: str) -> tuple[pa.Array, Reasons]:
    """A kept column, null if the table lacks it, and reasons against its values."""
    kind = columns.kinds.get(name)
    is_missing = find_type(batch.schema, name) is None
    column = pa.nulls(batch.num_rows) if is_missing else find_column(batch, name)
    if kind is None:
        column = as_plain(column)
        return column, find_kept_faults(column)
    column, reasons = as_type(column, name, kind)
    return column, merge_reasons(reasons, find_kept_faults(column))


def _read_texts(
    batch: pa.RecordBatch, columns: Columns
) -> tuple[list[str | None], Reasons, np.ndarray]:
    """Texts, reasons against them, and sizes in bytes."""
    if columns.of_text is None:
        text = as_strings(find_column(batch, columns.text))
        sizes = pc.fill_null(pc.binary_length(text), 0)
        return *decode_texts(text), sizes.to_numpy(zero_copy_only=False)
    rows, reasons = read_named_values(batch, columns.of_text.names)
    texts = [columns.of_text.fill(row.get) for row in rows]
    return list(texts), reasons, np.array([len(text.encode()) for text in texts], np.int64)


def _read_prefixes(
    batch: pa.RecordBatch, columns: Columns
) -> tuple[list[tuple[str, ...]], Reasons]:
    """The prefix of each row's pieces, and reasons against it."""
    if columns.before_pieces is None:
        return [], None
    rows, reasons = read_named_values(batch, columns.of_prefix)
    return [columns.before_pieces.fill_around_headings(row.get) for row in rows], reasons
