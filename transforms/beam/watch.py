"""WatchAnswers: all facts about a run -> the figures of the watched queries."""

from typing import Any

import apache_beam as beam

from sentence_beam.transforms.beam.graph import Merge, Together, keep_lease
from sentence_beam.transforms.steps.watch.watch_run import WatchJob, watch_answers
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import RunFact


class WatchAnswers(beam.PTransform):
    """The RunFacts of `Settle` and `BuildIndex` -> the RunFact of the watched queries.

    The coming snapshot is asked, on one worker, before `Commit`. `model` is the path of the model
    on the workers, None for the run's own; it is loaded only if the run changes the model. If the
    run is to fail, there is no fact.
    """

    def __init__(self, run: Run, model: str | None = None):
        super().__init__()
        self._job = WatchJob(run, model)

    def expand(self, parts: Any) -> beam.PCollection:
        answers = (
            parts
            | "All" >> Merge()
            | "Together" >> Together()
            | "Ask" >> beam.FlatMap(keep_lease, self._job.run.key, watch_answers, self._job)
        )
        answers.element_type = RunFact
        return answers


def with_watch(
    parts: list[beam.PCollection], run: Run, model: str | None = None
) -> tuple[beam.PCollection, ...]:
    """Return what `Commit` takes: the parts, and the watched queries if the store has any.

    Every command that changes answers calls this one step before its commit.
    """
    if run.watch is None:
        return tuple(parts)
    return (*parts, tuple(parts) | "Watch" >> WatchAnswers(run, model))
