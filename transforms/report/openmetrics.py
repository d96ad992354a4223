"""What the last run of a store did, as OpenMetrics text for a monitoring system that reads a file
of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from transforms.base.measures import EMBED_PARTS, STAGES, Measures
from transforms.report.history import RunSummary
from transforms.store.runs.result import COMMITTED, timestamp

PREFIX = "sentence_beam"
STATISTICS = ("sum", "p50", "p95", "max")
UNITS = ("seconds", "bytes")
WORK = ("embedded", "reused", "duplicates", "carried")
CHANGES = ("added", "changed", "deleted")


@dataclass(frozen=True)
class Gauge:
    """A family of values that may go up and down: its name without the prefix, what it is, values
    with their labels.
    """

    name: str
    meaning: str
    values: Sequence[tuple[Mapping[str, str], float]]

    def family(self, store: str) -> GaugeMetricFamily:
        """The family for the registry, every value under the store's name."""
        name = f"{PREFIX}_{self.name}"
        unit = name.rpartition("_")[2] if name.endswith(UNITS) else ""
        family = GaugeMetricFamily(name, self.meaning, unit=unit)
        for labels, value in self.values:
            family.add_sample(name, {"store": store, **labels}, value)
        return family


class _RunsOfStore(Collector):
    """The gauges of a store; a gauge without a value is left out."""

    def __init__(self, store: str, gauges: Sequence[Gauge]):
        self._store, self._gauges = store, gauges

    def collect(self) -> Iterator[Metric]:
        for gauge in self._gauges:
            if gauge.values:
                yield gauge.family(self._store)


def openmetrics(store: str, summaries: Sequence[RunSummary]) -> str:
    """The text for a store, from the summaries of its runs in order; what is not known has no
    line.
    """
    last = next((summary for summary in reversed(summaries) if summary.status == COMMITTED), None)
    gauges = _of_all(summaries)
    if last is not None:
        gauges += [*_of_last(last), *_of_stages(last)]
    registry = CollectorRegistry()
    registry.register(_RunsOfStore(store, gauges))
    return generate_latest(registry).decode()


def _of_all(summaries: Sequence[RunSummary]) -> list[Gauge]:
    states = sorted({summary.status for summary in summaries})
    counts = [({"status": state}, sum(s.status == state for s in summaries)) for state in states]
    ended = [summary.status == COMMITTED for summary in summaries if summary.status != "running"]
    return [
        Gauge("runs", "runs of the store, by how they ended", counts),
        Gauge(
            "last_run_committed",
            "whether the last run that ended committed",
            [({}, last) for last in ended[-1:]],
        ),
    ]


def _of_last(last: RunSummary) -> list[Gauge]:
    ended = timestamp(last.started) + (last.seconds or 0.0) if last.started else None

    def one(name: str, meaning: str, value: float | None) -> Gauge:
        return Gauge(name, meaning, [] if value is None else [({}, value)])

    def several(name: str, meaning: str, label: str, fields: Sequence[str]) -> Gauge:
        known = [(field, value) for field in fields if (value := getattr(last, field)) is not None]
        return Gauge(name, meaning, [({label: field}, value) for field, value in known])

    return [
        one("committed_timestamp_seconds", "when the last snapshot was committed", ended),
        one("run_duration_seconds", "time of the run from start to commit", last.seconds),
        one("rows", "rows of the snapshot; where they are cut into pieces, documents", last.rows),
        one("pieces", "pieces that the documents of the snapshot were cut into", last.pieces),
        several(
            "work_rows",
            "rows or pieces of the snapshot, by how they came by their vectors",
            "work",
            WORK,
        ),
        several(
            "changed_rows", "rows or pieces that differ from the snapshot before", "change", CHANGES
        ),
        one("rejected_rows", "rows or documents that were not embedded", last.rejected),
        one("truncated_rows", "rows or pieces of the snapshot that were cut off", last.truncated),
        one("tokens", "tokens that went through the model", last.tokens),
        one("recall", "measured recall of the index", last.recall),
        one("damaged_shards", "old shards that could not be used", last.damaged),
    ]


def _of_stages(last: RunSummary) -> list[Gauge]:
    measures: Measures = last.measures or {}
    parts = [name.removesuffix("_ms") for name in EMBED_PARTS] if last.limit else []
    limits = [({"part": part}, part == last.limit) for part in parts]
    found = [Gauge("embed_limit", "whether this part of Embed held up the others", limits)]
    for stage, figures in STAGES.items():
        for figure in figures:
            summary, scale = measures.get(stage, {}).get(figure.name, {}), 1.0
            name = f"{stage}_{figure.name}"
            if name.endswith("_ms"):
                name, scale = f"{name.removesuffix('_ms')}_seconds", 1000.0
            values = [
                ({"statistic": key}, summary[key] / scale) for key in STATISTICS if key in summary
            ]
            found.append(Gauge(name, figure.meaning, values))
    return found
