"""A training from its options to the folder that it writes."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.base.errors import DataGateError, OptionError, StoppedError
from transforms.base.option import is_given
from transforms.base.progress import LOADING, stage
from transforms.space import Space, resolve_model, resolve_space
from transforms.training import folders
from transforms.training.checks import check
from transforms.training.data import Data, read_data, taken
from transforms.training.dev import Classify, compared, dev_task, metric_of, scored_alone
from transforms.training.examples import Examples
from transforms.training.options import CLASSIFICATION, RANKING, TrainOptions
from transforms.training.record import TrainingOutcome, record_of, write_record
from transforms.training.watch import TrainingWatch

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from torch import Tensor
    from torch.nn import Module

    from transforms.evaluation.task import Predictions, Task
    from transforms.training.trainer import Job

Say = Callable[[str], None]
NOT_ASKED = (
    "inputs",
    "output",
    "device",
    "recipe",
    "resume",
    "overwrite",
    "dev",
    "max_rejects",
    "must_improve",
)  # what decides no weight
# options that a training of an earlier version did not have
LATER = ("concat", "cross_encoder", "test")
SEEN = "CUDA_VISIBLE_DEVICES"
SAMPLED = 10_000  # texts of which it is counted how many are cut


def train(options: TrainOptions, say: Say) -> dict[str, Any]:
    """Train a model, write its folder, and return the record of it, as in its `training.json`.

    `say` prints a line while it goes on. Raises OptionError, DataGateError and MissingExtraError
    before anything is computed; SentenceBeamError where a loss is not finite.
    """
    check(options)
    output = folders.output_of(options)
    with stage("reading the data"):
        data = read_data(options)
    asked = asked_of(options, data)
    if folders.is_finished(output, options, asked):
        say(f"{output} is finished already; there is nothing to resume")
        return folders.read_record(output)
    for line in taken(data, options):
        say(line)
    if options.resume and not folders.is_begun(output):
        say(
            f"note        {folders.work_of(output)} has no checkpoint to resume; the training"
            " begins"
        )
    with on_one_gpu(options.device), folders.working(output, options, asked) as work:
        began = time.monotonic()
        with stage(LOADING):
            job, task = prepare(options, data, say)
        watch = TrainingWatch(say)
        with stage("scoring the dev rows"):
            before = predicted(job, task)
        if task is not None and before is not None:
            watch.scored(0, *metric_of(task, before))
        start = weights_of(job) if task is not None else []
        try:
            from transforms.training.trainer import fit

            fitted = fit(job, work / folders.CHECKPOINTS, watch)
        except KeyboardInterrupt:
            raise StoppedError(
                "interrupted; the same command with --resume goes on from the last checkpoint"
            ) from None
        finally:
            watch.end()
        with stage("scoring the dev rows, with intervals"):
            after = predicted(job, task)
            if (
                task is not None
                and before is not None
                and after is not None
                and not is_better(task, before, after)
            ):
                keep_start(options, job, start, lost(task, before, after), say)
                fitted, after = replace(fitted, best_step=0), before
            believed = None if task is None else compared(task, before or {}, after or {})
        tested = (
            None if job.test is None else scored_alone(job.test, predicted(job, job.test) or {})
        )
        metric = None if task is None or after is None else metric_of(task, after)[0]
        with folders.staged(output) as folder:
            space = save(job, folder)
            outcome = TrainingOutcome(
                fitted, metric, believed, space, time.monotonic() - began, tested
            )
            record = record_of(options, data, asked, outcome)
            write_record(folder, record)
    return record


@contextlib.contextmanager
def on_one_gpu(asked: str) -> Iterator[None]:
    """Let the trainer see one GPU, over all of which it would spread, and put back what the process
    could see.
    """
    from transforms.encoder.devices import resolve_device

    device = resolve_device(asked)
    with contextlib.ExitStack() as stack:
        if device.type == "cuda" and SEEN not in os.environ:
            os.environ[SEEN] = str(device.index or 0)
            stack.callback(os.environ.pop, SEEN, None)
        yield


def is_better(task: "Task", before: "Predictions", after: "Predictions") -> bool:
    """Whether the dev score after training is above that of the start; one that is undefined is
    below all others.
    """
    first, last = (metric_of(task, predictions)[1] for predictions in (before, after))
    return last > first or (math.isnan(first) and not math.isnan(last))


def lost(task: "Task", before: "Predictions", after: "Predictions") -> str:
    """The message that no checkpoint beats the start."""
    metric, first = metric_of(task, before)
    last = metric_of(task, after)[1]
    scores = f"dev {metric} {first:.2f}, the best checkpoint {last:.2f}"
    return f"no checkpoint beats the start ({scores}), so the weights of the start are the best"


def save(job: "Job", folder: Path) -> Space | None:
    """Write the model, and return the space of its vectors; a cross-encoder has none."""
    from transforms.training import cross_encoder
    from transforms.training import model as models

    model: Any = job.model
    if job.options.cross_encoder:
        cross_encoder.save(model, folder)
        return None
    models.save(model, folder, job.last, job.options.lora is not None)
    return resolve_space(resolve_model(str(folder)))


def keep_start(
    options: TrainOptions, job: "Job", start: "Sequence[dict[str, Tensor]]", why: str, say: Say
) -> None:
    """Give the model the weights of the start. Raises DataGateError if the options demand better
    ones.
    """
    if options.must_improve:
        raise DataGateError(
            f"--must-improve: {why}; --resume without --must-improve writes the start as the model"
        )
    say(f"note        {why}; they are kept")
    for module, weights in zip(trained_modules(job), start, strict=True):
        module.load_state_dict(weights)


def weights_of(job: "Job") -> "list[dict[str, Tensor]]":
    """Copies in main memory of all weights that are trained."""
    return [
        {name: value.detach().to("cpu", copy=True) for name, value in module.state_dict().items()}
        for module in trained_modules(job)
    ]


def trained_modules(job: "Job") -> "list[Module]":
    """The model, and the layer that classifies if there is one."""
    from transforms.training import objectives

    classifier = objectives.classifier_of(job.loss)
    return [job.model, *([] if classifier is None else [classifier])]


def asked_of(options: TrainOptions, data: Data) -> dict[str, Any]:
    """All that decides the weights: options, the data's checksums and columns, and the model's."""
    chosen = {
        item.name: getattr(options, item.name)
        for item in fields(options)
        if item.name not in NOT_ASKED
    }
    for name in LATER:
        if not is_given(options, name):
            del chosen[name]

    def described(examples: Examples | None) -> list[Any]:
        return (
            [[source.sha256, dict(source.columns)] for source in examples.sources]
            if examples
            else []
        )

    if options.cross_encoder:
        from transforms.training.cross_encoder import weights_id

        weights = weights_id(options)
    else:
        weights = resolve_space(resolve_model(options.model, options.revision)).id
    return {
        **chosen,
        "data": described(data.train),
        "dev data": described(data.dev),
        "weights": weights,
    }


def prepare(options: TrainOptions, data: Data, say: Say) -> "tuple[Job, Task | None]":
    """The model with its loss and rows, ready to train, and what it is scored on."""
    from transformers import set_seed

    from transforms.encoder.devices import resolve_device
    from transforms.training import model as models
    from transforms.training import objectives
    from transforms.training.trainer import Job, rows_in_batches

    device = resolve_device(options.device)
    set_seed(options.seed)
    values = data.values
    if options.cross_encoder:
        return _prepare_cross_encoder(options, data, device.type, say)
    model = models.load(options, device.type)
    last = models.take_normalize(model) if options.objective == CLASSIFICATION else None
    loss = objectives.loss_of(model, options, len(data.labels))
    if options.hard_negatives:
        from transforms.training.negatives import with_negatives

        values = with_negatives(values, model, options)
        say(
            f"negatives   {options.hard_negatives} to each of {len(values['anchor']):,} of"
            f" {len(data.train):,} rows"
        )
        if len(values["anchor"]) < options.batch:
            raise OptionError(
                "--hard-negatives: fewer rows than a batch have so many; ask for fewer"
            )
    if options.objective == RANKING:
        rows = len(values["anchor"])
        used = rows_in_batches(values, options)
        if options.batch > 1 and used < 2 * math.ceil(rows / options.batch):
            raise OptionError(
                "nearly all rows share a text, so that batches have no negatives; give others"
            )
        if used < rows:
            say(
                f"note        {used:,} of {rows:,} rows are in an epoch's batches; the others share"
                " texts with these"
            )
    cut = _cut(model, data.train)
    if cut:
        say(f"truncated   {cut}")
    classify = partial(_classify, objectives.classifier_of(loss), options.concat)
    task, test = _tasks(data, options, classify)
    return Job(model, loss, data.train, values, options, task, last, test=test), task


def _tasks(
    data: Data, options: TrainOptions, classify: Classify
) -> "tuple[Task | None, Task | None]":
    """What the model is scored on while it is trained, and when it is finished."""
    found = [
        dev_task(rows, options.objective, data.labels, classify) if rows else None
        for rows in (data.dev, data.test)
    ]
    return found[0], found[1]


def _prepare_cross_encoder(
    options: TrainOptions, data: Data, device: str, say: Say
) -> "tuple[Job, Task | None]":
    """A cross-encoder with its loss and rows, ready to train, and what it is scored on."""
    from transforms.training import cross_encoder
    from transforms.training.trainer import Job

    model = cross_encoder.load(options, data.labels, device)
    loss = cross_encoder.loss_of(model, len(data.labels))
    cut = _cut(model, data.train, in_pairs=True)
    if cut:
        say(f"truncated   {cut}")
    task, test = _tasks(data, options, _no_vectors)
    return Job(model, loss, data.train, data.values, options, task, test=test), task


def _no_vectors(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """A cross-encoder gives labels to texts, not to vectors."""
    raise TypeError("a cross-encoder makes no vectors")


def predicted(job: "Job", task: "Task | None") -> "Predictions | None":
    """What the model as it is makes of the dev rows; None without them."""
    from transforms.training.trainer import predictions_of

    return None if task is None else predictions_of(job, task)


def _classify(layer: Any, concat: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The labels that the trained layer gives pairs of vectors, int64 [n]."""
    weights = layer.weight.detach().float().cpu().numpy()
    parts = {"u": first, "v": second, "|u-v|": np.abs(first - second), "u*v": first * second}
    return np.argmax(
        np.concatenate([parts[name] for name in concat.split(",")], axis=1) @ weights.T, axis=1
    )


def _cut(
    model: "SentenceTransformer | CrossEncoder", examples: Examples, in_pairs: bool = False
) -> str | None:
    """How many texts are longer than the model is to read, of the first ones; None where there is
    none.
    """
    limit, tokenizer = model.max_seq_length, model.tokenizer
    if not limit or limit == math.inf:  # a table of token embeddings reads all of a text
        return None
    if in_pairs:
        what = "pairs"
        read = [column[:SAMPLED] for column in examples.texts.values()]
    else:
        what = "texts"
        texts = dict.fromkeys(
            text for column in examples.texts.values() for text in column[:SAMPLED]
        )
        read = [list(texts)[:SAMPLED]]
    lengths = [len(ids) for ids in tokenizer(*read, truncation=False, verbose=False)["input_ids"]]
    cut = sum(length > limit for length in lengths)
    if not cut:
        return None
    return (
        f"{cut:,} of {len(lengths):,} {what} are longer than {limit} tokens and are cut"
        " (--max-tokens)"
    )
