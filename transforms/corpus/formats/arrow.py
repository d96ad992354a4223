"""Arrow IPC (files and streams) and Feather of version 2."""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from transforms.corpus.arrow_footer import batch_rows_of
from transforms.corpus.files import InputFile
from transforms.corpus.formats.blocked import BlockedFormat, TableBlock
from transforms.corpus.formats.tables import cut_batches, opened
from transforms.corpus.spans import Span, whole_file

TITLE = "Arrow IPC or Feather"
ARROW_FILE = b"ARROW1"
FEATHER_1 = b"FEA1"
MESSAGE = b"\xff\xff\xff\xff"
STREAM_END = MESSAGE + bytes(4)


class Arrow(BlockedFormat):
    """Files and streams of Arrow, told apart by their first bytes. A stream is not cut."""

    name = "arrow"
    endings = (".arrow", ".arrows", ".feather", ".ipc")

    def read_schema(self, file: InputFile) -> pa.Schema:
        with opened(file, TITLE) as raw:
            return _reader(raw).schema

    def table_blocks(self, file: InputFile) -> Iterable[TableBlock] | None:
        with opened(file, TITLE) as raw:
            if raw.read(len(ARROW_FILE)) != ARROW_FILE:
                return None
            return [TableBlock(*place) for place in enumerate(batch_rows_of(raw))]

    def whole(self, file: InputFile) -> list[Span]:
        return whole_file(file, is_packed=False)

    def batches_of(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        with opened(span.file, TITLE) as raw:
            yield from cut_batches(_batches(raw, names, span.offset))


def _reader(raw: BinaryIO, columns: list[int] | None = None) -> Any:
    """The reader of a file or of a stream."""
    begin = raw.read(len(ARROW_FILE))
    raw.seek(0)
    if begin.startswith(FEATHER_1):
        raise ValueError("Feather of version 1; write it again as version 2")
    options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
    if begin == ARROW_FILE:
        return pa.ipc.open_file(raw, options=options)
    return pa.ipc.open_stream(raw, options=options)


def _batches(raw: BinaryIO, names: list[str], first: int) -> Iterator[pa.RecordBatch]:
    schema = _reader(raw).schema
    raw.seek(0)
    reader = _reader(raw, [schema.get_field_index(name) for name in names])
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from map(reader.get_batch, range(first, reader.num_record_batches))
    else:
        yield from reader
        _check_end(raw)


def _check_end(raw: BinaryIO) -> None:
    """Raise EOFError if a stream lacks the mark at its end that writers add when they close it."""
    end = raw.tell()
    raw.seek(0)
    if raw.read(len(MESSAGE)) == MESSAGE:  # streams from before 2019 begin differently
        raw.seek(max(0, end - len(STREAM_END)))
        if raw.read(len(STREAM_END)) != STREAM_END:
            raise EOFError(
                "the mark of its end is missing: it was cut short, or its writer did not close it"
            )


FORMATS = (Arrow(),)
