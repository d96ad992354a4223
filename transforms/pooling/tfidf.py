"""Averages in which a token's weight is its rarity in a corpus (TF-IDF)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.pooling.counted_tokens import (
    CountedTokens,
    count_in_memory,
    count_kept,
)
from sentence_beam.transforms.pooling.ditto import weighted_sum
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import Pooled, TokenStates, grade_vectors
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics
from sentence_beam.transforms.pooling.transfer import to_device


@dataclass(frozen=True, eq=False)
class TfIdf:
    """e = sum_t idf(t) x_t / Z, x_t the mean of the states of `layers`.

    `idf` [V] float32; special tokens weigh nothing. `weight` of each occurrence: `idf`, so that all
    occurrences of a token weigh tf * idf, or `tf-idf`, so that the frequency counts twice. `scale`
    is Z: `sum` of the weights, `norm` the length of the sentence's tf-idf vector, `none` 1. If all
    weights sum to at most 1e-12, the sentence gets the mean of its tokens without the special ones
    and counts as a fallback. "First-last TF-IDF", Ditto, arXiv:2305.10786.
    """

    idf: Tensor
    layers: tuple[int, ...]
    dim: int
    scale: str = "sum"
    count: str = "all"
    weight: str = "idf"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset(self.layers))

    def __call__(self, states: TokenStates) -> Pooled:
        # Weights depend only on the token ids, which are in main memory.
        device = states.device
        if states.special is None:
            raise ValueError("tfidf needs TokenStates.special")
        counted = count_in_memory(states, self.count)
        ids = states.token_ids[counted.index]
        idf = self.idf[ids].masked_fill(states.special[counted.index], 0)
        weights = idf * _count_occurrences(ids, counted) if self.weight == "tf-idf" else idf
        total = counted.sum_by_sentence(weights)
        weak = total <= 1e-12
        divisor = {"sum": total, "norm": _measure_lengths(idf, ids, counted)}.get(self.scale)
        vectors = weighted_sum(states, self.layers, counted.to(device), to_device(weights, device))
        if divisor is not None:
            vectors = vectors / to_device(divisor, device).unsqueeze(1)
        if bool(weak.any()):
            plain = count_kept(states, states.keep & ~states.special).to(device)
            means = weighted_sum(states, self.layers, plain, 1 / plain.lengths[plain.sentences])
            vectors = torch.where(to_device(weak, device).unsqueeze(1), means, vectors)
        return grade_vectors(vectors, to_device(counted.fallback | weak, device))


def inverse_frequencies(
    statistics: TokenStatistics, idf: str = "log2", unseen: str = "zero"
) -> Tensor:
    """The weight of each token id, [V] float32.

    `log2`: log2(D / df), as gensim; `smooth`: ln((1 + D) / (1 + df)) + 1, as scikit-learn. A token
    that no document holds weighs nothing (`zero`) or as if one held it (`max`).
    """
    documents = statistics.documents
    held = np.maximum(statistics.counts, 1)
    if idf == "log2":
        weights = np.log2(max(documents, 1) / held)
    else:
        weights = np.log((1 + documents) / (1 + held)) + 1
    if unseen == "zero":
        weights = np.where(statistics.counts == 0, 0.0, weights)
    return torch.from_numpy(np.where(np.abs(weights) <= 1e-12, 0.0, weights)).float()


def _count_occurrences(ids: Tensor, counted: CountedTokens) -> Tensor:
    """The number of times that each counted token's id occurs in its sentence, [M] int64."""
    terms, _ = _number_terms(ids, counted)
    _, inverse, times = torch.unique(terms, return_inverse=True, return_counts=True)
    return times[inverse]


def _measure_lengths(idf: Tensor, ids: Tensor, counted: CountedTokens) -> Tensor:
    """The Euclidean length of each sentence's vector of tf * idf over its distinct tokens, [B]."""
    terms, size = _number_terms(ids, counted)
    pairs, inverse = torch.unique(terms, return_inverse=True)
    weights = idf.new_zeros(len(pairs)).index_add_(0, inverse, idf)
    squares = idf.new_zeros(counted.lengths.numel())
    return squares.index_add_(0, pairs // size, weights.square()).sqrt()


def _number_terms(ids: Tensor, counted: CountedTokens) -> tuple[Tensor, int]:
    """Return sentence * size + id [M] int64 of each counted token, and the size."""
    size = int(ids.max()) + 1 if ids.numel() else 1
    return counted.sentences * size + ids, size
