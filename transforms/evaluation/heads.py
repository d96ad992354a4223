"""Scores of every attention head, for heat maps."""

from collections.abc import Sequence

import numpy as np

from transforms.evaluation.evidence import ALL
from transforms.evaluation.methods import CROSS_ENCODER
from transforms.evaluation.rows import Row
from transforms.space import parse_pooler


def head_scores(rows: Sequence[Row], task: str, grid: tuple[int, int]) -> np.ndarray:
    """The scores over all items of a task at full width, float64 [blocks, heads]; NaN where a head
    has no score.
    """
    scores, widths = np.full(grid, np.nan), np.zeros(grid)
    for row in rows:
        if row["pooler"].startswith(CROSS_ENCODER):
            continue
        spec = parse_pooler(row["pooler"])
        part = None if spec.is_auto else spec.parts[0]
        found = (row["task"], row["subset"], row["calibration"], part.name if part else None)
        if part is not None and found == (task, ALL, None, "ditto"):
            block, head = map(int, str(part.option("head")).split("-"))
            if row["dim"] > widths[block - 1, head - 1] and row["score"] is not None:
                scores[block - 1, head - 1], widths[block - 1, head - 1] = row["score"], row["dim"]
    return scores
