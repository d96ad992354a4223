"""Units of a span that takes one worker long to read, each in a file for another worker.

A file that cannot be cut, as a `.csv.gz`, CSV with quotes or a JSON array, is read once by one
worker; others embed its units meanwhile.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import read_stream, write_stream
from sentence_beam.transforms.base.compact import pickle_by_values
from sentence_beam.transforms.corpus.blocks import fill_unit, tabulate_rows
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.groups import AnySpan
from sentence_beam.transforms.corpus.rows import UnitRows
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, Span

# Of text in a span, as estimated; writing so much takes a small part of the time to embed it.
LONG_BYTES = 32_000_000
PREFIXES = "prefixes"  # the column of the prefixes of pieces, in documents that are not cut yet


@pickle_by_values
@dataclass(frozen=True, slots=True)
class UnitFile:
    """A unit that another worker has read: its name, the file and range that it is of.

    `path` is that of its rows.
    """

    name: str
    file: InputFile
    start: int
    stop: int | None
    path: str


def is_long(span: AnySpan) -> bool:
    """Whether a span has more than LONG_BYTES of text and should be read once."""
    return isinstance(span, Span) and BYTES_PER_TOKEN * span.tokens > LONG_BYTES


def pack_rows(rows: UnitRows) -> bytes:
    """Return the rows of a unit as Arrow IPC."""
    table = tabulate_rows(rows).drop_columns(["file"])
    if rows.prefixes is not None:
        prefixes = [list(prefix) for prefix in rows.prefixes] + [None] * len(rows.rejects)
        table = table.append_column(PREFIXES, pa.array(prefixes, pa.list_(pa.string())))
    return write_stream(table)


def unpack_rows(item: UnitFile, data: bytes) -> UnitRows:
    """Return the unit whose rows `pack_rows` packed."""
    table = read_stream(data)
    names = pa.array([item.file.relative] * len(table), pa.string())
    table = table.append_column("file", names)
    good = table.filter(pc.is_null(table.column("reason")))
    prefixes = None
    if PREFIXES in table.column_names:
        prefixes = [tuple(prefix) for prefix in good.column(PREFIXES).to_pylist()]
    unit = UnitRows(
        item.name, item.file, item.start, item.stop, [], [], [], None, [], prefixes=prefixes
    )
    return fill_unit(unit, table, good.column("text").to_pylist())
