"""Queries as vectors: the model that a store remembers, with the prompt for queries."""

import contextlib
import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.cores import one_core
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.space.identity import OUTPUT_FIELDS
from sentence_beam.transforms.space.st_modules import QUERY
from sentence_beam.transforms.space.trained_prompts import TrainedPrompts
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.int8_models import read_kept_int8
from sentence_beam.transforms.store.manifest import Manifest

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import (
        Encoder,  # imports torch, which a search by vectors lacks
    )

NO_QUERY_PROMPT = (
    "the rows have a prompt and none is known for queries, which get none; say --query-prompt here,"
    " or in embed, which remembers it"
)
FEW_CHARACTERS = 2000
EXCERPT = 60  # characters
MOST_UNKNOWN = 0.5  # fraction of a query's tokens; above it a warning is printed
# fields in which the space of queries differs from that of the rows
OF_QUERIES = ("prompt", "precision")
OF_POOLED_QUERIES = ("prompt", *OUTPUT_FIELDS)
_LOGGER = logging.getLogger(__name__)


def unknown_queries(texts: list[str]) -> str:
    """Return the warning about queries whose words the model does not know."""
    others = len(texts) - 1
    more = ""
    if others == 1:
        more = " and of 1 other query"
    elif others:
        more = f" and of {others:,} other queries"
    return (
        f"the model does not know most words of the query {texts[0][:EXCERPT]!r}{more}; its hits"
        " mean little"
    )


class QueryEncoder:
    """The encoder of queries to a snapshot, loaded when first needed.

    The options are those of `Searcher`.
    """

    def __init__(
        self, manifest: Manifest, model: str | None, query_prompt: str | None, alone: bool
    ):
        self._manifest = manifest
        self._model = model
        self._given_prompt = query_prompt
        self._alone = alone
        self._loaded: Encoder | None = None

    def of(self, manifest: Manifest) -> "QueryEncoder":
        """Return the encoder of another snapshot; a loaded model is shared if it is the same."""
        other = QueryEncoder(manifest, self._model, self._given_prompt, self._alone)
        if self._loaded is not None and other._identity == self._identity:
            other._loaded = self._loaded
        return other

    @property
    def _identity(self) -> tuple[object, ...]:
        """The values that determine the encoder."""
        return self._manifest.root, self._manifest.space, self._recipe, self.prompt

    @property
    def _encoder(self) -> "Encoder":
        """The snapshot's encoder, with the prompt for queries."""
        if self._loaded is None:
            self._loaded = self._load(self._recipe, OF_QUERIES)
        return self._loaded

    def _load(self, recipe: Recipe, ignoring: tuple[str, ...]) -> "Encoder":
        """Return a recipe's encoder of queries, with the store's calibration unless it is ignored.

        Raises SpaceMismatchError if it makes another space than the rows', in fields that are not
        to be ignored.
        """
        root = self._manifest.root
        space = self._manifest.space
        calibration = read_kept_calibration(root, space) if "calibration" not in ignoring else None
        with progress.stage(progress.LOADING):
            from sentence_beam.transforms.encoder import Encoder

            plain_recipe = replace(recipe, prompt=self.prompt or "", calibration="")
            int8 = read_kept_int8(root, space)
            encoder = Encoder.from_recipe(plain_recipe, calibration=calibration, int8=int8)
        what = f"{recipe.model} is not the model of {root}"
        space.check(
            encoder.space, what, f"name the same one with {cite('model')}", ignoring=ignoring
        )
        return encoder

    @cached_property
    def _recipe(self) -> Recipe:
        """The store's recipe for its vectors, with the model's path on this machine."""
        recipe = Recipe.from_options(self._manifest.options.to_json())
        return replace(recipe, model=self._model, revision=None) if self._model else recipe

    @cached_property
    def prompt(self) -> str | None:
        """The prompt for queries: given, remembered by the store, or the model's own, or None."""
        for prompt in (self._given_prompt, self._recipe.query_prompt):
            if prompt is not None:
                return prompt
        return self._recipe.files().modules.query_prompt

    @property
    def prompt_note(self) -> str | None:
        """The note about a prompt that queries should have and do not get; None for no note."""
        if self._given_prompt is not None or not len(self._manifest.shards):
            return None
        missing = self._missing_prompt
        if missing is not None:
            return (
                f"{missing.request()}, which get none; say {missing.options} here, or in embed,"
                " which remembers it, or --query-prompt '' if none is wanted"
            )
        return NO_QUERY_PROMPT if self._manifest.space.prompt and self.prompt is None else None

    @property
    def _missing_prompt(self) -> TrainedPrompts | None:
        """The prompt for queries that the model was trained with and that they do not get."""
        try:
            trained = self._recipe.files().trained_prompts
        except OptionError:  # the workers may have the model
            return None
        if trained is None:
            return None
        return replace(trained, document="").missing(*self._manifest.options.user_prompts)

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of queries, float32 [q, dim].

        Without queries or rows the model is not loaded. Raises OptionError for an empty text.
        """
        for number, text in enumerate(texts, 1):
            if not text.strip():
                raise OptionError(f"query {number} of {len(texts)} is empty; say what to look for")
        if not texts or not len(self._manifest.shards):
            return np.zeros((len(texts), self._manifest.space.dim), np.float32)
        if note := self.prompt_note:
            _LOGGER.warning("%s: %s", self._manifest.root, note)
        with self._choose_cores(texts):
            encoder = self._encoder
            with progress.stage("embedding the queries"):
                vectors = encoder.encode(texts, route=QUERY)
        if unknown := self.unknown(texts):
            _LOGGER.warning("%s: %s", self._manifest.root, unknown_queries(unknown))
        return vectors

    def pooled(self, texts: list[str]) -> tuple[np.ndarray, int]:
        """Return the pooled vectors of queries, float32 [q, p], and how many were cut off.

        They have no calibration, are not truncated and not normalised, so that they outlast another
        calibration of the store. Raises as `vectors` does.
        """
        recipe = replace(self._recipe, normalize=False, truncate_dim=None)
        encoder = self._load(recipe, OF_POOLED_QUERIES)
        with progress.stage("embedding the queries"):
            cut = np.count_nonzero(encoder.tokenize(texts).truncated)
            return encoder.encode(texts, route=QUERY), int(cut)

    def unknown(self, texts: list[str]) -> list[str]:
        """Return the queries with mostly unknown tokens; none if the store has no rows."""
        if not texts or not len(self._manifest.shards):
            return []
        encoder = self._encoder
        words = encoder.words(encoder.tokenize(texts))
        is_unknown = words.unknown > MOST_UNKNOWN * (words.known + words.unknown)
        return [texts[place] for place in np.flatnonzero(is_unknown)]

    def _choose_cores(self, texts: list[str]) -> contextlib.AbstractContextManager[None]:
        """Return the context to embed in: one core if it is about as fast as several."""
        if self._alone and self._recipe.files().is_small and sum(map(len, texts)) < FEW_CHARACTERS:
            return one_core()
        return contextlib.nullcontext()
