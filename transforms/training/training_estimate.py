"""Estimate the cost of a training from a few of its steps."""

import math
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sentence_beam.transforms.training import folders
from sentence_beam.transforms.training.data import describe_data, read_data
from sentence_beam.transforms.training.option_checks import check
from sentence_beam.transforms.training.prepare import prepare
from sentence_beam.transforms.training.train_options import TrainOptions
from sentence_beam.transforms.training.training_progress import Say, TrainingWatch

STEPS = 5  # steps to run; the first is slow and does not count


@dataclass(frozen=True)
class TrainingEstimate:
    """Rows, batches of an epoch and steps of a training, its peak memory and its time.

    `memory` is in bytes, times are in seconds.
    """

    rows: int
    batch: int
    batches: int
    steps: int
    every: int
    parameters: int
    trained: int
    memory: int
    step_seconds: float
    dev_seconds: float
    seconds: float


def estimate(options: TrainOptions, say: Say) -> TrainingEstimate:
    """Estimate a training; only a temporary folder is written.

    Raises what `train` raises.
    """
    check(options)
    folders.check_output(options)
    data = read_data(options)
    for line in describe_data(data):
        say(line)
    from sentence_beam.transforms.training.trainer import (
        choose_checkpoint_steps,
        count_steps,
        fit,
        predict_task,
    )

    job = prepare(options, data, say)
    dev_seconds = 0.0
    if job.dev is not None:
        began = time.monotonic()
        predict_task(job, job.dev)
        dev_seconds = time.monotonic() - began
    rows = len(next(iter(job.values.values())))
    steps = count_steps(rows, options)
    every = choose_checkpoint_steps(options, steps)
    watch = TrainingWatch(say)
    with tempfile.TemporaryDirectory() as folder:
        fit(replace(job, dev=None, most_steps=min(STEPS, steps)), Path(folder), watch)
    watch.end()
    times = [after - before for before, after in zip(watch.times, watch.times[1:], strict=False)]
    step_seconds = statistics.median(times[1:] or times)
    weights = list(job.model.parameters())
    return TrainingEstimate(
        rows=rows,
        batch=options.batch,
        batches=math.ceil(rows / options.batch),
        steps=steps,
        every=every,
        parameters=sum(weight.numel() for weight in weights),
        trained=sum(weight.numel() for weight in weights if weight.requires_grad),
        memory=_measure_memory(job.model.device.type),
        step_seconds=step_seconds,
        dev_seconds=dev_seconds,
        seconds=steps * step_seconds + dev_seconds * (2 + math.ceil(steps / every)),
    )


def _measure_memory(device: str) -> int:
    """Return the peak memory in bytes, of the device the model is on."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
