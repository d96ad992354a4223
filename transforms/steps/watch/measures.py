"""Compare two ranked lists, and score a list by judgements."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

PERSISTENCE = 0.9  # of rank-biased overlap: the first ten ranks have 86 % of the weight
RESAMPLES = 2000
SEED = 0
Keys = Sequence[Hashable]


def numbered(keys: Keys) -> list[tuple[Hashable, int]]:
    """Return each key with the number of equal ones before it, so that copies count apart.

    >>> numbered(["a", "b", "a"])
    [('a', 0), ('b', 0), ('a', 1)]
    """
    seen: Counter[Hashable] = Counter()
    found = []
    for key in keys:
        found.append((key, seen[key]))
        seen[key] += 1
    return found


def overlap(before: Keys, after: Keys) -> float:
    """Return the share of the answers before that are still answers; 1 if there were none.

    >>> overlap("abcd", "bcxy")
    0.5
    """
    if not before:
        return 1.0
    kept = set(numbered(before)) & set(numbered(after))
    return len(kept) / len(before)


def rank_biased_overlap(before: Keys, after: Keys, persistence: float = PERSISTENCE) -> float:
    """Return the extrapolated rank-biased overlap of two lists, 0 to 1.

    Webber, Moffat and Zobel, A Similarity Measure for Indefinite Rankings (2010), equation 23.
    Two empty lists are equal.
    """
    depth = max(len(before), len(after))
    if not depth:
        return 1.0
    first = numbered(before)
    second = numbered(after)
    total = 0.0
    agreement = 0.0
    for rank in range(1, depth + 1):
        agreement = len(set(first[:rank]) & set(second[:rank])) / rank
        total += agreement * persistence**rank
    return agreement * persistence**depth + (1 - persistence) / persistence * total


def ndcg(ids: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return nDCG at k of a ranked list of ids; gains are the grades, 0 without a relevant row."""
    ideal = _discounted(sorted(grades.values(), reverse=True)[:k])
    if not ideal:
        return 0.0
    distinct = list(dict.fromkeys(ids))[:k]
    return _discounted([grades.get(name, 0) for name in distinct]) / ideal


def _discounted(gains: Sequence[int]) -> float:
    return sum(max(gain, 0) / math.log2(rank + 2) for rank, gain in enumerate(gains))


def recall(ids: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the share of the relevant rows among the first k; 0 without a relevant row."""
    relevant = {name for name, grade in grades.items() if grade > 0}
    if not relevant:
        return 0.0
    return len(relevant & set(ids[:k])) / len(relevant)


def paired_interval(differences: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the mean of paired differences float64 [n], by bootstrap.

    Equal differences give equal intervals.
    """
    generator = np.random.default_rng(SEED)
    places = generator.integers(0, len(differences), (RESAMPLES, len(differences)))
    low, high = np.quantile(differences[places].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
