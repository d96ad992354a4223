"""Fit a calibration on the vectors that were gathered from a store."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.calibration import CalibrationSpec
from sentence_beam.transforms.calibration.fitting import Outcome, fit_calibration
from sentence_beam.transforms.steps.fit.fit_result import FitResult, write_result
from sentence_beam.transforms.steps.fit.gathered_vectors import Gathered, GatherJob, take_sample
from sentence_beam.transforms.store.records import Problem

PARTS = 64


@dataclass(frozen=True)
class FitJob:
    """A calibration to fit, on a sample, into a folder.

    `narrow` says that rows passed through 16-bit numbers. The calibration remembers `fitted_on`.
    """

    run: str
    method: CalibrationSpec
    output: str
    gather: GatherJob
    narrow: bool
    fitted_on: dict[str, Any]


def divide_shards(shards: Sequence[str]) -> list[tuple[int, tuple[str, ...]]]:
    """Divide shards into at most 64 numbered parts of even length: enough to spread, few enough
    accumulators.
    """
    count = min(PARTS, len(shards))
    parts = []
    for number in range(count):
        start = len(shards) * number // count
        stop = len(shards) * (number + 1) // count
        parts.append((number, tuple(shards[start:stop])))
    return parts


def fit(gathered: Gathered, job: FitJob) -> FitResult:
    """Fit, write the calibration, the file that makes it whole last, and how the run ended."""
    try:
        if gathered.problem is not None:
            raise gathered.problem.error()
        outcome = _fit_sample(gathered, job)
    except SentenceBeamError as error:
        problem = Problem.from_error(error)
        result = FitResult(job.run, problem.exit_code, problem.message)
    else:
        result = FitResult(job.run, 0, "", _list_figures(outcome))
        for name, data in outcome.calibration.to_files().items():
            storage.overwrite(storage.join(job.output, name), data)
    write_result(job.output, result)
    return result


def _fit_sample(gathered: Gathered, job: FitJob) -> Outcome:
    rows = take_sample(gathered, job.gather.want)
    with progress.stage(f"fitting {job.method}"):
        return fit_calibration(
            job.method, gathered.moments, rows, job.fitted_on, narrow=job.narrow, progress=_tell
        )


def _tell(step: int, steps: int, loss: float) -> None:
    text = f"step {step:,} of {steps:,}, held-out loss {loss:.4f} bits a component"
    progress.tell(text)
    logging.getLogger(__name__).info(text)


def _list_figures(outcome: Outcome) -> dict[str, Any]:
    info = outcome.calibration.info
    return {
        "method": info["method"],
        "digest": info["digest"],
        "n": info["fitted_on"]["n"],
        "input_dim": info["input_dim"],
        "dim": info["dim"],
        **info["summary"],
        "shape_before": asdict(outcome.before),
        "shape_after": asdict(outcome.after),
    }
