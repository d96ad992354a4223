"""Avro as Spark, Kafka Connect and Hadoop write it, with each codec of the format."""

import io
import json
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import fastavro
import pytest

from sentence_beam.transforms.base.errors import MissingExtraError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns, list_files, read_files

SCHEMA = {
    "type": "record",
    "name": "topLevelRecord",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["string", "null"]}],
}
ROWS = [{"id": number, "text": f"passage {number} about rivers"} for number in range(50)]
SYNC = bytes(16)


def number(value: int) -> bytes:
    """A long as Avro encodes it."""
    value = (value << 1) ^ (value >> 63)
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def field(data: bytes) -> bytes:
    return number(len(data)) + data


def snappy(data: bytes) -> bytes:
    """A block of snappy with its checksum: literals alone, of at most 60 bytes each."""
    size, length = b"", len(data)
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    parts = [data[start : start + 60] for start in range(0, len(data), 60)]
    literals = b"".join(bytes([(len(part) - 1) << 2]) + part for part in parts)
    return size + bytes([length]) + literals + zlib.crc32(data).to_bytes(4)


def written(codec: str, pack: Callable[[bytes], bytes]) -> bytes:
    """A file of two blocks by the specification, whose blocks are packed by a function."""
    head = b"Obj\x01" + number(2)
    head += field(b"avro.codec") + field(codec.encode())
    head += field(b"avro.schema") + field(json.dumps(SCHEMA).encode()) + number(0) + SYNC
    for rows in (ROWS[:20], ROWS[20:]):
        block = b"".join(
            number(row["id"]) + number(0) + field(str(row["text"]).encode()) for row in rows
        )
        head += number(len(rows)) + field(pack(block)) + SYNC
    return head


def by_fastavro(codec: str) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, ROWS, codec=codec, sync_interval=500)
    return sink.getvalue()


def texts(path: Path, data: bytes) -> list[str]:
    path.write_bytes(data)
    units = read_files(list_files([str(path)], "auto"), Columns(id="id"))
    return [text for unit in units for text in unit.texts]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_each_codec_of_the_format_is_read(codec: str, tmp_path: Path) -> None:
    if codec == "snappy":  # Spark's default
        pytest.importorskip("cramjam", reason="cramjam is not installed")
        data = written(codec, snappy)
    elif codec == "zstandard":
        pytest.importorskip("backports.zstd", reason="backports.zstd is not installed")
        data = by_fastavro(codec)
    else:
        data = by_fastavro(codec)
    assert texts(tmp_path / "a.avro", data) == [row["text"] for row in ROWS]


def test_a_codec_whose_package_is_missing_ends_with_the_line_that_installs_it(
    tmp_path: Path,
) -> None:
    if find_spec("lz4"):  # whose codec some libraries add to the format's
        pytest.skip("lz4 is installed")
    with pytest.raises(MissingExtraError, match="with lz4, which needs lz4; pip install lz4"):
        texts(tmp_path / "a.avro", written("lz4", bytes))


def test_a_codec_that_nobody_knows_ends_by_name(tmp_path: Path) -> None:
    with pytest.raises(SentenceBeamError, match=r"a\.avro is not a readable Avro file"):
        texts(tmp_path / "a.avro", written("lzo", bytes))
