"""Arrow IPC (files and streams) and Feather of version 2."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.blocked import (
    BlockedFormat,
    TableBlock,
    find_smallest_column,
)
from sentence_beam.transforms.corpus.formats.table_formats import check_names, cut_batches, opening
from sentence_beam.transforms.corpus.spans import Span, make_whole_span

TITLE = "Arrow IPC or Feather"
ARROW_FILE = b"ARROW1"
FEATHER_1 = b"FEA1"
MESSAGE = b"\xff\xff\xff\xff"
STREAM_END = MESSAGE + bytes(4)
BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
LISTS: dict[int, Callable[[pa.DataType], pa.DataType]] = {
    pa.types.lib.Type_LIST: pa.list_,
    pa.types.lib.Type_LARGE_LIST: pa.large_list,
}


class Arrow(BlockedFormat):
    """Files and streams of Arrow, told apart by their first bytes. A stream is not cut."""

    name = "arrow"
    endings = (".arrow", ".arrows", ".feather", ".ipc")

    def read_schema(self, file: InputFile) -> pa.Schema:
        with opening(file, TITLE) as raw:
            return check_names(_open_reader(raw).schema)

    def list_table_blocks(self, file: InputFile) -> Iterable[TableBlock] | None:
        with opening(file, TITLE) as raw:
            if raw.read(len(ARROW_FILE)) != ARROW_FILE:
                return None
            return [TableBlock(*place) for place in enumerate(_read_batch_rows(raw))]

    def whole(self, file: InputFile) -> list[Span]:
        return make_whole_span(file, is_packed=False)

    def read_batches(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        with opening(span.file, TITLE) as raw:
            yield from cut_batches(_read_batches(raw, names, span.offset))


def _open_reader(raw: BinaryIO, columns: list[int] | None = None) -> Any:
    """The reader of a file or of a stream."""
    raw.seek(0)
    begin = raw.read(len(ARROW_FILE))
    raw.seek(0)
    if begin.startswith(FEATHER_1):
        raise ValueError("Feather of version 1; write it again as version 2")
    options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
    if begin == ARROW_FILE:
        return pa.ipc.open_file(raw, options=options)
    return pa.ipc.open_stream(raw, options=options)


def _read_batch_rows(raw: BinaryIO) -> Iterator[int]:
    """Yield the rows of each record batch of a file, of which one column is read."""
    schema = _open_reader(raw).schema
    reader = _open_reader(raw, [find_smallest_column(schema)] if len(schema) else None)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number).num_rows


def _read_batches(raw: BinaryIO, names: list[str], first: int) -> Iterator[pa.RecordBatch]:
    schema = _open_reader(raw).schema
    reader = _open_reader(raw, [schema.get_field_index(name) for name in names])
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from map(_check_batch, map(reader.get_batch, range(first, reader.num_record_batches)))
    else:
        yield from map(_check_batch, reader)
        _check_end(raw)


def _check_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch once all its lengths and offsets are valid; text need not be UTF-8.

    pyarrow does not check them as it reads, and using damaged ones may end the process. Raises
    ArrowInvalid.
    """
    batch.validate()
    for column in batch.columns:
        column.view(_as_bytes(column.type)).validate(full=True)
    return batch


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of strings, also inside of lists, structs and maps."""
    if kind in BYTES:
        return BYTES[kind]
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    if pa.types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type), kind.keys_sorted)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_as_bytes(kind.value_type), kind.list_size)
    make_list = LISTS.get(kind.id)
    return make_list(_as_bytes(kind.value_type)) if make_list is not None else kind


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
