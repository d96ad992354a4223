"""The rows of a store in groups: spherical k-means, or agglomerative clustering."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import make_vector_column
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.index.by_lists import search_coarse
from sentence_beam.transforms.index.index_kinds import make_plan
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.index.near_pairs import BLOCK
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.steps.joins.store_vectors import StoreVectors, train_on
from sentence_beam.transforms.steps.options.joins import AGGLOMERATIVE_ROWS

NEAREST = 5  # rows that name a cluster
ROWS_A_CENTRE = 256  # to train on; more move a centre no further


@dataclass(frozen=True)
class Clustered:
    """All rows with their clusters, and the clusters, the largest first.

    A row has id, label and distance to the centre, a piece also piece. A cluster has label, size,
    names and ids of the rows nearest to its centre, and its centroid.
    """

    rows: pa.Table
    clusters: pa.Table


def group_by_number(selection: Selection, clusters: int, folder: Path) -> Clustered:
    """Group the selected rows by the nearest of `clusters` centres of k-means over a sample.

    A file with all vectors is put into the folder. Raises OptionError if there are more clusters
    than rows.
    """
    rows = len(selection)
    if clusters > rows > 0:
        raise OptionError(
            f"{cite('clusters')} {clusters:,}: there are {rows:,} rows in"
            f" {selection.manifest.root}; ask for as many at most"
        )
    stored = StoreVectors.read(selection, folder)
    plan = make_plan(
        IndexSpec.parse(f"IVF{clusters},Flat"), len(stored), stored.vectors.shape[1], "ip"
    )
    trained = train_on(stored.vectors, plan, ROWS_A_CENTRE * clusters)
    label = np.empty(len(stored), np.int64)
    score = np.empty(len(stored), np.float32)
    for start in progress.count_over(
        range(0, len(stored), BLOCK), "choosing clusters", "blocks of rows"
    ):
        part = slice(start, start + BLOCK)
        nearest = search_coarse(trained, np.ascontiguousarray(stored.vectors[part]), 1)
        label[part] = nearest.lists[:, 0]
        score[part] = nearest.scores[:, 0]
    return _number_clusters(stored, label, score, trained.centroids)


def group_by_min_score(selection: Selection, min_score: float, folder: Path) -> Clustered:
    """Group the selected rows by agglomerative clustering.

    Groups are joined while the mean cosine between two is `min_score` or more. Raises OptionError
    for more rows than can be compared at once.
    """
    rows = len(selection)
    if rows > AGGLOMERATIVE_ROWS:
        raise OptionError(
            f"{cite('min_score')} compares all pairs at once, {AGGLOMERATIVE_ROWS:,} rows at most,"
            f" and there are {rows:,} in {selection.manifest.root}; say {cite('clusters')}, or"
            f" {cite('where')}"
        )
    stored = StoreVectors.read(selection, folder)
    with progress.stage("clustering", rows, "rows"):
        label = _agglomerate(stored.vectors, min_score)
    sums = np.zeros((int(label.max()) + 1, stored.vectors.shape[1]))
    np.add.at(sums, label, stored.vectors)
    centres = (sums / np.maximum(np.linalg.norm(sums, axis=1), 1e-30)[:, None]).astype(np.float32)
    return _number_clusters(
        stored, label, np.einsum("nd,nd->n", stored.vectors, centres[label]), centres
    )


def _agglomerate(vectors: np.ndarray, min_score: float) -> np.ndarray:
    require_package("sklearn", "evaluate", cite("min_score"))
    from sklearn.cluster import AgglomerativeClustering

    if len(vectors) == 1:
        return np.zeros(1, np.int64)
    how = {"metric": "cosine", "linkage": "average", "distance_threshold": 1 - min_score + 1e-7}
    return (
        AgglomerativeClustering(n_clusters=None, **how)
        .fit_predict(np.asarray(vectors))
        .astype(np.int64)
    )


def _number_clusters(
    stored: StoreVectors, label: np.ndarray, score: np.ndarray, centres: np.ndarray
) -> Clustered:
    """Return the result, with clusters numbered by size, equal ones in their order."""
    size = np.bincount(label, minlength=len(centres))
    order = np.argsort(-size, kind="stable")
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    label = number[label]
    size = size[order]
    centres = centres[order]
    distance = np.maximum(1 - score, 0).astype(np.float32)
    nearest = np.lexsort((distance, label))
    starts = np.cumsum([0, *size[:-1]])
    chosen = [
        nearest[start : start + min(NEAREST, count)]
        for start, count in zip(starts, size, strict=True)
    ]
    rows = np.concatenate(chosen)
    offsets = pa.array(np.cumsum([0, *(len(part) for part in chosen)]).astype(np.int32))
    ids = stored.columns.column("id").take(pa.array(rows)).combine_chunks()
    columns = {
        "label": pa.array(np.arange(len(size), dtype=np.int32)),
        "size": pa.array(size),
        "names": pa.ListArray.from_arrays(offsets, pa.array(stored.names(rows), pa.string())),
        "ids": pa.ListArray.from_arrays(offsets, ids),
        "centroid": make_vector_column(centres),
    }
    return Clustered(stored.table({"label": label, "distance": distance}), pa.table(columns))
