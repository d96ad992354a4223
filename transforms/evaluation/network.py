"""SentEval's network of one hidden layer, stopped by the accuracy on held-out rows.

As its `nhid` 50, `optim` adam, `batch_size` 64, `epoch_size` 4, `tenacity` 5, with the mean loss of
a batch, and weight decay as Adam has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

HIDDEN = 50
BATCH = 64
SEED = 1111
PASSES = 4  # over the rows, from one accuracy to the next
MOST_PASSES = 200  # after which no round begins
TENACITY = 5  # accuracies that are not better; one more ends the training
Rows = tuple[np.ndarray, np.ndarray]  # features float32 [n, d], labels int64 [n]


@dataclass(frozen=True)
class Network:
    """The weights with the best accuracy on the held-out rows, and that accuracy."""

    accuracy: float
    weights: tuple[torch.Tensor, ...]

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the labels of features [n, d]: int64 [n]."""
        with torch.inference_mode():
            logits = _logits([weight[None] for weight in self.weights], torch.from_numpy(features))
        labels: np.ndarray = logits[0].argmax(dim=1).numpy()
        return labels


def train_networks(
    train: Rows, held_out: Rows, classes: int, decays: Sequence[float]
) -> list[Network]:
    """Train a network for each weight decay, from the same weights and in the same order of rows.

    They are trained side by side, as matrices of one more dimension, which takes little longer than
    training one of them.
    """
    features, labels = (torch.from_numpy(array) for array in train)
    weights = draw_weights(features.shape[1], classes, len(decays))
    adam = torch.optim.Adam(weights)
    decay = torch.tensor(decays, dtype=torch.float32)[:, None, None]
    order = np.random.default_rng(SEED)
    best = [Network(-1.0, ()) for _ in decays]
    no_better = np.zeros(len(decays), int)
    for _ in range(0, MOST_PASSES + 1, PASSES):
        for _ in range(PASSES):
            _train_once(weights, adam, decay, features, labels, order.permutation(len(labels)))
        for place, accuracy in enumerate(measure_accuracies(weights, held_out)):
            if no_better[place] > TENACITY:
                continue
            if accuracy > best[place].accuracy:
                best[place] = Network(
                    accuracy, tuple(weight[place].detach().clone() for weight in weights)
                )
            else:
                no_better[place] += 1
        if (no_better > TENACITY).all():
            break
    return best


def draw_weights(inputs: int, classes: int, networks: int) -> list[torch.Tensor]:
    """Draw weights and biases of two layers as `torch.nn.Linear` does.

    Each is float32 [networks, in, out].
    """
    generator = torch.Generator().manual_seed(SEED)
    weights = []
    for rows, columns, before in (
        (inputs, HIDDEN, inputs),
        (1, HIDDEN, inputs),
        (HIDDEN, classes, HIDDEN),
        (1, classes, HIDDEN),
    ):
        drawn = (2 * torch.rand((rows, columns), generator=generator) - 1) * before**-0.5
        weights.append(drawn.repeat(networks, 1, 1).requires_grad_())
    return weights


def _train_once(
    weights: Sequence[torch.Tensor],
    adam: torch.optim.Adam,
    decay: torch.Tensor,
    features: torch.Tensor,
    labels: torch.Tensor,
    order: np.ndarray,
) -> None:
    """Train on all rows once, one step a batch."""
    for start in range(0, len(order), BATCH):
        rows = torch.from_numpy(order[start : start + BATCH])
        logits = _logits(weights, features[rows])
        loss = functional.cross_entropy(
            logits.transpose(1, 2), labels[rows].expand(len(logits), -1), reduction="sum"
        )
        adam.zero_grad()
        (loss / len(rows)).backward()
        with torch.no_grad():
            for weight in weights:
                assert weight.grad is not None
                # as Adam's weight_decay, which is the same for all networks
                weight.grad += decay * weight
        adam.step()


def _logits(weights: Sequence[torch.Tensor], features: torch.Tensor) -> torch.Tensor:
    """Return the logits, float32 [networks, n, classes]."""
    first, first_bias, second, second_bias = weights
    return torch.sigmoid(features @ first + first_bias) @ second + second_bias


def measure_accuracies(weights: Sequence[torch.Tensor], held_out: Rows) -> list[float]:
    """Return the share of the rows that each network gets right."""
    features, labels = (torch.from_numpy(array) for array in held_out)
    with torch.inference_mode():
        accuracies = (_logits(weights, features).argmax(dim=2) == labels).double().mean(dim=1)
    shares: list[float] = accuracies.tolist()
    return shares
