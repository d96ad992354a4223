"""Counts of a server as text for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector

from sentence_beam.transforms.report.openmetrics import PREFIX
from sentence_beam.transforms.serve.followed import Followed
from sentence_beam.transforms.store.runs.run_result import parse_timestamp

TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMESPACE = f"{PREFIX}_serve"
BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Counts:
    """Requests by route and status, their seconds by route, and batches of questions.

    `answered` is the number of requests.
    """

    def __init__(self) -> None:
        self.answered = 0
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "requests",
            "requests answered, by route and status",
            ("route", "status"),
            namespace=NAMESPACE,
            registry=self._registry,
        )
        self._seconds = Histogram(
            "request_seconds",
            "seconds from a request's head to its whole answer",
            ("route",),
            namespace=NAMESPACE,
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._batches = Counter(
            "batches", "batches of questions", namespace=NAMESPACE, registry=self._registry
        )
        self._questions = Counter(
            "questions", "questions in them", namespace=NAMESPACE, registry=self._registry
        )
        self._waiting = self._make_gauge("waiting_questions", "questions that wait for a batch")
        self._rows = self._make_gauge("rows", "rows of the snapshot that is searched")
        self._committed = self._make_gauge(
            "snapshot_timestamp_seconds", "when that snapshot was committed"
        )
        self._follows = self._make_gauge("follows", "whether the last look at the store succeeded")

    def _make_gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, namespace=NAMESPACE, registry=self._registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request with the status and the seconds of its answer."""
        self.answered += 1
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, questions: int) -> None:
        """Count questions that were answered together."""
        self._batches.inc()
        self._questions.inc(questions)

    def text(self, served: Followed, waiting: int) -> str:
        """Return all figures, including the served snapshot and the waiting questions."""
        manifest = served.manifest
        self._waiting.set(waiting)
        self._rows.set(manifest.rows.stored)
        self._committed.set(parse_timestamp(manifest.finished))
        self._follows.set(not served.problem)
        return generate_latest(_WithoutCreated(self._registry)).decode()


class _WithoutCreated(Collector):
    """A registry without the creation times of counters.

    The library's own switch for these is global to the process.
    """

    def __init__(self, registry: CollectorRegistry):
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [
                sample for sample in family.samples if sample.name != f"{family.name}_created"
            ]
            yield family
