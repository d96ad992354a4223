"""Callbacks of the trainer: keep the layer that classifies, tell the progress, find checkpoints."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState

from sentence_beam.transforms.training.training_progress import TrainingWatch

HEAD = "classifier.safetensors"


class ClassifierKeeper(TrainerCallback):
    """Scores and saves the last step, and keeps the layer that classifies in each checkpoint."""

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
        """Restore the layer's weights from a checkpoint."""
        if self._classifier is not None:
            with torch.no_grad():
                self._classifier.weight.copy_(load_file(checkpoint / HEAD)["weight"])


class ProgressTeller(TrainerCallback):
    """Tells the process's watcher how far the training is."""

    def __init__(self, watch: TrainingWatch) -> None:
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


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of the highest step that was written whole, or None.

    The trainer writes its state last.
    """
    whole = [path for path in folder.glob("checkpoint-*") if _is_whole(path / "trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _is_whole(state: Path) -> bool:
    try:
        return bool(json.loads(state.read_text(encoding="utf8")))
    except (OSError, ValueError):
        return False
