"""The rows in which figures are written, and the names of the figures that can be asked for."""

import math
from typing import Any

Row = dict[str, Any]

OF_VECTORS = ("cosines", "uniformity", "spectrum")
PAIRS = "pairs"
OF_PAIRS = ("alignment", "edit-distance", "auc", "agreement")
OF_MODELS = ("norms", "heads", "layers")
VARIANCE, INFLUENCE = "word-variance", "influence"
OF_TOKENS = (VARIANCE, INFLUENCE)  # made if they are named
OF_A_SENTENCE = "impact"
FIGURES = (*OF_VECTORS, *OF_PAIRS, PAIRS, *OF_MODELS, *OF_TOKENS, OF_A_SENTENCE)


def figure(
    name: str,
    value: float,
    n: int,
    pooler: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    **more: Any,
) -> Row:
    """One figure of `n` rows, pairs or tokens; a value that is not defined is None."""
    said = {key: _known(item) for key, item in more.items()}
    return {
        "figure": name,
        "pooler": pooler,
        "layer": layer,
        "head": head,
        "value": _known(value),
        "n": n,
        **said,
    }


def _known(value: Any) -> Any:
    if isinstance(value, float):  # numpy's float64 is one too
        return round(float(value), 9) if math.isfinite(value) else None
    return value
