"""Options of a training that do not go together: one line that says what to leave out or add.

Covers transforms/training/train_options.py.
"""

import importlib.util
from typing import Any

import pytest

from sentence_beam.transforms.base.errors import MissingExtraError, OptionError
from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.training.option_checks import check
from sentence_beam.transforms.training.seeds import train_seeds
from sentence_beam.transforms.training.train_options import TrainOptions


def options(objective: str = "regression", **given: Any) -> TrainOptions:
    return TrainOptions(("rows.tsv",), objective=objective, output="model", **given)


CROSS_ENCODER = {"cross_encoder": True}
MISTAKES: list[tuple[TrainOptions, str]] = [
    (options(lr=0), "--lr has to be above 0"),
    (options(scores="5,0"), "the first has to be the smaller one"),
    (options(mini_batch=4), "--mini-batch is for --objective ranking"),
    (options(labels="a,b"), "--labels is for --objective classification"),
    (options(concat="u,v"), "--concat is for --objective classification"),
    (options("classification", matryoshka="8"), "--matryoshka has no meaning"),
    (options(patience=2), "--patience counts dev scores; say --dev PATH too"),
    (options(must_improve=True), "--must-improve compares dev scores; say --dev PATH too"),
    (options(lora=4, freeze_backbone=True), "say one of them"),
    (options(dtype="float16", device="cpu"), "--dtype float16 trains only on a GPU"),
    (options("cosent", **CROSS_ENCODER), "say --objective regression or classification"),
    (options(pooler="mean", **CROSS_ENCODER), "--pooler is for encoders"),
    (options(lora=4, **CROSS_ENCODER), "--lora is for encoders"),
    (options(matryoshka="8", **CROSS_ENCODER), "--matryoshka is for encoders"),
    (options(freeze_backbone=True, **CROSS_ENCODER), "--freeze-backbone is for encoders"),
]


@pytest.mark.parametrize(("asked", "said"), MISTAKES)
def test_options_that_do_not_go_together(asked: TrainOptions, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        check(asked)
    assert said in caught.value.line


def test_several_seeds_need_scores_to_compare() -> None:
    with pytest.raises(OptionError, match="seeds compares scores; say dev PATH or test PATH"):
        train_seeds(options(), 2, print)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    for package, asked in (("accelerate", options()), ("peft", options(lora=4))):
        others = lambda name, gone=package: None if name == gone else find(name)  # noqa: E731
        monkeypatch.setattr(importlib.util, "find_spec", others)
        with pytest.raises(MissingExtraError) as caught:
            check(asked)
        line = f"training needs {package}, which is not installed; {format_pip_line('train')}"
        assert str(caught.value) == line
