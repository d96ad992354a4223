"""Train the one quantizer that all segments share."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.index.faiss_module import load_faiss, shorten_reason, use_threads
from sentence_beam.transforms.index.index_kinds import IndexPlan
from sentence_beam.transforms.index.kmeans import kmeans
from sentence_beam.transforms.index.metric_vectors import as_vectors, find_faiss_metric
from sentence_beam.transforms.index.rotation import turn_lists
from sentence_beam.transforms.index.segment import find_nearest_lists
from sentence_beam.transforms.index.trained import centroids as centroids_of

# rows on which a codec is trained; PQ takes no more for its 256 centroids each
CODEC_ROWS = 65_536
# an HNSW coarse quantizer then agrees with the exact one on 99.97 % of the rows
_ASSIGN_EF_SEARCH = 64


def train(plan: IndexPlan, sample: np.ndarray) -> bytes:
    """A trained index without rows, as bytes; each segment starts from a copy of it.

    `sample` float32 [m, dim]; ignored for `Flat`. The same input gives the same bytes at any thread
    count. Lists are found by k-means, spherical for inner products. Raises OptionError if the
    sample has fewer rows than lists.
    """
    if not plan.spec.is_trained:
        return assemble_index(plan, [], [])
    sample = as_vectors(sample, plan.dim, "training sample")
    if len(sample) < max(plan.nlist, 1):
        raise OptionError(
            f"{cite('index')} {plan.factory}: only {len(sample)} rows to train on; use auto or"
            " fewer lists"
        )
    lists = [kmeans(sample, plan.nlist, plan.metric)] if plan.nlist else []
    step = -(-len(sample) // CODEC_ROWS)
    blocks = (sample[start :: step * 16] for start in range(0, step * 16, step))
    return assemble_index(plan, lists, blocks)


def assemble_index(
    plan: IndexPlan, lists: Iterable[np.ndarray], blocks: Iterable[np.ndarray]
) -> bytes:
    """The trained index of some centroids, as bytes.

    `lists` are the centroids, float32 [n, dim] in blocks, none of which is held twice. `blocks` are
    rows for training the codec. If there are fewer centroids than lists, some are repeated, and the
    second of their lists stays empty. Raises OptionError if faiss cannot train the codec on these
    rows.
    """
    faiss = load_faiss()
    index = faiss.index_factory(plan.dim, plan.factory, find_faiss_metric(plan.metric))
    if plan.nlist:
        _fill_quantizer(index.quantizer, lists, plan.nlist)
    if plan.spec.is_trained:
        blocks = (as_vectors(block, plan.dim, "training sample") for block in blocks)
        _train_codec(index, plan, blocks)
    if plan.spec.is_rotated:
        index = turn_lists(index, centroids_of(index))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trained"
        faiss.write_index(index, str(path))
        del index  # before its bytes are read
        return path.read_bytes()


def _fill_quantizer(quantizer: Any, lists: Iterable[np.ndarray], count: int) -> None:
    """Give a quantizer its centroids; the first ones again if there are fewer than `count`."""
    quantizer = load_faiss().downcast_index(quantizer)
    with use_threads(1):  # a graph grown by several threads differs from run to run
        for block in lists:
            quantizer.add(np.ascontiguousarray(block))
        count_now = quantizer.ntotal
        for first in range(count_now, count, count_now):
            quantizer.add(quantizer.reconstruct_n(0, min(count_now, count - first)))
    if hasattr(quantizer, "hnsw"):
        quantizer.hnsw.efSearch = _ASSIGN_EF_SEARCH


def _train_codec(index: Any, plan: IndexPlan, blocks: Iterable[np.ndarray]) -> None:
    if hasattr(index, "sq"):
        index.sq.train(_find_ends(index, blocks))
        index.is_trained = True
        return
    if not hasattr(index, "pq"):  # other codes do not depend on the rows
        blocks = itertools.islice(blocks, 1)
    sample = np.concatenate(list(blocks))
    try:
        index.train(sample)  # trains the codec; the quantizer is trained already
    except RuntimeError as error:
        reason = f"training on {len(sample)} rows failed ({shorten_reason(error)})"
        raise OptionError(f"{cite('index')} {plan.factory}: {reason}; use auto") from error


def _find_ends(index: Any, blocks: Iterable[np.ndarray]) -> np.ndarray:
    """The smallest and the largest value of each component that codes hold, float32 [2, d].

    A scalar quantizer learns nothing else, so it can be trained block by block.
    """
    low = np.full(index.d, np.inf, np.float32)
    high = np.full(index.d, -np.inf, np.float32)
    centroids = centroids_of(index) if getattr(index, "by_residual", False) else None
    for block in blocks:
        if not len(block):
            continue
        if centroids is not None:
            block = block - centroids[find_nearest_lists(index, block, 1)[1][:, 0]]
        low = np.minimum(low, block.min(axis=0))
        high = np.maximum(high, block.max(axis=0))
    return np.stack([low, high])
