"""Write the files beside a trained model: training.json, a card, a page with the curves."""

import importlib.metadata
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_beam.transforms.evaluation.intervals import Belief
from sentence_beam.transforms.report.chart import Chart, Series, draw_line_chart
from sentence_beam.transforms.report.html import make_environment
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.training.folders import RECORD, write_json
from sentence_beam.transforms.training.train_options import TrainOptions

if TYPE_CHECKING:
    from jinja2 import Template

    from sentence_beam.transforms.training.data import Data
    from sentence_beam.transforms.training.trainer import TrainingResult

PACKAGES = (
    "sentence-beam",
    "sentence-transformers",
    "transformers",
    "torch",
    "accelerate",
    "datasets",
    "peft",
)
CARD = "README.md"
PAGE = "training.html"


@dataclass(frozen=True)
class TrainingOutcome:
    """The end of a training: the curve, the dev metric with intervals, and the new space.

    A cross-encoder has no space.
    """

    fitted: "TrainingResult"
    metric: str | None = None
    believed: tuple[Belief, Belief] | None = None
    space: Space | None = None
    seconds: float = 0.0
    tested: dict[str, Any] | None = None


def make_record(
    options: TrainOptions, data: "Data", settings: Mapping[str, Any], outcome: TrainingOutcome
) -> dict[str, Any]:
    """Return the content of training.json."""
    fitted = outcome.fitted
    dev = make_dev_record(outcome)
    before = [{"step": 0, "epoch": 0.0, "dev": dev["before"]["score"]}] if dev else []
    dev_rows = 0 if data.dev is None else len(data.dev)
    space = outcome.space
    return {
        "format": 1,
        "objective": options.objective,
        "options": {item.name: getattr(options, item.name) for item in fields(options)},
        "asked": dict(settings),
        "data": [asdict(source) for source in data.train.sources],
        "dev_data": [] if data.dev is None else [asdict(source) for source in data.dev.sources],
        "rows": {"train": len(data.train), "dev": dev_rows, "overlap": data.overlap},
        **_list_test_fields(data, outcome),
        "labels": list(data.labels),
        "steps": fitted.steps,
        "best_step": fitted.best_step,
        "stopped_early": fitted.stopped_early,
        "curve": [*before, *fitted.curve],
        "dev": dev,
        "space": None if space is None else space.id,
        "dim": None if space is None else space.dim,
        "versions": _list_versions(),
        "seconds": round(outcome.seconds, 1),
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write training.json, the model card and the page with the curves."""
    write_json(folder / RECORD, record)
    has_code = any(folder.glob("*.py"))  # of the CNN head, for sentence-transformers
    template = "cross_encoder_card.md" if not record["space"] else "card.md"
    card = _load_template(template).render(
        r=record, dev_line=describe_dev(record), has_code=has_code
    )
    (folder / CARD).write_text(card, encoding="utf8")
    page = _load_template("training.html").render(
        r=record, dev_line=describe_dev(record), charts=draw_charts(record)
    )
    (folder / PAGE).write_text(page, encoding="utf8")


def _list_test_fields(data: "Data", outcome: TrainingOutcome) -> dict[str, Any]:
    """Return the record's fields of test rows, if there are any."""
    if data.test is None:
        return {}
    return {
        "test": outcome.tested,
        "test_data": [asdict(source) for source in data.test.sources],
        "test_rows": {"test": len(data.test), "overlap": data.test_overlap},
    }


def describe_test(record: Mapping[str, Any]) -> str | None:
    """Return the test score with its interval, or None if there is none."""
    test = record.get("test")
    if test is None or test["score"] is None:
        return None
    return f"{test['metric']} {_format_score(test['score'], test['low'], test['high'])}"


def describe_dev(record: Mapping[str, Any]) -> str | None:
    """Return the dev score with its interval and the score before, or None if there is none."""
    dev = record["dev"]
    if dev is None or dev["score"] is None:
        return None
    line = (
        f"{dev['metric']} {_format_score(dev['score'], dev['low'], dev['high'])} at step"
        f" {record['best_step']:,}"
    )
    if dev["before"]["score"] is None or dev["difference"]["score"] is None:
        return line
    before = _format_score(**dev["before"])
    return f"{line}; before {before}; difference {_format_score(**dev['difference'], sign='+')}"


def make_dev_record(outcome: TrainingOutcome) -> dict[str, Any] | None:
    """Return the dev scores x100 before and after, and their difference, with 95 % intervals."""
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


def _format_score(score: float, low: float | None, high: float | None, sign: str = "") -> str:
    if low is None or high is None:
        return f"{score:{sign}.2f}"
    return f"{score:{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


def draw_charts(record: Mapping[str, Any]) -> list[tuple[str, Chart]]:
    """Return the title and the chart of each curve with two points or more."""
    titles = {"loss": "training loss"}
    if record["dev"] is not None:
        titles["dev"] = f"dev {record['dev']['metric']}"
    charts = []
    for key, title in titles.items():
        points = [point for point in record["curve"] if point.get(key) is not None]
        if len(points) > 1:
            labels = [f"step {point['step']:,}" for point in points]
            values = [point[key] for point in points]
            series = Series(labels, values, [False] * len(points), lambda value: f"{value:.4g}")
            charts.append((title, draw_line_chart(series)))
    return charts


@cache
def _load_template(name: str) -> "Template":
    """Return a template: an HTML page, or a card in Markdown."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).with_name("templates")
    if name.endswith(".html"):
        return make_environment(folder).get_template(name)
    markdown = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return markdown.get_template(name)


def _list_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    versions = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    versions["python"] = platform.python_version()
    return versions
