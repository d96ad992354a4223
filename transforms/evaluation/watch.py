"""How far an evaluation is, told to whoever watches this process."""

import time

from transforms.base.progress import LOADING, duration, tell


class Watch:
    """Counts texts that went through the model, and scores, of all there will be; tells them with
    the time left.

    Used as a context: at its end nothing is told any more.
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

    def encoded(self, texts: int) -> None:
        """Count so many texts that went through the model, and tell how far it is."""
        self._count("texts", texts)

    def scored(self) -> None:
        """Count a score that was computed, and tell how far it is."""
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
        tell(f"{', '.join(counted)}, about {duration(self.left)} left")

    @property
    def left(self) -> float:
        """The seconds that are left, as far as it can be told from what was done."""
        seconds = 0.0
        for name, total in self._total.items():
            if self._done[name]:
                seconds += self._spent[name] / self._done[name] * (total - self._done[name])
        return seconds
