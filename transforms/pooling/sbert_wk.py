"""SBERT-WK: words mix layers that add something new; words that change most weigh most.

All weights follow from the K x K cosines between one token's layer vectors, so no layer vector is
ever decomposed: the last row of the Cholesky factor of a layer's context, itself last, holds what
the QR decomposition of the context gives.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sentence_beam.transforms.pooling.counted_tokens import CountedTokens, count_tokens, segment_sum
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import Pooled, TokenStates, grade_vectors
from sentence_beam.transforms.pooling.transfer import to_device

CHUNK_BYTES = {"cpu": 1 << 22, "cuda": 1 << 28}
_SMALLEST_PIVOT = 1e-6
_SMALLEST_NOVELTY = 2e-3
_SMALLEST_ALIGNMENT = 1e-2


@dataclass(frozen=True)
class SbertWk:
    """SBERT-WK (arXiv:2002.06652, section IV) over the layers `start` to `last`.

    `weights` of the layers within a token: `combined` (`mix` times the alignment's weights and 1 -
    mix times the novelty's), `alignment`, `novelty`, `even`, or the `last` layer alone; `variant`:
    `reference` as the authors' code computes them, `paper` as printed. `tokens` weigh by the
    `variance` of the cosines of their neighbouring layers or are `even`; `importance`: these are
    layers among the `selected` ones or `all`. A sentence of several tokens without any variance
    weighs them equally and is a fallback.
    """

    start: int
    last: int
    dim: int
    window: int = 2
    weights: str = "combined"
    variant: str = "reference"
    importance: str = "selected"
    count: str = "drop-last-special"
    mix: float = 0.5
    tokens: str = "variance"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset(range(self._first, self.last + 1)))

    @property
    def _first(self) -> int:
        return self.start if self.importance == "selected" else 0

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        layers = [states.hidden[layer] for layer in range(self._first, self.last + 1)]
        mixture, variance = self._weigh(layers, counted.index)
        shares, uniform = token_shares(variance, counted)
        if self.tokens == "even":
            shares = (1 / counted.lengths.to(variance.dtype))[counted.sentences]
            uniform = torch.zeros_like(uniform)
        total = torch.zeros(len(counted.lengths), self.dim, device=variance.device)
        for layer, weight in zip(layers[self.start - self._first :], mixture, strict=True):
            total += segment_sum(layer, counted, weight * shares)
        return grade_vectors(total, counted.fallback | uniform)

    def _weigh(self, layers: Sequence[Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights of the selected layers [K, M] and variances [M] of the counted tokens.

        Both are float64, computed chunk by chunk.
        """
        tokens = max(1, CHUNK_BYTES[index.device.type] // (4 * len(layers) * self.dim))
        parts = [self._weigh_chunk(layers, chunk) for chunk in index.split(tokens)]
        mixtures = torch.cat([mixture for mixture, _ in parts], dim=1)
        variances = torch.cat([variance for _, variance in parts])
        return mixtures, variances

    def _weigh_chunk(self, layers: Sequence[Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
        cosines = layer_cosines(torch.stack([layer[index] for layer in layers], dim=1))
        skipped = self.start - self._first
        steps = cosines.diagonal(1)
        variance = (steps - steps.mean(dim=1, keepdim=True)).square().mean(dim=1)
        return self._mix_layers(cosines[skipped:, skipped:]), variance

    def _mix_layers(self, cosines: Tensor) -> Tensor:
        """Return the weights of the selected layers [K, M] from their cosines [K, K, M].

        Columns sum to 1.
        """
        if self.weights == "even":
            return torch.full_like(cosines[0], 1 / len(cosines))
        if self.weights == "last":
            only = torch.zeros_like(cosines[0])
            only[-1] = 1
            return only
        alignment, novelty = layer_weights(cosines, self.window, self.variant)
        mixed = {"combined": self.mix, "alignment": 1.0, "novelty": 0.0}[self.weights]
        return mixed * alignment + (1 - mixed) * novelty


def layer_cosines(vectors: Tensor) -> Tensor:
    """Return cosines [K, K, M] float64 between the layers of each token of `vectors` [M, K, H].

    The diagonal is 1. Products are accumulated in float32, or in float64 if the vectors are
    float64. A zero vector has cosines of 0.
    """
    wide = vectors.float() if vectors.dtype != torch.float64 else vectors
    gram = _multiply_exactly(wide).double().permute(1, 2, 0)
    lengths = gram.diagonal().T.sqrt().clamp(min=1e-12)
    cosines = (gram + gram.transpose(0, 1)) / 2 / (lengths.unsqueeze(0) * lengths.unsqueeze(1))
    cosines.diagonal().fill_(1)
    return cosines.contiguous()


def _multiply_exactly(vectors: Tensor) -> Tensor:
    """Return vectors vectors' in full precision.

    TensorFloat-32 has too few digits for the differences taken later. If the process has turned it
    on, which holds for all threads, products are made in float64.
    """
    wide = vectors.double() if vectors.device.type == "cuda" and _has_tf32() else vectors
    return torch.bmm(wide, wide.transpose(1, 2))


def _has_tf32() -> bool:
    """Whether a GPU multiplies float32 matrices in TensorFloat-32."""
    matmul: Any = torch.backends.cuda.matmul
    if hasattr(torch.backends, "fp32_precision"):
        return bool(matmul.fp32_precision == "tf32")
    return bool(matmul.allow_tf32)


def layer_weights(cosines: Tensor, window: int, variant: str) -> tuple[Tensor, Tensor]:
    """Alignment and novelty weights of each layer, both [K, M] float64 with columns that sum to 1.

    `cosines` [K, K, M] float64, 1 <= `window` < K. `reference` divides the mean cosine by the
    length of the layer's projection on its context, weighs by the size of the context, and gives
    the lowest layers no lower neighbours.
    """
    alignment = torch.empty_like(cosines[0])
    novelty = torch.empty_like(cosines[0])
    for members in _group_by_size(len(cosines), window, variant):
        places = torch.tensor([[*context, layer] for layer, context in members.items()])
        index = to_device(places, cosines.device)
        blocks = cosines[index.unsqueeze(2), index.unsqueeze(1)]
        factor = _factor_last_rows(blocks)
        mean = blocks[:, -1, :-1].mean(dim=1)
        size = 1
        if variant == "reference":
            projection = factor[:, :-1].square().sum(dim=1).sqrt()
            mean = mean / projection.clamp(min=1e-6)
            size = index.shape[1]
        alignment[index[:, -1]] = 1 / (size * mean.clamp(min=_SMALLEST_ALIGNMENT))
        novelty[index[:, -1]] = factor[:, -1]
    # If all layers are parallel, none is novel: all weigh the same.
    novelty = torch.where(novelty.sum(dim=0) == 0, torch.ones_like(novelty), novelty)
    return alignment / alignment.sum(dim=0), novelty / novelty.sum(dim=0)


def _group_by_size(layers: int, window: int, variant: str) -> list[dict[int, list[int]]]:
    """Group the layers by the number of neighbours that they are compared with."""
    groups: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
    for layer in range(layers):
        below = list(range(max(0, layer - window), layer))
        if variant == "reference" and layer < window:
            below = []
        context = below + list(range(layer + 1, min(layers, layer + window + 1)))
        groups[len(context)][layer] = context
    return list(groups.values())


def _factor_last_rows(blocks: Tensor) -> Tensor:
    """Return the last rows [P, S, M] of the Cholesky factors of `blocks` [P, S, S, M].

    Nearly singular blocks get a small ridge.
    """
    rows, smallest = _factor(blocks)
    weak = ~(smallest >= _SMALLEST_PIVOT)
    if blocks.device.type == "cpu" and not bool(weak.any()):  # on a GPU this would wait
        return rows
    ridge = _SMALLEST_PIVOT * torch.eye(blocks.shape[1], dtype=blocks.dtype, device=blocks.device)
    mended, _ = _factor(blocks + ridge.unsqueeze(2))
    mended[:, -1] = mended[:, -1].masked_fill(mended[:, -1] < _SMALLEST_NOVELTY, 0)
    return torch.where(weak.unsqueeze(1), mended, rows)


def _factor(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last rows [P, S, M] of the factors and the smallest pivots [P, M]."""
    rest = blocks.clone()
    rows = []
    pivots = []
    for column in range(blocks.shape[1]):
        pivot = rest[:, column, column].clone()
        pivots.append(pivot)
        scaled = rest[:, column:, column] / pivot.clamp(min=1e-300).sqrt().unsqueeze(1)
        rows.append(scaled[:, -1])
        below = scaled[:, 1:]
        rest[:, column + 1 :, column + 1 :] -= below.unsqueeze(2) * below.unsqueeze(1)
    return torch.stack(rows, dim=1), torch.stack(pivots).amin(dim=0)


def token_shares(variance: Tensor, counted: CountedTokens) -> tuple[Tensor, Tensor]:
    """Return each counted token's share [M] of its sentence's variance.

    Also returns the sentences [B] bool whose tokens share equally.
    """
    total = counted.sum_by_sentence(variance)
    flat = total <= 1e-12
    sentences = counted.sentences
    equal = 1 / counted.lengths.to(variance.dtype)
    shares = torch.where(flat[sentences], equal[sentences], variance / total[sentences])
    return shares, flat & (counted.lengths > 1)
