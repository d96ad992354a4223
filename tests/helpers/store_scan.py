"""A reader of every file of a store, independent of the project: what of a row is in it anywhere.

It decodes what it can: pages of Parquet, lists and vectors of FAISS files, ranges, JSON, text.
"""

import io
import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash


@dataclass(frozen=True)
class PlantedRow:
    """A row to look for; `vector` float32 [d] and `pooled` as its shard had them."""

    id: str
    text: str
    row_hash: bytes
    vector: np.ndarray
    codes: tuple[bytes, ...] = ()

    @property
    def needles(self) -> dict[str, bytes]:
        """The byte strings that stand for the row, by what they are."""
        unit = self.vector / max(float(np.linalg.norm(self.vector)), 1e-12)
        found = {
            "id": self.id.encode(),
            "hash": self.row_hash,
            "hash in hex": self.row_hash.hex().encode(),
            "hash of id": struct.pack("<Q", xxhash.xxh3_64_intdigest(self.id.encode())),
            "float32": self.vector.astype("<f4").tobytes(),
            "unit float32": unit.astype("<f4").tobytes(),
            "float16": (unit / np.abs(unit).max()).astype("<f2").tobytes(),
        }
        if self.text:
            found["text"] = self.text.encode()
        return found | {f"code {n}": code for n, code in enumerate(self.codes)}


def codes_of(store: Path, index: Mapping[str, Any], ids: Container[str]) -> dict[str, list[bytes]]:
    """Return the codes that the segments of an index have of some rows, by id."""
    found: dict[str, list[bytes]] = {}
    for segment in index["segments"]:
        names = pq.read_table(store / segment["locator"]).column("id").to_pylist()
        codes = dict(_codes((store / segment["path"]).read_bytes()))
        for row, name in enumerate(names):
            if name in ids:
                found.setdefault(name, []).append(codes[row])
    return found


def _codes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the code of each row of a segment's file."""
    if data[:8] == b"SBRANGE1":
        yield from _codes_of_range(data)
        return
    index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    if not hasattr(index, "invlists"):
        codes = faiss.vector_to_array(index.codes).reshape(index.ntotal, -1)
        yield from ((row, code.tobytes()) for row, code in enumerate(codes))
        return
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if size:
            held = faiss.rev_swig_ptr(index.invlists.get_codes(number), size * index.code_size)
            rows = faiss.rev_swig_ptr(index.invlists.get_ids(number), size)
            for row, code in zip(rows.tolist(), held.reshape(size, -1), strict=True):
                yield row, code.tobytes()


def _codes_of_range(data: bytes) -> Iterator[tuple[int, bytes]]:
    _, lists, code_size, first_id, _ = struct.unpack_from("<5q", data, 8)
    sizes = np.frombuffer(data, "<u4", lists, 48)
    place = -(-(48 + 8 * lists) // 64) * 64
    for size in sizes.tolist():
        ids = np.frombuffer(data, "<i8", size, place + size * code_size)
        for row, number in enumerate(ids.tolist()):
            start = place + row * code_size
            yield number - first_id, data[start : start + code_size]
        place += size * (code_size + 8)


def scan(store: Path, rows: Iterable[PlantedRow]) -> list[str]:
    """Return a line for each trace of a row in any file of a store."""
    wanted = [(row, row.needles) for row in rows]
    found = []
    for path in sorted(store.rglob("*")):
        if not path.is_file():
            continue
        parts = list(decoded(path.read_bytes()))
        for row, needles in wanted:
            for what, needle in needles.items():
                if any(needle in part for part in parts):
                    found.append(f"{path.relative_to(store)}: {what} of {row.id}")
    return found


def decoded(data: bytes) -> Iterator[bytes]:
    """Yield the bytes of a file as they are, and what they are when decoded."""
    yield data
    if data[:4] == b"PAR1":
        yield from _of_parquet(data)
    elif data[:8] == b"SBRANGE1":
        return
    elif data[:2] == b"PK":
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            yield from (arrays[name].tobytes() for name in arrays.files)
    else:
        yield from _of_faiss(data)


def _of_parquet(data: bytes) -> Iterator[bytes]:
    file = pq.ParquetFile(pa.BufferReader(data))
    yield b"\n".join(b"%b=%b" % pair for pair in (file.schema_arrow.metadata or {}).items())
    for column in file.read().columns:
        for chunk in column.chunks:
            yield from (buffer.to_pybytes() for buffer in chunk.buffers() if buffer is not None)


def _of_faiss(data: bytes) -> Iterator[bytes]:
    try:
        index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError:
        return
    if hasattr(index, "invlists"):
        for number in range(index.nlist):
            size = index.invlists.list_size(number)
            if size:
                codes = index.invlists.get_codes(number)
                yield faiss.rev_swig_ptr(codes, size * index.code_size).tobytes()
