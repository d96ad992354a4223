"""Small files of the formats that are cut between blocks or values, in several blocks each."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.corpora import write_bytes
from pyarrow import orc

MARKER = b"s" * 16  # between the blocks of an Avro file


def as_arrow(texts: list[str], rows: int = 50, **options: Any) -> bytes:
    """An Arrow IPC file with record batches of so many rows; `options` are its writer's."""
    sink = io.BytesIO()
    table = pa.table({"number": list(range(len(texts))), "text": pa.array(texts, pa.string())})
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(sink, table.schema, options=how) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def as_orc(texts: list[str]) -> bytes:
    """An ORC file with stripes of 64 rows or more."""
    sink = io.BytesIO()
    orc.write_table(
        pa.table({"text": pa.array(texts, pa.string())}), sink, stripe_size=4096, batch_size=64
    )
    return sink.getvalue()


def as_avro(texts: list[str]) -> bytes:
    """An Avro file with blocks of a kilobyte."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}
    sink = io.BytesIO()
    records = [{"text": text} for text in texts]
    fastavro.writer(sink, schema, records, "deflate", sync_interval=1000, sync_marker=MARKER)
    return sink.getvalue()


def as_json(texts: list[str]) -> bytes:
    """An array of objects."""
    return json.dumps([{"text": text} for text in texts], indent=1).encode()


def as_parquet(texts: list[str]) -> bytes:
    """A Parquet file with one row group."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), sink)
    return sink.getvalue()


WRITERS: dict[str, Callable[[list[str]], bytes]] = {
    "arrow": as_arrow,
    "orc": as_orc,
    "avro": as_avro,
    "json": as_json,
}


def write_blocks(path: Path, texts: list[str]) -> Path:
    """Write a file of the format of its ending, with a column `text`."""
    writer = {**WRITERS, "parquet": as_parquet}[path.suffix[1:]]
    return write_bytes(path, writer(texts))


def damage_middle(path: Path) -> None:
    """Damage a file in the middle, within a block."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    size = 3000 if path.suffix == ".orc" else 8
    if path.suffix == ".avro":
        middle = data.index(MARKER, middle) + 40  # not the marker, which the plan checks
    if path.suffix == ".arrow":
        middle = data.index(b"\xff\xff\xff\xff", middle)  # the head of a message
    if path.suffix == ".json":
        middle = data.index(b":", middle)
    data[middle : middle + size] = b"\xfe" * size
    path.write_bytes(bytes(data))
