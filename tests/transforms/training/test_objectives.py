"""Objectives on made-up vectors, against their formulas."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.training.prepare import classify
from sentence_beam.transforms.training.train_options import TrainOptions

pytest.importorskip("accelerate", reason="the extra train is not installed")
from sentence_beam.transforms.training.objectives import find_classifier, make_loss

DIM = 4


class Known(nn.Module):
    """A model whose vectors are the inputs."""

    device = torch.device("cpu")

    def get_embedding_dimension(self) -> int:
        return DIM

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return {"sentence_embedding": features["x"]}


@pytest.fixture(autouse=True)
def _seeded_torch() -> None:
    torch.manual_seed(0)


def drawn(sides: int, rows: int = 9) -> np.ndarray:
    """Vectors float64 [sides, rows, dim]."""
    return np.random.default_rng(0).normal(size=(sides, rows, DIM))


def loss(
    objective: str, sides: np.ndarray, targets: np.ndarray | None = None, **options: Any
) -> float:
    """The loss of an objective for vectors [sides, rows, dim]."""
    made = make_loss(Known(), TrainOptions(("x",), objective=objective, output="o", **options), 3)  # type: ignore[arg-type]
    wanted = torch.from_numpy(targets).float() if targets is not None else None
    return made([{"x": torch.from_numpy(side).float()} for side in sides], wanted).item()


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The cosines of rows, [n]."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return (one * other).sum(axis=1) / lengths


@pytest.mark.parametrize(
    "concat", ["u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|", "u,v,|u-v|,u*v"]
)
def test_what_the_softmax_sees(concat: str) -> None:
    """Beside a loss of our own, in float64, and the labels that the layer gives."""
    options = TrainOptions(("x",), objective="classification", output="o", concat=concat)
    made = make_loss(Known(), options, 3)  # type: ignore[arg-type]
    layer = find_classifier(made)
    assert layer is not None
    assert layer.bias is None
    layer.weight.data.mul_(50)
    u, v = drawn(2)
    labels = np.random.default_rng(1).integers(0, 3, 9)
    features = [{"x": torch.from_numpy(side).float()} for side in (u, v)]
    parts = {"u": u, "v": v, "|u-v|": abs(u - v), "u*v": u * v}
    seen = np.concatenate([parts[name] for name in concat.split(",")], axis=1)
    logits = seen @ layer.weight.detach().double().numpy().T
    right = logits[np.arange(9), labels] - np.log(np.exp(logits).sum(axis=1))
    assert made(features, torch.from_numpy(labels)).item() == pytest.approx(-right.mean(), abs=1e-5)
    assert classify(layer, concat, u, v).tolist() == logits.argmax(axis=1).tolist()


def test_regression_is_the_squared_error_of_cosines() -> None:
    u, v = drawn(2)
    gold = np.linspace(0, 1, 9)
    assert loss("regression", np.stack([u, v]), gold) == pytest.approx(
        ((cosines(u, v) - gold) ** 2).mean(), abs=1e-5
    )


def test_cosent_sees_the_order_of_scores_alone() -> None:
    u, v = drawn(2)
    gold = np.linspace(0, 1, 9)
    cosine = 20 * cosines(u, v)
    wrong = [cosine[i] - cosine[j] for i in range(9) for j in range(9) if gold[i] < gold[j]]
    expected = np.log1p(np.exp(wrong).sum())
    assert loss("cosent", np.stack([u, v]), gold) == pytest.approx(expected, abs=1e-4)
    assert loss("cosent", np.stack([u, v]), gold**3) == pytest.approx(expected, abs=1e-4)


def test_triplets_have_a_margin() -> None:
    anchor, near, far = drawn(3)
    gaps = np.linalg.norm(anchor - near, axis=1) - np.linalg.norm(anchor - far, axis=1)
    assert loss("triplet", np.stack([anchor, near, far])) == pytest.approx(
        np.maximum(0, gaps + 1).mean(), abs=1e-5
    )


def test_ranking_tells_a_rows_text_from_those_of_other_rows() -> None:
    u, v = drawn(2)
    scores = 20 * np.stack([cosines(np.broadcast_to(row, v.shape), v) for row in u])
    right = np.diag(scores) - np.log(np.exp(scores).sum(axis=1))
    assert loss("ranking", np.stack([u, v])) == pytest.approx(-right.mean(), abs=1e-4)


def test_several_widths_add_up() -> None:
    u, v = drawn(2)
    gold = np.linspace(0, 1, 9)
    each = [((cosines(u[:, :dim], v[:, :dim]) - gold) ** 2).mean() for dim in (2, 4)]
    found = loss("regression", np.stack([u, v]), gold, matryoshka=(2,))
    assert found == pytest.approx(sum(each), abs=1e-5)
    with pytest.raises(OptionError, match="matryoshka 4: the model's vectors have 4 components"):
        loss("regression", np.stack([u, v]), gold, matryoshka=(2, 4))


def test_only_classification_has_a_layer_that_is_not_written() -> None:
    options = TrainOptions(("x",), objective="cosent", output="o")
    assert find_classifier(make_loss(Known(), options, 3)) is None  # type: ignore[arg-type]
