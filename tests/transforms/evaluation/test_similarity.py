"""Similarities of pairs of vectors, and tasks that are scored by them.

Covers transforms/evaluation/task.py.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import distance

from sentence_beam.transforms.evaluation.similarity import SIMILARITIES, similarities
from sentence_beam.transforms.evaluation.task import TaskVectors, hash_content
from sentence_beam.transforms.evaluation.tasks import read_task

BY_SCIPY = {
    "cosine": lambda a, b: 1 - distance.cosine(a, b),
    "dot": np.dot,
    "manhattan": lambda a, b: -distance.cityblock(a, b),
    "euclidean": lambda a, b: -distance.euclidean(a, b),
}


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_are_those_of_scipy(name: str) -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 50, 7)).astype(np.float32)
    wanted = [
        BY_SCIPY[name](a, b) for a, b in zip(first.astype(float), second.astype(float), strict=True)
    ]
    np.testing.assert_allclose(similarities(name, first, second), wanted, rtol=1e-10)


def test_sts_is_scored_by_the_similarity_asked_for(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    gold = generator.random(30)
    path = tmp_path / "s.tsv"
    lines = [f"{score}\ta{n}\tb{n}" for n, score in enumerate(gold)]
    path.write_text("\n".join(["score\tsentence1\tsentence2", *lines]) + "\n")
    rows = generator.normal(size=(60, 4)).astype(np.float32)
    vectors = TaskVectors(
        rows, {f"{side}{n}": 30 * (side == "b") + n for side in "ab" for n in range(30)}
    )
    digests = set()
    for name in SIMILARITIES:
        task = read_task(f"s={path}", "logistic", name)
        evidence = task.evidence([task.predict(vectors)])["spearman"]
        wanted = [
            BY_SCIPY[name](rows[n].astype(float), rows[30 + n].astype(float)) for n in range(30)
        ]
        assert evidence.scores()["all"][0] == pytest.approx(stats.spearmanr(wanted, gold).statistic)
        digests.add(hash_content(task))
    assert len(digests) == 4


def test_triplets_and_duplicates_are_decided_by_it(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("anchor\tpositive\tnegative\na\tb\tc\n")
    # b: near by the cosine, c: near by distance
    rows = np.array([[1, 0], [9, 1], [1, 1]], np.float32)
    vectors = TaskVectors(rows, {"a": 0, "b": 1, "c": 2})
    correct = {
        name: read_task(f"triplets:t={tmp_path / 't.tsv'}", "logistic", name)
        .predict(vectors)["correct"]
        .tolist()
        for name in SIMILARITIES
    }
    assert correct == {"cosine": [1], "dot": [1], "manhattan": [0], "euclidean": [0]}
    (tmp_path / "p.tsv").write_text("is_duplicate\tquestion1\tquestion2\n1\ta\tc\n0\ta\tb\n")
    for name, wanted in (("cosine", 0.5), ("euclidean", 1.0)):
        task = read_task(f"pairs:p={tmp_path / 'p.tsv'}", "logistic", name)
        assert task.evidence([task.predict(vectors)])["ap"].scores()["all"][0] == wanted
