"""The trained index without rows that all segments share: stored once, used by each segment."""

from __future__ import annotations

from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.faiss_module import load_faiss, shorten_reason
from sentence_beam.transforms.index.rotation import split


class TrainedIndex:
    """A trained index; it has the quantizer of all segments with lists, and of all ranges."""

    def __init__(self, index: Any):
        """`index` is a faiss index that owns its quantizer, as `train` makes it."""
        self.whole = index  # with the rotation before the lists
        self.index, self._rotation = split(index)

    def turned(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors float32 [n, d] as the lists have them: rotated if the index has a rotation."""
        return vectors if self._rotation is None else self._rotation.apply(vectors)

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainedIndex:
        """The index in the bytes that `train` returned."""
        return cls(load_faiss().deserialize_index(np.frombuffer(data, dtype=np.uint8)))

    @classmethod
    def open(cls, path: str | Path) -> TrainedIndex:
        """The index in a local file, which is mapped as far as faiss can.

        Raises DamagedIndexError if the file holds no index.
        """
        return cls(read_index(path, "trained index"))

    @property
    def centroids(self) -> np.ndarray:
        """The centroids of the lists, float32 [nlist, d], as the lists have them."""
        return centroids(self.index).copy()

    def make_empty_copy(self) -> Any:
        """Return an index without rows that has this one's codec and shares its quantizer.

        This object must live as long as that index.
        """
        faiss = load_faiss()
        copy = faiss.deserialize_index(self._data, faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
        self.give(copy, "an empty index")
        return copy

    @cached_property
    def _data(self) -> np.ndarray:
        return np.frombuffer(dump_index(self.index), np.uint8)

    def give(self, index: Any, path: str | Path) -> None:
        """Put the quantizer into a segment's index, which was written without one.

        This object must live as long as that index. Raises DamagedIndexError if the segment, in the
        file `path`, is of another training.
        """
        if _read_shape(self.index) != _read_shape(index):
            raise DamagedIndexError(
                f"{path}: its lists are not of the index's quantizer; build the index again"
            )
        # The previous, empty quantizer of some hundred bytes is leaked.
        index.quantizer = self.index.quantizer
        index.own_fields = False
        if hasattr(index, "precompute_table"):
            index.precompute_table()


def make_missing_trained_error(path: str | Path) -> DamagedIndexError:
    """Return the error for a file with lists that is opened without the trained index."""
    return DamagedIndexError(f"{path}: its lists need the index's quantizer, which is not known")


def _read_shape(index: Any) -> tuple[int, ...]:
    return index.d, index.metric_type, getattr(index, "nlist", 0), index.code_size


def centroids(index: Any) -> np.ndarray:
    """The centroids of an index with lists, float32 [nlist, d].

    This is a view that is valid as long as the index.
    """
    quantizer = load_faiss().downcast_index(index.quantizer)
    if hasattr(quantizer, "hnsw"):
        quantizer = load_faiss().downcast_index(quantizer.storage)
    return view_flat_rows(quantizer)


def view_flat_rows(index: Any) -> np.ndarray:
    """The vectors of a Flat index, float32 [ntotal, d]: a view, valid as long as the index."""
    if not index.ntotal:
        return np.empty((0, index.d), np.float32)
    values = load_faiss().rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
    return values.reshape(index.ntotal, index.d)


def dump_index(index: Any) -> bytes:
    """Return the bytes of an index's file, without the quantizer if it has lists."""
    faiss = load_faiss()
    file = BytesIO()
    writer = faiss.PyCallbackIOWriter(file.write, 1 << 20)
    if not hasattr(index, "quantizer"):
        faiss.write_index(index, writer)
        return file.getvalue()
    quantizer = index.quantizer
    owned = index.own_fields
    empty = faiss.IndexFlat(index.d, index.metric_type)
    index.quantizer = empty
    index.own_fields = False
    try:
        faiss.write_index(index, writer)
    finally:
        index.quantizer = quantizer
        index.own_fields = owned
    return file.getvalue()


def read_index(path: str | Path, what: str) -> Any:
    """The faiss index in a file, which is mapped as far as faiss can.

    Raises DamagedIndexError if the file holds none; `what` is the message's word for it. Tables
    that PQ computes from a quantizer are not read, since a segment has no quantizer yet.
    """
    faiss = load_faiss()
    flags = faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_MMAP_IFC
    try:
        return faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise DamagedIndexError(
            f"{path}: not a readable {what} ({shorten_reason(error)})"
        ) from error
