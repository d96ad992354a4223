"""Smooth inverse frequency: averages in which frequent tokens of a corpus weigh little."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.pooling.counted_tokens import count_in_memory
from sentence_beam.transforms.pooling.ditto import weighted_sum
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import Pooled, TokenStates, grade_vectors
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics
from sentence_beam.transforms.pooling.transfer import to_device


@dataclass(frozen=True, eq=False)
class Sif:
    """e = sum_t w(t) x_t / N over the N counted tokens, w(t) = a / (a + p(t)).

    `weights` [V] float32 by token id. x_t is the mean of the states of `layers`, or the row of the
    embedding matrix if `layers` is empty. Arora et al., ICLR 2017, section 3; the paper's second
    step is the calibration `remove-top:1,centred=no`.
    """

    weights: Tensor
    layers: tuple[int, ...]
    dim: int
    count: str = "no-special"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset(self.layers), raw=not self.layers)

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_in_memory(states, self.count)
        weights = self.weights[states.token_ids[counted.index]] / counted.lengths[counted.sentences]
        counted = counted.to(states.device)
        vectors = weighted_sum(states, self.layers, counted, to_device(weights, states.device))
        return grade_vectors(vectors, counted.fallback)


def smooth_inverse_frequencies(statistics: TokenStatistics, a: float) -> Tensor:
    """Return the weight a / (a + p) of each token id, [V] float32.

    p is the token's share of all tokens of the corpus.
    """
    shares = statistics.counts / max(int(statistics.counts.sum()), 1)
    return torch.from_numpy(np.asarray(a / (a + shares))).float()
