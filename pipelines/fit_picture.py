"""A picture of what a calibration does: spectrum and cosines before and after, and a flow's loss."""

import importlib.util
import io
from typing import Any

import numpy as np

BEFORE, AFTER = "#8c8c8c", "#1f6fb4"


def is_installed() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(found: dict[str, Any]) -> bytes:
    """A PNG of a fit's figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    flow = found.get("flow")
    figure, axes = pyplot.subplots(1, 3 if flow else 2, figsize=(11.5 if flow else 8, 3.2))
    _spectra(axes[0], found)
    _cosines(axes[1], found)
    if flow:
        _loss(axes[2], flow["curve"])
    figure.suptitle(f"{found['method']}, fitted on {found['n']:,} rows", fontsize=10)
    figure.tight_layout()
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=110)
    pyplot.close(figure)
    return sink.getvalue()


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
        axes.stairs(shares, np.linspace(-1, 1, len(shares) + 1), color=color, label=name, fill=True, alpha=0.5)
    axes.set(xlabel="cosine of two rows", ylabel="share of pairs", title="cosines")
    axes.legend(frameon=False)


def _loss(axes: Any, curve: list[dict[str, Any]]) -> None:
    trained = [point for point in curve if point["train"] is not None]
    axes.plot([p["step"] for p in trained], [p["train"] for p in trained], color=BEFORE, label="training")
    axes.plot([p["step"] for p in curve], [p["held_out"] for p in curve], color=AFTER, label="held out")
    axes.set(xlabel="step", ylabel="bits a component", title="loss")
    axes.legend(frameon=False)
