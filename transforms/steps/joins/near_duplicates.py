"""Near-duplicate rows of a store, and the one of each group that is kept."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.index import TrainedIndex
from sentence_beam.transforms.index.near_pairs import (
    Components,
    cosines,
    find_near_pairs,
    measure_share_found,
)
from sentence_beam.transforms.search import Searcher, Selection
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.steps.joins.store_vectors import (
    TEXT,
    StoreVectors,
    find_first_copies,
    find_near_lists,
)
from sentence_beam.transforms.store.manifest import Manifest

SHOWN_GROUPS = 5
SHOWN_ROWS = 3


@dataclass(frozen=True)
class Deduplicated:
    """All rows with their components, and facts about these.

    A row has id, component, keep and score to the keeper, a piece also piece. `groups` are
    components of several rows; `largest` has some rows of the largest ones, the keeper first, with
    the first 200 characters of their texts. `found` is the share of `sampled` near pairs of some
    rows that the comparison found.
    """

    rows: pa.Table
    groups: int
    duplicates: int
    found: float
    sampled: int
    largest: pa.Table


def deduplicate(selection: Selection, min_score: float, folder: Path) -> Deduplicated:
    """Group the selected rows: rows with a cosine of `min_score` or more are one component.

    Copies of a text are, too. A component's keeper is its row with the smallest id, the first of
    the store if several have it. A file with all vectors is put into the folder. Raises OptionError
    without rows.
    """
    stored = StoreVectors.read(selection, folder)
    near = find_near_lists(stored.vectors, min_score, partial(_open_trained, selection.manifest))
    components = Components(len(stored))
    alone = near
    # With late chunks, pieces of one text have vectors of their own.
    if ChunksSpec.parse(selection.manifest.chunks).kind != "late":
        originals = find_first_copies(stored.hashes)
        copies = np.flatnonzero(originals != np.arange(len(stored)))
        components.join(copies, originals[copies])
        alone = near.copy()
        alone[copies] = -1  # in no list: their original represents them
    for first, second in find_near_pairs(stored.vectors, alone, min_score):
        components.join(first, second)
    share, sampled = measure_share_found(stored.vectors, near, min_score)
    numbers, component = np.unique(components.first, return_inverse=True)
    rows = _find_keepers(stored, component.astype(np.int64))
    groups = int((np.bincount(component) > 1).sum())
    largest = _show_largest(stored, rows, component)
    return Deduplicated(rows, groups, len(stored) - len(numbers), share, sampled, largest)


def _show_largest(stored: StoreVectors, rows: pa.Table, component: np.ndarray) -> pa.Table:
    """Return some rows of the largest components, as `Deduplicated` has them."""
    sizes = np.bincount(component)
    groups = np.argsort(-sizes, kind="stable")[:SHOWN_GROUPS]
    keep = rows.column("keep").to_numpy()
    chosen = []
    for group in groups[sizes[groups] > 1]:
        members = np.flatnonzero(component == group)
        chosen.append(members[np.argsort(~keep[members], kind="stable")][:SHOWN_ROWS])
    places = np.concatenate([np.empty(0, np.int64), *chosen])
    return rows.take(pa.array(places)).append_column(
        TEXT, pa.array(stored.names(places), pa.string())
    )


def _open_trained(manifest: Manifest) -> TrainedIndex | None:
    """Return the quantizer of the store's index, if its lists are for vectors of length 1."""
    if manifest.metric == "cosine" or manifest.space.normalize:
        return Searcher(manifest).index.trained
    return None


def _find_keepers(stored: StoreVectors, component: np.ndarray) -> pa.Table:
    order = pc.sort_indices(stored.columns.column("id")).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    least = np.full(int(component.max()) + 1, len(order))
    np.minimum.at(least, component, rank)
    keeper = order[least[component]].astype(np.int64)
    rows = np.arange(len(order))
    score = np.ones(len(order), np.float32)
    others = np.flatnonzero(keeper != rows)
    score[others] = np.minimum(cosines(stored.vectors, others, keeper[others]), 1)
    return stored.table({"component": component, "keep": keeper == rows, "score": score})
