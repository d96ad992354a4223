"""Intervals hold what they promise, permutation tests are fair, and equal methods are equal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import v_measure_score

from sentence_beam.transforms.evaluation.clusterings import Clusterings
from sentence_beam.transforms.evaluation.correlations import Correlations
from sentence_beam.transforms.evaluation.detections import Detections
from sentence_beam.transforms.evaluation.evidence import Evidence, Means
from sentence_beam.transforms.evaluation.intervals import (
    Draws,
    average,
    compute_beliefs,
    draw,
    holm,
)

FIELDS = ("score", "low", "high")
AGAINST = ("diff", "diff_low", "diff_high", "p", "p_holm")


def correlations(values: np.ndarray, gold: np.ndarray, ranked: bool = True) -> Correlations:
    return Correlations(values, gold, (("a", len(gold)),), ranked)


def one_of_each(values: np.ndarray, generator: np.random.Generator) -> dict[str, Evidence]:
    """All sorts of evidence of methods [m, n]."""
    n = values.shape[1]
    clusters = np.stack(
        [np.digitize(values, [cut - 0.5, cut, cut + 0.5]) for cut in (0.0, 0.1)], axis=1
    )
    return {
        "spearman": correlations(values, generator.normal(size=n)),
        "subsets": Correlations(
            values, generator.normal(size=n), (("a", n // 3), ("b", n - n // 3))
        ),
        "pearson": correlations(values, generator.normal(size=n), ranked=False),
        "mean": Means((values > 0).astype(float)),
        "ap": Detections(values, generator.uniform(size=n) < 0.4, "ap"),
        "f1": Detections(values, generator.uniform(size=n) < 0.4, "f1"),
        "v": Clusterings(clusters, generator.integers(0, 3, n)),
    }


KINDS = ("spearman", "subsets", "pearson", "mean", "ap", "f1", "v")


@pytest.mark.parametrize("kind", KINDS)
def test_identical_methods_differ_by_nothing(kind: str) -> None:
    generator = np.random.default_rng(0)
    row = generator.normal(size=60)
    evidence = one_of_each(np.stack([row, row, generator.normal(size=60)]), generator)[kind]
    for drawn in draw(evidence, resamples=200, permutations=99).values():
        _, same, other = compute_beliefs(drawn)
        assert (same.diff, same.diff_low, same.diff_high, same.p, same.p_holm) == (0, 0, 0, 1, 1)
        assert "-0.0" not in map(str, (same.diff, same.diff_low, same.diff_high))
        assert other.diff_low < other.diff_high


@pytest.mark.parametrize("kind", KINDS)
def test_swapping_two_methods_changes_signs_alone(kind: str) -> None:
    values = np.random.default_rng(1).normal(size=(2, 50))
    there, back = (
        draw(one_of_each(rows, np.random.default_rng(2))[kind], (5,), 300, 199)
        for rows in (values, values[::-1])
    )
    for subset in there:
        (a, b), (c, d) = compute_beliefs(there[subset]), compute_beliefs(back[subset])
        assert [vars(a)[f] for f in FIELDS] == [vars(d)[f] for f in FIELDS]
        assert [vars(b)[f] for f in FIELDS] == [vars(c)[f] for f in FIELDS]
        assert (d.diff, d.diff_low, d.diff_high) == pytest.approx(
            (-b.diff, -b.diff_high, -b.diff_low), abs=1e-5
        )
        assert (d.p, d.p_holm) == (b.p, b.p_holm)


@pytest.mark.parametrize("kind", KINDS)
def test_resampling_every_item_once_gives_the_score(kind: str) -> None:
    evidence = one_of_each(np.random.default_rng(3).normal(size=(3, 40)), np.random.default_rng(4))[
        kind
    ]
    once = evidence.resampled(np.ones((1, 40), np.int32))
    for subset, scores in evidence.scores().items():
        np.testing.assert_allclose(once[subset][:, 0], scores, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_swapping_all_items_swaps_the_methods(kind: str) -> None:
    evidence = one_of_each(np.random.default_rng(3).normal(size=(2, 40)), np.random.default_rng(4))[
        kind
    ]
    for subset, found in evidence.swapped(1, np.array([[0.0] * 40, [1.0] * 40])).items():
        first, second = evidence.scores()[subset]
        np.testing.assert_allclose(found, [second - first, first - second], atol=1e-12)


def test_a_resample_is_scored_as_a_list_of_its_items() -> None:
    generator = np.random.default_rng(5)
    values, gold = (
        generator.normal(size=(2, 30)).round(1),
        generator.integers(0, 5, 30).astype(float),
    )
    counts = generator.multinomial(30, np.full(30, 1 / 30), size=20).astype(np.int32)
    for evidence, score in (
        (correlations(values, gold), lambda v, g: stats.spearmanr(v, g).statistic),
        (correlations(values, gold, ranked=False), lambda v, g: stats.pearsonr(v, g).statistic),
        (Means(values), lambda v, _: v.mean()),
    ):
        found = evidence.resampled(counts)["all"]
        for r, row in enumerate(counts):
            items = np.repeat(np.arange(30), row)
            expected = [score(v[items], gold[items]) for v in values]
            np.testing.assert_allclose(found[:, r], expected, atol=1e-12)


@pytest.mark.parametrize("measure", ["ap", "f1", "v"])
def test_resamples_of_biased_measures_are_moved_in_log_odds(measure: str) -> None:
    """Their mean log-odds are those of the score, less what lists of resampled items have beside
    the score.
    """
    generator = np.random.default_rng(5)
    labels = generator.uniform(size=50) < 0.4
    values = 2 * labels + generator.normal(size=(1, 50))
    clusters = np.digitize(values, [0.5, 1.5])

    def score(items: np.ndarray) -> float:
        if measure == "v":
            return v_measure_score(labels[items], clusters[0, items])
        return Detections(values[:, items], labels[items], measure).scores()["all"][0]

    counts = generator.multinomial(50, np.full(50, 1 / 50), size=80).astype(np.int32)
    evidence = (
        Clusterings(clusters[None], labels.astype(int))
        if measure == "v"
        else Detections(values, labels, measure)
    )

    def odds(found: np.ndarray) -> np.ndarray:
        return np.log((found + 0.01) / (1 - found + 0.01))

    whole = odds(score(np.arange(50)))
    beside = np.mean([odds(score(np.repeat(np.arange(50), row))) for row in counts]) - whole
    found = odds(evidence.resampled(counts)["all"][0])
    assert beside > 0
    assert found.mean() == pytest.approx(whole - beside, abs=1e-9)
    if measure != "f1":
        as_lists = [odds(score(np.repeat(np.arange(50), row))) for row in counts]
        np.testing.assert_allclose(found, np.array(as_lists) - 2 * beside, atol=1e-9)


def test_a_score_is_in_its_own_interval() -> None:
    """Of a few items the interval that is corrected may be beside the score."""
    draws = Draws(np.array([0.9, 0.8]), np.full((2, 9), 0.5) + np.arange(9) / 100, np.zeros((2, 9)))
    first, second = compute_beliefs(draws)
    assert (first.low, first.high) == (pytest.approx(50.2), 90)
    assert (second.diff_low, second.diff, second.diff_high) == (
        pytest.approx(-10),
        pytest.approx(-10),
        0,
    )


def test_resamples_without_anything_to_find_leave_the_interval_as_it_is() -> None:
    """With 3 of 60 pairs to find, one resample in twenty has none."""
    generator = np.random.default_rng(6)
    labels = np.arange(60) < 3
    for measure in ("ap", "f1"):
        evidence = Detections(labels + generator.normal(size=(1, 60)), labels, measure)
        (found,) = compute_beliefs(draw(evidence, resamples=400)["all"])
        assert found.low < found.score <= found.high


def test_the_same_seed_gives_the_same_draws() -> None:
    evidence = Means(np.random.default_rng(0).uniform(size=(2, 50)))
    first, again, other = (
        compute_beliefs(draw(evidence, (seed,), 200, 99)["all"]) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("gold", [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
def test_three_pairs_and_constant_scores(gold: list[float]) -> None:
    drawn = draw(correlations(np.array([[0.1, 0.1, 0.1], [0.1, 0.2, 0.3]]), np.array(gold)))["all"]
    constant, rising = compute_beliefs(drawn)
    assert (constant.score, constant.low, constant.high) == (None, None, None)
    assert (rising.diff, rising.p, rising.p_holm) == (None, None, None)
    if gold[0] == gold[1]:
        assert rising.score is None
    else:
        assert (rising.score, rising.low, rising.high) == (100, 100, 100)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_holm_keeps_the_order_and_never_lowers_a_p_value(p_values: list[float | None]) -> None:
    corrected = holm(p_values)
    pairs = sorted(
        (p, c) for p, c in zip(p_values, corrected, strict=True) if p is not None and c is not None
    )
    assert [p is None for p in p_values] == [c is None for c in corrected]
    assert all(p <= c <= 1 for p, c in pairs)
    assert [c for _, c in pairs] == sorted(c for _, c in pairs)
    if pairs:
        assert pairs[0][1] == min(1, len(pairs) * pairs[0][0])


def covered(make, truth: tuple[float, float], runs: int) -> tuple[float, float]:
    """How often the intervals of a score and of a difference hold the truth."""
    one, other = (100 * value for value in truth)
    score = difference = 0
    for run in range(runs):
        first, second = compute_beliefs(draw(make(), (run,), 600, 0)["all"])
        score += first.low <= one <= first.high
        difference += second.diff_low <= other - one <= second.diff_high
    return score / runs, difference / runs


def test_95_percent_intervals_hold_the_truth_93_to_97_times_in_100() -> None:
    """Spearman's of normal variables is 6 / pi asin(r / 2); with 1000 runs two standard errors are
    1.4 points.
    """
    generator = np.random.default_rng(3)

    def pairs() -> np.ndarray:
        return generator.multivariate_normal(
            [0, 0, 0], [[1, 0.8, 0.75], [0.8, 1, 0.7], [0.75, 0.7, 1]], 120
        ).T

    def spearman() -> Correlations:
        gold, *values = pairs()
        return correlations(np.stack(values), gold)

    truth = tuple(6 / np.pi * np.arcsin(r / 2) for r in (0.8, 0.75))
    for found in covered(spearman, truth, 400):
        assert 0.93 <= found <= 0.97
    right = stats.norm.cdf(1)
    for found in covered(lambda: Means((pairs()[1:] < 1).astype(float)), (right, right), 400):
        assert 0.93 <= found <= 0.97


CORRELATED = [[1, 0.8, 0.75], [0.8, 1, 0.7], [0.75, 0.7, 1]]


def simulated(measure: str, n: int, generator: np.random.Generator) -> Evidence:
    """A task of n items that two methods did, drawn at random."""
    gold, *rows = generator.multivariate_normal([0, 0, 0], CORRELATED, n).T
    labels = generator.uniform(size=n) < 0.3
    if measure in ("spearman", "pearson"):
        return correlations(np.stack(rows), gold, measure == "spearman")
    if measure == "accuracy":
        return Means((np.stack(rows) < 1).astype(float))
    if measure == "gains":  # as nDCG: between 0 and 1, many of them at the ends
        return Means(np.clip(stats.norm.cdf(np.stack(rows) + 0.5) * 1.4 - 0.2, 0, 1))
    if measure == "v_measure":
        groups = generator.integers(0, 3, n)
        right = generator.uniform(size=(2, 2, n)) < np.array([0.8, 0.7])[:, None, None]
        return Clusterings(np.where(right, groups, generator.integers(0, 3, (2, 2, n))), groups)
    common = 0.7 * generator.normal(size=n)
    scores = [shift * labels + common + 0.7 * generator.normal(size=n) for shift in (1.5, 1.2)]
    return Detections(np.stack(scores), labels, measure)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "n"),
    [("spearman", 60), ("pearson", 200), ("accuracy", 200), ("gains", 200), ("ap", 60), ("ap", 200), ("f1", 200),
     ("v_measure", 200)],
)  # fmt: skip
def test_coverage_of_every_measure(measure: str, n: int) -> None:
    """With 1600 runs two standard errors are 1.1 points."""
    generator = np.random.default_rng(4)
    truth = simulated(measure, 1_000_000, generator).scores()["all"]
    for found in covered(lambda: simulated(measure, n, generator), (truth[0], truth[1]), 1600):
        assert 0.93 <= found <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["mean", "wmean"])
def test_coverage_of_means_over_files(subset: str) -> None:
    generator = np.random.default_rng(5)
    truth = [600 / np.pi * np.arcsin(r / 2) for r in (0.8, 0.75)]
    held = []
    for run in range(400):
        gold, *rows = generator.multivariate_normal([0, 0, 0], CORRELATED, 300).T
        evidence = Correlations(np.stack(rows), gold, (("a", 50), ("b", 100), ("c", 150)))
        first, second = compute_beliefs(draw(evidence, (run,), 600, 0)[subset])
        held.append((first.low <= truth[0] <= first.high, second.low <= truth[1] <= second.high))
    assert ((np.mean(held, axis=0) >= 0.93) & (np.mean(held, axis=0) <= 0.97)).all()


def test_p_values_are_uniform_where_two_methods_are_equally_good() -> None:
    generator = np.random.default_rng(6)
    p_values = []
    for run in range(200):
        gold = generator.normal(size=60)
        evidence = correlations(gold + generator.normal(size=(2, 60)), gold)
        p_values.append(compute_beliefs(draw(evidence, (run,), 2, 199)["all"])[1].p)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_how_many_resamples_are_held_at_once_changes_nothing_that_counts(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(7).normal(size=(2, 80))
    evidence = one_of_each(values, np.random.default_rng(8))[kind]
    one, many = [], []
    for cells, found in ((1 << 24, one), (1, many)):
        monkeypatch.setattr("sentence_beam.transforms.evaluation.intervals.CELLS", cells)
        found += compute_beliefs(draw(evidence, (1,), 2000, 99)["all"])
    assert many[1].high - many[1].low == pytest.approx(one[1].high - one[1].low, rel=0.15)
    assert (many[1].p, many[1].score) == pytest.approx((one[1].p, one[1].score), abs=0.15)


def test_a_large_and_a_small_task_have_an_average() -> None:
    """Above 26,846 items there are fewer permutations, so the average has fewer than the small
    task.
    """
    generator = np.random.default_rng(9)
    large, small = (
        Means((generator.uniform(size=(2, n)) < 0.7).astype(float)) for n in (30_000, 100)
    )
    several = [draw(task, resamples=64)["all"] for task in (large, small)]
    found = average(several)
    assert [draws.swapped.shape[1] for draws in several] == [(1 << 28) // 30_000, 9999]
    np.testing.assert_allclose(found.scores, (large.scores()["all"] + small.scores()["all"]) / 2)
    swaps = found.swapped.shape[1]
    np.testing.assert_array_equal(
        found.swapped, (several[0].swapped + several[1].swapped[:, :swaps]) / 2
    )
    assert 0 < compute_beliefs(found)[1].p <= 1


def test_a_method_without_a_score_still_has_the_interval_of_its_resamples() -> None:
    resampled = np.linspace(0.0, 1.0, 41)[None]
    (found,) = compute_beliefs(Draws(np.array([np.nan]), resampled, np.zeros((1, 0))))
    assert (found.score, found.low, found.high) == (None, 2.5, 97.5)


@pytest.mark.parametrize(("undefined", "defined"), [(20, True), (21, False)])
def test_an_interval_needs_half_of_the_resamples(undefined: int, defined: bool) -> None:
    resampled = np.linspace(0.0, 1.0, 40)
    resampled[:undefined] = np.nan
    (found,) = compute_beliefs(Draws(np.array([0.5]), resampled[None], np.zeros((1, 0))))
    assert (found.low is not None) == (found.high is not None) == defined


def test_resamples_and_swaps_are_drawn_apart() -> None:
    """Neither has the numbers of the other, nor does another seed have them."""
    values = np.random.default_rng(0).normal(size=(2, 64))
    drawn = [draw(Means(values), seed, 50, 50) for seed in ((0,), (0,), (1,))]
    first, again, other = (next(iter(found.values())) for found in drawn)
    np.testing.assert_array_equal(first.resampled, again.resampled)
    np.testing.assert_array_equal(first.swapped, again.swapped)
    assert not np.array_equal(first.resampled, other.resampled)
    assert not np.array_equal(first.swapped, other.swapped)
    counts = np.random.default_rng([0, 0]).integers(0, 64, (50, 64))
    np.testing.assert_allclose(first.resampled[0], values[0][counts].mean(axis=1), atol=1e-12)
    assert first.resampled.shape == first.swapped.shape == (2, 50)


def test_very_many_items_have_fewer_swaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentence_beam.transforms.evaluation.intervals.MOST_CELLS", 100 * 40)
    monkeypatch.setattr("sentence_beam.transforms.evaluation.intervals.FEWEST", 60)
    for items, asked, expected in ((40, 500, 100), (40, 99, 99), (80, 500, 60), (80, 20, 20)):
        values = np.random.default_rng(0).normal(size=(2, items))
        (drawn,) = draw(Means(values), (0,), 10, asked).values()
        assert drawn.swapped.shape == (2, expected)
        (alone,) = draw(Means(values[:1]), (0,), 10, asked).values()
        assert alone.swapped.shape == (1, 0)


def test_swaps_that_are_drawn_in_parts_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentence_beam.transforms.evaluation.intervals.CELLS", 1)
    monkeypatch.setattr("sentence_beam.transforms.evaluation.intervals.LEAST", 16)
    values = np.random.default_rng(0).normal(size=(2, 40))
    (drawn,) = draw(Means(values), (0,), 10, 50).values()
    assert np.count_nonzero(drawn.swapped[1]) == len(np.unique(drawn.swapped[1])) == 50
