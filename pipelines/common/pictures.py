"""PNG pictures: a calibration before and after, the score of every attention head."""

import importlib.util
import io
import os
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import MissingExtraError
from sentence_beam.transforms.base.extras import pip_line
from sentence_beam.transforms.evaluation.heads import head_scores

BEFORE = "#8c8c8c"
AFTER = "#1f6fb4"


def is_installed() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_installed() -> None:
    """Raise MissingExtraError if matplotlib is not installed, before a heat map is computed."""
    if not is_installed():
        raise MissingExtraError(f"the heat map needs matplotlib: {pip_line('report')}")


def _pyplot() -> Any:
    """matplotlib's pyplot, for files alone: no display is asked for."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


# --- a fit


def draw_fit(found: dict[str, Any]) -> bytes:
    """A PNG of a fit's figures: spectrum and cosines before and after, and a flow's loss."""
    pyplot = _pyplot()
    flow = found.get("flow")
    charts = 2
    width = 8.0
    if flow:
        charts = 3
        width = 11.5
    figure, axes = pyplot.subplots(1, charts, figsize=(width, 3.2))
    _spectra(axes[0], found)
    _cosines(axes[1], found)
    if flow:
        _loss(axes[2], flow["curve"])
    figure.suptitle(f"{found['method']}, fitted on {found['n']:,} rows", fontsize=10)
    return _png(pyplot, figure)


def _spectra(axes: Any, found: dict[str, Any]) -> None:
    """Deviations along the principal directions; those that are rounding are left out."""
    for name, color in (("before", BEFORE), ("after", AFTER)):
        values = np.array(found[f"shape_{name}"]["spectrum"])
        values = values[values > 1e-6 * values[0]]
        axes.semilogy(np.arange(1, len(values) + 1), values, color=color, label=name)
    axes.set(xlabel="principal direction", ylabel="deviation", title="spectrum")
    axes.legend(frameon=False)


def _cosines(axes: Any, found: dict[str, Any]) -> None:
    for name, color in (("before", BEFORE), ("after", AFTER)):
        shares = found[f"shape_{name}"]["cosines"]
        axes.stairs(
            shares,
            np.linspace(-1, 1, len(shares) + 1),
            color=color,
            label=name,
            fill=True,
            alpha=0.5,
        )
    axes.set(xlabel="cosine of two rows", ylabel="share of pairs", title="cosines")
    axes.legend(frameon=False)


def _loss(axes: Any, curve: list[dict[str, Any]]) -> None:
    trained = [point for point in curve if point["train"] is not None]
    axes.plot(
        [p["step"] for p in trained], [p["train"] for p in trained], color=BEFORE, label="training"
    )
    axes.plot(
        [p["step"] for p in curve], [p["held_out"] for p in curve], color=AFTER, label="held out"
    )
    axes.set(xlabel="step", ylabel="bits a component", title="loss")
    axes.legend(frameon=False)


def _png(pyplot: Any, figure: Any) -> bytes:
    figure.tight_layout()
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=110)
    pyplot.close(figure)
    return sink.getvalue()


# --- attention heads


def draw_heads(
    path: str, rows: list[dict[str, Any]], tasks: list[str], grid: tuple[int, int]
) -> None:
    """Write `<path's stem>-<task>.png` for each task: Spearman of Ditto by block and head."""
    pyplot = _pyplot()
    for task in tasks:
        figure, axes = pyplot.subplots(figsize=(1.5 + 0.6 * grid[1], 1.5 + 0.5 * grid[0]))
        scores = head_scores(rows, task, grid)
        image = axes.imshow(scores, cmap="viridis", aspect="auto")
        for (block, head), value in np.ndenumerate(scores):
            color = "black" if value > np.nanmean([scores.min(), scores.max()]) else "white"
            axes.text(
                head, block, f"{value:.1f}", ha="center", va="center", color=color, fontsize=7
            )
        axes.set_xticks(range(grid[1]), [str(head) for head in range(1, grid[1] + 1)])
        axes.set_yticks(range(grid[0]), [str(block) for block in range(1, grid[0] + 1)])
        axes.set(xlabel="head", ylabel="block", title=f"{task}: Spearman x100 of Ditto")
        figure.colorbar(image)
        figure.tight_layout()
        figure.savefig(f"{os.path.splitext(path)[0]}-{task}.png", dpi=120)
        pyplot.close(figure)
