"""What a run measures, as Beam's metrics, for whoever watches a job; what an engine does twice
counts twice there.
"""

from collections.abc import Mapping

from apache_beam.metrics import Metrics

from transforms.base.measures import STAGES

NAMESPACE = "sentence_beam"


class StageMetrics:
    """Counters, and a distribution for each figure of a stage (in whole numbers), under the
    figure's name.
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
        """Note the figures of one unit, file or step; others than the stage's are left out."""
        for name, value in figures.items():
            if name in self._distributions:
                self._distributions[name].update(round(value))
