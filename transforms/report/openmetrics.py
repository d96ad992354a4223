"""The figures of a store's last run as OpenMetrics text, for a monitoring system to read."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from sentence_beam.transforms.base.measures import EMBED_PARTS, STAGES, Measures
from sentence_beam.transforms.report.run_history import RunSummary, find_last_committed
from sentence_beam.transforms.store.counts import PendingCounts
from sentence_beam.transforms.store.runs.run_result import COMMITTED, parse_timestamp

PREFIX = "sentence_beam"
STATISTICS = ("sum", "p50", "p95", "max")
UNITS = ("seconds", "bytes")
WORK = ("embedded", "reused", "duplicates", "carried")
CHANGES = ("added", "changed", "deleted")
LabelledValue: TypeAlias = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Gauge:
    """A family of values that may rise and fall.

    `name` lacks the prefix, `meaning` is its help text, `values` are labels with their value.
    """

    name: str
    meaning: str
    values: Sequence[LabelledValue]

    def family(self, store: str) -> GaugeMetricFamily:
        """Return the family for the registry, with the store's name as a label of each value."""
        name = f"{PREFIX}_{self.name}"
        unit = name.rpartition("_")[2] if name.endswith(UNITS) else ""
        family = GaugeMetricFamily(name, self.meaning, unit=unit)
        for labels, value in self.values:
            family.add_sample(name, {"store": store, **labels}, value)
        return family


class _RunsOfStore(Collector):
    """The gauges of a store that have a value."""

    def __init__(self, store: str, gauges: Sequence[Gauge]):
        self._store = store
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for gauge in self._gauges:
            if gauge.values:
                yield gauge.family(self._store)


def format_openmetrics(store: str, summaries: Sequence[RunSummary]) -> str:
    """Return the text for a store, from its runs in order; unknown values have no line."""
    gauges = _make_run_gauges(summaries)
    last = find_last_committed(summaries)
    if last is not None:
        gauges += [*_make_last_gauges(last), _make_limit_gauge(last), *_make_stage_gauges(last)]
    registry = CollectorRegistry()
    registry.register(_RunsOfStore(store, gauges))
    return generate_latest(registry).decode()


def _make_run_gauges(summaries: Sequence[RunSummary]) -> list[Gauge]:
    counts = Counter(summary.status for summary in summaries)
    ended = [summary.status == COMMITTED for summary in summaries if summary.status != "running"]
    return [
        Gauge(
            "runs",
            "runs of the store, by how they ended",
            [({"status": status}, counts[status]) for status in sorted(counts)],
        ),
        Gauge(
            "last_run_committed",
            "whether the last run that ended committed",
            [({}, committed) for committed in ended[-1:]],
        ),
    ]


def _make_last_gauges(last: RunSummary) -> list[Gauge]:
    end = parse_timestamp(last.started) + (last.seconds or 0.0) if last.started else None
    return [
        _measure("committed_timestamp_seconds", "when the last snapshot was committed", end),
        _measure("run_duration_seconds", "time of the run from start to commit", last.seconds),
        _measure("rows", "rows of the snapshot; documents if these are cut into pieces", last.rows),
        _measure("pieces", "pieces that the documents of the snapshot were cut into", last.pieces),
        Gauge(
            "work_rows",
            "rows or pieces of the snapshot, by the origin of their vectors",
            _read_labelled(last, "work", WORK),
        ),
        Gauge(
            "changed_rows",
            "rows or pieces that differ from the previous snapshot",
            _read_labelled(last, "change", CHANGES),
        ),
        _measure("rejected_rows", "rows or documents that were not embedded", last.rejected),
        _measure(
            "truncated_rows", "rows or pieces of the snapshot that were cut off", last.truncated
        ),
        _measure("tokens", "tokens that went through the model", last.tokens),
        _measure("recall", "measured recall of the index", last.recall),
        _measure(
            "answer_change_ratio", "share of changed answers to watched queries", last.answer_change
        ),
        _measure(
            "answer_change_beyond_growth_ratio",
            "share of answers to watched queries that changed beyond growth",
            last.answers_beyond,
        ),
        _measure(
            "answer_overlap_ratio", "overlap of the answers with those before", last.answer_overlap
        ),
        Gauge(
            "changed_answers",
            "changed answers to watched queries, by cause",
            [({"cause": cause}, count) for cause, count in (last.answer_causes or {}).items()],
        ),
        _measure("damaged_shards", "old shards that could not be used", last.damaged),
        *_make_pending_gauges(last.pending),
    ]


def _make_pending_gauges(pending: PendingCounts | None) -> list[Gauge]:
    if pending is None:
        return []
    return [
        _measure("pending_files", "files left to later runs by the budget", pending.files),
        _measure("pending_bytes", "size of the pending files", pending.bytes),
        _measure("pending_tokens", "estimated tokens of the pending files", pending.tokens),
    ]


def _measure(name: str, meaning: str, value: float | None) -> Gauge:
    """Return the gauge of one value without labels; it has none if the value is None."""
    return Gauge(name, meaning, [] if value is None else [({}, value)])


def _read_labelled(last: RunSummary, label: str, fields: Sequence[str]) -> list[LabelledValue]:
    """Return the known values of the fields, each with its field's name under the label."""
    values = {field: getattr(last, field) for field in fields}
    return [({label: field}, value) for field, value in values.items() if value is not None]


def _make_limit_gauge(last: RunSummary) -> Gauge:
    parts = [name.removesuffix("_ms") for name in EMBED_PARTS] if last.limit else []
    values = [({"part": part}, part == last.limit) for part in parts]
    return Gauge("embed_limit", "whether this part of Embed held up the others", values)


def _make_stage_gauges(last: RunSummary) -> Iterator[Gauge]:
    measures: Measures = last.measures or {}
    for stage, figures in STAGES.items():
        for figure in figures:
            statistics = measures.get(stage, {}).get(figure.name, {})
            name = f"{stage}_{figure.name}"
            scale = 1.0
            if name.endswith("_ms"):
                name = f"{name.removesuffix('_ms')}_seconds"
                scale = 1000.0
            values: list[LabelledValue] = [
                ({"statistic": key}, statistics[key] / scale)
                for key in STATISTICS
                if key in statistics
            ]
            yield Gauge(name, figure.meaning, values)
