"""Figures of a run as Beam's metrics, to watch a job; they count retries twice."""

from collections.abc import Mapping

from apache_beam.metrics import Metrics

from sentence_beam.transforms.base.measures import STAGES

NAMESPACE = "sentence_beam"


class StageMetrics:
    """Counters, and a distribution for each figure of a stage, by the figure's name.

    Distributions have whole numbers.
    """

    def __init__(self, stage: str, counted: tuple[str, ...] = ()):
        self._counters = {name: Metrics.counter(NAMESPACE, name) for name in counted}
        self._distributions = {
            figure.name: Metrics.distribution(NAMESPACE, figure.name) for figure in STAGES[stage]
        }

    def count(self, counts: Mapping[str, int]) -> None:
        """Add to the counters."""
        for name, number in counts.items():
            self._counters[name].inc(number)

    def update(self, figures: Mapping[str, float]) -> None:
        """Add the figures of one unit, file or step; other stages' figures are left out."""
        for name, value in figures.items():
            if name in self._distributions:
                self._distributions[name].update(round(value))
