"""Near duplicates and clusters of stores, against brute force.

Covers transforms/steps/joins/row_groups.py.
Covers transforms/steps/joins/near_duplicates.py.
"""

from pathlib import Path

import numpy as np
import pytest
from helpers.nights import DIM, Nights, vector_of

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index import index_kinds
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.steps.joins import near_duplicates, row_groups, store_vectors
from sentence_beam.transforms.store.manifest import Manifest

pytest.importorskip("faiss")

THRESHOLD = 0.9


def rows(count: int) -> dict[str, list[tuple[str, str]]]:
    """Rows of eight topics whose ids come in no order; every tenth has the text of another."""
    texts = [f"{'abcdefgh'[j % 8]} {j if j % 10 else j // 3}" for j in range(count)]
    named = [(f"{j * 7919 % count:05d}", text) for j, text in enumerate(texts)]
    return {"f0": named[: count // 3], "f1": named[count // 3 :]}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    nights = Nights(tmp_path_factory.mktemp("store"))
    nights.commit(rows(500), IndexRequest("IVF8,RaBitQ"))
    return nights.manifest


def stored(manifest: Manifest) -> tuple[list[str], np.ndarray]:
    """Ids and vectors, in the order of the shards."""
    from sentence_beam.transforms.store.open import Store

    ids, vectors = Store(manifest).numpy()
    return ids.tolist(), vectors.astype(np.float64)


@pytest.mark.parametrize("by_lists", [False, True])
def test_groups_and_keepers_are_those_of_brute_force(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_lists: bool
) -> None:
    monkeypatch.setattr(index_kinds, "FLAT_BELOW", 0 if by_lists else 20_000)
    found = near_duplicates.deduplicate(Selection(manifest), THRESHOLD, tmp_path)
    ids, vectors = stored(manifest)
    scores = vectors @ vectors.T
    group = list(range(len(ids)))
    for a, b in zip(*np.nonzero(scores >= THRESHOLD), strict=True):
        low, high = sorted((group[a], group[b]))
        group = [low if g == high else g for g in group]
    table = found.rows.to_pydict()
    assert table["id"] == ids
    numbers = {first: number for number, first in enumerate(sorted(set(group)))}
    assert table["component"] == [numbers[g] for g in group]
    keepers = {
        g: min(i for i, other in zip(ids, group, strict=True) if other == g) for g in set(group)
    }
    assert table["keep"] == [keepers[g] == i for i, g in zip(ids, group, strict=True)]
    to_keeper = [scores[row, ids.index(keepers[g])] for row, g in enumerate(group)]
    np.testing.assert_allclose(table["score"], to_keeper, atol=1e-5)
    assert (found.duplicates, found.groups) == (
        len(ids) - len(set(group)),
        sum(group.count(g) > 1 for g in set(group)),
    )
    assert found.found == 1
    assert found.duplicates > 40


def test_a_store_without_lists_of_its_own_gets_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store_vectors, "choose_automatic_index", lambda *_: IndexSpec.parse("IVF8,Flat")
    )
    nights = Nights(tmp_path / "s")
    nights.commit_without_index(rows(300))
    found = near_duplicates.deduplicate(Selection(nights.manifest), THRESHOLD, tmp_path)
    assert found.duplicates >= 29
    assert found.found > 0.95


def test_clusters_are_the_topics(manifest: Manifest, tmp_path: Path) -> None:
    found = row_groups.group_by_number(Selection(manifest), 8, tmp_path)
    clusters, table = found.clusters.to_pydict(), found.rows.to_pydict()
    ids, vectors = stored(manifest)
    centres = np.array(clusters["centroid"])
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    assert table["id"] == ids
    assert table["label"] == (vectors @ centres.T).argmax(axis=1).tolist()
    np.testing.assert_allclose(table["distance"], 1 - (vectors @ centres.T).max(axis=1), atol=1e-5)
    assert clusters["label"] == list(range(8))
    assert clusters["size"] == sorted(np.bincount(table["label"]).tolist(), reverse=True)
    for label, near in enumerate(clusters["ids"]):
        members = [
            (d, i)
            for d, i, mine in zip(table["distance"], ids, table["label"], strict=True)
            if mine == label
        ]
        assert near == [i for _, i in sorted(members, key=lambda member: member[0])[:5]]
    assert clusters["names"] == clusters["ids"]  # the store keeps no texts


def test_as_many_clusters_as_rows_and_no_more(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "s")
    nights.commit_without_index({"f0": [(str(j), f"{'abcd'[j]} {j}") for j in range(4)]})
    assert row_groups.group_by_number(Selection(nights.manifest), 4, tmp_path).rows[
        "label"
    ].to_pylist() == [
        0,
        1,
        2,
        3,
    ]
    assert row_groups.group_by_number(Selection(nights.manifest), 1, tmp_path).clusters[
        "size"
    ].to_pylist() == [4]
    with pytest.raises(OptionError, match="clusters 5: there are 4 rows"):
        row_groups.group_by_number(Selection(nights.manifest), 5, tmp_path)


def test_clusters_by_a_least_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    nights = Nights(tmp_path / "s")
    names = [f"{topic} {j}" for topic in "abc" for j in range(4)]
    nights.commit_without_index({"f0": [(name, name) for name in names]})
    vectors = np.array([vector_of(name, DIM) for name in names])
    found = row_groups.group_by_min_score(Selection(nights.manifest), 1.0, tmp_path)
    assert found.clusters["size"].to_pylist() == [1] * 12
    found = row_groups.group_by_min_score(Selection(nights.manifest), -1.0, tmp_path)
    assert found.clusters["size"].to_pylist() == [12]
    centre = vectors.mean(axis=0) / np.linalg.norm(vectors.mean(axis=0))
    np.testing.assert_allclose(found.rows["distance"], 1 - vectors @ centre, atol=1e-5)
    monkeypatch.setattr(row_groups, "AGGLOMERATIVE_ROWS", 11)
    with pytest.raises(OptionError, match="11 rows at most, and there are 12 in .*; say clusters"):
        row_groups.group_by_min_score(Selection(nights.manifest), 0.5, tmp_path)
