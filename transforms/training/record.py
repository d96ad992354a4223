"""What is written beside a trained model: training.json, a card, a page with the curves."""

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transforms.evaluation.intervals import Belief
from transforms.report.chart import Chart, Series, line_chart
from transforms.report.html import environment
from transforms.space import Space
from transforms.training.folders import RECORD
from transforms.training.options import TrainOptions

if TYPE_CHECKING:
    from jinja2 import Template

    from transforms.training.data import Data
    from transforms.training.trainer import TrainingResult

PACKAGES = (
    "sentence-beam",
    "sentence-transformers",
    "transformers",
    "torch",
    "accelerate",
    "datasets",
    "peft",
)
CARD, PAGE = "README.md", "training.html"


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training ended: the curve, the dev metric with what can be believed before and after,
    the new space.

    The space of a cross-encoder is None.
    """

    fitted: "TrainingResult"
    metric: str | None
    believed: tuple[Belief, Belief] | None
    space: Space | None
    seconds: float
    tested: dict[str, Any] | None = None


def record_of(
    options: TrainOptions, data: "Data", asked: Mapping[str, Any], outcome: TrainingOutcome
) -> dict[str, Any]:
    """The content of training.json."""
    fitted, dev = outcome.fitted, _dev(outcome)
    before = [{"step": 0, "epoch": 0.0, "dev": dev["before"]["score"]}] if dev else []
    return {
        "format": 1,
        "objective": options.objective,
        "options": {item.name: getattr(options, item.name) for item in fields(options)},
        "asked": dict(asked),
        "data": [asdict(source) for source in data.train.sources],
        "dev_data": [asdict(source) for source in data.dev.sources] if data.dev else [],
        "rows": {
            "train": len(data.train),
            "dev": len(data.dev) if data.dev else 0,
            "overlap": data.overlap,
        },
        **_of_test(data, outcome),
        "labels": list(data.labels),
        "steps": fitted.steps,
        "best_step": fitted.best_step,
        "stopped_early": fitted.stopped_early,
        "curve": [*before, *fitted.curve],
        "dev": dev,
        "space": outcome.space.id if outcome.space else None,
        "dim": outcome.space.dim if outcome.space else None,
        "versions": (
            {name: version for name in PACKAGES if (version := _version(name))}
            | {"python": platform.python_version()}
        ),
        "seconds": round(outcome.seconds, 1),
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write training.json, the model card and the page with the curves."""
    (folder / RECORD).write_text(
        json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf8"
    )
    has_code = any(folder.glob("*.py"))  # that of the CNN head, for sentence-transformers
    card = _template("card.md" if record["space"] else "cross_encoder_card.md").render(
        r=record, dev_line=dev_line(record), has_code=has_code
    )
    (folder / CARD).write_text(card, encoding="utf8")
    page = _template("training.html").render(
        r=record, dev_line=dev_line(record), charts=_charts(record)
    )
    (folder / PAGE).write_text(page, encoding="utf8")


def _of_test(data: "Data", outcome: TrainingOutcome) -> dict[str, Any]:
    """What is said of test rows, if there are any."""
    if data.test is None:
        return {}
    return {
        "test": outcome.tested,
        "test_data": [asdict(source) for source in data.test.sources],
        "test_rows": {"test": len(data.test), "overlap": data.test_overlap},
    }


def line_of_test(record: Mapping[str, Any]) -> str | None:
    """The test score with its interval; None without test rows or where it is undefined."""
    test = record.get("test")
    if test is None or test["score"] is None:
        return None
    return f"{test['metric']} {_figure(test['score'], test['low'], test['high'])}"


def dev_line(record: Mapping[str, Any]) -> str | None:
    """The dev score with its interval, and what it was before; None without dev rows or where it is
    undefined.
    """
    dev = record["dev"]
    if dev is None or dev["score"] is None:
        return None
    said = (
        f"{dev['metric']} {_figure(dev['score'], dev['low'], dev['high'])} at step"
        f" {record['best_step']:,}"
    )
    if dev["before"]["score"] is None or dev["difference"]["score"] is None:
        return said
    before = _figure(**dev["before"])
    return f"{said}; before {before}; difference {_figure(**dev['difference'], sign='+')}"


def _dev(outcome: TrainingOutcome) -> dict[str, Any] | None:
    """The dev scores x100 before and after with 95 % intervals, and their difference with its
    own.
    """
    if outcome.believed is None:
        return None
    before, after = outcome.believed
    return {
        "metric": outcome.metric,
        "score": after.score,
        "low": after.low,
        "high": after.high,
        "before": {"score": before.score, "low": before.low, "high": before.high},
        "difference": {"score": after.diff, "low": after.diff_low, "high": after.diff_high},
        "p": after.p,
    }


def _figure(score: float, low: float | None, high: float | None, sign: str = "") -> str:
    interval = "" if low is None or high is None else f" ({low:{sign}.2f} to {high:{sign}.2f})"
    return f"{score:{sign}.2f}{interval}"


def _charts(record: Mapping[str, Any]) -> list[tuple[str, Chart]]:
    """The title and the chart of each curve with two points or more."""
    titles = {"loss": "training loss"}
    if record["dev"] is not None:
        titles["dev"] = f"dev {record['dev']['metric']}"
    charts = []
    for key, title in titles.items():
        points = [point for point in record["curve"] if point.get(key) is not None]
        if len(points) > 1:
            labels = [f"step {point['step']:,}" for point in points]
            series = Series(labels, [point[key] for point in points], [False] * len(points), _shown)
            charts.append((title, line_chart(series)))
    return charts


def _shown(value: float) -> str:
    return f"{value:.4g}"


@cache
def _template(name: str) -> "Template":
    """A template of this package: a page, whose holes are filled with text, or the card, which is
    Markdown.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).with_name("templates")
    if name.endswith(".html"):
        return environment(folder).get_template(name)
    markdown = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return markdown.get_template(name)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
