"""What a server has done so far, as text that Prometheus reads."""

from collections import Counter
from collections.abc import Iterator

from transforms.report.openmetrics import PREFIX, escaped
from transforms.serve.followed import Followed
from transforms.store.runs.result import timestamp

TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Counts:
    """Requests by route and status, their seconds by route, and batches of questions; for one
    thread.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, float] = {}
        self._within: dict[str, list[int]] = {}
        self._batches = self._questions = 0

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered with this status after so many seconds."""
        self.requests[route, status] += 1
        self._seconds[route] = self._seconds.get(route, 0.0) + seconds
        within = self._within.setdefault(route, [0] * len(BUCKETS))
        for place, bound in enumerate(BUCKETS):
            within[place] += seconds <= bound

    def batch(self, questions: int) -> None:
        """Count questions that were answered together."""
        self._batches += 1
        self._questions += questions

    def text(self, served: Followed, waiting: int) -> str:
        """All figures, with those of the snapshot that is searched, and of questions that wait."""
        return "\n".join([*self._requests(), *self._times(), *self._state(served, waiting)]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "requests answered, by route and status")
        for (route, status), count in sorted(self.requests.items()):
            yield _line("requests_total", count, route=route, status=str(status))

    def _times(self) -> Iterator[str]:
        yield from _head(
            "request_seconds", "histogram", "seconds from a request's head to its whole answer"
        )
        for route, within in sorted(self._within.items()):
            count = sum(number for (other, _), number in self.requests.items() if other == route)
            for bound, number in [*zip(BUCKETS, within, strict=True), ("+Inf", count)]:
                yield _line("request_seconds_bucket", number, route=route, le=str(bound))
            yield _line("request_seconds_sum", self._seconds[route], route=route)
            yield _line("request_seconds_count", count, route=route)

    def _state(self, served: Followed, waiting: int) -> Iterator[str]:
        manifest = served.manifest
        for name, kind, meaning, value in (
            ("batches_total", "counter", "batches of questions", self._batches),
            ("questions_total", "counter", "questions in them", self._questions),
            ("waiting_questions", "gauge", "questions that wait for a batch", waiting),
            ("rows", "gauge", "rows of the snapshot that is searched", manifest.rows.stored),
            (
                "snapshot_timestamp_seconds",
                "gauge",
                "when that snapshot was committed",
                timestamp(manifest.finished),
            ),
            (
                "follows",
                "gauge",
                "whether the last look at the store succeeded",
                int(not served.problem),
            ),
        ):
            yield from _head(name, kind, meaning)
            yield _line(name, value)


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}_serve_{name} {meaning}"
    yield f"# TYPE {PREFIX}_serve_{name} {kind}"


def _line(name: str, value: float, **labels: str) -> str:
    pairs = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{PREFIX}_serve_{name}{f'{{{pairs}}}' if pairs else ''} {value:.15g}"
