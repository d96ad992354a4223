"""How far a training is, told to whoever watches this process."""

import math
import time
from collections.abc import Callable

from transforms.base.progress import duration, tell


class TrainingWatch:
    """Counts steps and tells the loss, the dev score and the time left; `say` prints a line for
    each dev score.

    `times` are those at which a step was done, in monotonic seconds, and that of the beginning
    before them.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._first = self._total = 0
        self._began = time.monotonic()
        self._parts: dict[str, str] = {}
        self._best = -math.inf
        self.times: list[float] = []

    def begin(self, step: int, total: int, best: float | None) -> None:
        """Begin behind a step, of so many, with the best dev score up to there."""
        self._best = max(self._best, -math.inf if best is None else best)
        self._first, self._total, self._began = step, total, time.monotonic()
        self.times = [self._began]

    def step(self, step: int) -> None:
        """A step is done."""
        self.times.append(time.monotonic())
        each = (self.times[-1] - self._began) / max(1, step - self._first)
        left = duration(each * (self._total - step))
        tell(
            ", ".join(
                [f"step {step:,} of {self._total:,}", *self._parts.values(), f"about {left} left"]
            )
        )

    def loss(self, loss: float) -> None:
        """The mean loss of the last steps."""
        self._parts["loss"] = f"loss {loss:.4f}"

    def scored(self, step: int, metric: str, score: float) -> None:
        """Tell a dev score, in percent, and whether it is the best so far."""
        self._parts["dev"] = f"dev {metric} {score:.2f}"
        best = ", the best so far" if score > self._best else ""
        self._best = max(self._best, score)
        self._say(f"step {step:,}: dev {metric} {score:.2f}{best}")

    def end(self) -> None:
        """Nothing is told any more."""
        tell("")
