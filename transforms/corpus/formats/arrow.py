"""Arrow IPC (files and streams) and Feather of version 2."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from transforms.corpus.files import InputFile
from transforms.corpus.formats.tables import TableFormat, cut_batches, opened

TITLE = "Arrow IPC or Feather"
ARROW_FILE = b"ARROW1"
FEATHER_1 = b"FEA1"
MESSAGE = b"\xff\xff\xff\xff"
STREAM_END = MESSAGE + bytes(4)


class Arrow(TableFormat):
    """Files and streams of Arrow, told apart by their first bytes."""

    name = "arrow"
    endings = (".arrow", ".arrows", ".feather", ".ipc")

    def read_schema(self, file: InputFile) -> pa.Schema:
        with opened(file, TITLE) as raw:
            return _reader(raw).schema

    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        with opened(file, TITLE) as raw:
            yield from cut_batches(_batches(raw, names))


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


def _batches(raw: BinaryIO, names: list[str]) -> Iterator[pa.RecordBatch]:
    schema = _reader(raw).schema
    raw.seek(0)
    reader = _reader(raw, [schema.get_field_index(name) for name in names])
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
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
