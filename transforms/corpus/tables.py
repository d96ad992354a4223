"""Tables other than Parquet, read batch by batch: Arrow IPC (files and streams, Feather), ORC and
Avro.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from transforms.base.errors import SentenceBeamError, first_line
from transforms.corpus.files import InputFile, check_unchanged, open_unchanged
from transforms.corpus.nested import value_as_text
from transforms.storage.base import BLOCK

ROWS = 8192
NAMES = {"arrow": "Arrow IPC or Feather", "orc": "ORC", "avro": "Avro"}
ARROW_FILE, FEATHER_1 = b"ARROW1", b"FEA1"
MESSAGE = b"\xff\xff\xff\xff"
STREAM_END = MESSAGE + bytes(4)
AVRO_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}
AVRO_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


@functools.lru_cache(16)
def table_schema(file: InputFile) -> pa.Schema:
    """The columns of the file. Raises SentenceBeamError where it cannot be read."""
    with _readable(file) as raw:
        if file.format == "arrow":
            return _arrow_reader(raw).schema
        return _orc(raw).schema if file.format == "orc" else _avro_schema(_avro(raw))


def orc_rows(file: InputFile) -> int:
    """The number of rows in an ORC file, by its footer."""
    with _readable(file) as raw:
        return _orc(raw).nrows


def read_table(file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns of the schema, in the file's order.

    Raises SentenceBeamError where the file cannot be read, InputChangedError where it changed
    meanwhile.
    """
    with _readable(file) as raw:
        batches = {"arrow": _arrow_batches, "orc": _orc_batches, "avro": _avro_batches}[file.format]
        for batch in batches(raw, names):
            for start in range(0, batch.num_rows, ROWS):
                yield batch.slice(start, ROWS)


@contextlib.contextmanager
def _readable(file: InputFile) -> Iterator[BinaryIO]:
    """The file's bytes; whatever else is raised while they are read becomes one line that names the
    file.
    """
    try:
        with open_unchanged(file) as raw:
            yield raw
    except SentenceBeamError:
        raise
    except (
        Exception
    ) as error:  # each library has errors of its own: ArrowException, OSError, ValueError, EOFError
        check_unchanged(file)  # one that is being written over looks corrupt
        raise SentenceBeamError(
            f"{file.path} is not a readable {NAMES[file.format]} file"
            f" ({first_line(error).rstrip('.')}); replace it or leave it out of --input"
        ) from error


def _arrow_reader(raw: BinaryIO, columns: list[int] | None = None) -> Any:
    """The reader of a file or of a stream."""
    begin = raw.read(len(ARROW_FILE))
    raw.seek(0)
    if begin.startswith(FEATHER_1):
        raise ValueError("Feather of version 1; write it again as version 2")
    options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
    return (pa.ipc.open_file if begin == ARROW_FILE else pa.ipc.open_stream)(raw, options=options)


def _arrow_batches(raw: BinaryIO, names: list[str]) -> Iterator[pa.RecordBatch]:
    schema = _arrow_reader(raw).schema
    raw.seek(0)
    reader = _arrow_reader(raw, [schema.get_field_index(name) for name in names])
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader
        _check_end(raw)


def _check_end(raw: BinaryIO) -> None:
    """Raise EOFError where a stream, read to its end, lacks the mark with which writers close
    it.
    """
    end = raw.tell()
    raw.seek(0)
    if raw.read(len(MESSAGE)) == MESSAGE:  # streams of before 2019 begin otherwise
        raw.seek(max(0, end - len(STREAM_END)))
        if raw.read(len(STREAM_END)) != STREAM_END:
            raise EOFError(
                "the mark of its end is missing: it was cut short, or its writer did not close it"
            )


def _orc(raw: BinaryIO) -> Any:
    from pyarrow.orc import ORCFile

    return ORCFile(pa.PythonFile(raw, "r"))


def _orc_batches(raw: BinaryIO, names: list[str]) -> Iterator[pa.RecordBatch]:
    file = _orc(raw)
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=names)


def _avro(raw: BinaryIO) -> Any:
    import fastavro

    return fastavro.reader(raw)


def _avro_schema(reader: Any) -> pa.Schema:
    written = reader.writer_schema
    if not isinstance(written, dict) or written.get("type") != "record":
        raise ValueError("its rows are no records")
    return pa.schema(
        [(field["name"], _avro_type(field["type"]) or pa.string()) for field in written["fields"]]
    )


def _avro_type(kind: Any) -> pa.DataType | None:
    """The Arrow type of an Avro type, None for one whose values are taken as text (see
    `value_as_text`).
    """
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        return _avro_type(others[0]) if len(others) == 1 else None
    if isinstance(kind, str):
        return AVRO_TYPES.get(kind)
    if "logicalType" in kind:
        return AVRO_LOGICAL.get(kind["logicalType"])
    if kind["type"] == "array":
        inside = _avro_type(kind["items"])
        return pa.list_(inside) if inside is not None else None
    if kind["type"] == "record":
        fields = [(field["name"], _avro_type(field["type"])) for field in kind["fields"]]
        return None if any(inside is None for _, inside in fields) else pa.struct(fields)
    return pa.binary(kind["size"]) if kind["type"] == "fixed" else AVRO_TYPES.get(kind["type"])


def _avro_batches(raw: BinaryIO, names: list[str]) -> Iterator[pa.RecordBatch]:
    reader = _avro(raw)
    all_columns = _avro_schema(reader)
    schema = pa.schema([all_columns.field(name) for name in names])
    rows: list[dict[str, Any]] = []
    size = 0
    for row in reader:
        rows.append({name: row[name] for name in names})
        size += sum(len(value) for value in rows[-1].values() if isinstance(value, str))
        if len(rows) == ROWS or size > BLOCK:
            yield _avro_batch(rows, schema)
            rows, size = [], 0
    yield _avro_batch(rows, schema)


def _avro_batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_string(field.type):
            values = [value_as_text(value) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
