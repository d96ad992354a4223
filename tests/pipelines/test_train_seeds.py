"""`train --seeds` and `--test`: the same training several times, the spread of its scores, what is
kept.
"""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Outcome, Run
from helpers.tiny_models import save_tiny_model
from helpers.training import record, scored_rows, weights, write_tsv
from scipy import stats

from sentence_beam.transforms.training.seeds import choose_best, measure_spread

pytest.importorskip("accelerate", reason="the extra train is not installed")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_all_seeds_are_kept_with_the_spread_of_their_scores(run: Run, tmp_path: Path) -> None:
    save_tiny_model("bert", tmp_path / "bert")
    for name, seed in (("train", 0), ("dev", 1), ("held", 2)):
        write_tsv(tmp_path / f"{name}.tsv", scored_rows(seed=seed))

    def train(*more: object) -> Outcome:
        data = (
            "--input",
            tmp_path / "train.tsv",
            "--dev",
            tmp_path / "train.tsv",
            "--test",
            tmp_path / "held.tsv",
        )
        own = (
            "--objective",
            "regression",
            "--scores",
            "0,5",
            "--model",
            tmp_path / "bert",
            "--lr",
            "3e-3",
        )
        return run("train", *data, *own, "--output", tmp_path / "out", *more)

    done = train("--seeds", 3, "--seed", 5, "--epochs", 2)
    assert done.status == 0, done.err
    found = json.loads((tmp_path / "out" / "seeds.json").read_text())
    folders = [tmp_path / "out" / each["folder"] for each in found["seeds"]]
    assert [each["seed"] for each in found["seeds"]] == [5, 6, 7]
    assert [record(folder)["options"]["seed"] for folder in folders] == [5, 6, 7]
    assert len({weights(folder) for folder in folders}) == 3
    for part in ("dev", "test"):
        scores = [record(folder)[part]["score"] for folder in folders]
        assert len(set(scores)) == 3
        assert found[part]["mean"] == pytest.approx(np.mean(scores))
        assert found[part]["deviation"] == pytest.approx(np.std(scores, ddof=1))
        assert (found[part]["low"], found[part]["high"]) == (min(scores), max(scores))
        assert (
            f"{np.mean(scores):.2f} on average, standard deviation {np.std(scores, ddof=1):.2f}"
            in done.out
        )
    best = max(found["seeds"], key=lambda each: each["dev"]["score"])["seed"]
    assert (found["best"], f"best        seed {best} by dev score" in done.out) == (best, True)
    # the score on test rows is that of the folder, by another implementation
    from sentence_transformers import SentenceTransformer

    rows = scored_rows(seed=2)
    model = SentenceTransformer(str(folders[0]), device="cpu")
    sides = [
        model.encode([row[side] for row in rows], normalize_embeddings=True)
        for side in ("sentence1", "sentence2")
    ]
    spearman = stats.spearmanr(
        (sides[0] * sides[1]).sum(axis=1), [row["score"] for row in rows]
    ).statistic
    tested = record(folders[0])["test"]
    assert tested["score"] == pytest.approx(100 * spearman, abs=0.05)
    assert tested["low"] < tested["score"] < tested["high"]
    before = [weights(folder) for folder in folders]
    assert train("--seeds", 3, "--seed", 5, "--epochs", 2, "--resume").status == 0
    assert [weights(folder) for folder in folders] == before
    other = train(
        "--seeds", 3, "--seed", 5, "--epochs", 2, "--resume", "--test", tmp_path / "dev.tsv"
    )
    assert (other.status, "its test was" in other.err) == (2, True)


def test_scores_are_needed(run: Run, tmp_path: Path) -> None:
    write_tsv(tmp_path / "train.tsv", scored_rows())
    own = (
        "--objective",
        "regression",
        "--scores",
        "0,5",
        "--output",
        tmp_path / "out",
        "--input",
        tmp_path / "train.tsv",
    )
    done = run("train", *own, "--seeds", 2)
    assert (
        done.status,
        "--seeds compares scores; say --dev PATH or --test PATH too" in done.err,
    ) == (2, True)


def test_spread_and_best() -> None:
    assert measure_spread([1.0, 2.0, 4.5]) == {
        "mean": 2.5,
        "deviation": statistics.stdev([1, 2, 4.5]),
        "low": 1.0,
        "high": 4.5,
    }
    assert measure_spread([3.0]) == {"mean": 3.0, "deviation": 0.0, "low": 3.0, "high": 3.0}
    assert measure_spread([1.0, None]) is None
    assert (
        choose_best([{"seed": 1, "dev": {"score": 2.0}}, {"seed": 2, "dev": {"score": 3.0}}]) == 2
    )
    assert choose_best([{"seed": 1, "test": {"score": 2.0}}]) is None
