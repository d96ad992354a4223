"""Building one segment: an immutable faiss file with local ids 0..n-1 in the order the rows came."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np

from transforms.index.exact import block_top_k
from transforms.index.faiss_module import use_threads
from transforms.index.vectors import as_vectors, check_metric, faiss_metric, metric_name


def build_segment(trained: bytes, blocks: Iterable[np.ndarray], *, threads: int | None = None) -> bytes:
    """A segment holding the blocks' rows, as bytes. As `write_segment`, with the file in memory too."""
    file = BytesIO()
    write_segment(trained, blocks, file, threads=threads)
    return file.getvalue()


def write_segment(trained: bytes, blocks: Iterable[np.ndarray], file: BinaryIO, *, threads: int | None = None) -> int:
    """Add the blocks' rows to a copy of the trained index, write it to an open binary file, return how many rows.

    `blocks` yields float32 [n, dim]. Memory: the codes and one block. The bytes depend on the rows, not on the cut into
    blocks. Raises OptionError for rows that are not finite or zero.
    """
    with use_threads(threads) as faiss:
        index = faiss.deserialize_index(np.frombuffer(trained, dtype=np.uint8))
        for block in blocks:
            if len(block):
                _add(faiss, index, as_vectors(block, index.d, "segment"))
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, 1 << 20))
        return int(index.ntotal)


def flat_segment(blocks: Iterable[np.ndarray], dim: int, metric: str = "ip", *, threads: int | None = None) -> bytes:
    """A Flat segment (exact vectors), as bytes: for held-out rows, and for stores too small for lists."""
    check_metric(metric)
    with use_threads(threads) as faiss:
        empty = faiss.serialize_index(faiss.IndexFlat(dim, faiss_metric(faiss, metric))).tobytes()
    return build_segment(empty, blocks, threads=threads)


def _add(faiss: Any, index: Any, block: np.ndarray) -> None:
    if not hasattr(index, "quantizer"):
        index.add(block)
        return
    lists = nearest_lists(faiss, index, block, 1)[1]
    index.add_core(len(block), faiss.swig_ptr(block), None, faiss.swig_ptr(lists))


def nearest_lists(faiss: Any, index: Any, vectors: np.ndarray, nprobe: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores float32 and numbers int64 [n, nprobe] of each vector's nearest lists, whatever else is in the batch."""
    quantizer = faiss.downcast_index(index.quantizer)
    if hasattr(quantizer, "hnsw"):
        depth = max(quantizer.hnsw.efSearch, 2 * nprobe)
        return quantizer.search(vectors, nprobe, params=faiss.SearchParametersHNSW(efSearch=depth))
    centroids = flat_rows(faiss, quantizer)
    metric = metric_name(faiss, quantizer.metric_type)
    gains, lists = block_top_k(faiss, vectors, centroids, nprobe, metric, margin=1)
    return (gains if metric == "ip" else -gains), lists


def flat_rows(faiss: Any, index: Any) -> np.ndarray:
    """The vectors of a Flat index, float32 [ntotal, d], as a view that lives no longer than the index."""
    if not index.ntotal:
        return np.empty((0, index.d), np.float32)
    return faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d)
