"""Vectors and segments that the index tests share."""

import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sentence_beam.transforms.index import (
    SegmentedIndex,
    SegmentFile,
    SegmentWriter,
    TrainedIndex,
    choose_index,
    train,
)
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.segment_search import SearchResult

pytest.importorskip("faiss")

FACTORIES = ("Flat", "IVF4,Flat", "IVF4,SQ8", "IVF4,RaBitQ", "SQ8", "IVF4_HNSW4,SQ8")


def unit_vectors(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def small_integers(rows: int, dim: int, seed: int) -> np.ndarray:
    """Vectors of -1, 0, 1: many equal scores, many copies, and arithmetic that float32 does
    exactly.
    """
    vectors = np.random.default_rng(seed).integers(-1, 2, (rows, dim)).astype(np.float32)
    vectors[~vectors.any(axis=1), 0] = 1
    return vectors


@lru_cache
def trained(factory: str, metric: str, dim: int) -> bytes:
    return train(
        choose_index(1000, dim, IndexSpec.parse(factory), metric=metric),
        unit_vectors(1000, dim, seed=7),
    )


def build_segment(start: bytes, blocks: Iterable[np.ndarray]) -> bytes:
    """The file of a segment with the rows of the blocks."""
    writer = SegmentWriter(start)
    for block in blocks:
        writer.add(block)
    return writer.to_bytes()


def open_cut(
    folder: Path,
    start: bytes,
    vectors: np.ndarray,
    cuts: Sequence[int],
    keep: np.ndarray | None = None,
) -> SegmentedIndex:
    """The vectors in segments that end at the cuts (and at the end), opened."""
    folder, segments = Path(tempfile.mkdtemp(dir=folder)), []
    for number, (low, high) in enumerate(pairwise([0, *cuts, len(vectors)])):
        path = folder / f"{number}.faiss"
        path.write_bytes(build_segment(start, [vectors[low:high]]))
        segments.append(SegmentFile(path, None if keep is None else keep[low:high]))
    return SegmentedIndex.open(segments, TrainedIndex.from_bytes(start))


def global_rows(found: SearchResult, cuts: Sequence[int]) -> np.ndarray:
    starts = np.array([0, *cuts])
    return np.where(found.row >= 0, starts[found.segment] + found.row, -1)


def brute_force(
    vectors: np.ndarray, queries: np.ndarray, k: int, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows of the top k in float64, ties by row."""
    x, q = vectors.astype(np.float64), queries.astype(np.float64)
    scores = q @ x.T if metric == "ip" else ((q[:, None] - x[None]) ** 2).sum(-1)
    order = np.argsort(-scores if metric == "ip" else scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order
