"""Run a training, from its options to the folder that it writes."""

import contextlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_beam.transforms.base.errors import DataGateError, StoppedError, cite
from sentence_beam.transforms.base.progress import LOADING, stage
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.space import Space, resolve_model, resolve_space
from sentence_beam.transforms.training import folders
from sentence_beam.transforms.training.data import Data, describe_data, read_data
from sentence_beam.transforms.training.dev import compare_scores, compute_metric, score_alone
from sentence_beam.transforms.training.model_record import (
    TrainingOutcome,
    make_record,
    write_record,
)
from sentence_beam.transforms.training.option_checks import check
from sentence_beam.transforms.training.prepare import prepare
from sentence_beam.transforms.training.train_options import TrainOptions
from sentence_beam.transforms.training.training_examples import Examples
from sentence_beam.transforms.training.training_progress import Say, TrainingWatch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from sentence_beam.transforms.evaluation.task import Predictions, Task
    from sentence_beam.transforms.training.trainer import Job, TrainingResult

# options that do not decide the weights
WITHOUT_INFLUENCE = (
    "inputs",
    "output",
    "device",
    "recipe",
    "resume",
    "overwrite",
    "dev",
    "max_rejects",
    "must_improve",
)
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def train(options: TrainOptions, say: Say) -> dict[str, Any]:
    """Train a model, write its folder, and return its record, as in its `training.json`.

    `say` prints a line of progress. Raises OptionError, DataGateError and MissingExtraError before
    anything is computed; SentenceBeamError if a loss is not finite.
    """
    check(options)
    output = folders.check_output(options)
    with stage("reading the data"):
        data = read_data(options)
    settings = collect_settings(options, data)
    if folders.is_finished(output, options, settings):
        say(f"{output} is finished already; there is nothing to resume")
        return folders.read_record(output)
    for described in describe_data(data):
        say(described)
    if options.resume and not folders.is_begun(output):
        note = f"{folders.locate_work(output)} has no checkpoint to resume; the training begins"
        say(format_summary_line("note", note))
    with on_one_gpu(options.device), folders.working(output, options, settings) as work:
        began = time.monotonic()
        with stage(LOADING):
            job = prepare(options, data, say)
        outcome = _run(job, work / folders.CHECKPOINTS, say)
        with folders.staging(output) as folder:
            space = save(job, folder)
            outcome = replace(outcome, space=space, seconds=time.monotonic() - began)
            record = make_record(options, data, settings, outcome)
            write_record(folder, record)
    return record


def _run(job: "Job", checkpoints: Path, say: Say) -> TrainingOutcome:
    """Train and score the model in place; the better of the start and the best checkpoint is kept.

    The outcome has no space and no time yet.
    """
    watch = TrainingWatch(say)
    if job.dev is None:
        outcome = TrainingOutcome(_fit(job, checkpoints, watch))
    else:
        outcome = _run_with_dev(job, job.dev, checkpoints, watch, say)
    if job.test is None:
        return outcome
    return replace(outcome, tested=score_alone(job.test, predict_now(job, job.test)))


def _run_with_dev(
    job: "Job", task: "Task", checkpoints: Path, watch: TrainingWatch, say: Say
) -> TrainingOutcome:
    """Train the model, and compare its dev score with that of the start."""
    with stage("scoring the dev rows"):
        before = predict_now(job, task)
    watch.scored(0, *compute_metric(task, before))
    start = copy_weights(job)
    fitted = _fit(job, checkpoints, watch)
    with stage("scoring the dev rows, with intervals"):
        after = predict_now(job, task)
        if not is_better(task, before, after):
            keep_start(job, start, describe_no_gain(task, before, after), say)
            fitted = replace(fitted, best_step=0)
            after = before
        believed = compare_scores(task, before, after)
    metric, _ = compute_metric(task, after)
    return TrainingOutcome(fitted, metric, believed)


def _fit(job: "Job", checkpoints: Path, watch: TrainingWatch) -> "TrainingResult":
    """Run the trainer. Raises StoppedError if it is interrupted."""
    from sentence_beam.transforms.training.trainer import fit

    try:
        return fit(job, checkpoints, watch)
    except KeyboardInterrupt:
        raise StoppedError(
            f"interrupted; the same command with {cite('resume=True')} goes on from the last"
            " checkpoint"
        ) from None
    finally:
        watch.end()


@contextlib.contextmanager
def on_one_gpu(device: str) -> Iterator[None]:
    """Let the trainer, which would use all GPUs, see one, and restore the variable afterwards."""
    from sentence_beam.transforms.encoder.devices import resolve_device

    chosen = resolve_device(device)
    with contextlib.ExitStack() as stack:
        if chosen.type == "cuda" and VISIBLE_GPUS not in os.environ:
            os.environ[VISIBLE_GPUS] = str(chosen.index or 0)
            stack.callback(os.environ.pop, VISIBLE_GPUS, None)
        yield


def is_better(task: "Task", before: "Predictions", after: "Predictions") -> bool:
    """Whether the dev score after training is above that of the start.

    An undefined score is below all others.
    """
    _, first = compute_metric(task, before)
    _, last = compute_metric(task, after)
    return last > first or (math.isnan(first) and not math.isnan(last))


def describe_no_gain(task: "Task", before: "Predictions", after: "Predictions") -> str:
    """Return the message that no checkpoint beats the start."""
    metric, first = compute_metric(task, before)
    _, last = compute_metric(task, after)
    scores = f"dev {metric} {first:.2f}, the best checkpoint {last:.2f}"
    return f"no checkpoint beats the start ({scores}), so the weights of the start are the best"


def save(job: "Job", folder: Path) -> Space | None:
    """Write the model, and return the space of its vectors, or None for a cross-encoder."""
    from sentence_beam.transforms.training import model as models

    models.save(job.model, folder, job.last, job.options.lora is not None)
    return None if job.options.cross_encoder else resolve_space(resolve_model(str(folder)))


def keep_start(job: "Job", start: "Sequence[dict[str, Tensor]]", reason: str, say: Say) -> None:
    """Restore the weights of the start. Raises DataGateError for `--must-improve`."""
    if job.options.must_improve:
        raise DataGateError(
            f"{cite('must_improve')}: {reason}; {cite('resume=True')} without"
            f" {cite('must_improve=True')} writes the start as the model"
        )
    say(format_summary_line("note", f"{reason}; they are kept"))
    for module, weights in zip(list_trained_modules(job), start, strict=True):
        module.load_state_dict(weights)


def copy_weights(job: "Job") -> "list[dict[str, Tensor]]":
    """Copy all weights that are trained into main memory."""
    copies = []
    for module in list_trained_modules(job):
        weights = module.state_dict().items()
        copies.append({name: value.detach().to("cpu", copy=True) for name, value in weights})
    return copies


def list_trained_modules(job: "Job") -> "list[Module]":
    """Return the model, and the layer that classifies, if there is one."""
    from sentence_beam.transforms.training import objectives

    modules: list[Module] = [job.model]
    classifier = objectives.find_classifier(job.loss)
    if classifier is not None:
        modules.append(classifier)
    return modules


def predict_now(job: "Job", task: "Task") -> "Predictions":
    """Return the predictions of the model with its present weights."""
    from sentence_beam.transforms.training.trainer import predict_task

    return predict_task(job, task)


def collect_settings(options: TrainOptions, data: Data) -> dict[str, Any]:
    """Return all that decides the weights: options, checksums and columns of data, the model."""
    settings: dict[str, Any] = {
        item.name: getattr(options, item.name)
        for item in fields(options)
        if item.name not in WITHOUT_INFLUENCE
    }
    settings["data"] = _list_checksums(data.train)
    settings["dev data"] = _list_checksums(data.dev)
    if options.cross_encoder:
        from sentence_beam.transforms.training.cross_encoder import identify_weights

        settings["weights"] = identify_weights(options)
    else:
        settings["weights"] = resolve_space(resolve_model(options.model, options.revision)).id
    return settings


def _list_checksums(examples: Examples | None) -> list[Any]:
    """Return the checksum and the columns of each file."""
    if examples is None:
        return []
    return [[source.sha256, dict(source.columns)] for source in examples.sources]
