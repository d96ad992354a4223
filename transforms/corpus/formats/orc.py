"""ORC, read stripe by stripe."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from transforms.corpus.files import InputFile
from transforms.corpus.formats.tables import TableFormat, cut_batches, opened
from transforms.corpus.spans import BYTES_PER_TOKEN, PACKS, Span

TITLE = "ORC"


class Orc(TableFormat):
    """ORC files; their footers have the number of rows."""

    name = "orc"
    endings = (".orc",)

    def read_schema(self, file: InputFile) -> pa.Schema:
        with opened(file, TITLE) as raw:
            return _file(raw).schema

    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        with opened(file, TITLE) as raw:
            yield from cut_batches(_batches(raw, names))

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        with opened(file, TITLE) as raw:
            rows = _file(raw).nrows
        if not rows:
            return []
        return [Span(file, 0, 0, rows, (), rows, PACKS * file.size // BYTES_PER_TOKEN)]


def _file(raw: BinaryIO) -> Any:
    from pyarrow.orc import ORCFile

    return ORCFile(pa.PythonFile(raw, "r"))


def _batches(raw: BinaryIO, names: list[str]) -> Iterator[pa.RecordBatch]:
    file = _file(raw)
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=names)


FORMATS = (Orc(),)
