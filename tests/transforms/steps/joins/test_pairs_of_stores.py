"""The most similar pairs of a store's rows, against brute force.

Covers transforms/steps/joins/similar_pairs.py.
"""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from helpers.nights import Nights

from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.steps.joins import store_vectors
from sentence_beam.transforms.steps.joins.similar_pairs import (
    Collection,
    find_most_similar,
    read_store,
)
from sentence_beam.transforms.steps.options.joins import PairsOptions
from sentence_beam.transforms.store.open import Store

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """A store of 300 rows, some of which have the text of an earlier one."""
    nights = Nights(tmp_path_factory.mktemp("store"))
    named = [(f"{j:03d}", f"{'abcdefgh'[j % 8]} {j if j % 16 else j // 2}") for j in range(300)]
    nights.commit_without_index({"f0": named[:100], "f1": named[100:]})
    return nights


def options(**given: object) -> PairsOptions:
    return PairsOptions(store="any", **given)


def scores_of_all(nights: Nights) -> dict[tuple[int, int], float]:
    _, vectors = Store(nights.manifest).numpy()
    vectors = vectors.astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = vectors @ vectors.T
    return {pair: float(scores[pair]) for pair in combinations(range(len(vectors)), 2)}


@pytest.mark.parametrize("k", [1, 25, 1000])
@pytest.mark.parametrize("by_lists", [False, True])
def test_the_pairs_of_rows_are_those_of_brute_force(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_lists: bool, k: int
) -> None:
    monkeypatch.setattr(
        store_vectors, "choose_automatic_index", lambda *_: IndexSpec.parse("IVF4,Flat")
    )
    collection = read_store(nights.manifest, tmp_path)
    found, how = find_most_similar(collection, options(k=k), exact_below=0 if by_lists else 1000)
    every = scores_of_all(nights)
    np.testing.assert_allclose(found.scores, sorted(every.values(), reverse=True)[:k], atol=1e-6)
    for score, first, second in zip(*found, strict=True):
        assert score == pytest.approx(every[first, second], abs=1e-6)
    assert how.startswith("an index was asked" if by_lists else "every pair compared")


def test_pairs_of_distinct_texts_with_a_least_score(nights: Nights, tmp_path: Path) -> None:
    collection = read_store(nights.manifest, tmp_path)
    firsts = set(collection.distinct.tolist())
    every = {
        pair: score for pair, score in scores_of_all(nights).items() if firsts.issuperset(pair)
    }
    least = sorted(every.values())[-40] - 1e-6
    found, _ = find_most_similar(collection, options(distinct=True, k=1000, min_score=least))
    assert len(firsts) < 300
    assert {(int(a), int(b)) for a, b in zip(found.first, found.second, strict=True)} == {
        pair for pair, score in every.items() if score >= least
    }


def test_random_vectors_in_any_number_of_copies(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((200, 24)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    of = generator.integers(0, 200, 400)
    found, _ = find_most_similar(
        Collection([""] * 400, vectors, of, lambda _: None), options(k=500)
    )
    scores = (vectors @ vectors.T)[of][:, of][np.triu_indices(400, 1)]
    np.testing.assert_allclose(found.scores, np.sort(scores)[::-1][:500], atol=1e-6)
