"""Paired bootstrap intervals, permutation tests and Holm's correction of a task's scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.evaluation.evidence import Evidence

RESAMPLES = 2000
PERMUTATIONS = 9999
FEWEST = 999  # permutations that are always drawn
MOST_CELLS = 1 << 28  # (permutation, item) pairs that more permutations may have
CELLS = 1 << 18  # (resample, item) pairs held at once, which fit into the processor's cache
LEAST = 64  # resamples at once
ROUNDING = 1e-9  # within which two differences count as equal


@dataclass(frozen=True, eq=False)
class Draws:
    """The methods' scores [m] on one subset, in resamples [m, r] and under swaps [m, p].

    `swapped` has the differences from the first method. All methods share the resamples and the
    swaps.
    """

    scores: np.ndarray
    resampled: np.ndarray
    swapped: np.ndarray


@dataclass(frozen=True)
class Belief:
    """A method's score with its 95 % interval, and its difference from the first method.

    The difference has an interval, a permutation p-value, and that p-value corrected for the number
    of methods. The first method has no difference. None: undefined.
    """

    score: float | None
    low: float | None
    high: float | None
    diff: float | None = None
    diff_low: float | None = None
    diff_high: float | None = None
    p: float | None = None
    p_holm: float | None = None


def draw(
    evidence: Evidence,
    seed: Sequence[int] = (0,),
    resamples: int = RESAMPLES,
    permutations: int = PERMUTATIONS,
) -> dict[str, Draws]:
    """Resample and permute the items, by subset; equal seeds give equal draws.

    A resample has as many items as the task, drawn with replacement within each of the evidence's
    strata. Permutations are drawn only if there is more than one method, and fewer of them for very
    many items.
    """
    items = sum(evidence.strata)
    scores = evidence.scores()
    methods = len(next(iter(scores.values())))
    permutations = min(permutations, max(FEWEST, MOST_CELLS // max(1, items)))
    if methods == 1:
        permutations = 0
    bootstrap, swapping = (np.random.default_rng([*seed, part]) for part in (0, 1))
    parts = [
        evidence.resampled(counts) for counts in _resample(bootstrap, evidence.strata, resamples)
    ]
    differences = {name: np.zeros((methods, permutations)) for name in scores}
    start = 0
    for swaps in _draw_swaps(swapping, items, permutations):
        for method in range(1, methods):
            for name, drawn in evidence.swapped(method, swaps).items():
                differences[name][method, start : start + len(swaps)] = drawn
        start += len(swaps)
    joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in scores}
    return {name: Draws(scores[name], joined[name], differences[name]) for name in scores}


def average(several: Sequence[Draws]) -> Draws:
    """Return the draws of the mean score of several tasks, which have no item in common.

    Large tasks have fewer swaps: the mean has as many as the task with the fewest.
    """
    swaps = min(draws.swapped.shape[1] for draws in several)
    return Draws(
        np.mean([draws.scores for draws in several], axis=0),
        np.mean([draws.resampled for draws in several], axis=0),
        np.mean([draws.swapped[:, :swaps] for draws in several], axis=0),
    )


def compute_beliefs(draws: Draws) -> list[Belief]:
    """Return score, intervals and p-values of each method; scores are times 100."""
    first = draws.resampled[0]
    uncorrected = []
    for method, (score, resampled) in enumerate(zip(draws.scores, draws.resampled, strict=True)):
        belief = Belief(_scale(score), *_widen(_interval(resampled), score))
        if method:
            diff = score - draws.scores[0]
            p = _p_value(diff, draws.swapped[method])
            around = _widen(_interval(resampled - first), diff)
            belief = Belief(belief.score, belief.low, belief.high, _scale(diff), *around, p)
        uncorrected.append(belief)
    corrected = holm([belief.p for belief in uncorrected])
    return [replace(belief, p_holm=p) for belief, p in zip(uncorrected, corrected, strict=True)]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p-values by Holm's step-down method; None stays None and counts for nothing."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        corrected[place] = highest
    return corrected


def _resample(
    generator: np.random.Generator, strata: tuple[int, ...], total: int
) -> Iterator[np.ndarray]:
    """Yield the number of times that each item occurs in each resample: int32 [r, n], in parts."""
    size = max(LEAST, CELLS // max(1, sum(strata)))
    for start in range(0, total, size):
        rows = min(size, total - start)
        yield np.concatenate([_count_drawn(generator, rows, length) for length in strata], axis=1)


def _count_drawn(generator: np.random.Generator, rows: int, length: int) -> np.ndarray:
    drawn = generator.integers(0, length, (rows, length)) + np.arange(rows)[:, None] * length
    return (
        np.bincount(drawn.ravel(), minlength=rows * length).reshape(rows, length).astype(np.int32)
    )


def _draw_swaps(generator: np.random.Generator, items: int, total: int) -> Iterator[np.ndarray]:
    """Yield the items that are swapped: float64 [p, n] of 0 and 1, in parts."""
    size = max(LEAST, CELLS // max(1, items))
    for start in range(0, total, size):
        rows = min(size, total - start)
        bits = np.frombuffer(generator.bytes(rows * items // 8 + 1), np.uint8)
        yield np.unpackbits(bits, count=rows * items).reshape(rows, items).astype(np.float64)


def _interval(values: np.ndarray) -> tuple[float | None, float | None]:
    """Return the 2.5 % and 97.5 % quantiles x100, or None if most resamples are undefined."""
    defined = values[np.isfinite(values)]
    if 2 * len(defined) < len(values) or not len(defined):
        return None, None
    low, high = np.quantile(defined, [0.025, 0.975])
    return _scale(low), _scale(high)


def _widen(
    ends: tuple[float | None, float | None], value: float
) -> tuple[float | None, float | None]:
    """Widen an interval x100 so that it holds the value too.

    On few items an interval that is corrected for bias may lie beside the value.
    """
    low, high = ends
    own = _scale(value)
    if low is None or high is None or own is None:
        return ends
    return min(low, own), max(high, own)


def _p_value(diff: float, swapped: np.ndarray) -> float | None:
    """Return the share of swaps with a difference at least as far from 0.

    The observed difference counts as one of them.
    """
    if not np.isfinite(diff):
        return None
    usable = swapped[np.isfinite(swapped)]
    return float((1 + np.count_nonzero(np.abs(usable) >= abs(diff) - ROUNDING)) / (1 + len(usable)))


def _scale(value: float) -> float | None:
    """Return the value x100 with six decimals, or None for NaN and infinities.

    Zero has no minus sign.
    """
    return round(float(value) * 100.0, 6) + 0.0 if np.isfinite(value) else None
