"""Recipes: what is said about a vector, from options, and the space that they make."""

from dataclasses import replace

import pytest

from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError
from sentence_beam.transforms.space import Recipe, parse_pooler, resolve_space
from sentence_beam.transforms.space.chunks_spec import ChunksSpec


@pytest.fixture
def recipe():
    return Recipe(
        "minilm",
        pooler=parse_pooler("mean+max"),
        prompt="q: ",
        max_tokens=20,
        dtype="float32",
        chunks=ChunksSpec.parse("budget:tokens=9"),
    )


def test_options_give_the_recipe_back_and_what_is_missing_or_none_is_not_said(recipe):
    assert Recipe.from_options({**recipe.to_json(), "store": "elsewhere"}) == recipe
    assert Recipe.from_options(vars(recipe)) == recipe
    assert recipe.to_json()["pooler"] == "mean+max"
    assert Recipe.from_options({"model": None, "normalize": False, "calibration": ""}) == Recipe(
        normalize=False, calibration=""
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pooler": "meen"}, "pooler 'meen' is not known"),
        ({"chunks": "budget:tokens=0"}, "tokens=0 is no length"),
        ({"pooler": 3}, "--pooler: 3 is not text"),
    ],
)
def test_a_wrong_spec_is_refused_when_the_recipe_is_made(options, said):
    with pytest.raises(OptionError, match=said):
        Recipe.from_options(options)


def test_the_space_is_that_of_the_same_options(recipe):
    files = recipe.files()
    options = {"pooler": recipe.pooler, "prompt": "q: ", "max_tokens": 20, "dtype": "float32"}
    assert recipe.space(files) == resolve_space(files, **options)


def test_a_check_names_every_field_that_differs_and_is_not_ignored(recipe):
    space = recipe.space(recipe.files())
    other = replace(recipe, prompt="p: ", max_tokens=10).space(recipe.files())
    space.check(space, "this is another", "take the same")
    space.check(other, "this is another", "take the same", ignoring=("prompt", "max_tokens"))
    with pytest.raises(SpaceMismatchError) as caught:
        space.check(other, "this is another", "take the same")
    assert str(caught.value) == "this is another (max_tokens, prompt differ); take the same"
