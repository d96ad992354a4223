"""Published trainings: every file is a training's options, and second steps begin with what first
steps write.
"""

import tomllib

import pytest

from sentence_beam.pipelines.common.options import as_options
from sentence_beam.pipelines.train import parser, with_recipe
from sentence_beam.transforms.training import recipes
from sentence_beam.transforms.training.option_checks import check
from sentence_beam.transforms.training.train_options import TrainOptions

PAIRS = {
    "sbert-stsb": "sbert-nli",
    "salbert-stsb": "salbert-nli",
    "cnn-sbert-nli-stsb": "cnn-sbert-nli",
    "cnn-salbert-nli-stsb": "cnn-salbert-nli",
}


def options_of(name: str, *flags: str) -> TrainOptions:
    """What a command line with a recipe asks for."""
    (found,) = with_recipe(parser(), ["--recipe", name, "--input", "rows.tsv", *flags])
    return as_options(TrainOptions, found)


@pytest.mark.parametrize("name", recipes.list_recipes())
def test_a_recipe_is_the_options_of_a_training(name: str) -> None:
    asked = options_of(name, "--lr", "1e-3")
    check(asked)
    told = tomllib.loads(recipes.find_recipe(name).read_text())
    assert (asked.lr, asked.output, asked.epochs, asked.batch) == (
        1e-3,
        name,
        told["epochs"],
        told["batch"],
    )
    assert asked.cross_encoder == name.startswith("cross-encoder-")
    assert (asked.pooler == "cnn") == name.startswith("cnn-")


@pytest.mark.parametrize(("second", "first"), PAIRS.items())
def test_a_second_step_begins_with_the_first_ones_folder(second: str, first: str) -> None:
    before, after = options_of(first), options_of(second)
    assert (after.model, before.objective, after.objective) == (
        before.output,
        "classification",
        "regression",
    )
    assert (after.pooler, after.max_tokens) == (before.pooler, before.max_tokens)


def test_a_cnn_head_learns_at_half_the_rate_on_nli_too() -> None:
    rates = {
        name: options_of(name).lr for name in ("sbert-nli", "cnn-sbert-nli", "cross-encoder-nli")
    }
    assert rates == {"sbert-nli": 2e-5, "cnn-sbert-nli": 1e-5, "cross-encoder-nli": 3e-5}


def test_some_recipes_have_options_of_their_own() -> None:
    assert len(recipes.list_recipes()) == 12
    assert options_of("sbert-nli").labels == ("contradiction=2", "entailment=0", "neutral=1")
    cnn = options_of("cnn-sbert", "--dev=b.tsv")
    assert (cnn.pooler, cnn.scores, cnn.epochs, cnn.dev) == ("cnn", (0.0, 5.0), 10, "b.tsv")
