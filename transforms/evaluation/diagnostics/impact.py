"""Perturbed masking: how much each token of a sentence matters to each other one (Wu et al.,
arXiv:2004.14786).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.base import progress
from transforms.base.errors import OptionError
from transforms.calibration.quality import pearson, spearman
from transforms.evaluation.diagnostics.figures import Row, figure
from transforms.evaluation.diagnostics.words import WordCounts, weights_of

if TYPE_CHECKING:
    from transforms.encoder.token_states import StateReader
    from transforms.encoder.tokenize import Tokenized

MOST_TOKENS = 64  # half their square times the sentence goes through the model
LEAST_TOKENS = 3
_AT_ONCE = 512


@dataclass(frozen=True)
class Influences:
    """The influence of each token on the others, float64 [N], and the token ids [N] of some
    sentences.

    `skipped` more have fewer than 3 or more than 64 tokens.
    """

    ids: list[np.ndarray]
    values: list[np.ndarray]
    skipped: int


def impact(
    reader: "StateReader", layer: int, sentence: str, mask: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sentence's token ids [N], special ones left out, and its impact matrix float64 [N, N].

    F[i, j] is the distance between the last layer's states at i with i masked and with i and j
    masked. Raises OptionError for a sentence of fewer than 3 or of more than 64 tokens.
    """
    tokenized = reader.tokenizer([sentence])
    places = _places(reader, tokenized)
    if not LEAST_TOKENS <= len(places) <= MOST_TOKENS:
        raise OptionError(
            f"--sentence has {len(places)} tokens; give {LEAST_TOKENS} to {MOST_TOKENS}"
        )
    return tokenized.ids[places], _matrix(reader, layer, tokenized, places, mask)


def influences(
    reader: "StateReader", layer: int, sentences: Sequence[str], mask: int
) -> Influences:
    """The influence of every token of many sentences: the means of the columns of their impact
    matrices.
    """
    ids: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for sentence in progress.over(sentences, "masking tokens", "texts"):
        tokenized = reader.tokenizer([sentence])
        places = _places(reader, tokenized)
        if LEAST_TOKENS <= len(places) <= MOST_TOKENS:
            ids.append(tokenized.ids[places])
            values.append(_matrix(reader, layer, tokenized, places, mask).mean(axis=0))
    return Influences(ids, values, len(sentences) - len(ids))


def of_influences(found: Influences, words: WordCounts) -> list[Row]:
    """How the tokens' influence goes with their TF-IDF, over all sentences (Ditto, table 3; times
    100).
    """
    if not found.ids:
        return [figure("influence-tfidf", math.nan, 0, texts=0, spearman=None, words=words.source)]
    influence, weights = np.concatenate(found.values), weights_of(found.ids, words)
    told: dict[str, Any] = {"spearman": 100 * spearman(influence, weights), "words": words.source}
    value = 100 * pearson(influence, weights)
    return [figure("influence-tfidf", value, len(influence), texts=len(found.ids), **told)]


def _places(reader: "StateReader", tokenized: "Tokenized") -> np.ndarray:
    """The places of a sentence's tokens without the special ones."""
    return np.flatnonzero(~np.isin(tokenized.ids, reader.tokenizer.special_ids))


def _matrix(
    reader: "StateReader", layer: int, tokenized: "Tokenized", places: np.ndarray, mask: int
) -> np.ndarray:
    """The impact matrix float64 [N, N] of a sentence's tokens at these places."""
    masked: list[tuple[int, ...]] = [(i,) for i in range(len(places))]
    masked += list(combinations(range(len(places)), 2))
    alone: dict[int, np.ndarray] = {}
    matrix = np.zeros((len(places), len(places)))
    for start in range(0, len(masked), _AT_ONCE):
        part = masked[start : start + _AT_ONCE]
        for which, states in _states(reader, layer, _with_masks(tokenized, places, part, mask)):
            hidden = part[which]
            if len(hidden) == 1:  # these come first
                alone[hidden[0]] = states[places[hidden[0]]]
                continue
            for i, j in (hidden, hidden[::-1]):
                matrix[i, j] = np.linalg.norm(alone[i] - states[places[i]])
    return matrix


def _states(
    reader: "StateReader", layer: int, tokenized: "Tokenized"
) -> list[tuple[int, np.ndarray]]:
    """The last layer's states float64 [T, H] of each text, with its place, in the order of the
    texts.
    """
    found: dict[int, np.ndarray] = {}
    for rows, states in reader.states(tokenized):
        offsets = states.offsets.numpy()
        hidden = states.hidden[layer].double().cpu().numpy()
        for row, start, stop in zip(rows.tolist(), offsets, offsets[1:], strict=False):
            found[row] = hidden[start:stop]
    return sorted(found.items())


def _with_masks(
    tokenized: "Tokenized", places: np.ndarray, masked: Iterable[tuple[int, ...]], mask: int
) -> "Tokenized":
    """The sentence as often as there are tuples, each time with the mask in the places that one
    names.
    """
    from transforms.encoder.tokenize import Tokenized

    texts = []
    for hidden in masked:
        ids = tokenized.ids.copy()
        ids[places[list(hidden)]] = mask
        texts.append(ids)
    count, length = len(texts), len(tokenized.ids)
    types = None if tokenized.types is None else np.tile(tokenized.types, count)
    whole = np.full(count, length, np.int32)
    return Tokenized(
        np.concatenate(texts), np.arange(count + 1) * length, whole, np.zeros(count, bool), types
    )


def of_sentence(
    ids: np.ndarray, matrix: np.ndarray, pieces: tuple[str, ...], words: WordCounts | None
) -> list[Row]:
    """The matrix, the influence of each token (its column's mean), and how it goes with TF-IDF
    (times 100).
    """
    n, names = len(ids), [pieces[token] for token in ids.tolist()]
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
        weights = weights_of([ids], words)
        value = 100 * pearson(influence, weights)
        told: dict[str, Any] = {
            "spearman": 100 * spearman(influence, weights),
            "words": words.source,
        }
        rows.append(figure("influence-tfidf", value, n, **told))
    return rows
