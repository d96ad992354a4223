"""V-measures of clusterings: how well clusters agree with labels."""

from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.evaluation.bias import correct_bias
from sentence_beam.transforms.evaluation.evidence import ALL, BySubset


@dataclass(frozen=True, eq=False)
class Clusterings:
    """Clusters int [m, s, n] of `s` seeds for each method, and the items' labels int [n].

    Clusters and labels count from 0. The score is the mean of the seeds' v-measures. The measure is
    too high on few items, and higher still on resamples, in which items occur twice; this is
    corrected. A swap of two methods exchanges what the items add to the two conditional entropies
    that the measure is made of, all seeds of an item together.
    """

    clusters: np.ndarray
    labels: np.ndarray

    @property
    def strata(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def scores(self) -> BySubset:
        return {ALL: self._measure(np.ones((1, len(self.labels)), np.int32))[:, 0]}

    def resampled(self, counts: np.ndarray) -> BySubset:
        scores = self._measure(counts)
        return {ALL: correct_bias(scores, scores, self.scores()[ALL][:, None], len(self.labels))}

    def _measure(self, counts: np.ndarray) -> np.ndarray:
        return np.stack(
            [
                np.mean([self._v_measure(row, counts) for row in seeds], axis=0)
                for seeds in self.clusters
            ]
        )

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        ours = self._compute_terms(method)
        first = self._compute_terms(0)
        exchanged = swaps @ (first - ours)
        one = self._from_terms(ours.sum(axis=0) + exchanged)
        other = self._from_terms(first.sum(axis=0) - exchanged)
        return {ALL: one - other}

    def _v_measure(self, clusters: np.ndarray, counts: np.ndarray) -> np.ndarray:
        cells, width = self._number_cells(clusters)
        used, group = np.unique(cells, return_inverse=True)
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        table = np.add.reduceat(counts[:, order].astype(np.float64), starts, axis=1)
        joint = _entropy(table)
        of_labels = _entropy(_sum_by_key(table, used % width))
        of_clusters = _entropy(_sum_by_key(table, used // width))
        with np.errstate(invalid="ignore", divide="ignore"):
            # a side without entropy counts as 1, as in scikit-learn
            homogeneity = np.where(of_labels > 1e-12, 1 - (joint - of_clusters) / of_labels, 1.0)
            completeness = np.where(of_clusters > 1e-12, 1 - (joint - of_labels) / of_clusters, 1.0)
        return _harmonic(homogeneity, completeness)

    def _number_cells(self, clusters: np.ndarray) -> tuple[np.ndarray, int]:
        width = int(self.labels.max()) + 1
        return clusters.astype(np.int64) * width + self.labels, width

    def _compute_terms(self, method: int) -> np.ndarray:
        """Return the terms that each item adds to the conditional entropies, float64 [n, 2 s].

        For each seed: its part of 1 - homogeneity, then its part of 1 - completeness.
        """
        labels = np.unique(self.labels, return_inverse=True, return_counts=True)
        columns: list[np.ndarray] = []
        for clusters in self.clusters[method]:
            _, cell, size = np.unique(
                self._number_cells(clusters)[0], return_inverse=True, return_counts=True
            )
            _, cluster, cluster_size = np.unique(clusters, return_inverse=True, return_counts=True)
            both = size[cell]
            label_size = labels[2][labels[1]]
            of_labels, of_clusters = (
                _entropy(sizes[None].astype(np.float64))[0] for sizes in (labels[2], cluster_size)
            )
            columns.append(np.log(cluster_size[cluster] / both) / (of_labels or 1.0))
            columns.append(np.log(label_size / both) / (of_clusters or 1.0))
        return np.stack(columns, axis=1) / len(self.labels)

    def _from_terms(self, sums: np.ndarray) -> np.ndarray:
        homogeneity = 1 - sums[:, 0::2]
        completeness = 1 - sums[:, 1::2]
        return _harmonic(homogeneity, completeness).mean(axis=1)


def _sum_by_key(table: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Sum the columns of a table [r, cells] by key [cells]."""
    _, group = np.unique(key, return_inverse=True)
    return table @ np.eye(group.max() + 1)[group]


def _entropy(table: np.ndarray) -> np.ndarray:
    """Return the entropy [r], in nats, of counts [r, cells]."""
    total = table.sum(axis=1, keepdims=True)
    share = table / total
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(share > 0, share * np.log(share), 0.0).sum(axis=1)


def _harmonic(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(a + b > 0, 2 * a * b / (a + b), 0.0)
