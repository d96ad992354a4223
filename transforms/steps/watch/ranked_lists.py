"""Compare two ranked lists."""

from collections import Counter
from collections.abc import Hashable, Sequence

PERSISTENCE = 0.9  # of rank-biased overlap: the first ten ranks have 86 % of the weight
Keys = Sequence[Hashable]


def number_copies(keys: Keys) -> list[tuple[Hashable, int]]:
    """Return each key with the number of equal ones before it, so that copies count apart.

    >>> numbered(["a", "b", "a"])
    [('a', 0), ('b', 0), ('a', 1)]
    """
    seen: Counter[Hashable] = Counter()
    numbered_items = []
    for key in keys:
        numbered_items.append((key, seen[key]))
        seen[key] += 1
    return numbered_items


def overlap(before: Keys, after: Keys) -> float:
    """Return the share of the answers before that are still answers; 1 if there were none.

    >>> overlap("abcd", "bcxy")
    0.5
    """
    if not before:
        return 1.0
    kept = set(number_copies(before)) & set(number_copies(after))
    return len(kept) / len(before)


def rank_biased_overlap(before: Keys, after: Keys, persistence: float = PERSISTENCE) -> float:
    """Return the extrapolated rank-biased overlap of two lists, 0 to 1.

    Webber, Moffat and Zobel, A Similarity Measure for Indefinite Rankings (2010), equation 23.
    Two empty lists are equal.
    """
    depth = max(len(before), len(after))
    if not depth:
        return 1.0
    first = number_copies(before)
    second = number_copies(after)
    total = 0.0
    agreement = 0.0
    for rank in range(1, depth + 1):
        agreement = len(set(first[:rank]) & set(second[:rank])) / rank
        total += agreement * persistence**rank
    return agreement * persistence**depth + (1 - persistence) / persistence * total
