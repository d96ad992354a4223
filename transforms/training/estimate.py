"""What a training will take, from a few of its steps."""

import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from transforms.training import folders
from transforms.training.checks import check
from transforms.training.data import read_data, taken
from transforms.training.options import TrainOptions

STEPS = 5  # that are done; the first is left out, as much is made ready in it


@dataclass(frozen=True)
class TrainingEstimate:
    """Rows, batches of an epoch, steps; bytes of memory at the most so far, and seconds that all
    will take.
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


def estimate(options: TrainOptions, say: Callable[[str], None]) -> TrainingEstimate:
    """The estimate for a training; nothing is written, but for a temporary folder. Raises what
    `train` raises.
    """
    check(options)
    folders.output_of(options)
    data = read_data(options)
    for line in taken(data, options):
        say(line)
    from transforms.training.train import predicted, prepare
    from transforms.training.trainer import checkpoint_steps, fit, steps_of
    from transforms.training.watch import TrainingWatch

    job, task = prepare(options, data, say)
    began = time.monotonic()
    predicted(job, task)
    dev_seconds = time.monotonic() - began if task else 0.0
    rows = len(next(iter(job.values.values())))
    steps = steps_of(rows, options)
    every = checkpoint_steps(options, steps)
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
        memory=_memory(job.model.device.type),
        step_seconds=step_seconds,
        dev_seconds=dev_seconds,
        seconds=steps * step_seconds + dev_seconds * (2 + math.ceil(steps / every)),
    )


def _memory(device: str) -> int:
    """The most bytes that were in use at once, of the device where the model is."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
