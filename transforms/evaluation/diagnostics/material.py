"""The texts, the model and the word counts that the figures of one diagnosis share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import DiagnoseOptions
from sentence_beam.transforms.evaluation.diagnostics.drawn_samples import Sampled
from sentence_beam.transforms.evaluation.diagnostics.pair_figures import Pairs
from sentence_beam.transforms.evaluation.diagnostics.word_figures import WordCounts
from sentence_beam.transforms.evaluation.encode_many import ModelSettings
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer
from sentence_beam.transforms.space.model_files import ModelFiles
from sentence_beam.transforms.space.token_table import read_table

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.tokenize import TextTokenizer


@dataclass(frozen=True)
class Material:
    """The options, the model, the requested figures, and what was drawn from the source.

    `pairs` are those of each task.
    """

    options: DiagnoseOptions
    model: ModelSettings
    requested: frozenset[str]
    sample: Sampled
    pairs: Sequence[Pairs]

    @cached_property
    def texts(self) -> list[str]:
        """All texts that are examined; both sides of every pair, repeats too."""
        texts = list(self.sample.texts or ())
        for pairs in self.pairs:
            texts += pairs.first
            texts += pairs.second
        return texts

    @cached_property
    def files(self) -> ModelFiles:
        """The files of the model."""
        return resolve_model(self.model.model, self.model.revision)

    @property
    def has_words(self) -> bool:
        """Whether there are token statistics, or texts to count words in."""
        return bool(self.options.table or self.texts)

    @cached_property
    def words(self) -> WordCounts:
        """The token statistics of `--table`, else of the texts that were drawn."""
        if not self.options.table:
            return WordCounts.count_texts(self.token_ids(self.texts), self._tokenizer.vocabulary)
        from sentence_beam.transforms.encoder.load import load_statistics

        table = read_table(self.options.table).described
        if table["tokenizer"] != hash_tokenizer(self.files):
            raise OptionError(
                f"{cite('table')} {self.options.table} counts tokens of another tokenizer; fit it"
                f" with this model ({cite('model')})"
            )
        statistics = load_statistics(self.options.table)
        return WordCounts.from_statistics(statistics, f"{self.options.table}, {table['method']}")

    @property
    def special_ids(self) -> np.ndarray:
        """The ids of the tokenizer's special tokens."""
        return self._tokenizer.special_ids

    def token_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of texts without the special ones."""
        tokenized = self._tokenizer(texts)
        plain = ~np.isin(tokenized.ids, self.special_ids)
        before = np.concatenate([[0], np.cumsum(plain)])
        return np.split(tokenized.ids[plain].astype(np.int64), before[tokenized.offsets[1:-1]])

    @cached_property
    def _tokenizer(self) -> "TextTokenizer":
        from sentence_beam.transforms.encoder.tokenize import TextTokenizer

        return TextTokenizer(self.files)
