"""Figures of the model itself: its word embeddings, its token states, the impact of tokens."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation.diagnostics import impact, tokens
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import (
    IMPACT,
    INFLUENCE,
    MODEL_FIGURES,
    TOKEN_FIGURES,
    VARIANCE,
    Row,
)
from sentence_beam.transforms.evaluation.diagnostics.material import Material
from sentence_beam.transforms.evaluation.diagnostics.word_figures import word_figures
from sentence_beam.transforms.space import parse_pooler

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.token_states import StateReader

TOKEN_TEXTS = 1000  # texts of the sample whose tokens are examined, as in Ditto's figures


@dataclass(frozen=True)
class ModelFigures:
    """Figures of the model's word embeddings and token states."""

    material: Material

    @property
    def is_requested(self) -> bool:
        """Whether any of these figures is requested."""
        return bool(self._requested & {*MODEL_FIGURES, *TOKEN_FIGURES, IMPACT})

    @property
    def word_source(self) -> str:
        """The source of the word counts, empty if none were needed."""
        if self._requested & {"norms", "heads", INFLUENCE, IMPACT} and self.material.has_words:
            return self.material.words.source
        return ""

    @property
    def texts_without_influence(self) -> int:
        """The number of texts that are too short or too long for their influence."""
        return self._influences.skipped if INFLUENCE in self._requested else 0

    def rows(self) -> list[Row]:
        """Return the figures of word embeddings, token states and the sentence."""
        rows: list[Row] = []
        if self._requested & {*MODEL_FIGURES, *TOKEN_FIGURES}:
            self._check_texts()
            rows += self._measure_words()
            rows += self._measure_states()
            if INFLUENCE in self._requested:
                rows += impact.influence_figures(self._influences, self.material.words)
        return rows + self._measure_sentence()

    def _check_texts(self) -> None:
        """Raise OptionError if there are no texts for the requested figures."""
        if self.material.texts:
            return
        figures = ", ".join(sorted(self._requested & {*MODEL_FIGURES, *TOKEN_FIGURES}))
        store = self.material.options.store
        if store:
            raise OptionError(
                f"{cite('figure')} {figures} needs text, and {store} keeps none; embed it with"
                f" {cite('keep_text=True')}"
            )
        raise OptionError(
            f"{cite('figure')} {figures} needs text; give it by {cite('input')} or {cite('task')}"
        )

    def _measure_words(self) -> list[Row]:
        if "norms" not in self._requested:
            return []
        from sentence_beam.transforms.encoder.token_states import load_embedding_matrix

        matrix = load_embedding_matrix(self.material.files)
        return word_figures(matrix, self.material.words, self.material.special_ids)

    def _measure_states(self) -> list[Row]:
        """Return the figures of heads, layers and the variance of words."""
        if not self._heads and not self._layers:
            return []
        tokenized = self._reader.tokenizer(self.material.texts[:TOKEN_TEXTS])
        states = self._reader.states(tokenized)
        measures = tokens.gather((batch for _, batch in states), self._heads, self._layers)
        rows: list[Row] = []
        if self._heads:
            rows += tokens.head_figures(measures, self._heads, self.material.words)
        if "layers" in self._requested:
            rows += tokens.layer_figures(measures)
        if VARIANCE in self._requested:
            rows += tokens.variance_figures(measures, self._reader.tokenizer.pieces)
        return rows

    def _measure_sentence(self) -> list[Row]:
        """Return the impact of each token of the sentence on the others."""
        sentence = self.material.options.sentence
        if IMPACT not in self._requested or sentence is None:
            return []
        mask = self._find_mask(cite("sentence"))
        ids, matrix = impact.measure_impact(
            self._reader, self.material.files.layers, sentence, mask
        )
        words = self.material.words if self.material.has_words else None
        return impact.sentence_figures(ids, matrix, self._reader.tokenizer.pieces, words)

    @cached_property
    def _influences(self) -> impact.Influences:
        """The influence of the tokens of the first texts on each other."""
        mask = self._find_mask(f"{cite('figure')} influence")
        texts = self.material.texts[:TOKEN_TEXTS]
        return impact.measure_influences(self._reader, self.material.files.layers, texts, mask)

    def _find_mask(self, flag: str) -> int:
        """Return the id of the mask token. Raises OptionError for a tokenizer without one."""
        mask = self.material.files.mask_token()
        pieces = self._reader.tokenizer.pieces
        if mask is None or mask not in pieces:
            raise OptionError(
                f"{flag}: the tokenizer of {self.material.files.folder} has no mask token; use"
                " another model"
            )
        return pieces.index(mask)

    @property
    def _requested(self) -> frozenset[str]:
        return self.material.requested

    @cached_property
    def _heads(self) -> list[tuple[int, int]]:
        """The block and head of every head, none if they are not requested."""
        if "heads" not in self._requested:
            return []
        files = self.material.files
        blocks = range(1, files.layers + 1)
        return [(block, head) for block in blocks for head in range(1, files.heads + 1)]

    @property
    def _layers(self) -> int:
        """The number of layers, 0 if no figure compares them."""
        return self.material.files.layers if self._requested & {"layers", VARIANCE} else 0

    @cached_property
    def _reader(self) -> "StateReader":
        from sentence_beam.transforms.encoder.token_states import StateReader
        from sentence_beam.transforms.pooling.pooler import Needs

        layers: set[int] = set()
        if self._layers:
            layers.update(range(self._layers + 1))
        if self._requested & {IMPACT, INFLUENCE}:
            layers.add(self.material.files.layers)
        needs = Needs(layers=frozenset(layers), heads=frozenset(self._heads))
        model = self.material.model
        max_tokens = model.space(parse_pooler("mean")).max_tokens
        return StateReader(self.material.files, needs, max_tokens, self.material.options.device)
