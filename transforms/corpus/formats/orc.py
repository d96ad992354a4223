"""ORC, read stripe by stripe."""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.blocked import (
    BlockedFormat,
    TableBlock,
    find_smallest_column,
)
from sentence_beam.transforms.corpus.formats.table_formats import check_names, cut_batches, opening
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, PACKS, Span

TITLE = "ORC"


class Orc(BlockedFormat):
    """Tables in ORC files."""

    name = "orc"
    endings = (".orc",)

    def read_schema(self, file: InputFile) -> pa.Schema:
        with opening(file, TITLE) as raw:
            return check_names(_open_file(raw).schema)

    def list_table_blocks(self, file: InputFile) -> Iterable[TableBlock]:
        with opening(file, TITLE) as raw:
            return [TableBlock(*place) for place in enumerate(_read_stripe_rows(raw))]

    def read_batches(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        with opening(span.file, TITLE) as raw:
            orc = _open_file(raw)
            stripes = range(span.offset, orc.nstripes)
            yield from cut_batches(orc.read_stripe(place, columns=names) for place in stripes)

    def whole(self, file: InputFile) -> list[Span]:
        with opening(file, TITLE) as raw:
            rows = _open_file(raw).nrows
        if not rows:
            return []
        return [Span(file, 0, 0, rows, (), rows, PACKS * file.size // BYTES_PER_TOKEN)]


def _open_file(raw: BinaryIO) -> Any:
    from pyarrow.orc import ORCFile

    return ORCFile(pa.PythonFile(raw, "r"))


def _read_stripe_rows(raw: BinaryIO) -> Iterator[int]:
    """Yield the rows of each stripe, of which one column is read."""
    file = _open_file(raw)
    column = file.schema.names[find_smallest_column(file.schema)] if len(file.schema) else None
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=column and [column]).num_rows


FORMATS = (Orc(),)
