"""Tables that store some rows together: record batches of Arrow, stripes of ORC, blocks of Avro.

A file is cut between these blocks, at the first one that begins in each `cut` rows.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import is_bytes, is_string
from sentence_beam.transforms.corpus.column_values import as_strings
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.table_formats import TableFormat, load_schema
from sentence_beam.transforms.corpus.nested import find_column, find_roots, find_type
from sentence_beam.transforms.corpus.spans import Span, choose_span_rows


@dataclass(frozen=True)
class TableBlock:
    """The number of rows in a block of a file, and the block's place.

    `offset` is a byte of Avro, the number of a record batch of Arrow or of a stripe of ORC.
    """

    offset: int
    rows: int


class BlockedFormat(TableFormat):
    """A format of tables that several workers read, each some blocks."""

    @abstractmethod
    def list_table_blocks(self, file: InputFile) -> Iterable[TableBlock] | None:
        """The blocks of a file in order; None if only reading it from its start finds them."""

    @abstractmethod
    def read_batches(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        """As `batches`, of the rows of a span, and perhaps of some after it."""

    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        return self.read_batches(Span(file, 0, 0, None), names)

    def choose_cut(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> int:
        """Return the rows that hold a unit's text, by the first of them."""
        names = (text,) if isinstance(text, str) else text
        schema = load_schema(self, file)
        existing = [name for name in names if find_type(schema, name) is not None]
        batches = self.batches(file, find_roots(schema, existing))
        head = next((batch for batch in batches if batch.num_rows), None)
        if head is None:
            return choose_span_rows(0, 0, unit_tokens)
        size = sum(_count_text_bytes(find_column(head, name)) for name in existing)
        return choose_span_rows(size, head.num_rows, unit_tokens)

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        if not file.cut:
            return self.whole(file)
        stored = self.list_table_blocks(file)
        if stored is None:
            return self.whole(file) if self.has_rows(file) else []
        return list(_make_spans(file, stored, file.cut, unit_tokens))

    @abstractmethod
    def whole(self, file: InputFile) -> list[Span]:
        """The one span of a file that is not cut."""


def find_smallest_column(schema: pa.Schema) -> int:
    """Return the column that takes the least time to read: the first of numbers, else the first."""
    places = range(len(schema))
    return next((place for place in places if pa.types.is_primitive(schema.types[place])), 0)


def _count_text_bytes(column: pa.Array) -> int:
    """The bytes of a column's texts; of values that become text, those that they take now."""
    if not (is_string(column.type) or is_bytes(column.type)):
        return int(column.nbytes)
    return pc.sum(pc.binary_length(as_strings(column))).as_py() or 0


def _make_spans(
    file: InputFile, stored: Iterable[TableBlock], step: int, unit_tokens: int
) -> Iterator[Span]:
    """Yield the spans of a file's blocks; each has the number of the `step` rows it begins in."""
    firsts: list[tuple[int, int]] = []  # row and offset
    row = 0
    for block in stored:
        begins_part = not firsts or row // step > firsts[-1][0] // step
        if block.rows and begins_part:
            firsts.append((row, block.offset))
        row += block.rows
    for (start, offset), (stop, _) in pairwise([*firsts, (row, 0)]):
        rows = stop - start
        number = start // step * step
        yield Span(file, number, start, stop, (), rows, rows * unit_tokens // step, offset)
