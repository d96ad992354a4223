"""Tell the process's watcher how far an evaluation is."""

import time

from sentence_beam.transforms.base.progress import LOADING, format_duration, tell


class Watch:
    """Count the texts that went through the model and the scores, and tell the time left.

    As a context, it tells nothing more once it ends.
    """

    def __init__(self, texts: int, scores: int) -> None:
        self._total = {"texts": texts, "scores": scores}
        self._done = {"texts": 0, "scores": 0}
        self._spent = {"texts": 0.0, "scores": 0.0}
        self._last = time.monotonic()

    def __enter__(self) -> "Watch":
        self._last = time.monotonic()
        tell(LOADING)
        return self

    def __exit__(self, *_: object) -> None:
        tell("")

    def count_texts(self, texts: int) -> None:
        """Count texts that went through the model, and tell the progress."""
        self._count("texts", texts)

    def scored(self) -> None:
        """Count one computed score, and tell the progress."""
        self._count("scores", 1)

    def _count(self, what: str, number: int) -> None:
        now = time.monotonic()
        self._spent[what] += now - self._last
        self._last = now
        self._done[what] += number
        counted = [
            f"{self._done[name]:,} of {total:,} {name}"
            for name, total in self._total.items()
            if total
        ]
        tell(f"{', '.join(counted)}, about {format_duration(self.left)} left")

    @property
    def left(self) -> float:
        """The remaining seconds, estimated from the work so far."""
        seconds = 0.0
        for name, total in self._total.items():
            if self._done[name]:
                seconds += self._spent[name] / self._done[name] * (total - self._done[name])
        return seconds
