"""Run sentence-transformers' trainer: dev scores, checkpoints, early stopping.

A training stops at a loss or gradient that is not finite.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.base.trainer import BaseTrainer
from sentence_transformers.training_args import BatchSamplers
from torch import nn
from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.encoder.load import quiet_transformers
from sentence_beam.transforms.encoder.pair_scorer import PairScorer
from sentence_beam.transforms.evaluation.task import PairTask, Predictions, Task
from sentence_beam.transforms.training import objectives
from sentence_beam.transforms.training.callbacks import (
    ClassifierKeeper,
    ProgressTeller,
    find_last_checkpoint,
)
from sentence_beam.transforms.training.dev import compute_metric, predict
from sentence_beam.transforms.training.model import evaluating
from sentence_beam.transforms.training.train_options import RANKING, TrainOptions
from sentence_beam.transforms.training.training_examples import Examples
from sentence_beam.transforms.training.training_progress import TrainingWatch

POINTS = 50  # of the loss, in a curve
CHECKPOINTS = 10  # of a training
DECAY = 0.01  # of weights, as in the released scripts of SBERT


@dataclass(frozen=True)
class TrainingResult:
    """The steps done, the step whose weights were kept, and the curve.

    A point of the curve has `step`, `epoch` and either `loss` and `lr` or `dev`.
    """

    steps: int
    best_step: int
    curve: list[dict[str, Any]]
    stopped_early: bool


@dataclass(frozen=True)
class Job:
    """A model to train in place, its loss, the rows by role, and the tasks that score it.

    `last` is a module to append to the trained model. The finished model is scored on `test`.
    `most_steps` limits the steps of an estimate.
    """

    model: SentenceTransformer | CrossEncoder
    loss: nn.Module
    examples: Examples
    values: Mapping[str, Sequence[Any]]
    options: TrainOptions
    dev: Task | None = None
    last: nn.Module | None = None
    most_steps: int | None = None
    test: Task | None = None


def fit(job: Job, folder: Path, watch: TrainingWatch) -> TrainingResult:
    """Train the model in place; at the end it has its best weights by dev score.

    Without dev rows it has the last weights. Checkpoints are written to `folder`; if there are any,
    the training resumes from the last. Raises SentenceBeamError at a loss or gradient that is not
    finite.
    """
    datasets.disable_progress_bars()
    keeper = ClassifierKeeper(objectives.find_classifier(job.loss))
    with quiet_transformers():
        trainer = _make_trainer(job, folder, keeper, watch)
        last = find_last_checkpoint(folder)
        if last is None:
            trainer.train()
        else:
            keeper.restore(last)
            trainer.train(resume_from_checkpoint=str(last))
        best = trainer.state.best_model_checkpoint if job.dev is not None else None
        if best is not None:
            keeper.restore(Path(best))
    state = trainer.state
    best_step = int(best.rpartition("-")[2]) if best is not None else state.global_step
    return TrainingResult(
        steps=state.global_step,
        best_step=best_step,
        curve=make_curve(state.log_history),
        stopped_early=state.global_step < state.max_steps and job.options.patience is not None,
    )


def _make_trainer(job: Job, folder: Path, keeper: ClassifierKeeper, watch: TrainingWatch) -> Any:
    """Return the trainer of sentence-transformers with our callbacks."""
    rows = datasets.Dataset.from_dict({role: list(column) for role, column in job.values.items()})
    callbacks: list[TrainerCallback] = [keeper, ProgressTeller(watch)]
    if job.options.patience is not None:
        callbacks.append(EarlyStoppingCallback(job.options.patience))
    scorer = _Scorer(job.dev, job, watch) if job.dev is not None else None
    kind: Any = _CrossEncoderTrainer if job.options.cross_encoder else _EncoderTrainer
    trainer = kind(
        model=job.model,
        args=_make_arguments(job, folder, len(rows)),
        train_dataset=rows,
        loss=job.loss,
        evaluator=scorer,
        callbacks=callbacks,
    )
    trainer.examples = job.examples
    trainer.folder = folder
    trainer.keeper = keeper
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def count_steps(rows: int, options: TrainOptions) -> int:
    """Return the number of steps of a training on so many rows."""
    return math.ceil(rows / options.batch) * options.epochs


def count_batched_rows(values: Mapping[str, Sequence[Any]], options: TrainOptions) -> int:
    """Count the rows in the batches of the first epoch of `ranking`.

    No text occurs twice in a batch.
    """
    rows = datasets.Dataset.from_dict({role: list(column) for role, column in values.items()})
    sampler = NoDuplicatesBatchSampler(
        rows, options.batch, False, [], torch.Generator(), options.seed
    )
    return sum(map(len, islice(sampler, len(sampler))))


def choose_checkpoint_steps(options: TrainOptions, steps: int) -> int:
    """Return the steps between checkpoints of a training of so many steps."""
    return options.checkpoint_steps or max(1, steps // CHECKPOINTS)


def predict_task(job: Job, task: Task) -> Predictions:
    """Return the predictions of a job's model, with its present weights, for a task."""
    model: Any = job.model
    if not job.options.cross_encoder:
        return predict(task, partial(encode, model, batch=job.options.batch))
    if not isinstance(task, PairTask):
        raise TypeError(f"{task.kind} has no pairs")
    with evaluating(model):
        return task.predict_pairs(PairScorer(model, job.options.output), {})


def encode(model: SentenceTransformer, texts: Sequence[str], batch: int) -> np.ndarray:
    """Return the vectors float32 [n, d] of texts, with the model's present weights."""
    with evaluating(model):
        return np.asarray(
            model.encode(
                list(texts), batch_size=batch, show_progress_bar=False, convert_to_numpy=True
            ),
            np.float32,
        )


def _make_arguments(
    job: Job, folder: Path, rows: int
) -> SentenceTransformerTrainingArguments | CrossEncoderTrainingArguments:
    """Return the trainer's arguments."""
    options = job.options
    steps = job.most_steps or count_steps(rows, options)
    kind: Any = SentenceTransformerTrainingArguments
    if options.cross_encoder:
        kind = CrossEncoderTrainingArguments
    sampler = BatchSamplers.BATCH_SAMPLER
    if options.objective == RANKING:
        sampler = BatchSamplers.NO_DUPLICATES
    arguments: SentenceTransformerTrainingArguments | CrossEncoderTrainingArguments = kind(
        output_dir=str(folder),
        num_train_epochs=options.epochs,
        max_steps=job.most_steps or -1,
        per_device_train_batch_size=options.batch,
        learning_rate=options.lr,
        warmup_steps=math.ceil(steps * options.warmup),
        weight_decay=DECAY,
        seed=options.seed,
        data_seed=options.seed,
        bf16=options.dtype == "bfloat16",
        fp16=options.dtype == "float16",
        use_cpu=job.model.device.type == "cpu",
        prompts=job.model.prompts.get(job.model.default_prompt_name or "") or None,
        batch_sampler=sampler,
        logging_steps=max(1, steps // POINTS),
        logging_nan_inf_filter=False,
        restore_callback_states_from_checkpoint=True,
        report_to="none",
        disable_tqdm=True,
        **_make_checkpoint_arguments(job, choose_checkpoint_steps(options, steps)),
    )
    return arguments


def _make_checkpoint_arguments(job: Job, every: int) -> dict[str, Any]:
    """Return the arguments that say when to write checkpoints and to score the dev rows."""
    arguments: dict[str, Any] = {
        "save_strategy": "steps" if job.most_steps is None else "no",
        "save_steps": every,
        "save_total_limit": 1,  # and the best one
        "eval_strategy": "no",
        "eval_steps": every,
    }
    if job.dev is not None:
        arguments["eval_strategy"] = "steps"
        arguments["load_best_model_at_end"] = True
        arguments["metric_for_best_model"] = "eval_dev"
        arguments["greater_is_better"] = True
    return arguments


class _Trainer(BaseTrainer):
    """Stops a training at a loss or gradient that is not finite."""

    examples: Examples
    folder: Path
    keeper: ClassifierKeeper

    def get_data_collator(self, *args: Any, **kwargs: Any) -> Any:
        """Add the texts of a batch to it, so that an error can show them."""
        collate = super().get_data_collator(*args, **kwargs)

        def with_texts(rows: list[dict[str, Any]]) -> dict[str, Any]:
            texts = [
                tuple(value for value in row.values() if isinstance(value, str)) for row in rows
            ]
            return {**collate(rows), "texts": texts}

        with_texts.valid_label_columns = collate.valid_label_columns  # type: ignore[attr-defined]
        return with_texts

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add no callback: the card is ours."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Raise the error of a loss that is not finite."""
        texts = inputs.pop("texts")
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        value: Any = loss[0] if isinstance(loss, tuple) else loss
        if not torch.isfinite(value).all():
            raise self._describe_not_finite("loss", texts)
        return loss

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Raise the error of a gradient that is not finite."""
        texts = inputs["texts"]
        loss = super().training_step(model, inputs, *args, **kwargs)
        if self.args.fp16:  # whose scaler leaves out steps with such gradients
            return loss
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        if not torch.isfinite(nn.utils.get_total_norm(gradients)):
            raise self._describe_not_finite("gradient", texts)
        return loss

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if output_dir is not None:
            self.keeper.keep(Path(output_dir))

    def _load_best_model(self) -> None:
        """Load the best weights or fail.

        The method of sentence-transformers logs an error and keeps the last weights.
        """
        if self.state.best_model_checkpoint:
            self._load_from_checkpoint(self.state.best_model_checkpoint)

    def _describe_not_finite(self, what: str, texts: list[tuple[str, ...]]) -> SentenceBeamError:
        """Return the error of a loss or gradient, with the rows of its batch."""
        checkpoint = find_last_checkpoint(self.folder)
        last = "there is no checkpoint yet"
        if checkpoint is not None:
            last = f"the last good checkpoint is {checkpoint}"
        step = self.state.global_step + 1
        return SentenceBeamError(
            f"the {what} is not finite at step {step} ({name_rows_with(self.examples, texts)});"
            f" {last}; lower {cite('lr')}, say {cite('dtype')} float32, or leave such rows out"
        )


class _EncoderTrainer(_Trainer, SentenceTransformerTrainer):
    """The trainer of encoders."""


class _CrossEncoderTrainer(_Trainer, CrossEncoderTrainer):
    """The trainer of cross-encoders."""


class _Scorer(BaseEvaluator):
    """The dev score of the model with its present weights."""

    def __init__(self, task: Task, job: Job, watch: TrainingWatch) -> None:
        super().__init__()
        self._task = task
        self._job = job
        self._watch = watch

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        metric, score = compute_metric(self._task, predict_task(self._job, self._task))
        self._watch.scored(steps, metric, score)
        return {"dev": score}


def name_rows_with(examples: Examples, texts: Iterable[tuple[str, ...]]) -> str:
    """Return the files and numbers of the rows with these texts, for messages.

    Further texts at the end of a tuple, such as mined negatives, are ignored.
    """
    width = len(examples.texts)
    batch = {row[:width] for row in texts}
    rows: dict[str, list[int]] = {}
    for place, row in enumerate(examples.tuples()):
        if row in batch:
            source, number = examples.origin[place]
            rows.setdefault(examples.sources[source].path, []).append(number)
    return "; ".join(
        f"{path}, rows {', '.join(map(str, sorted(numbers)))}" for path, numbers in rows.items()
    )


def make_curve(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the points of the curve from the trainer's log; an undefined dev score is None."""
    points: list[dict[str, Any]] = []
    for entry in history:
        point = {"step": entry["step"], "epoch": round(entry["epoch"], 4)}
        if "loss" in entry:
            point["loss"] = float(entry["loss"])
            point["lr"] = entry["learning_rate"]
        elif "eval_dev" in entry:
            score = float(entry["eval_dev"])
            point["dev"] = round(score, 6) if math.isfinite(score) else None
        else:
            continue
        points.append(point)
    return points
