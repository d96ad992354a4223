"""Queries as vectors: the model that a store remembers, with the prompt for queries."""

import contextlib
import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from transforms.base import progress
from transforms.base.cores import one_core
from transforms.base.errors import OptionError
from transforms.space import Recipe
from transforms.space.st_modules import QUERY
from transforms.store.calibrations import kept_calibration
from transforms.store.manifest import Manifest

if TYPE_CHECKING:
    from transforms.encoder import Encoder  # torch, which a search by vectors needs not

NO_QUERY_PROMPT = (
    "the rows have a prompt and none is known for queries, which get none; say --query-prompt here,"
    " or in embed, which remembers it"
)
SMALL_MODEL = 200_000_000  # bytes of weights
FEW_CHARACTERS = 2000
EXCERPT = 60  # characters
MOST_UNKNOWN = 0.5  # of a query's tokens: of one with more it is said
_LOGGER = logging.getLogger(__name__)


def unknown_queries(texts: list[str]) -> str:
    """What is to be said of queries that the model does not know."""
    others = len(texts) - 1
    more = (
        ""
        if not others
        else " and of 1 other query"
        if others == 1
        else f" and of {others:,} other queries"
    )
    return (
        f"the model does not know most words of the query {texts[0][:EXCERPT]!r}{more}; its hits"
        " mean little"
    )


class QueryEncoder:
    """The encoder of queries to a snapshot, loaded when first needed; the options are those of
    `Searcher`.
    """

    def __init__(
        self, manifest: Manifest, model: str | None, query_prompt: str | None, alone: bool
    ):
        self._manifest, self._model, self._given_prompt, self._alone = (
            manifest,
            model,
            query_prompt,
            alone,
        )
        self._loaded: Encoder | None = None

    def of(self, manifest: Manifest) -> "QueryEncoder":
        """The encoder of another snapshot: this one's model where it is the same and loaded
        already.
        """
        other = QueryEncoder(manifest, self._model, self._given_prompt, self._alone)
        if self._loaded is not None and other._decides == self._decides:
            other._loaded = self._loaded
        return other

    @property
    def _decides(self) -> tuple[object, ...]:
        """What the encoder depends on."""
        return self._manifest.root, self._manifest.space, self._recipe, self.prompt

    @property
    def _encoder(self) -> "Encoder":
        """The snapshot's encoder, with the prompt for queries."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> "Encoder":
        space, model = self._manifest.space, self._recipe.model
        kept = kept_calibration(self._manifest.root, space)
        with progress.stage(progress.LOADING):
            from transforms.encoder import Encoder

            recipe = replace(self._recipe, prompt=self.prompt or "", calibration="")
            encoder = Encoder.of(recipe, calibration=kept)
        what = f"{model} is not the model of {self._manifest.root}"
        space.check(
            encoder.space, what, "name the same one with --model", ignoring=("prompt", "precision")
        )
        return encoder

    @cached_property
    def _recipe(self) -> Recipe:
        """What the store remembers of its vectors, with the model's place on this machine."""
        recipe = Recipe.of(self._manifest.options.to_json())
        return replace(recipe, model=self._model, revision=None) if self._model else recipe

    @cached_property
    def prompt(self) -> str | None:
        """The prompt for queries: given, remembered by the store, or the model's own; None where
        none is known.
        """
        known = next(
            (p for p in (self._given_prompt, self._recipe.query_prompt) if p is not None), None
        )
        return self._recipe.files().modules.query_prompt if known is None else known

    @property
    def lacks_prompt(self) -> bool:
        """Whether the rows have a prompt and none is known for queries, which get none then."""
        return bool(self._manifest.space.prompt) and self.prompt is None

    def vectors(self, texts: list[str]) -> np.ndarray:
        """The vectors of queries, float32 [q, dim]; of none, and where there is no row to find,
        without the model.

        Raises OptionError for a text that is empty.
        """
        for number, text in enumerate(texts, 1):
            if not text.strip():
                raise OptionError(f"query {number} of {len(texts)} is empty; say what to look for")
        if not texts or not self._manifest.shard_paths:
            return np.zeros((len(texts), self._manifest.space.dim), np.float32)
        if self.lacks_prompt:
            _LOGGER.warning("%s: %s", self._manifest.root, NO_QUERY_PROMPT)
        with one_core() if self._alone and self._is_little(texts) else contextlib.nullcontext():
            encoder = self._encoder
            with progress.stage("embedding the queries"):
                vectors = encoder.encode(texts, route=QUERY)
        if unknown := self.unknown(texts):
            _LOGGER.warning("%s: %s", self._manifest.root, unknown_queries(unknown))
        return vectors

    def unknown(self, texts: list[str]) -> list[str]:
        """The queries of whose tokens the model does not know most; none if there is no row to
        find.
        """
        if not texts or not self._manifest.shard_paths:
            return []
        encoder = self._encoder
        words = encoder.words(encoder.tokenize(texts))
        return [
            texts[place]
            for place in np.flatnonzero(
                words.unknown > MOST_UNKNOWN * (words.known + words.unknown)
            )
        ]

    def _is_little(self, texts: list[str]) -> bool:
        """Whether a core loads the model and embeds the texts about as fast as several do."""
        weights = sum(path.stat().st_size for path in self._recipe.files().weights)
        return weights < SMALL_MODEL and sum(map(len, texts)) < FEW_CHARACTERS
