"""Perturbed masking: how much each token of a sentence matters to each other one.

Wu et al., arXiv:2004.14786.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.calibration.quality import pearson, spearman
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import Row, figure
from sentence_beam.transforms.evaluation.diagnostics.word_figures import WordCounts, weigh_tokens

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.token_states import StateReader
    from sentence_beam.transforms.encoder.tokenize import Tokenized

MOST_TOKENS = 64  # the model reads a sentence half their square times
LEAST_TOKENS = 3
_AT_ONCE = 512


@dataclass(frozen=True)
class Influences:
    """The influence of each token on the others, float64 [N], and the token ids [N], by sentence.

    `skipped` more sentences have fewer than 3 or more than 64 tokens.
    """

    ids: list[np.ndarray]
    values: list[np.ndarray]
    skipped: int


def measure_impact(
    reader: "StateReader", layer: int, sentence: str, mask: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids [N] without special ones, and the impact matrix float64 [N, N].

    F[i, j] is the distance between the last layer's states at i with i masked and with i and j
    masked. Raises OptionError for a sentence of fewer than 3 or of more than 64 tokens.
    """
    tokenized = reader.tokenizer([sentence])
    places = _find_places(reader, tokenized)
    if not LEAST_TOKENS <= len(places) <= MOST_TOKENS:
        raise OptionError(
            f"{cite('sentence')} has {len(places)} tokens; give {LEAST_TOKENS} to {MOST_TOKENS}"
        )
    return tokenized.ids[places], _fill_matrix(reader, layer, tokenized, places, mask)


def measure_influences(
    reader: "StateReader", layer: int, sentences: Sequence[str], mask: int
) -> Influences:
    """Return the influence of every token of many sentences.

    It is the mean of the token's column in the impact matrix.
    """
    ids: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for sentence in progress.count_over(sentences, "masking tokens", "texts"):
        tokenized = reader.tokenizer([sentence])
        places = _find_places(reader, tokenized)
        if LEAST_TOKENS <= len(places) <= MOST_TOKENS:
            ids.append(tokenized.ids[places])
            values.append(_fill_matrix(reader, layer, tokenized, places, mask).mean(axis=0))
    return Influences(ids, values, len(sentences) - len(ids))


def influence_figures(measured: Influences, words: WordCounts) -> list[Row]:
    """Correlate the tokens' influence with their TF-IDF, over all sentences, times 100.

    Ditto, table 3.
    """
    if not measured.ids:
        return [figure("influence-tfidf", math.nan, 0, texts=0, spearman=None, words=words.source)]
    influence = np.concatenate(measured.values)
    return [_correlate(influence, measured.ids, words, texts=len(measured.ids))]


def _correlate(
    influence: np.ndarray, ids: Sequence[np.ndarray], words: WordCounts, **more: Any
) -> Row:
    """Correlate tokens' influence with their TF-IDF, times 100."""
    weights = weigh_tokens(ids, words)
    value = 100 * pearson(influence, weights)
    more |= {"spearman": 100 * spearman(influence, weights), "words": words.source}
    return figure("influence-tfidf", value, len(influence), **more)


def _find_places(reader: "StateReader", tokenized: "Tokenized") -> np.ndarray:
    """Return the places of a sentence's tokens without the special ones."""
    return np.flatnonzero(~np.isin(tokenized.ids, reader.tokenizer.special_ids))


def _fill_matrix(
    reader: "StateReader", layer: int, tokenized: "Tokenized", places: np.ndarray, mask: int
) -> np.ndarray:
    """Return the impact matrix float64 [N, N] of a sentence's tokens at these places."""
    masked: list[tuple[int, ...]] = [(i,) for i in range(len(places))]
    masked += list(combinations(range(len(places)), 2))
    alone: dict[int, np.ndarray] = {}
    matrix = np.zeros((len(places), len(places)))
    for start in range(0, len(masked), _AT_ONCE):
        part = masked[start : start + _AT_ONCE]
        for which, states in _read_states(reader, layer, _mask(tokenized, places, part, mask)):
            hidden = part[which]
            if len(hidden) == 1:  # these come first
                alone[hidden[0]] = states[places[hidden[0]]]
                continue
            for i, j in (hidden, hidden[::-1]):
                matrix[i, j] = np.linalg.norm(alone[i] - states[places[i]])
    return matrix


def _read_states(
    reader: "StateReader", layer: int, tokenized: "Tokenized"
) -> list[tuple[int, np.ndarray]]:
    """Return the last layer's states float64 [T, H] of each text, with its place, in order."""
    by_text: dict[int, np.ndarray] = {}
    for rows, states in reader.states(tokenized):
        offsets = states.offsets.numpy()
        hidden = states.hidden[layer].double().cpu().numpy()
        for row, start, stop in zip(rows.tolist(), offsets, offsets[1:], strict=False):
            by_text[row] = hidden[start:stop]
    return sorted(by_text.items())


def _mask(
    tokenized: "Tokenized", places: np.ndarray, masked: Iterable[tuple[int, ...]], mask: int
) -> "Tokenized":
    """Repeat the sentence once for each tuple, with the mask in the tuple's places."""
    from sentence_beam.transforms.encoder.tokenize import Tokenized

    texts = []
    for hidden in masked:
        ids = tokenized.ids.copy()
        ids[places[list(hidden)]] = mask
        texts.append(ids)
    count = len(texts)
    length = len(tokenized.ids)
    types = np.tile(tokenized.types, count) if tokenized.types is not None else None
    whole = np.full(count, length, np.int32)
    return Tokenized(
        np.concatenate(texts), np.arange(count + 1) * length, whole, np.zeros(count, bool), types
    )


def sentence_figures(
    ids: np.ndarray, matrix: np.ndarray, pieces: tuple[str, ...], words: WordCounts | None
) -> list[Row]:
    """Return the impact matrix, each token's influence, and its correlation with TF-IDF.

    The influence is the mean of the token's column. The correlation is times 100.
    """
    n = len(ids)
    names = [pieces[token] for token in ids.tolist()]
    rows = [
        figure(
            "impact", float(matrix[i, j]), n, token=names[i], place=i, perturbed=names[j], other=j
        )
        for i in range(n)
        for j in range(n)
    ]
    influence = matrix.mean(axis=0)
    rows += [
        figure("influence", float(value), n, token=names[j], place=j)
        for j, value in enumerate(influence)
    ]
    if words is not None:
        rows.append(_correlate(influence, [ids], words))
    return rows
