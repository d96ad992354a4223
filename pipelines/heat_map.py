"""A picture of every head's score."""

import importlib.util
import os
from typing import Any

import numpy as np

from transforms.errors import MissingExtraError
from transforms.space import parse_pooler


def check_installed() -> None:
    """Raise MissingExtraError where matplotlib is not there, before anything is computed for a picture."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("the heat map needs matplotlib: pip install 'sentence-beam[report]'")


def draw(path: str, rows: list[dict[str, Any]], tasks: list[str], grid: tuple[int, int]) -> None:
    """`<path's stem>-<task>.png` for each task: Spearman of Ditto by block and head."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for task in tasks:
        figure, axes = pyplot.subplots(figsize=(1.5 + 0.6 * grid[1], 1.5 + 0.5 * grid[0]))
        scores = heads(rows, task, grid)
        image = axes.imshow(scores, cmap="viridis", aspect="auto")
        for (block, head), value in np.ndenumerate(scores):
            color = "black" if value > np.nanmean([scores.min(), scores.max()]) else "white"
            axes.text(head, block, f"{value:.1f}", ha="center", va="center", color=color, fontsize=7)
        axes.set_xticks(range(grid[1]), [str(head) for head in range(1, grid[1] + 1)])
        axes.set_yticks(range(grid[0]), [str(block) for block in range(1, grid[0] + 1)])
        axes.set(xlabel="head", ylabel="block", title=f"{task}: Spearman x100 of Ditto")
        figure.colorbar(image)
        figure.tight_layout()
        figure.savefig(f"{os.path.splitext(path)[0]}-{task}.png", dpi=120)
        pyplot.close(figure)


def heads(rows: list[dict[str, Any]], task: str, grid: tuple[int, int]) -> np.ndarray:
    """Spearman float64 [blocks, heads] over all pairs of a task."""
    scores = np.full(grid, np.nan)
    for row in rows:
        spec = parse_pooler(row["pooler"])
        part = None if spec.is_auto else spec.parts[0]
        found = (row["task"], row["subset"], row["calibration"], part.name if part else None)
        if part is not None and found == (task, "all", None, "ditto"):
            block, head = map(int, str(part.option("head")).split("-"))
            scores[block - 1, head - 1] = row["spearman"]
    return scores
