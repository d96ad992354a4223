"""The size and the time of a run that is not started."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from transforms.base.errors import OptionError
from transforms.corpus import InputFile, Span
from transforms.corpus.beside import Beside, merged
from transforms.corpus.groups import AnySpan, spans_of
from transforms.space.int8_model import INT8
from transforms.steps.options.job import EmbedJob
from transforms.steps.options.resolve import Resolved
from transforms.steps.plan import content
from transforms.steps.plan.checked import checked_plan
from transforms.steps.plan.files import FilePlanner, list_files
from transforms.steps.plan.footers import read_footers
from transforms.steps.plan.pace import Pace, measure
from transforms.store.manifest import Manifest
from transforms.store.records import Problem
from transforms.store.runs.carried import CarriedShards
from transforms.store.runs.plan import PlannedFile


@dataclass(frozen=True)
class Estimate:
    """The size of a run: files and units carried or to embed, rows and tokens (estimated) to embed,
    input bytes.

    `unchanged_files` are as in the last snapshot; by content they are read all the same if another
    changed. `exact_rows` says that the rows are counted, not estimated; `pieces` are those of
    documents (estimated), None if they are not cut; `carried_rows` are those of carried units;
    `beside` are the files that lie beside those of the input and are not taken, by reason; `bad`
    are those that are left out, with the reason, by relative path.
    """

    files: int
    carried_files: int
    unchanged_files: int
    units: int
    carried_units: int
    rows: float
    exact_rows: bool
    tokens: int
    input_bytes: int
    beside: dict[str, int]
    pieces: float | None = None
    carried_rows: int = 0
    bad: dict[str, str] = field(default_factory=dict)

    @property
    def vectors(self) -> float:
        """The vectors to make: of rows, or of pieces of documents."""
        if self.pieces is None:
            return self.rows
        return self.pieces


@dataclass(frozen=True)
class Prediction:
    """The size and pace of a run that is not started; `pace` is None if it would embed nothing."""

    resolved: Resolved
    plan: Estimate
    pace: Pace | None

    @property
    def seconds(self) -> float:
        """Estimated seconds of embedding on this machine."""
        if self.pace:
            return self.pace.time_for(self.plan.tokens)
        return 0.0

    @property
    def real_tokens(self) -> float:
        """The tokens that the tokenizer should make, as far as its pace is known."""
        if self.pace:
            return self.plan.tokens * self.pace.real_share
        return self.plan.tokens


def predict(resolved: Resolved, calibration: str | None) -> Prediction:
    """Plan a run and embed for a few seconds on this machine; nothing is written.

    `calibration` is the folder of a calibration that is given now: the store has no copy yet.
    """
    job = resolved.job
    _check_model(job)
    planned, beside = plan_files(job)
    same = None
    if job.by_content:
        same = content.unchanged(planned, job, CarriedShards(job.root))[0]
    unchanged = sum(item.is_unopened for item in planned)
    if job.by_content and same is None:
        planned = content.checked_opened(read_footers(planned, job), job)
    work = []
    if same is None:
        work = [span for item in planned for span in item.work]
    spans = [part for span in work for part in spans_of(span)]
    pace = _measure(job, spans, calibration)
    found = estimate(planned, beside, work, pace, job.chunks.cuts)
    if job.by_content:
        found = in_buckets(found, spans, same, job)
        # some of these have other names
        found = replace(found, unchanged_files=max(unchanged, found.carried_files))
    return Prediction(resolved, found, pace)


def _check_model(job: EmbedJob) -> None:
    """Raise OptionError for a model that the first run has to make."""
    if job.run.space.dtype == INT8 and not job.reuse:
        raise OptionError(
            "--dtype int8: the first run makes the model, so that a plan cannot measure it; plan"
            " with --dtype float32"
        )


def _measure(job: EmbedJob, spans: list[Span], calibration: str | None) -> Pace | None:
    """Embed some rows with the calibration that is given now, else the job's; None without rows."""
    if not spans:
        return None
    if calibration:
        job = replace(job, calibration=calibration)
    return measure(job, spans)


def plan_files(job: EmbedJob) -> tuple[list[PlannedFile], Beside]:
    """Plan a run in this process; returns the files, and what lies beside them. Raises the first
    problem.
    """
    found = [item for glob in job.run.globs for item in list_files(glob, job)]
    _raise_first(found)
    planned = FilePlanner(job).plan_all([item for item in found if isinstance(item, InputFile)])
    _raise_first(planned)
    files = checked_plan([item for item in planned if isinstance(item, PlannedFile)], job)
    return files, merged(found)


def _raise_first(found: Iterable[Any]) -> None:
    """Raise the error of the first problem among other things."""
    for item in found:
        if isinstance(item, Problem):
            raise item.error()


def estimate(
    planned: list[PlannedFile],
    beside: Beside,
    spans: list[AnySpan],
    pace: Pace | None,
    is_cut: bool = False,
) -> Estimate:
    """Add up a plan; `spans` are embedded, `is_cut` says that their rows are cut into pieces.

    The rows of formats that do not count them are estimated from the tokens of measured rows.
    """
    tokens = sum(span.tokens for span in spans)
    rows, is_exact = _rows_in(spans, pace)
    pieces = None
    if pace and is_cut:
        pieces = tokens / pace.tokens_per_piece
    carried_files = sum(map(_is_carried, planned))
    carried = [unit for item in planned for unit in item.carried]
    return Estimate(
        files=len(planned),
        carried_files=carried_files,
        unchanged_files=carried_files,
        units=len(spans),
        carried_units=len(carried),
        rows=rows,
        exact_rows=is_exact,
        tokens=tokens,
        pieces=pieces,
        input_bytes=sum(item.file.size for item in planned),
        carried_rows=sum(unit.rows for unit in carried),
        beside=beside.total(),
        bad={item.file.relative: item.bad for item in planned if item.bad},
    )


def _rows_in(spans: list[AnySpan], pace: Pace | None) -> tuple[float, bool]:
    """Return the rows of spans, and whether all of them are counted, none estimated."""
    uncounted = sum(span.tokens for span in spans if span.rows is None)
    rows: float = sum(span.rows or 0 for span in spans)
    if pace and uncounted:
        rows += uncounted / pace.tokens_per_row
    return rows, not uncounted


def _is_carried(item: PlannedFile) -> bool:
    """Whether a file is carried over: it has units, or was not opened."""
    return not item.bad and (bool(item.carried) or item.kept is None)


def in_buckets(
    found: Estimate, spans: list[Span], same: Manifest | None, job: EmbedJob
) -> Estimate:
    """Return the estimate with the units of a run by content, all of them those of the snapshot
    `same` if it is given.
    """
    if same is None:
        return replace(found, units=content.buckets_for(spans, job).count)
    return replace(
        found,
        units=0,
        carried_units=len(same.units),
        carried_files=found.files,
        carried_rows=same.rows.stored,
    )
