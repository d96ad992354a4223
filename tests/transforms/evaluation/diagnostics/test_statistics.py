"""Every statistic of `diagnose` against a plain form in numpy or scipy.

Covers transforms/evaluation/diagnostics/impact.py.
Covers transforms/evaluation/diagnostics/pair_figures.py.
Covers transforms/evaluation/diagnostics/drawn_samples.py.
Covers transforms/evaluation/diagnostics/tokens.py.
Covers transforms/evaluation/diagnostics/word_figures.py.
"""

import numpy as np
import pytest
import torch
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.spatial.distance import cdist, pdist

from sentence_beam.transforms.evaluation.diagnostics.drawn_samples import Smallest
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import Row
from sentence_beam.transforms.evaluation.diagnostics.impact import sentence_figures
from sentence_beam.transforms.evaluation.diagnostics.pair_figures import (
    Pairs,
    area,
    edit_distance,
    gold_figures,
    pair_figures,
)
from sentence_beam.transforms.evaluation.diagnostics.tokens import (
    gather,
    head_figures,
    layer_figures,
)
from sentence_beam.transforms.evaluation.diagnostics.vector_figures import (
    effective_rank,
    vector_figures,
)
from sentence_beam.transforms.evaluation.diagnostics.word_figures import (
    WordCounts,
    bin_tokens,
    find_nearest,
    weigh_tokens,
    word_figures,
)
from sentence_beam.transforms.pooling import TokenStates, TokenStatistics

PLAIN = settings(max_examples=examples(25), deadline=None)
seeds = st.integers(0, 10**6)


def one(rows: list[Row], figure: str, **named: object) -> Row:
    """The only row of a figure with these values."""
    (row,) = [
        r
        for r in rows
        if r["figure"] == figure and all(r[key] == value for key, value in named.items())
    ]
    return row


@PLAIN
@given(seed=seeds, n=st.integers(3, 40), width=st.integers(2, 8), offset=st.floats(0, 3))
def test_cosines_uniformity_and_spectrum(seed: int, n: int, width: int, offset: float) -> None:
    rows = (np.random.default_rng(seed).normal(size=(n, width)) + offset).astype(np.float32)
    wide = rows.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    pairs = 1 - pdist(wide, "cosine")
    found = vector_figures("p", rows, ("cosines", "uniformity", "spectrum"))
    assert one(found, "mean-cosine")["value"] == pytest.approx(pairs.mean(), abs=1e-7)
    shares = [row for row in found if row["figure"] == "cosine-share"]
    counts = np.histogram(np.clip(pairs, -1, 1), [*(row["low"] for row in shares), 1.0])[0]
    assert np.abs(
        np.cumsum([row["value"] for row in shares]) - np.cumsum(counts) / len(pairs)
    ).max() <= 2 / len(pairs)
    expected = np.log(np.exp(-2 * pdist(unit, "sqeuclidean")).mean())
    assert one(found, "uniformity")["value"] == pytest.approx(expected, abs=1e-6)
    deviations = np.linalg.svd(wide - wide.mean(axis=0), compute_uv=False) / np.sqrt(n)
    values = [row["value"] for row in found if row["figure"] == "deviation"]
    assert np.allclose(values[: len(deviations)], deviations, atol=1e-6)
    shares_of = deviations / deviations.sum()
    rank = np.exp(stats.entropy(shares_of))
    assert one(found, "effective-rank")["value"] == pytest.approx(rank, rel=1e-4)
    assert {row["n"] for row in found} == {n}


def test_effective_rank_at_its_ends() -> None:
    assert effective_rank([2.0] * 7) == pytest.approx(7)
    assert effective_rank([3.0, 0.0, 0.0]) == pytest.approx(1)
    assert np.isnan(effective_rank([0.0, 0.0]))
    assert (
        one(vector_figures("p", np.ones((1, 3), np.float32), ("cosines",)), "mean-cosine")["value"]
        is None
    )


ids = hnp.arrays(np.int64, st.integers(0, 12), elements=st.integers(0, 4))


def slow_distance(a: list[int], b: list[int]) -> int:
    """Levenshtein's table, cell by cell."""
    table = [[i + j if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i][j] = min(
                table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (x != y)
            )
    return table[-1][-1]


@PLAIN
@given(a=ids, b=ids, c=ids)
def test_edit_distance(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    assert edit_distance(a, b) == slow_distance(a.tolist(), b.tolist()) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a.tolist() == b.tolist())
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


@PLAIN
@given(
    scores=hnp.arrays(np.float64, 12, elements=st.integers(0, 5).map(float)),
    answers=hnp.arrays(bool, 12, elements=st.booleans()),
)
def test_area_under_the_curve(scores: np.ndarray, answers: np.ndarray) -> None:
    if answers.all() or not answers.any():
        assert np.isnan(area(scores, answers))
        return
    u = stats.mannwhitneyu(scores[answers], scores[~answers]).statistic
    assert area(scores, answers) == pytest.approx(u / (answers.sum() * (~answers).sum()))
    assert area(np.exp(scores), answers) == pytest.approx(area(scores, answers))
    assert area(scores, ~answers) == pytest.approx(1 - area(scores, answers))
    assert area(np.ones(12), answers) == pytest.approx(0.5)


@PLAIN
@given(seed=seeds)
def test_pairs(seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, 30, 5)).astype(np.float32)
    gold, edits = random.integers(0, 11, 30) / 2, random.integers(0, 9, 30)
    gold[0] = 5.0
    pairs = Pairs("t", 30, ["x"] * 30, ["y"] * 30, gold=gold)
    found = pair_figures("p", pairs, a, b, edits, ("alignment", "edit-distance", "auc"))
    cosine = np.array(
        [
            x @ y / np.linalg.norm(x) / np.linalg.norm(y)
            for x, y in zip(a.astype(float), b, strict=True)
        ]
    )
    near = edits <= 4
    assert one(found, "edit-distance", pairs="all")["value"] == pytest.approx(
        100 * stats.spearmanr(cosine, edits)[0]
    )
    of_near = one(found, "edit-distance", pairs="at most 4 edits")
    assert (of_near["value"], of_near["n"]) == (
        pytest.approx(100 * stats.spearmanr(cosine[near], edits[near])[0]),
        near.sum(),
    )
    assert one(found, "spearman")["value"] == pytest.approx(100 * stats.spearmanr(cosine, gold)[0])
    assert one(gold_figures(pairs, edits), "edit-distance")["value"] == pytest.approx(
        100 * stats.spearmanr(gold, edits)[0]
    )
    aligned = one(found, "alignment")
    assert (aligned["value"], aligned["n"]) == (
        pytest.approx((2 - 2 * cosine[gold > 4]).mean()),
        (gold > 4).sum(),
    )


@PLAIN
@given(keys=st.lists(st.integers(0, 2**64 - 1), max_size=400), want=st.integers(1, 30))
def test_the_sample_is_that_of_the_smallest_keys_and_holds_no_more_than_it_needs(
    keys: list[int], want: int
) -> None:
    smallest: Smallest[int] = Smallest(want)
    for place, key in enumerate(keys):
        smallest.add(key, place)
        assert len(smallest.held) <= 2 * want + 64
    expected = sorted(range(len(keys)), key=lambda place: (keys[place], place))[:want]
    assert smallest.items() == expected
    assert smallest.seen == len(keys)


@PLAIN
@given(seed=seeds, k=st.integers(1, 6))
def test_nearest_words(seed: int, k: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(30, 6)).astype(np.float32)
    among, chosen = np.arange(2, 30), np.array([5, 2, 29])
    distances, products = find_nearest(matrix, chosen, among, k)
    for row, token in enumerate(chosen):
        others = np.setdiff1d(among, [token])
        apart = cdist(matrix[[token]].astype(float), matrix[others].astype(float))[0]
        order = apart.argsort()[:k]
        assert np.allclose(distances[row], apart[order], atol=1e-5)
        assert np.allclose(
            products[row], matrix[others[order]].astype(float) @ matrix[token], atol=1e-5
        )


@PLAIN
@given(seed=seeds, n=st.integers(110, 160))
def test_norms_and_neighbours_by_frequency(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    matrix, counts = random.normal(size=(n + 40, 5)).astype(np.float32), np.zeros(n + 40, np.int64)
    counts[random.permutation(n + 40)[:n]] = np.arange(n, 0, -1)
    special = np.flatnonzero(counts == 1)
    rows = word_figures(matrix, WordCounts(counts, counts.astype(float), "here"), special)
    ranked, wide = counts.argsort()[::-1], matrix.astype(np.float64)
    for low, high in ((0, 100), (100, n - 1)):
        ids, where = ranked[low:high], {"low": low, "high": high}
        assert one(rows, "norm", **where)["value"] == pytest.approx(
            np.linalg.norm(wide[ids], axis=1).mean(), rel=1e-6
        )
        among = np.setdiff1d(np.arange(n + 40), special)
        apart = cdist(wide[ids], wide[among])
        apart[ids[:, None] == among] = np.inf
        for k in (3, 5, 7):
            nearby = apart.argsort(axis=1)[:, :k]
            distance = one(rows, "neighbour-distance", neighbours=k, **where)
            assert distance["value"] == pytest.approx(
                np.take_along_axis(apart, nearby, 1).mean(), rel=1e-5
            )
            dots = np.einsum("nd,nkd->nk", wide[ids], wide[among][nearby])
            assert one(rows, "neighbour-product", neighbours=k, **where)["value"] == pytest.approx(
                dots.mean(), abs=1e-5
            )


@PLAIN
@given(seed=seeds, n=st.integers(3, 9))
def test_influence_of_tokens(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    matrix, ids = random.random((n, n)), random.integers(0, 6, n)
    words = WordCounts(np.ones(6, np.int64), random.random(6), "here")
    rows = sentence_figures(ids, matrix, tuple("abcdef"), words)
    assert [row["value"] for row in rows if row["figure"] == "impact"] == pytest.approx(
        matrix.ravel().tolist(), rel=2e-6, abs=1e-9
    )
    influence = [matrix[:, j].sum() / n for j in range(n)]
    assert [row["value"] for row in rows if row["figure"] == "influence"] == pytest.approx(
        influence, rel=2e-6, abs=1e-9
    )
    weights = [words.information[token] * ids.tolist().count(token) for token in ids]
    if np.ptp(weights) > 0:
        found = one(rows, "influence-tfidf")
        assert found["value"] == pytest.approx(
            100 * stats.pearsonr(influence, weights)[0], abs=1e-6
        )
        assert found["spearman"] == pytest.approx(
            100 * stats.spearmanr(influence, weights)[0], abs=1e-6
        )


def test_words_by_frequency_and_their_weights() -> None:
    counts = np.zeros(600, np.int64)
    counts[10:260] = np.arange(250, 0, -1)
    counts[3] = 999
    words = WordCounts.from_statistics(TokenStatistics("token-counts", "t", 9, counts), "table")
    assert [(low, high, len(found)) for low, high, found in bin_tokens(counts, np.array([3]))] == [
        (0, 100, 100),
        (100, 250, 150),
    ]
    assert words.information[10] == pytest.approx(np.log2(counts.sum() / 250))
    rows = word_figures(
        np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32), words, np.array([3])
    )
    assert [row["n"] for row in rows if row["figure"] == "norm"] == [100, 150]
    texts = [np.array([1, 2, 1]), np.array([2])]
    found = WordCounts.count_texts(texts, 4)
    assert found.counts.tolist() == [0, 2, 2, 0]
    assert weigh_tokens(texts, found).tolist() == [2, 0, 2, 0]


@PLAIN
@given(seed=seeds, lengths=st.lists(st.integers(3, 7), min_size=2, max_size=5))
def test_heads_and_layers(seed: int, lengths: list[int]) -> None:
    random = np.random.default_rng(seed)
    n, heads = sum(lengths), [(1, 1), (1, 2), (2, 1)]
    offsets = np.cumsum([0, *lengths])
    special = np.zeros(n, bool)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    hidden = {layer: torch.from_numpy(random.normal(size=(n, 6))) for layer in range(3)}
    own = {head: torch.from_numpy(random.random(n).astype(np.float32)) for head in heads}
    token_ids = random.integers(2, 6, n)
    states = TokenStates(
        hidden, torch.from_numpy(token_ids), torch.from_numpy(offsets), torch.ones(n, dtype=torch.bool),
        special=torch.from_numpy(special), own_attention=own,
    )  # fmt: skip
    found = gather([states], heads, 2)
    plain = ~special
    assert found.tokens == plain.sum()
    expected = [
        token_ids[start + 1 : stop - 1].tolist()
        for start, stop in zip(offsets, offsets[1:], strict=False)
    ]
    assert [text.tolist() for text in found.ids] == expected
    words = WordCounts(np.ones(6, np.int64), np.arange(6.0), "here")
    weights = np.array([token * text.count(token) for text in expected for token in text], float)
    rows = head_figures(found, heads, words)
    if np.ptp(weights) > 0:
        for layer, head in heads:
            row, values = one(rows, "head", layer=layer, head=head), own[layer, head].numpy()[plain]
            assert row["value"] == pytest.approx(100 * stats.pearsonr(values, weights)[0], abs=1e-4)
            assert row["spearman"] == pytest.approx(
                100 * stats.spearmanr(values, weights)[0], abs=1e-4
            )
        best = one(rows, "chosen-head")
        assert best["value"] == max(row["value"] for row in rows if row["figure"] == "head")
        assert best["pooler"] == f"ditto:{best['layer']}-{best['head']}"
    maps = layer_figures(found)
    unit = [hidden[layer].numpy()[plain] for layer in range(3)]
    unit = [states / np.linalg.norm(states, axis=1, keepdims=True) for states in unit]
    for a in range(3):
        for b in range(3):
            expected_cosine = (unit[a] * unit[b]).sum(axis=1).mean()
            assert one(maps, "layer-cosine", layer=a, other=b)["value"] == pytest.approx(
                expected_cosine, abs=1e-6
            )
    both = [one(maps, "layer-cosine", layer=a, other=a + 1)["value"] for a in (0, 1)]
    assert one(maps, "hop-cosine", hops=1)["value"] == pytest.approx(np.mean(both), abs=1e-6)
