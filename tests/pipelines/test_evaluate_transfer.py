"""`evaluate` on real classification data gives what a few lines of scikit-learn give on the same
vectors.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run

from sentence_beam.transforms.encoder import Encoder


def read(path: Path) -> tuple[np.ndarray, list[str]]:
    """Labels and texts of a file."""
    rows = [line.split("\t", 1) for line in path.read_text().splitlines()[1:]]
    return np.array([int(label) for label, _ in rows]), [text for _, text in rows]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_cr_subj_and_trec_are_within_half_a_point_of_plain_scikit_learn(
    run: Run, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    selection, threads = (
        pytest.importorskip("sklearn.model_selection"),
        pytest.importorskip("threadpoolctl"),
    )
    known: dict[str, np.ndarray] = {}
    encode = Encoder.encode

    def kept(self: Encoder, texts: list[str]) -> np.ndarray:
        found = encode(self, texts)
        known.update(zip(texts, found / np.linalg.norm(found, axis=1, keepdims=True), strict=True))
        return found

    monkeypatch.setattr(Encoder, "encode", kept)
    data, out = shared / "data" / "transfer", tmp_path / "o.jsonl"
    tasks = [
        f"cr={data}/cr.tsv",
        f"subj={data}/subj.tsv",
        f"trec={data}/trec-train.tsv,{data}/trec-test.tsv",
    ]
    run(
        "evaluate",
        *[word for task in tasks for word in ("--task", f"classification:{task}")],
        "--output",
        out,
    ).ok()
    found = {row["task"]: row["score"] for row in map(json.loads, out.read_text().splitlines())}
    plain = linear.LogisticRegression(C=10, max_iter=1000)
    with threads.threadpool_limits(1):
        for name in ("cr", "subj"):
            labels, texts = read(data / f"{name}.tsv")
            folds = selection.StratifiedKFold(10, shuffle=True, random_state=0)
            right = selection.cross_val_score(
                plain, np.stack([known[text] for text in texts]), labels, cv=folds
            )
            assert found[name] == pytest.approx(100 * right.mean(), abs=0.5), name
        labels, texts = read(data / "trec-train.tsv")
        plain.fit(np.stack([known[text] for text in texts]), labels)
        labels, texts = read(data / "trec-test.tsv")
        score = plain.score(np.stack([known[text] for text in texts]), labels)
        assert found["trec"] == pytest.approx(100 * score, abs=0.5)
