"""The rows of a snapshot as files of other programs: a matrix of numpy, an index of faiss, a table of LanceDB."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.base import progress
from transforms.base.arrow import as_matrix, fixed_size
from transforms.base.errors import MissingExtraError
from transforms.base.extras import pip_line
from transforms.index import TrainedIndex
from transforms.index.faiss_module import use_threads
from transforms.index.vectors import faiss_metric, prepared, scored_by
from transforms.store import Store
from transforms.store.index_files import files as index_files
from transforms.store.shards.columns import own_columns
from transforms.store.shards.reading import open_shard, read_shard

VECTORS, INDEX, IDS, ABOUT, TABLE = "vectors.npy", "index.faiss", "ids.parquet", "vectors.json", "rows"
PLACE = ("piece", "start", "end")  # what tells the pieces of a document apart


def export_vectors(store: Store, kind: str, folder: Path) -> dict[str, Any]:
    """Write the rows of a snapshot into an empty folder as one of VECTOR_FILES; what `vectors.json` says of them.

    Raises MissingExtraError where LanceDB is not installed.
    """
    written = {"npy": _write_npy, "faiss": _write_faiss, "lance": _write_lance}[kind](store, folder)
    manifest = store.manifest
    about = {
        "kind": kind, "rows": len(store), "dim": store.space.dim, "metric": manifest.metric, "space": store.space.id,
        "store": store.root, "run": manifest.run, **written,
    }  # fmt: skip
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf8")
    return about


def _blocks(store: Store, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """All rows in the manifest's order, `embedding` as float32 vectors."""
    for unit in store.manifest.units:
        if unit.path:
            for batch in read_shard(storage.join(store.root, unit.path), columns, unit.bytes):
                progress.step(batch.num_rows)
                yield batch


def _columns(store: Store) -> pa.Schema:
    """The columns of the shards; none without any shard."""
    for path in store.manifest.shard_paths[:1]:
        with open_shard(path) as parquet:
            return parquet.schema_arrow.remove_metadata()
    return pa.schema([("id", pa.string())])


class _Ids:
    """The file of ids: its row n is the vector n."""

    def __init__(self, store: Store, folder: Path):
        schema = _columns(store)
        self.names = ["id", *(PLACE if store.manifest.rows.pieces is not None else ())]
        self._file = pq.ParquetWriter(folder / IDS, pa.schema([schema.field(name) for name in self.names]))

    def __enter__(self) -> "_Ids":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> np.ndarray:
        """Write the ids of a block; its vectors float32 [n, dim]."""
        self._file.write_batch(batch.select(self.names))
        return as_matrix(batch.column("embedding"))


def _write_npy(store: Store, folder: Path) -> dict[str, Any]:
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(store), store.space.dim)}
    with (folder / VECTORS).open("wb") as file, _Ids(store, folder) as ids:
        np.lib.format.write_array_header_1_0(file, header)
        for batch in _blocks(store, [*ids.names, "embedding"]):
            file.write(np.ascontiguousarray(ids.add(batch), "<f4").data)
    return {"files": [VECTORS, IDS]}


def _write_faiss(store: Store, folder: Path) -> dict[str, Any]:
    """One index over all rows, whose 64-bit ids are the rows of the file of ids; of the kind that the store has."""
    entry, metric, start = store.manifest.index, store.manifest.metric, 0
    with use_threads(None) as faiss, _Ids(store, folder) as ids:
        if entry is not None and entry.trained.path:
            data = index_files.read(storage.join(store.root, entry.trained.path), entry.trained.sha256)
            plain, factory = TrainedIndex.of(data).whole, entry.factory
        else:
            plain, factory = faiss.IndexFlat(store.space.dim, faiss_metric(faiss, scored_by(metric))), "Flat"
        index = faiss.IndexIDMap2(plain)
        for batch in _blocks(store, [*ids.names, "embedding"]):
            vectors = np.ascontiguousarray(prepared(ids.add(batch), metric))
            index.add_with_ids(vectors, np.arange(start, start + len(vectors), dtype=np.int64))
            start += len(vectors)
        nprobe = entry.nprobe if entry is not None and factory.startswith("IVF") else 0
        if nprobe:
            faiss.extract_index_ivf(plain).nprobe = nprobe  # a field of the file
        faiss.write_index(index, str(folder / INDEX))
    return {"files": [INDEX, IDS], "factory": factory, "nprobe": nprobe}


def _write_lance(store: Store, folder: Path) -> dict[str, Any]:
    """A table with the ids, the vectors as the column `vector`, and what was kept of each row."""
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError(
            f"--vectors lance needs lancedb, which is not installed: {pip_line('lance')}"
        ) from error
    found = _columns(store)
    places = PLACE if store.manifest.rows.pieces is not None else ()
    kept = [name for name in found.names if name in ("id", *places) or name not in own_columns(found.names)]
    vector = pa.field("vector", pa.list_(pa.float32(), store.space.dim))
    schema = pa.schema([found.field("id"), vector, *(found.field(name) for name in kept if name != "id")])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _blocks(store, [*kept, "embedding"]):
            vectors, others = fixed_size(as_matrix(batch.column("embedding"))), [name for name in kept if name != "id"]
            columns = [batch.column("id"), vectors, *(batch.column(name) for name in others)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    lancedb.connect(str(folder)).create_table(TABLE, pa.RecordBatchReader.from_batches(schema, batches()))
    return {"files": [f"{TABLE}.lance"], "table": TABLE}
