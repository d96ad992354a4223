"""The trained index without rows that all segments of an index share: stored once, put into each
when it is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transforms.base.errors import DamagedIndexError
from transforms.index.faiss_module import short_reason, use_threads
from transforms.index.rotation import split

_FINGERPRINT_LISTS = 4096


class TrainedIndex:
    """A trained index, whose quantizer segments without one of their own are searched by."""

    def __init__(self, faiss: Any, index: Any):
        """`index` is one of faiss that owns its quantizer, what `train` gave; rows in it do not
        matter.
        """
        self.whole = index  # with what turns vectors before the lists
        self.index, self._rotation = split(faiss, index)

    def turned(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors float32 [n, d] as the lists have them; the same ones where the index was trained
        without rotation.
        """
        return vectors if self._rotation is None else self._rotation.apply(vectors)

    @classmethod
    def of(cls, data: bytes) -> TrainedIndex:
        """The index in some bytes that `train` gave."""
        with use_threads(None) as faiss:
            return cls(faiss, faiss.deserialize_index(np.frombuffer(data, dtype=np.uint8)))

    @classmethod
    def open(cls, path: str | Path) -> TrainedIndex:
        """The index in a local file, which is mapped as far as faiss can. Raises DamagedIndexError
        where it is none.
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

    def give(self, index: Any, path: str | Path) -> None:
        """Put the quantizer into a segment's index that was written without one; it must live as
        long as that.

        Raises DamagedIndexError where the segment, in the file `path`, is of another training.
        """
        mine, its = (
            (i.d, i.metric_type, getattr(i, "nlist", 0), i.code_size) for i in (self.index, index)
        )
        if mine != its:
            raise DamagedIndexError(
                f"{path}: its lists are not of the index's quantizer; build the index again"
            )
        # The empty quantizer that stood there, some hundred bytes, is nobody's from here on.
        index.quantizer, index.own_fields = self.index.quantizer, False
        if hasattr(index, "precompute_table"):
            index.precompute_table()


def fingerprint(index: Any) -> str:
    """A digest of up to 4096 of an index's centroids."""
    with use_threads(None) as faiss:
        every = max(1, index.nlist // _FINGERPRINT_LISTS)
        return hashlib.sha256(centroids(faiss, index)[::every].tobytes()).hexdigest()


def centroids(faiss: Any, index: Any) -> np.ndarray:
    """The centroids of an index with lists, float32 [nlist, d], as a view that lives no longer than
    the index.
    """
    quantizer = faiss.downcast_index(index.quantizer)
    return flat_rows(
        faiss, faiss.downcast_index(quantizer.storage) if hasattr(quantizer, "hnsw") else quantizer
    )


def flat_rows(faiss: Any, index: Any) -> np.ndarray:
    """The vectors of a Flat index, float32 [ntotal, d], as a view that lives no longer than the
    index.
    """
    if not index.ntotal:
        return np.empty((0, index.d), np.float32)
    return faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d)


def lacks_quantizer(index: Any) -> bool:
    """Whether an index has lists and was written without the quantizer that chooses among them."""
    return hasattr(index, "quantizer") and index.quantizer.ntotal < index.nlist


@contextlib.contextmanager
def without_quantizer(faiss: Any, index: Any) -> Iterator[None]:
    """Have an index without its quantizer inside the block, to be written; nothing changes where it
    has no lists.
    """
    if not hasattr(index, "quantizer"):
        yield
        return
    quantizer, owned, empty = (
        index.quantizer,
        index.own_fields,
        faiss.IndexFlat(index.d, index.metric_type),
    )
    index.quantizer, index.own_fields = empty, False
    try:
        yield
    finally:
        index.quantizer, index.own_fields = quantizer, owned


def read_index(faiss: Any, path: str | Path, what: str) -> Any:
    """The faiss index in a file, which is mapped. Raises DamagedIndexError, saying `what` it is
    not, where it is none.

    Tables that PQ computes from a quantizer are left out, since a segment has none when it is read.
    """
    flags = getattr(faiss, "IO_FLAG_MMAP_IFC", 0) | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    try:
        return faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise DamagedIndexError(f"{path}: not a readable {what} ({short_reason(error)})") from error
