"""What is evaluated."""

from dataclasses import dataclass

from transforms.evaluation.classifier import LOGISTIC
from transforms.space import DEFAULT_MODEL
from transforms.values import read

AVERAGE = "Avg."  # in the place of a task's name: the average of several


@dataclass(frozen=True)
class EvaluateOptions:
    """Tasks, and the methods that are scored on them: each pooler, with each calibration fitted for it, at each dim.

    `tasks`: [KIND:]NAME=PATH[,PATH] each; `make`: PROBE=PATH each. `calibrations` are folders that `fit` made;
    `truncate_dims` are scored beside the full width. `cache` is a folder in which scores are kept.
    """

    tasks: tuple[str, ...] = ()
    make: tuple[str, ...] = ()
    model: str = DEFAULT_MODEL
    revision: str | None = None
    poolers: tuple[str, ...] = ("auto",)
    calibrations: tuple[str, ...] = ()
    truncate_dims: tuple[int, ...] = ()
    max_tokens: int | None = None
    dtype: str = "float32"
    device: str = "auto"
    classifier: str = LOGISTIC
    cache: str | None = None

    def __post_init__(self) -> None:
        read(self, {})
