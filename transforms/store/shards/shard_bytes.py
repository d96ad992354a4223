"""Embedding shards as bytes: Parquet that pandas, DuckDB, Polars and pyarrow can read."""

import functools
import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_beam.transforms.base.arrow_arrays import (
    as_hashes,
    make_vector_column,
    write_parquet_bytes,
)
from sentence_beam.transforms.corpus import UnitRows
from sentence_beam.transforms.corpus.pieces import find_own_texts
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.entries import TEXT
from sentence_beam.transforms.store.shards.precision import Coding, Ranges
from sentence_beam.transforms.store.shards.shard_columns import (
    OPTIONAL_COLUMNS,
    PIECE_COLUMNS,
    make_schema,
)
from sentence_beam.transforms.store.shards.unit_vectors import Vectors, compute_pooled

ROW_GROUP_ROWS = 25_000
# stays in a core's cache: a fifth faster to write and to read than pages of a megabyte
PAGE_BYTES = 64 << 10


def add_text(rows: UnitRows) -> UnitRows:
    """Return the rows with their texts as the first kept column; for pieces, their own text."""
    text = pa.table({TEXT: pa.array(find_own_texts(rows), pa.string())})
    if rows.kept is not None:
        for field, column in zip(rows.kept.schema, rows.kept.columns, strict=True):
            text = text.append_column(field, column)
    return replace(rows, kept=text)


def compute_unit_digest(
    space: Space,
    rows: UnitRows,
    hashes: list[bytes],
    generation: int = 0,
    ranges: Ranges | None = None,
) -> str:
    """Return 16 hex digits over space, schema and the ordered rows.

    A row counts by id, row hash and kept values, a rejected one by its reason too. `generation`
    counts how often the whole store was embedded again: shards that are made again must not have
    their old names. `ranges` are the bounds of an int8 or uint8 precision.
    """
    kept = rows.kept.schema.remove_metadata() if rows.kept is not None else pa.schema([])
    schema = make_schema(space, kept, rows.pieces is not None)
    identity: list[object] = [space.id, str(schema)]
    if generation:
        identity.append(generation)
    if ranges is not None:
        identity.append(ranges.digest)
    digest = hashlib.sha256(json.dumps(identity).encode())
    if rows.ids:
        digest.update(_join_ids_and_hashes(rows.ids, hashes))
    if rows.pieces is not None:
        places = [
            rows.pieces.column(name).to_numpy() for name in ("piece", "pieces", "start", "end")
        ]
        digest.update(np.stack(places, axis=1).astype("<i4").tobytes())
        digest.update(as_hashes(rows.pieces.column("doc_hash")).tobytes())
    if rows.kept is not None:
        for column in rows.kept.columns:
            digest.update(repr(cast_times(column).to_pylist()).encode())
    for line in _list_rejected(rows):
        digest.update(line.encode())
    return digest.hexdigest()[:16]


def _join_ids_and_hashes(ids: list[str], hashes: list[bytes]) -> memoryview:
    """Return the bytes of every row in turn: length of its id, colon, id, hash."""
    binary = pa.large_binary()
    names = pa.array(ids, pa.large_string()).cast(binary)
    lengths = pc.binary_length(names).cast(pa.large_string()).cast(binary)
    named = pc.binary_join_element_wise(lengths, names, pa.scalar(b":", binary))
    joined = pc.binary_join_element_wise(named, pa.array(hashes, binary), pa.scalar(b"", binary))
    _, offsets, data = joined.buffers()
    start, stop = np.frombuffer(offsets, np.int64)[[joined.offset, joined.offset + len(joined)]]
    return memoryview(data)[start:stop]


def _list_rejected(rows: UnitRows) -> list[str]:
    """Return the part of a digest for rejected rows.

    Their places and order count only if they are in one file.
    """
    if rows.file is None:
        return sorted(json.dumps([r.id, r.reason, r.excerpt]) for r in rows.rejects)
    return [json.dumps([r.id, r.row, r.reason, r.excerpt]) for r in rows.rejects]


def cast_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as integers, also within lists and structs.

    Python's own times end with the year 9999 and with microseconds.
    """
    kind = _replace_times(column.type)
    return column if kind == column.type else column.cast(kind)


def _replace_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(kind.value_field.with_type(_replace_times(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_replace_times(field.type)) for field in kind])
    return kind


def make_shard_bytes(
    coding: Coding, rows: UnitRows, hashes: list[bytes], vectors: Vectors, counts: dict[str, int]
) -> bytes:
    """Return the bytes of a unit's shard; `counts` of how rows were made are metadata."""
    kept = rows.kept if rows.kept is not None else pa.table({})
    schema = make_schema(coding.space, kept.schema, rows.pieces is not None)
    own = _collect_own_values(coding, rows, hashes, vectors)
    fields = list(schema)[: len(schema) - kept.num_columns]
    columns = [_as_column(own[field.name], field.type) for field in fields]
    columns += kept.columns
    for name in OPTIONAL_COLUMNS:
        if name in own:
            columns.append(own[name])
            schema = schema.append(pa.field(name, own[name].type))
    schema = schema.with_metadata(coding.metadata)
    return make_table_bytes(pa.table(columns, schema=schema), counts)


def make_table_bytes(table: pa.Table, counts: dict[str, int]) -> bytes:
    """Return the bytes of a shard with all these columns; `counts` are metadata."""
    metadata = {**(table.schema.metadata or {}), b"counts": json.dumps(counts, sort_keys=True)}
    return make_parquet(table.replace_schema_metadata(metadata), ("embedding", "pooled"))


def _collect_own_values(
    coding: Coding, rows: UnitRows, hashes: list[bytes], vectors: Vectors
) -> dict[str, Any]:
    """Return the values of the own columns that a unit's shard has, by name."""
    values: dict[str, Any] = {
        "id": rows.ids,
        "embedding": coding.encode(vectors.embedding),
        "norm": vectors.norm,
        "row_hash": hashes,
        "tokens": vectors.tokens,
        "truncated": vectors.truncated,
    }
    if rows.pieces is not None:
        values |= {name: rows.pieces.column(name) for name in PIECE_COLUMNS}
    pooled = vectors.pooled if coding.is_exact else compute_pooled(vectors, coding.space.normalize)
    if pooled is not None:
        values["pooled"] = make_vector_column(pooled)
    return values


def _as_column(values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)


def make_parquet(table: pa.Table, vector_columns: tuple[str, ...] = ()) -> bytes:
    """Return a Parquet file: vectors plain, everything else compressed with zstd.

    Vectors do not compress, and every reader maps plain ones fast. Vectors of whole numbers are
    delta-encoded: plain Parquet has no numbers of less than four bytes.
    """
    vectors = [name for name in vector_columns if name in table.column_names]
    compression = {name: "zstd" for name in _find_leaves(table.schema.remove_metadata())}
    compression.update({f"{name}.list.element": "none" for name in vectors})
    whole = [
        name for name in vectors if pa.types.is_integer(table.schema.field(name).type.value_type)
    ]
    return write_parquet_bytes(
        table,
        row_group_size=ROW_GROUP_ROWS,
        data_page_size=PAGE_BYTES,
        use_dictionary=False,
        column_encoding={f"{name}.list.element": "DELTA_BINARY_PACKED" for name in whole},
        compression=compression,
        write_page_checksum=True,
        write_statistics=[name for name in table.column_names if name not in vectors],
    )


@functools.lru_cache(64)
def _find_leaves(schema: pa.Schema) -> list[str]:
    """Return the Parquet paths of all leaf columns, found by writing an empty table."""
    leaves = pq.ParquetFile(pa.BufferReader(write_parquet_bytes(schema.empty_table()))).schema
    return [leaves.column(i).path for i in range(len(leaves))]
