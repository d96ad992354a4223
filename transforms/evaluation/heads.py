"""Heat maps of the scores of every attention head."""

from collections.abc import Sequence

import numpy as np

from sentence_beam.transforms.evaluation.compared_methods import CROSS_ENCODER
from sentence_beam.transforms.evaluation.evidence import ALL
from sentence_beam.transforms.evaluation.score_rows import Row
from sentence_beam.transforms.report.chart import HeatMap, heat_map
from sentence_beam.transforms.space import parse_pooler
from sentence_beam.transforms.space.poolers import read_attention_head


def draw_head_maps(rows: Sequence[Row], grid: tuple[int, int]) -> dict[str, HeatMap]:
    """Return the heat map of each task with scored pairs, by its name: a row for each block.

    `grid` is the number of blocks and heads.
    """
    names = [str(block + 1) for block in range(grid[0])], [str(head + 1) for head in range(grid[1])]
    maps = {}
    for row in rows:
        task = row["task"]
        if task in maps or (row["metric"], row["kind"]) != ("spearman", "sts"):
            continue
        scores = _collect_scores(rows, task, grid)
        is_known = np.isfinite(scores)
        if is_known.any():
            title = f"{task}: Spearman x100 of every attention head"
            values = np.where(is_known, scores, np.array(None)).tolist()
            maps[task] = heat_map(title, "block by head", names, values, 1)
    return maps


def _collect_scores(rows: Sequence[Row], task: str, grid: tuple[int, int]) -> np.ndarray:
    """Return the scores over all items of a task at full width, float64 [blocks, heads].

    A head without a score is NaN.
    """
    scores = np.full(grid, np.nan)
    widths = np.zeros(grid)
    for row in rows:
        if (row["task"], row["subset"], row["calibration"]) != (task, ALL, None):
            continue
        cell = _find_cell(row["pooler"])
        if cell is not None and row["dim"] > widths[cell] and row["score"] is not None:
            scores[cell] = row["score"]
            widths[cell] = row["dim"]
    return scores


def _find_cell(pooler: str) -> tuple[int, int] | None:
    """Return the place of a Ditto pooler's head in the grid, or None for other poolers."""
    if pooler.startswith(CROSS_ENCODER):
        return None
    spec = parse_pooler(pooler)
    if spec.is_auto or spec.parts[0].name != "ditto":
        return None
    block, head = read_attention_head(spec.parts[0])
    return block - 1, head - 1
