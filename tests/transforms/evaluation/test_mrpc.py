"""Two parts of labelled pairs, as MRPC has them: ten folds of the training rows, accuracy and
F1.
"""

from pathlib import Path

import numpy as np
import pytest

from sentence_beam.transforms.evaluation import classifier as classifiers
from sentence_beam.transforms.evaluation.detections import Decisions
from sentence_beam.transforms.evaluation.task import TaskVectors, pair_features
from sentence_beam.transforms.evaluation.tasks import read_task

pytest.importorskip("sklearn")

HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"  # of MRPC's own files


def test_mrpc_is_accuracy_and_f1_of_a_classifier_that_ten_folds_chose(tmp_path: Path) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    generator = np.random.default_rng(0)
    texts: dict[str, int] = {}
    for name, count in (("train", 120), ("test", 60)):
        labels = (generator.random(count) < 0.6).astype(int)
        sides = [(f"{name} a {n}", f"{name} b {n}") for n in range(count)]
        lines = [f"{label}\t1\t2\t{a}\t{b}" for label, (a, b) in zip(labels, sides, strict=True)]
        (tmp_path / f"{name}.txt").write_text("\n".join([f"\ufeff{HEADER}", *lines]) + "\n")
        for side in sides:
            texts |= {text: len(texts) + place for place, text in enumerate(side)}
    task = read_task(f"nli:mrpc={tmp_path / 'train.txt'},{tmp_path / 'test.txt'}", "logistic")
    rows = generator.normal(size=(len(texts), 5)).astype(np.float32)
    for part in task.parts:  # paraphrases lie nearer, with noise
        for label, a, b in zip(part.labels, part.first, part.second, strict=True):
            rows[texts[b]] = rows[texts[a]] + generator.normal(size=5) * (
                1.0 if label == "1" else 2.0
            )
    vectors = TaskVectors(rows, texts)
    evidence = task.evidence([task.predict(vectors)])
    features = [
        pair_features(vectors.lookup(part.first), vectors.lookup(part.second))
        for part in task.parts
    ]
    numbers = [np.array([int(label) for label in part.labels]) for part in task.parts]
    predicted = classifiers.predict_held_out(
        (features[0], numbers[0]), None, features[1], "logistic"
    )
    assert evidence["accuracy"].scores()["all"][0] == accuracy_score(numbers[1], predicted)
    assert evidence["f1"].scores()["all"][0] == pytest.approx(f1_score(numbers[1], predicted))
    assert list(evidence) == ["accuracy", "f1"]
    assert 0.5 < accuracy_score(numbers[1], predicted) < 1


def test_f1_of_resamples_and_of_swapped_decisions() -> None:
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(0)
    labels, found = generator.random(40) < 0.5, generator.random((2, 40)) < 0.5
    evidence = Decisions(found, labels)
    counts = generator.multinomial(40, [1 / 40] * 40, size=3)
    for row in range(3):
        drawn = np.repeat(np.arange(40), counts[row])
        for method in range(2):
            wanted = f1_score(labels[drawn], found[method][drawn])
            assert evidence.resampled(counts)["all"][method, row] == pytest.approx(wanted)
    swaps = (generator.random((5, 40)) < 0.5).astype(np.int8)
    for row in range(5):
        swap = swaps[row].astype(bool)
        one, other = np.where(swap, found[0], found[1]), np.where(swap, found[1], found[0])
        wanted = f1_score(labels, one) - f1_score(labels, other)
        assert evidence.swapped(1, swaps)["all"][row] == pytest.approx(wanted)
