"""The trained index without rows that all segments share: stored once, used by each segment."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.faiss_module import short_reason, use_threads
from sentence_beam.transforms.index.rotation import split

_FINGERPRINT_LISTS = 4096


class TrainedIndex:
    """A trained index; it has the quantizer for segments that were written without one."""

    def __init__(self, faiss: Any, index: Any):
        """`index` is a faiss index that owns its quantizer, as `train` makes it.

        Its rows are ignored.
        """
        self.whole = index  # with the rotation before the lists
        self.index, self._rotation = split(faiss, index)

    def turned(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors float32 [n, d] as the lists have them: rotated if the index has a rotation."""
        if self._rotation is None:
            return vectors
        return self._rotation.apply(vectors)

    @classmethod
    def of(cls, data: bytes) -> TrainedIndex:
        """The index in the bytes that `train` returned."""
        with use_threads(None) as faiss:
            return cls(faiss, faiss.deserialize_index(np.frombuffer(data, dtype=np.uint8)))

    @classmethod
    def open(cls, path: str | Path) -> TrainedIndex:
        """The index in a local file, which is mapped as far as faiss can.

        Raises DamagedIndexError if the file holds no index.
        """
        with use_threads(None) as faiss:
            return cls(faiss, read_index(faiss, path, "trained index"))

    @property
    def centroids(self) -> np.ndarray:
        """The centroids of the lists, float32 [nlist, d], as the lists have them."""
        with use_threads(None) as faiss:
            return centroids(faiss, self.index).copy()

    @cached_property
    def fingerprint(self) -> str:
        """A digest of up to 4096 of the centroids."""
        return fingerprint(self.index)

    def empty_copy(self) -> Any:
        """Return an index without rows that has this one's codec and shares its quantizer.

        This object must live as long as that index.
        """
        with use_threads(None) as faiss:
            copy = faiss.deserialize_index(self._without_lists, faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
            self.give(copy, "an empty index")
        return copy

    @cached_property
    def _without_lists(self) -> np.ndarray:
        """The bytes of the index without its quantizer."""
        with use_threads(None) as faiss, without_quantizer(faiss, self.index):
            return faiss.serialize_index(self.index)

    def give(self, index: Any, path: str | Path) -> None:
        """Put the quantizer into a segment's index that was written without one.

        This object must live as long as that index. Raises DamagedIndexError if the segment, in the
        file `path`, is of another training.
        """
        if _shape(self.index) != _shape(index):
            raise DamagedIndexError(
                f"{path}: its lists are not of the index's quantizer; build the index again"
            )
        # The previous, empty quantizer of some hundred bytes is leaked.
        index.quantizer = self.index.quantizer
        index.own_fields = False
        if hasattr(index, "precompute_table"):
            index.precompute_table()


def _shape(index: Any) -> tuple[int, ...]:
    return index.d, index.metric_type, getattr(index, "nlist", 0), index.code_size


def fingerprint(index: Any) -> str:
    """A digest of up to 4096 of an index's centroids."""
    with use_threads(None) as faiss:
        every = max(1, index.nlist // _FINGERPRINT_LISTS)
        return hashlib.sha256(centroids(faiss, index)[::every].tobytes()).hexdigest()


def centroids(faiss: Any, index: Any) -> np.ndarray:
    """The centroids of an index with lists, float32 [nlist, d].

    This is a view that is valid as long as the index.
    """
    quantizer = faiss.downcast_index(index.quantizer)
    if hasattr(quantizer, "hnsw"):
        quantizer = faiss.downcast_index(quantizer.storage)
    return flat_rows(faiss, quantizer)


def flat_rows(faiss: Any, index: Any) -> np.ndarray:
    """The vectors of a Flat index, float32 [ntotal, d]: a view, valid as long as the index."""
    if not index.ntotal:
        return np.empty((0, index.d), np.float32)
    return faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d)


def lacks_quantizer(index: Any) -> bool:
    """Whether an index with lists was written without its quantizer."""
    return hasattr(index, "quantizer") and index.quantizer.ntotal < index.nlist


@contextlib.contextmanager
def without_quantizer(faiss: Any, index: Any) -> Iterator[None]:
    """Take the quantizer out of an index inside the block, in which the index is written.

    An index without lists stays the same.
    """
    if not hasattr(index, "quantizer"):
        yield
        return
    quantizer = index.quantizer
    owned = index.own_fields
    empty = faiss.IndexFlat(index.d, index.metric_type)
    index.quantizer = empty
    index.own_fields = False
    try:
        yield
    finally:
        index.quantizer = quantizer
        index.own_fields = owned


def read_index(faiss: Any, path: str | Path, what: str) -> Any:
    """The faiss index in a file, which is mapped.

    Raises DamagedIndexError if the file holds none; `what` is the message's word for it. Tables
    that PQ computes from a quantizer are not read, since a segment has no quantizer yet.
    """
    flags = getattr(faiss, "IO_FLAG_MMAP_IFC", 0) | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    try:
        return faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise DamagedIndexError(f"{path}: not a readable {what} ({short_reason(error)})") from error
