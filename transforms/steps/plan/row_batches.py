"""Rows of a PCollection as Arrow batches, with sums that do not depend on their order.

A value of a dict or a named row travels as text, because the type of its column is not known before
all rows have been read. Columns of Arrow tables keep their types.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns, UnitRows
from sentence_beam.transforms.corpus.nested import find_value
from sentence_beam.transforms.corpus.row_columns import read_columns
from sentence_beam.transforms.corpus.rows import make_unit
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.kept_types import Types
from sentence_beam.transforms.steps.plan.row_summary import (
    RowsSummary,
    make_whole_span,
    read_batch,
    sum_batch,
    summarise_fields,
    summarise_schema,
)
from sentence_beam.transforms.steps.plan.row_values import Row, make_batch, read_fields
from sentence_beam.transforms.store.records import Problem

BATCH_ROWS = 8192
BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class RowBatch:
    """Rows packed as Arrow IPC, with their sums; without `data`, the problem with them."""

    summary: RowsSummary
    data: bytes = b""


class RowBatcher:
    """Collects the rows of a bundle into batches.

    If this process groups the text in memory, it takes no more rows once they have too much text.
    """

    def __init__(self, job: EmbedJob):
        self._job = job
        self._columns = job.columns
        self._rows: list[Row] = []
        self._size = 0
        self._taken = 0

    def add(self, element: Any) -> Iterator[RowBatch]:
        """Take an element; yield batches once enough rows are held, or the problem with it."""
        try:
            if isinstance(element, pa.RecordBatch | pa.Table):
                yield from self._read_table(pa.table(element))
                return
            row = read_fields(element, self._columns)
            self._rows.append(row)
            text = find_value(row, self._columns.text)
            if isinstance(text, str):
                self._size += len(text)
            if len(self._rows) >= BATCH_ROWS or self._size > BATCH_BYTES:
                yield from self.finish()
        except SentenceBeamError as error:
            yield RowBatch(RowsSummary(problem=Problem.from_error(error)))

    def finish(self) -> Iterator[RowBatch]:
        """Yield the batch of the rows that are still held."""
        rows = self._rows
        self._rows = []
        self._size = 0
        if not rows:
            return
        try:
            yield self._pack(make_batch(rows, self._columns), summarise_fields(rows, self._columns))
        except SentenceBeamError as error:
            yield RowBatch(RowsSummary(problem=Problem.from_error(error)))

    def _read_table(self, table: pa.Table) -> Iterator[RowBatch]:
        summary = summarise_schema(table.schema, self._columns)
        used = read_columns(table, self._columns)
        names = [name for name in self._columns.wanted if name in used.column_names]
        for batch in used.select(names).to_batches(max_chunksize=BATCH_ROWS):
            for part in _split(batch):
                yield self._pack(part, summary)

    def _pack(self, batch: pa.RecordBatch, summary_of_table: RowsSummary) -> RowBatch:
        """Return a batch packed, with its sums. Raises OptionError for too much text."""
        summary = sum_batch(batch, summary_of_table, self._columns)
        self._taken += summary.size
        limit = self._job.text_limit
        if limit is not None and self._taken > limit:
            raise make_text_error(self._taken)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        return RowBatch(summary, sink.getvalue().to_pybytes())


def make_text_error(size: float) -> OptionError:
    """Return the error for more text than this process may group in memory."""
    return OptionError(
        f"the rows are grouped in memory here, and have more than {size / 1e9:,.1f} GB of text, a"
        " quarter of this machine's memory; run the pipeline on a cluster, or write the rows to"
        " files for `sentence-beam embed --partition file`"
    )


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of a few megabytes."""
    if batch.num_rows < 2 or batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half))
    yield from _split(batch.slice(half))


def unpack_batch(packed: RowBatch, columns: Columns, types: Types) -> UnitRows:
    """Return the rows of a batch with kept columns of these types, the rejected ones apart."""
    with pa.ipc.open_stream(packed.data) as reader:
        (batch,) = reader
    rows = read_batch(batch, replace(columns, types=(*columns.types, *types)))
    return make_unit(make_whole_span(), "", (0, None), rows)
