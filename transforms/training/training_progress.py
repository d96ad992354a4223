"""Tell the process's watcher how far a training is."""

import math
import time
from collections.abc import Callable

from sentence_beam.transforms.base.progress import format_duration, tell

Say = Callable[[str], None]  # prints a line of progress


class TrainingWatch:
    """Counts steps, and tells the loss, the dev score and the remaining time.

    `say` prints a line for each dev score. `times` are the monotonic seconds of the beginning and
    of the end of each step.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._first = 0
        self._total = 0
        self._began = time.monotonic()
        self._parts: dict[str, str] = {}
        self._best = -math.inf
        self.times: list[float] = []

    def begin(self, step: int, total: int, best: float | None) -> None:
        """Start after a step of `total`, with the best dev score up to there."""
        if best is not None:
            self._best = max(self._best, best)
        self._first = step
        self._total = total
        self._began = time.monotonic()
        self.times = [self._began]

    def step(self, step: int) -> None:
        """Count a finished step."""
        self.times.append(time.monotonic())
        each = (self.times[-1] - self._began) / max(1, step - self._first)
        left = format_duration(each * (self._total - step))
        parts = [f"step {step:,} of {self._total:,}", *self._parts.values(), f"about {left} left"]
        tell(", ".join(parts))

    def loss(self, loss: float) -> None:
        """Tell the mean loss of the last steps."""
        self._parts["loss"] = f"loss {loss:.4f}"

    def scored(self, step: int, metric: str, score: float) -> None:
        """Tell a dev score, in percent, and whether it is the best so far."""
        self._parts["dev"] = f"dev {metric} {score:.2f}"
        best = ", the best so far" if score > self._best else ""
        self._best = max(self._best, score)
        self._say(f"step {step:,}: dev {metric} {score:.2f}{best}")

    def end(self) -> None:
        """End the line of progress."""
        tell("")
