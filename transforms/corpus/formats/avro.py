"""Avro: records, read one by one; a file is cut between its blocks."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from sentence_beam.transforms.base.errors import MissingExtraError
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.blocked import BlockedFormat, TableBlock
from sentence_beam.transforms.corpus.formats.table_formats import cut_batches, opening
from sentence_beam.transforms.corpus.formats.text_lines import gather_blocks
from sentence_beam.transforms.corpus.nested import format_value
from sentence_beam.transforms.corpus.spans import Span, make_whole_span

TITLE = "Avro"
TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}
# the error of fastavro for a codec that Python itself does not have
NO_CODEC = re.compile(r"(\w+) codec is supported but you need to install .*'([\w.-]+)'")
LOGICAL_TYPES: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class Avro(BlockedFormat):
    """Avro files. Unions of several types, maps, UUIDs, decimals and references are text."""

    name = "avro"
    endings = (".avro",)

    def read_schema(self, file: InputFile) -> pa.Schema:
        with opening(file, TITLE) as raw:
            reader = _read_records(raw)
            schema = _read_schema(reader)
            _check_codec(file, reader)
            return schema

    def list_table_blocks(self, file: InputFile) -> Iterable[TableBlock]:
        with opening(file, TITLE) as raw:
            return [TableBlock(block.offset, block.num_records) for block in _read_blocks(raw)]

    def read_batches(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        with opening(span.file, TITLE) as raw:
            yield from cut_batches(_read_batches(raw, names, span))

    def whole(self, file: InputFile) -> list[Span]:
        return make_whole_span(file, is_packed=True)


def _read_blocks(raw: BinaryIO) -> Any:
    """The blocks of a file, which is read, but not decoded."""
    import fastavro

    return fastavro.block_reader(raw)


def _read_records(raw: BinaryIO) -> Any:
    import fastavro

    return fastavro.reader(raw)


def _check_codec(file: InputFile, reader: Any) -> None:
    """Raise MissingExtraError if the package that decompresses the file's blocks is missing."""
    try:
        next(reader, None)
    except ValueError as error:
        match = NO_CODEC.match(str(error))
        if match is None:
            raise
        raise MissingExtraError(
            f"{file.path} is compressed with {match[1]}, which needs {match[2]}; pip install"
            f" {match[2]}"
        ) from error


def _read_schema(reader: Any) -> pa.Schema:
    written = reader.writer_schema
    if not isinstance(written, dict) or written.get("type") != "record":
        raise ValueError("its rows are no records")
    return pa.schema(
        [(field["name"], _read_type(field["type"]) or pa.string()) for field in written["fields"]]
    )


def _read_type(kind: Any) -> pa.DataType | None:
    """The Arrow type of an Avro type; None if its values become text (see `format_value`)."""
    if isinstance(kind, list):
        return _read_union(kind)
    if isinstance(kind, str):
        return TYPES.get(kind)
    if "logicalType" in kind:
        return LOGICAL_TYPES.get(kind["logicalType"])
    if kind["type"] == "array":
        inside = _read_type(kind["items"])
        return pa.list_(inside) if inside is not None else None
    if kind["type"] == "record":
        return _read_struct(kind)
    if kind["type"] == "fixed":
        return pa.binary(kind["size"])
    return TYPES.get(kind["type"])


def _read_union(kinds: list[Any]) -> pa.DataType | None:
    others = [kind for kind in kinds if kind != "null"]
    return _read_type(others[0]) if len(others) == 1 else None


def _read_struct(kind: dict[str, Any]) -> pa.DataType | None:
    fields = [(field["name"], _read_type(field["type"])) for field in kind["fields"]]
    return None if any(inside is None for _, inside in fields) else pa.struct(fields)


def _read_batches(raw: BinaryIO, names: list[str], span: Span) -> Iterator[pa.RecordBatch]:
    reader = _read_records(raw)
    if span.offset:
        raw.seek(span.offset)  # the reader goes on from there
    all_columns = _read_schema(reader)
    schema = pa.schema([all_columns.field(name) for name in names])
    rows = ({name: row[name] for name in names} for row in islice(reader, span.rows))
    for block in gather_blocks(rows, _measure):
        yield _make_batch(block, schema)


def _measure(row: dict[str, Any]) -> int:
    """Return the characters of a row's strings."""
    return sum(len(value) for value in row.values() if isinstance(value, str))


def _make_batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_string(field.type):
            values = [format_value(value) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


FORMATS = (Avro(),)
