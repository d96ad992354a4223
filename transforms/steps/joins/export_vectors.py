"""The rows of a snapshot as files of other programs: numpy, faiss, LanceDB."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_matrix, make_vector_column
from sentence_beam.transforms.base.errors import cite
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.index import TrainedIndex
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.metric_vectors import (
    choose_scoring_metric,
    find_faiss_metric,
    prepare_vectors,
)
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.store import Store
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_columns import PLACE_COLUMNS, list_own_columns
from sentence_beam.transforms.store.shards.shard_reading import open_shard

VECTORS = "vectors.npy"
INDEX = "index.faiss"
IDS = "ids.parquet"
ABOUT = "vectors.json"
TABLE = "rows"


def export_vectors(
    store: Store, kind: str, folder: Path, where: str | None = None
) -> dict[str, Any]:
    """Write the rows of a snapshot into an empty folder, as one of VECTOR_FILES.

    `where` is a filter of the rows. Returns the content of `vectors.json`. Raises MissingExtraError
    if LanceDB is not installed.
    """
    write = {"npy": write_npy, "faiss": _write_faiss, "lance": write_lance}[kind]
    selection = Selection.from_manifest(store.manifest, where)
    about = describe_vectors(store.manifest, kind, len(selection)) | write(selection, folder)
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf8")
    return about


def describe_vectors(manifest: Manifest, kind: str, rows: int) -> dict[str, Any]:
    """Return what `vectors.json` says of the rows."""
    return {
        "kind": kind, "rows": rows, "dim": manifest.space.dim, "metric": manifest.metric,
        "space": manifest.space.id, "store": manifest.root, "run": manifest.run,
    }  # fmt: skip


def _read_blocks(selection: Selection, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the manifest's order, `embedding` as float32 vectors."""
    for _, batch in selection.read(columns, "reading the store"):
        progress.step(batch.num_rows)
        yield batch


def _read_columns(manifest: Manifest) -> pa.Schema:
    """Return the columns of the shards; those of ids alone without a shard."""
    for path in manifest.shard_paths[:1]:
        with open_shard(path) as parquet:
            return parquet.schema_arrow.remove_metadata()
    return pa.schema([("id", pa.string())])


class _Ids:
    """The file of ids: its row n is the vector n."""

    def __init__(self, manifest: Manifest, folder: Path):
        schema = _read_columns(manifest)
        self.names = ["id"]
        if manifest.rows.pieces is not None:
            self.names += PLACE_COLUMNS
        self._file = pq.ParquetWriter(
            folder / IDS, pa.schema([schema.field(name) for name in self.names])
        )

    def __enter__(self) -> "_Ids":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> np.ndarray:
        """Write the ids of a block; its vectors float32 [n, dim]."""
        self._file.write_batch(batch.select(self.names))
        return as_matrix(batch.column("embedding"))


def write_npy(selection: Selection, folder: Path) -> dict[str, Any]:
    """Write a matrix and the file of ids."""
    shape = (len(selection), selection.manifest.space.dim)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with (folder / VECTORS).open("wb") as file, _Ids(selection.manifest, folder) as ids:
        np.lib.format.write_array_header_1_0(file, header)
        for batch in _read_blocks(selection, [*ids.names, "embedding"]):
            file.write(np.ascontiguousarray(ids.add(batch), "<f4").data)
    return {"files": [VECTORS, IDS]}


def _write_faiss(selection: Selection, folder: Path) -> dict[str, Any]:
    """Write one index, of the store's kind, whose 64-bit ids are rows of the file of ids."""
    manifest = selection.manifest
    entry = manifest.index
    metric = manifest.metric
    start = 0
    faiss = load_faiss()
    with _Ids(manifest, folder) as ids:
        if entry is not None and entry.trained.path:
            path = storage.join(manifest.root, entry.trained.path)
            plain = TrainedIndex.from_bytes(index_files.read(path, entry.trained.sha256)).whole
            factory = entry.factory
        else:
            plain = faiss.IndexFlat(
                manifest.space.dim, find_faiss_metric(choose_scoring_metric(metric))
            )
            factory = "Flat"
        index = faiss.IndexIDMap2(plain)
        for batch in _read_blocks(selection, [*ids.names, "embedding"]):
            vectors = np.ascontiguousarray(prepare_vectors(ids.add(batch), metric))
            index.add_with_ids(vectors, np.arange(start, start + len(vectors), dtype=np.int64))
            start += len(vectors)
        nprobe = entry.nprobe if entry is not None and factory.startswith("IVF") else 0
        if nprobe:
            faiss.extract_index_ivf(plain).nprobe = nprobe  # a field of the file
        faiss.write_index(index, str(folder / INDEX))
    return {"files": [INDEX, IDS], "factory": factory, "nprobe": nprobe}


def write_lance(selection: Selection, folder: Path) -> dict[str, Any]:
    """Write a table of ids, vectors (column `vector`) and kept columns."""
    require_package("lancedb", "lance", f"{cite('vectors')} lance")
    import lancedb

    manifest = selection.manifest
    columns = _read_columns(manifest)
    own = set(list_own_columns(columns.names))
    if manifest.rows.pieces is not None:
        own -= set(PLACE_COLUMNS)
    others = [name for name in columns.names if name != "id" and name not in own]
    vector = pa.field("vector", pa.list_(pa.float32(), manifest.space.dim))
    schema = pa.schema([columns.field("id"), vector, *(columns.field(name) for name in others)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _read_blocks(selection, ["id", *others, "embedding"]):
            vectors = make_vector_column(as_matrix(batch.column("embedding")))
            arrays = [batch.column("id"), vectors, *(batch.column(name) for name in others)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    lancedb.connect(str(folder)).create_table(
        TABLE, pa.RecordBatchReader.from_batches(schema, batches())
    )
    return {"files": [f"{TABLE}.lance"], "table": TABLE}
