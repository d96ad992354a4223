"""Vectors in files that a person names: .npy, or Parquet of embedding shards and other tools."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, first_line
from sentence_beam.transforms.index.metric_vectors import as_vectors
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.shards.shard_reading import OF_BYTES, make_decoder

COLUMN = "embedding"


def read_vectors(path: str, option: str, space: Space) -> tuple[list[str], np.ndarray]:
    """Return names and vectors float32 [n, dim] of a file.

    The file is .npy, or Parquet with a column `embedding`. A name is the `id` beside a vector, if
    that column exists, else the number of its row. Raises OptionError for other files, for vectors
    of another width or not finite, and for an embedding shard of another space.
    """
    try:
        names, vectors = (
            _read_npy(path, option) if path.endswith(".npy") else _read_parquet(path, option, space)
        )
    except OF_BYTES as error:
        raise OptionError(
            f"{option} {path} is no array of numbers in .npy and no Parquet ({first_line(error)});"
            " write one of these"
        ) from error
    return names or [str(row) for row in range(len(vectors))], as_vectors(
        vectors, space.dim, f"{option} {path}"
    )


def _read_npy(path: str, option: str) -> tuple[list[str], np.ndarray]:
    array = np.lib.format.read_array(
        io.BytesIO(storage.read_named(path, option)), allow_pickle=False
    )
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"its values are {array.dtype}")
    return [], np.atleast_2d(array)


def _read_parquet(path: str, option: str, space: Space) -> tuple[list[str], np.ndarray]:
    parquet = pq.ParquetFile(
        pa.BufferReader(storage.read_named(path, option)), page_checksum_verification=True
    )
    schema = parquet.schema_arrow
    columns_there = parquet.schema_arrow.names
    if COLUMN not in columns_there:
        raise OptionError(
            f"{option} {path}: there is no column {COLUMN}; rename that with the vectors"
            f" ({', '.join(columns_there)})"
        )
    written = json.loads((schema.metadata or {}).get(b"space", b"null"))
    if written is not None and written["id"] != space.id:
        raise OptionError(
            f"{option} {path}: its vectors are of another space; embed both with the same options"
        )
    columns = [name for name in ("id", COLUMN) if name in columns_there]
    table = parquet.read(columns, use_threads=False)
    if written is not None:
        table = make_decoder(schema, path, columns)(table)
    names = table.column("id").cast(pa.string()).to_pylist() if "id" in columns else []
    return [str(name) for name in names], _to_matrix(table.column(COLUMN))


def _to_matrix(column: pa.ChunkedArray) -> np.ndarray:
    """Return the lists of a column as an array [n, width].

    Raises ValueError if their lengths differ.
    """
    lists = column.combine_chunks()
    values = lists.flatten()
    if lists.null_count or values.null_count or (len(lists) and len(values) % len(lists)):
        raise ValueError(f"column {COLUMN} has nulls, or vectors of several widths")
    width = len(values) // len(lists) if len(lists) else 0
    if not pa.types.is_fixed_size_list(lists.type) and set(lists.value_lengths().to_pylist()) - {
        width
    }:
        raise ValueError(f"column {COLUMN} has vectors of several widths")
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float32).reshape(len(lists), width)
