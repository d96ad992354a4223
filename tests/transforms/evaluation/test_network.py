"""SentEval's network: as torch's own modules train it, and stopped when SentEval stops.

Covers transforms/evaluation/classifier.py.
Covers transforms/evaluation/kinds/classification.py.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from sentence_beam.transforms.evaluation import classifier, network
from sentence_beam.transforms.evaluation.classifier import DECAYS, cross_validate, predict_held_out
from sentence_beam.transforms.evaluation.kinds.classification import Classification
from sentence_beam.transforms.evaluation.network import Rows, train_networks


def rows(n: int, seed: int = 0) -> Rows:
    """Three classes that overlap."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n)
    return (generator.normal(size=(n, 8)) + np.eye(3, 8)[labels] * 2).astype(np.float32), labels


def by_modules(train: Rows, decay: float, passes: int) -> torch.nn.Sequential:
    """The network as SentEval writes it, with its own weight decay, begun with the same weights and
    the same order.
    """
    found = torch.nn.Sequential(torch.nn.Linear(8, 50), torch.nn.Sigmoid(), torch.nn.Linear(50, 3))
    first, first_bias, second, second_bias = (
        weight[0].detach() for weight in network.draw_weights(8, 3, 1)
    )
    with torch.no_grad():
        for place, weight, bias in ((0, first, first_bias), (2, second, second_bias)):
            found[place].weight.copy_(weight.T)
            found[place].bias.copy_(bias[0])
    adam = torch.optim.Adam(found.parameters(), weight_decay=decay)
    features, labels = (torch.from_numpy(array) for array in train)
    order = np.random.default_rng(network.SEED)
    for _ in range(passes):
        for batch in torch.from_numpy(order.permutation(len(labels))).split(64):
            adam.zero_grad()
            torch.nn.CrossEntropyLoss()(found(features[batch]), labels[batch]).backward()
            adam.step()
    return found


def test_networks_side_by_side_are_torchs_own_with_adams_weight_decay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "MOST_PASSES", 0)  # four passes
    train, test = rows(150), rows(40, seed=1)
    decays = (1e-5, 0.01, 0.3)
    for found, decay in zip(train_networks(train, test, 3, decays), decays, strict=True):
        known = by_modules(train, decay, 4)
        torch.testing.assert_close(found.weights[0], known[0].weight.T, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found.weights[2], known[2].weight.T, atol=1e-5, rtol=1e-4)
        labels = known(torch.from_numpy(test[0])).argmax(dim=1).numpy()
        assert (found.predict(test[0]) == labels).all()
        assert found.accuracy == pytest.approx((labels == test[1]).mean())


@pytest.mark.parametrize(
    ("accuracies", "rounds", "best"),
    [
        ([0.1, 0.2, 0.3] + [0.3] * 60, 9, 3),  # the sixth that is no better ends it
        # better ones in between do not set the count back
        ([0.5, 0.4, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5, 0.9], 8, 5),
        ([place / 100 for place in range(60)], 51, 51),  # 0, 4, ... 200 passes
    ],
)
def test_training_stops_when_sentevals_does(
    monkeypatch: pytest.MonkeyPatch, accuracies: list[float], rounds: int, best: int
) -> None:
    seen: list[torch.Tensor] = []

    def measure(weights: list[torch.Tensor], _: Rows) -> list[float]:
        seen.append(weights[0][0].detach().clone())
        return [accuracies[len(seen) - 1]]

    monkeypatch.setattr(network, "measure_accuracies", measure)
    (found,) = train_networks(rows(64), rows(9), 3, (1e-4,))
    assert len(seen) == rounds
    assert found.accuracy == max(accuracies[:rounds])
    torch.testing.assert_close(found.weights[0], seen[best - 1])


def test_a_network_that_is_done_keeps_its_weights_while_others_go_on() -> None:
    alone = [train_networks(rows(150), rows(40, 1), 3, (decay,))[0] for decay in DECAYS]
    for one, found in zip(alone, train_networks(rows(150), rows(40, 1), 3, DECAYS), strict=True):
        assert found.accuracy == one.accuracy
        torch.testing.assert_close(found.weights[0], one.weights[0], atol=1e-4, rtol=1e-3)


def test_classes_are_found_with_dev_rows_with_folds_and_nested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sklearn")
    train, dev, test = rows(150), rows(60, 1), rows(100, 2)
    for found in (
        predict_held_out(train, dev, test[0], "mlp"),
        predict_held_out(train, None, test[0], "mlp"),
    ):
        assert (found == test[1]).mean() > 0.65
    monkeypatch.setattr(classifier, "FOLDS", 3)  # in each other: a hundred trainings take long
    monkeypatch.setattr(network, "MOST_PASSES", 40)
    assert (cross_validate(*rows(400), "mlp") == rows(400)[1]).mean() > 0.5


@pytest.mark.parametrize(
    ("file", "judge"), [("word_content.txt", "logistic"), ("bigram_shift.txt", "mlp")]
)
def test_word_content_has_no_hidden_layer(tmp_path: Path, file: str, judge: str) -> None:
    pytest.importorskip("sklearn")
    lines = [f"{part}\t{i % 2}\ttext {part} {i}\n" for part in ("tr", "va", "te") for i in range(4)]
    (tmp_path / file).write_text("".join(lines))
    assert Classification.read_probing("p", [str(tmp_path / file)], "mlp").classifier == judge
