"""SentEval's network of one hidden layer: weight decay as Adam has it, stopped by the accuracy on
held-out rows.

As its `nhid` 50, `optim` adam, `batch_size` 64, `epoch_size` 4, `tenacity` 5, with the mean loss of
a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

HIDDEN, BATCH, SEED = 50, 64, 1111
# passes over the rows from one accuracy to the next, and passes after which none begin
PASSES, MOST_PASSES = 4, 200
TENACITY = 5  # accuracies that are no better, in all, before the next one of these ends a training
Rows = tuple[np.ndarray, np.ndarray]  # features float32 [n, d], labels int64 [n]


@dataclass(frozen=True)
class Network:
    """The weights with the best accuracy on the held-out rows, and that accuracy."""

    accuracy: float
    weights: tuple[torch.Tensor, ...]

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The labels of features [n, d]: int64 [n]."""
        with torch.inference_mode():
            logits = _logits([weight[None] for weight in self.weights], torch.from_numpy(features))
        found: np.ndarray = logits[0].argmax(dim=1).numpy()
        return found


def train_networks(
    train: Rows, held_out: Rows, classes: int, decays: Sequence[float]
) -> list[Network]:
    """A network for each weight decay. All begin with the same weights and see the rows in the same
    order.

    They are trained side by side, as matrices of one more dimension, which takes little longer than
    one of them.
    """
    features, labels = (torch.from_numpy(array) for array in train)
    weights = _first_weights(features.shape[1], classes, len(decays))
    adam = torch.optim.Adam(weights)
    decay = torch.tensor(decays, dtype=torch.float32)[:, None, None]
    order = np.random.default_rng(SEED)
    best = [Network(-1.0, ()) for _ in decays]
    no_better = np.zeros(len(decays), int)
    for _ in range(0, MOST_PASSES + 1, PASSES):
        for _ in range(PASSES):
            _train_once(weights, adam, decay, features, labels, order.permutation(len(labels)))
        found = _accuracies(weights, held_out)
        for place, accuracy in enumerate(found):
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


def _first_weights(inputs: int, classes: int, networks: int) -> list[torch.Tensor]:
    """Weights and biases of two layers, drawn as `torch.nn.Linear` draws them: float32 [networks,
    in, out] each.
    """
    generator = torch.Generator().manual_seed(SEED)
    found = []
    for rows, columns, before in (
        (inputs, HIDDEN, inputs),
        (1, HIDDEN, inputs),
        (HIDDEN, classes, HIDDEN),
        (1, classes, HIDDEN),
    ):
        drawn = (2 * torch.rand((rows, columns), generator=generator) - 1) * before**-0.5
        found.append(drawn.repeat(networks, 1, 1).requires_grad_())
    return found


def _train_once(
    weights: Sequence[torch.Tensor],
    adam: torch.optim.Adam,
    decay: torch.Tensor,
    features: torch.Tensor,
    labels: torch.Tensor,
    order: np.ndarray,
) -> None:
    """Go through the rows once, a step a batch."""
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
                # as Adam's weight_decay, of which it has one for all networks
                weight.grad += decay * weight
        adam.step()


def _logits(weights: Sequence[torch.Tensor], features: torch.Tensor) -> torch.Tensor:
    """float32 [networks, n, classes]."""
    first, first_bias, second, second_bias = weights
    return torch.sigmoid(features @ first + first_bias) @ second + second_bias


def _accuracies(weights: Sequence[torch.Tensor], held_out: Rows) -> list[float]:
    """The share of the rows that each network gets right."""
    features, labels = (torch.from_numpy(array) for array in held_out)
    with torch.inference_mode():
        found = (_logits(weights, features).argmax(dim=2) == labels).double().mean(dim=1)
    shares: list[float] = found.tolist()
    return shares
