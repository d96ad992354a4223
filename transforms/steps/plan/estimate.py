"""The size and the time of a run that is not started."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.space.int8_model import INT8
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.options.resolve import Resolved
from sentence_beam.transforms.steps.plan.look import Looked, look
from sentence_beam.transforms.steps.plan.pace import Pace, measure
from sentence_beam.transforms.store.runs.recorded_plan import count_runs


@dataclass(frozen=True)
class Estimate:
    """The size of a run: the counts of its plan, and estimates of the rows and pieces to embed.

    `pieces` are those of documents, None if they are not cut.
    """

    counts: Looked
    rows: float
    pieces: float | None = None

    @property
    def exact_rows(self) -> bool:
        """True if the rows are counted, not estimated."""
        return not self.counts.uncounted

    @property
    def vectors(self) -> float:
        """The vectors to make: of rows, or of pieces of documents."""
        return self.rows if self.pieces is None else self.pieces

    def to_json(self) -> dict[str, Any]:
        """Return all counts and estimates, without the spans that are measured, nor what waits."""
        counts = asdict(replace(self.counts, spans=(), waiting=()))
        del counts["spans"], counts["waiting"], counts["uncounted"]
        estimates = {"rows": self.rows, "exact_rows": self.exact_rows, "pieces": self.pieces}
        return counts | estimates


@dataclass(frozen=True)
class Prediction:
    """The size and pace of a run that is not started; `pace` is None if it would embed nothing.

    `files` are some of those to read.
    """

    resolved: Resolved
    plan: Estimate
    pace: Pace | None
    files: tuple[InputFile, ...] = ()

    @property
    def seconds(self) -> float:
        """Estimated seconds of embedding on this machine."""
        return self.pace.estimate_time(self.plan.counts.tokens) if self.pace else 0.0

    @property
    def runs(self) -> int:
        """Runs of the budget that the input takes, this one included."""
        waiting = [tokens * self._share for tokens in self.plan.counts.waiting]
        return 1 + count_runs(waiting, self.resolved.job.budget or 0)

    @property
    def seconds_of_all(self) -> float:
        """Estimated seconds of all these runs on this machine."""
        tokens = self.plan.counts.pending.tokens * self._share
        if self.pace is None:
            return self.seconds
        later = (self.runs - 1) * self.pace.loading + tokens / self.pace.tokens_per_second
        return self.seconds + later

    @property
    def _share(self) -> float:
        """Real tokens over those that pending files are estimated to have.

        The plan has corrected these by the store's earlier runs, if there are any.
        """
        if self.pace is None or self.resolved.job.run.estimate.planned:
            return 1.0
        return self.pace.real_share

    @property
    def real_tokens(self) -> float:
        """The tokens that the tokenizer should make, as far as its pace is known."""
        return self.plan.counts.tokens * (self.pace.real_share if self.pace else 1)


def predict(resolved: Resolved, look: Callable[[EmbedJob], Looked] = look) -> Prediction:
    """Plan a run and embed for a few seconds on this machine; nothing is written.

    `look` counts the work of a job.
    """
    job = resolved.job
    _check_model(job)
    looked = look(job)
    # the store may have no copy of the calibration yet
    job = replace(job, calibration=resolved.calibration_folder)
    pace = measure(job, [*looked.spans]) if looked.spans else None
    files = tuple(dict.fromkeys(span.file for span in looked.spans))
    return Prediction(resolved, estimate(looked, pace, job.chunks.cuts), pace, files)


def _check_model(job: EmbedJob) -> None:
    """Raise OptionError for a model that the first run has to make."""
    if job.run.space.dtype == INT8 and not job.reuse:
        raise OptionError(
            f"{cite('dtype')} int8: the first run makes the model, so that a plan cannot measure"
            f" it; plan with {cite('dtype')} float32"
        )


def estimate(looked: Looked, pace: Pace | None, is_cut: bool = False) -> Estimate:
    """Return the size of a run; `is_cut` says that rows are cut into pieces.

    The rows of formats that do not count them are estimated from the tokens of measured rows.
    """
    rows: float = looked.rows
    if pace and looked.uncounted:
        rows += looked.uncounted / pace.tokens_per_row
    pieces = looked.tokens / pace.tokens_per_piece if pace and is_cut else None
    return Estimate(looked, rows, pieces)
