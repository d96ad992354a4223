"""A run of sentence-transformers' trainer: dev scores, checkpoints, early stopping, a stop at what
is not finite.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from safetensors.torch import load_file, save_file
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
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from transforms.base.errors import SentenceBeamError
from transforms.encoder.load import quiet_transformers
from transforms.encoder.pair_scorer import PairScorer
from transforms.evaluation.task import PairTask, Predictions, Task
from transforms.training import objectives
from transforms.training.dev import metric_of, predict
from transforms.training.examples import Examples
from transforms.training.model import evaluating
from transforms.training.options import RANKING, TrainOptions
from transforms.training.watch import TrainingWatch

HEAD = "classifier.safetensors"
POINTS = 50  # of the loss, in a curve
CHECKPOINTS = 10  # of a training
DECAY = 0.01  # of weights, as in the released scripts of SBERT


@dataclass(frozen=True)
class TrainingResult:
    """How a training went: steps done, the step whose weights were kept, and the curve.

    A point of the curve has `step`, `epoch` and either `loss` and `lr` or `dev`.
    """

    steps: int
    best_step: int
    curve: list[dict[str, Any]]
    stopped_early: bool


@dataclass(frozen=True)
class Job:
    """What is trained: the model, in place, its loss, the rows by role, and how the dev rows are
    scored, if any.

    `last` is a module that comes behind the model when it is trained. `test` is what the finished
    model is scored on.
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


def fit(job: Job, folder: Path, watch: "TrainingWatch") -> TrainingResult:
    """Train the model in place, its best weights by dev score in it at the end, the last ones
    without dev rows.

    Checkpoints are written to `folder`; where there are some, the training goes on from the last.
    Raises SentenceBeamError at a loss or gradient that is not finite.
    """
    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_dict({role: list(column) for role, column in job.values.items()})
    arguments = _arguments(job, folder, len(rows))
    scorer = _Scorer(job.dev, job, watch) if job.dev else None
    keeper = _Keeper(objectives.classifier_of(job.loss))
    callbacks: list[TrainerCallback] = [keeper, _Watched(watch)]
    if job.options.patience is not None:
        callbacks.append(EarlyStoppingCallback(job.options.patience))
    with quiet_transformers():
        kind: Any = _CrossEncoderTrainer if job.options.cross_encoder else _EncoderTrainer
        trainer = kind(
            model=job.model,
            args=arguments,
            train_dataset=rows,
            loss=job.loss,
            evaluator=scorer,
            callbacks=callbacks,
        )
        trainer.examples, trainer.folder, trainer.keeper = job.examples, folder, keeper
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        last = _last_checkpoint(folder)
        if last is not None:
            keeper.restore(last)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        best = trainer.state.best_model_checkpoint if job.dev else None
        if best is not None:
            keeper.restore(Path(best))
    state = trainer.state
    return TrainingResult(
        steps=state.global_step,
        best_step=int(best.rpartition("-")[2]) if best else state.global_step,
        curve=_curve(state.log_history),
        stopped_early=state.global_step < state.max_steps and job.options.patience is not None,
    )


def steps_of(rows: int, options: TrainOptions) -> int:
    """The steps of a training on so many rows."""
    return math.ceil(rows / options.batch) * options.epochs


def rows_in_batches(values: Mapping[str, Sequence[Any]], options: TrainOptions) -> int:
    """How many rows are in the batches of the first epoch of `ranking`, in none of which a text is
    twice.
    """
    rows = datasets.Dataset.from_dict({role: list(column) for role, column in values.items()})
    sampler = NoDuplicatesBatchSampler(
        rows, options.batch, False, [], torch.Generator(), options.seed
    )
    return sum(map(len, islice(sampler, len(sampler))))


def checkpoint_steps(options: TrainOptions, steps: int) -> int:
    """The steps between checkpoints, of a training of so many."""
    return options.checkpoint_steps or max(1, steps // CHECKPOINTS)


def predictions_of(job: Job, task: Task) -> Predictions:
    """What the model of a training as it is now makes of a task."""
    model: Any = job.model
    if not job.options.cross_encoder:
        return predict(task, partial(encode, model, batch=job.options.batch))
    if not isinstance(task, PairTask):
        raise TypeError(f"{task.kind} has no pairs")
    with evaluating(model):
        found = task.predict_pairs(PairScorer(model, job.options.output), {})
    return found


def encode(model: SentenceTransformer, texts: Sequence[str], batch: int) -> np.ndarray:
    """The vectors float32 [n, d] of texts, as the model is now."""
    with evaluating(model):
        return np.asarray(
            model.encode(
                list(texts), batch_size=batch, show_progress_bar=False, convert_to_numpy=True
            ),
            np.float32,
        )


def _arguments(
    job: Job, folder: Path, rows: int
) -> SentenceTransformerTrainingArguments | CrossEncoderTrainingArguments:
    options = job.options
    steps = job.most_steps or steps_of(rows, options)
    every = checkpoint_steps(options, steps)
    scored = job.dev is not None
    kind: Any = (
        CrossEncoderTrainingArguments
        if options.cross_encoder
        else SentenceTransformerTrainingArguments
    )
    found: SentenceTransformerTrainingArguments | CrossEncoderTrainingArguments = kind(
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
        batch_sampler=(
            BatchSamplers.NO_DUPLICATES
            if options.objective == RANKING
            else BatchSamplers.BATCH_SAMPLER
        ),
        logging_steps=max(1, steps // POINTS),
        logging_nan_inf_filter=False,
        save_strategy="steps" if job.most_steps is None else "no",
        save_steps=every,
        save_total_limit=1,  # and the best one
        eval_strategy="steps" if scored else "no",
        eval_steps=every,
        load_best_model_at_end=scored,
        metric_for_best_model="eval_dev" if scored else None,
        greater_is_better=True if scored else None,
        restore_callback_states_from_checkpoint=True,
        report_to="none",
        disable_tqdm=True,
    )
    return found


class _Trainer(BaseTrainer):
    """What the trainers of encoders and cross-encoders share: they say where a loss or a gradient
    is not finite.
    """

    examples: Examples
    folder: Path
    keeper: "_Keeper"

    def get_data_collator(self, *args: Any, **kwargs: Any) -> Any:
        collate = super().get_data_collator(*args, **kwargs)

        def with_texts(rows: list[dict[str, Any]]) -> dict[str, Any]:
            texts = [
                tuple(value for value in row.values() if isinstance(value, str)) for row in rows
            ]
            return {**collate(rows), "texts": texts}

        with_texts.valid_label_columns = collate.valid_label_columns  # type: ignore[attr-defined]
        return with_texts

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: the card is ours."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        texts = inputs.pop("texts")
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if not torch.isfinite(loss[0] if isinstance(loss, tuple) else loss).all():
            raise self._not_finite("loss", texts)
        return loss

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        texts = inputs["texts"]
        loss = super().training_step(model, inputs, *args, **kwargs)
        if self.args.fp16:  # whose scaler leaves out steps with such gradients
            return loss
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        if not torch.isfinite(nn.utils.get_total_norm(gradients)):
            raise self._not_finite("gradient", texts)
        return loss

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if output_dir is not None:
            self.keeper.keep(Path(output_dir))

    def _load_best_model(self) -> None:
        """Take the best weights; sentence-transformers logs an error where it cannot, and goes on
        with the last.
        """
        if self.state.best_model_checkpoint:
            self._load_from_checkpoint(self.state.best_model_checkpoint)

    def _not_finite(self, what: str, texts: list[tuple[str, ...]]) -> SentenceBeamError:
        wanted, examples = set(texts), self.examples
        places = [
            place
            for place, row in enumerate(examples.tuples())
            if row in {t[: len(row)] for t in wanted}
        ]
        rows: dict[str, list[int]] = {}
        for place in places:
            source, number = examples.origin[place]
            rows.setdefault(examples.sources[source].path, []).append(number)
        named = "; ".join(
            f"{path}, rows {', '.join(map(str, sorted(some)))}" for path, some in rows.items()
        )
        last = _last_checkpoint(self.folder)
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        step = self.state.global_step + 1
        return SentenceBeamError(
            f"the {what} is not finite at step {step} ({named}); {kept}; lower --lr, say --dtype"
            " float32, or leave such rows out"
        )


class _EncoderTrainer(_Trainer, SentenceTransformerTrainer):
    """The trainer of encoders."""


class _CrossEncoderTrainer(_Trainer, CrossEncoderTrainer):
    """The trainer of cross-encoders."""


class _Scorer(BaseEvaluator):
    """The dev score of the model as it is."""

    def __init__(self, task: Task, job: Job, watch: "TrainingWatch") -> None:
        super().__init__()
        self._task, self._job, self._watch = task, job, watch

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        metric, score = metric_of(self._task, predictions_of(self._job, self._task))
        self._watch.scored(steps, metric, score)
        return {"dev": score}


class _Keeper(TrainerCallback):
    """Checkpoints and scores the last step, and keeps in each checkpoint the layer that
    classifies.
    """

    def __init__(self, classifier: nn.Linear | None) -> None:
        self._classifier = classifier

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step >= state.max_steps:
            control.should_evaluate = args.eval_strategy != "no"

    def keep(self, checkpoint: Path) -> None:
        """Write the layer's weights into a checkpoint."""
        if self._classifier is not None:
            save_file(
                {"weight": self._classifier.weight.detach().cpu().contiguous()}, checkpoint / HEAD
            )

    def restore(self, checkpoint: Path) -> None:
        """Take the layer's weights from a checkpoint."""
        if self._classifier is not None:
            with torch.no_grad():
                self._classifier.weight.copy_(load_file(checkpoint / HEAD)["weight"])


class _Watched(TrainerCallback):
    """Tells whoever watches how far the training is."""

    def __init__(self, watch: "TrainingWatch") -> None:
        self._watch = watch

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._watch.begin(state.global_step, state.max_steps, state.best_metric)

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._watch.step(state.global_step)

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "loss" in logs:
            self._watch.loss(logs["loss"])


def _last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of the highest step that was written whole: what is written last into it is
    there.
    """
    found = [path for path in folder.glob("checkpoint-*") if _is_whole(path / "trainer_state.json")]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _is_whole(state: Path) -> bool:
    try:
        return bool(json.loads(state.read_text(encoding="utf8")))
    except (OSError, ValueError):
        return False


def _curve(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for entry in history:
        at = {"step": entry["step"], "epoch": round(entry["epoch"], 4)}
        if "loss" in entry:
            points.append({**at, "loss": float(entry["loss"]), "lr": entry["learning_rate"]})
        elif "eval_dev" in entry:
            score = float(entry["eval_dev"])
            points.append({**at, "dev": round(score, 6) if math.isfinite(score) else None})
    return points
