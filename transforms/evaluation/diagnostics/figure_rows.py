"""Rows of figures, and the names of the figures that can be requested."""

import math
from typing import Any

Row = dict[str, Any]

VECTOR_FIGURES = ("cosines", "uniformity", "spectrum")
PAIRS = "pairs"
PAIR_FIGURES = ("alignment", "edit-distance", "auc", "agreement")
MODEL_FIGURES = ("norms", "heads", "layers")
VARIANCE = "word-variance"
INFLUENCE = "influence"
TOKEN_FIGURES = (VARIANCE, INFLUENCE)  # computed only if they are named
IMPACT = "impact"
FIGURES = (*VECTOR_FIGURES, *PAIR_FIGURES, PAIRS, *MODEL_FIGURES, *TOKEN_FIGURES, IMPACT)


def figure(
    name: str,
    value: float,
    n: int,
    pooler: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    **more: Any,
) -> Row:
    """Return one figure of `n` rows, pairs or tokens; an undefined value becomes None."""
    return {
        "figure": name,
        "pooler": pooler,
        "layer": layer,
        "head": head,
        "value": _round(value),
        "n": n,
        **{key: _round(item) for key, item in more.items()},
    }


def _round(value: Any) -> Any:
    if not isinstance(value, float):  # numpy's float64 is a float
        return value
    if not math.isfinite(value):
        return None
    return round(float(value), 9)
