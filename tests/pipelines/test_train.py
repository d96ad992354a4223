"""`train`: what is learnt, what is written, and what a stopped training leaves.

Covers transforms/training/training_estimate.py.
Covers transforms/training/model.py.
Covers transforms/training/prepare.py.
Covers transforms/training/training_run.py.
Covers transforms/training/trainer.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_models import TEXTS, save_tiny_model
from helpers.training import record, scored_rows, sentences, triplet_rows, weights, write_tsv
from helpers.training_fixtures import WITHOUT_DROPOUT, Train, data, one_thread, train
from safetensors.numpy import load_file
from scipy import stats

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.training.training_progress import TrainingWatch

pytest.importorskip("accelerate", reason="the extra train is not installed")

__all__ = ["data", "one_thread", "train"]
ROOT = Path(__file__).resolve().parents[2]


def losses(folder: Path) -> list[float]:
    return [point["loss"] for point in record(folder)["curve"] if "loss" in point]


def test_scores_are_learnt_and_the_folder_is_a_model(
    train: Train, data: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    done = train("regression", "--epochs", 40, "--dev", data / "scored.tsv")
    folder, found = tmp_path / "model", record(tmp_path / "model")
    assert "text1 from sentence1, text2 from sentence2, score from score" in done.err
    assert "64 of 64 dev rows are training rows too" in done.err
    assert losses(folder)[-1] < 1e-3
    dev = found["dev"]
    assert dev["score"] > 99
    assert dev["before"]["score"] < 50 < dev["low"] <= dev["score"] <= dev["high"]
    columns = {"text1": "sentence1", "text2": "sentence2", "score": "score"}
    assert (found["data"][0]["rows"], found["data"][0]["columns"]) == (64, columns)
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes <= {".json", ".safetensors", ".md", ".html", ".txt"}
    assert "<polyline" in (folder / "training.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    texts = [text for text in TEXTS if text]
    encoder = Encoder.load(str(folder), dtype="float32")
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(encoder.encode(texts) - theirs).max() <= 2e-5 * np.abs(theirs).max()
    before = Encoder.load(str(data / "bert"), dtype="float32").space.id
    assert encoder.space.id == found["space"] != before


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(train: Train, tmp_path: Path) -> None:
    for name, seed in (("model", 0), ("again", 0), ("other", 1)):
        train("regression", "--epochs", 2, "--output", tmp_path / name, "--seed", seed)
    assert weights(tmp_path / "model") == weights(tmp_path / "again")
    assert weights(tmp_path / "model") != weights(tmp_path / "other")


@pytest.mark.parametrize(
    ("objective", "more"),
    [
        ("classification", []),
        pytest.param("ranking", [], marks=pytest.mark.slow),
        pytest.param("regression", ["--lora", 4], marks=pytest.mark.slow),
    ],
)
def test_a_stopped_training_goes_on_as_if_nothing_had_been(
    train: Train,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objective: str,
    more: list,
) -> None:
    """With dev scores, and for `classification` with a layer that is in no model folder."""
    file = {"classification": "labelled.tsv", "ranking": "triplets.tsv"}.get(
        objective, "scored.tsv"
    )
    options = ["--epochs", 3, "--dev", data / file, "--checkpoint-steps", 3, *more]
    begins = "no checkpoint to resume; the training begins"
    train(objective, *options, "--output", tmp_path / "whole", "--resume", said=begins)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingWatch, "step", stopping_at(8))
        train(objective, *options, status=130, said="the same command with --resume goes on")
    assert not (tmp_path / "model").exists()
    train(objective, *options, status=2, said="say --resume to go on")
    changed = "its lr was 0.003, and is 0.001 now"
    train(objective, *options, "--resume", "--lr", "1e-3", status=2, said=changed)
    done = train(objective, *options, "--resume")
    assert "step 3:" not in done.err
    assert "no checkpoint to resume" not in done.err
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")
    whole, resumed = record(tmp_path / "whole"), record(tmp_path / "model")
    for part in ("dev", "curve", "best_step"):
        assert resumed[part] == whole[part]
    train(objective, *options, "--resume", said="finished already")


def stopping_at(last: int) -> Callable[[object, int], None]:
    """A watch's step that stops the training as Ctrl-C does."""

    def step(self: object, step: int) -> None:
        if step == last:
            raise KeyboardInterrupt

    return step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "file", "options"),
    [
        ("classification", "labelled.tsv", ["--epochs", 30]),
        ("triplet", "triplets.tsv", ["--epochs", 15]),
        ("ranking", "triplets.tsv", ["--epochs", 40, "--columns", "anchor,positive"]),
    ],
)
def test_labels_and_ranks_are_learnt(
    train: Train, data: Path, tmp_path: Path, objective: str, file: str, options: list
) -> None:
    train(objective, *options, "--dev", data / file)
    assert record(tmp_path / "model")["dev"]["score"] == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "cosent",
        "regression --pooler cls",
        "regression --pooler max --matryoshka 12,6",
        "regression --dtype bfloat16",
        "ranking --mini-batch 4",
        "ranking --guide minilm",
        "ranking --guide minilm --mini-batch 4",
        "ranking --matryoshka 12 --mini-batch 4",
        "classification --freeze-backbone",
    ],
)
def test_every_way_to_train_ends_with_a_model(train: Train, tmp_path: Path, words: str) -> None:
    train(*words.split())
    assert all(np.isfinite(losses(tmp_path / "model")))


@pytest.mark.slow
def test_labels_are_learnt_from_vectors_of_any_length(
    train: Train, data: Path, tmp_path: Path
) -> None:
    """A model that ends with vectors of length 1 does so afterwards too."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    layers = [modules.Transformer(str(data / "bert")), modules.Pooling(24), modules.Normalize()]
    unit = SentenceTransformer(modules=layers, device="cpu")
    unit.save_pretrained(str(tmp_path / "unit"), create_model_card=False)
    train("classification")
    other = ("--model", tmp_path / "unit", "--output", tmp_path / "other")
    train("classification", *other)
    assert weights(tmp_path / "model") == weights(tmp_path / "other")
    vectors = SentenceTransformer(str(tmp_path / "other"), device="cpu").encode(sentences(3))
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5


@pytest.mark.slow
def test_a_cnn_head_is_trained_and_trained_again(train: Train, data: Path, tmp_path: Path) -> None:
    """Its vector is a text's own, whatever is beside it, and that of sentence-transformers; its
    code is not run here.
    """
    from sentence_transformers import SentenceTransformer

    options = ["--recipe", "cnn-sbert", "--batch", 16, "--epochs", 30, "--dev", data / "scored.tsv"]
    train("regression", *options)
    folder, code = tmp_path / "model", tmp_path / "model" / "modeling_cnn.py"
    assert record(folder)["options"]["recipe"] == "cnn-sbert"
    assert record(folder)["dev"]["difference"]["low"] > 0
    code.write_text(code.read_text() + "\nimport sys\nsys.run_here = 1\n")
    texts = [text for text in TEXTS if text]
    encoder = Encoder.load(str(folder), dtype="float32", normalize=False)
    ours = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.abs(ours - alone).max() <= 2e-5 * np.abs(ours).max()
    again, frozen = tmp_path / "again", ("--freeze-backbone", "--output")
    train("regression", "--model", folder, *frozen, again)
    assert not hasattr(sys, "run_here")
    assert weights(again) == weights(folder)
    head = Path("1_CNN003") / "model.safetensors"
    assert (again / head).read_bytes() != (folder / head).read_bytes()
    theirs = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True).encode(texts)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    assert sys.__dict__.pop("run_here") == 1
    nothing = "leaves nothing to train"
    train("regression", "--pooler", "mean", *frozen, tmp_path / "no", status=2, said=nothing)


def test_a_dry_run_says_what_is_to_come_and_writes_nothing(
    train: Train, data: Path, tmp_path: Path
) -> None:
    options = ["--dry-run", "--epochs", 3, "--dev", data / "scored.tsv", "--json"]
    found = json.loads(train("regression", *options).out)
    assert (found["rows"], found["batches"], found["steps"]) == (64, 4, 12)
    assert found["trained"] == found["parameters"] > 10_000
    assert found["memory"] > 0 < found["seconds"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_adapters_are_in_the_weights(train: Train, tmp_path: Path, data: Path) -> None:
    """The folder loads where the base model is gone, and says what the model with adapters said."""
    from sentence_transformers import SentenceTransformer

    gone = save_tiny_model("bert", tmp_path / "gone", **WITHOUT_DROPOUT)
    train("regression", "--lora", 4, "--epochs", 15, "--model", gone, "--dev", data / "scored.tsv")
    gone.rename(tmp_path / "elsewhere")
    assert not list((tmp_path / "model").glob("adapter*"))
    texts = sentences(5)
    before, after = (
        SentenceTransformer(str(folder), device="cpu").encode(texts)
        for folder in (data / "bert", tmp_path / "model")
    )
    assert np.abs(before - after).max() > 1e-2
    assert losses(tmp_path / "model")[-1] < 0.5 * losses(tmp_path / "model")[0]


@pytest.mark.slow
def test_hard_negatives_are_looked_for(train: Train) -> None:
    options = ["--columns", "anchor,positive", "--guide", "minilm", "--batch", 4]
    mined = "negatives   1 to each of"
    train("ranking", "--hard-negatives", 1, *options, said=mined)
    given = "the data has a column of negatives"
    train("ranking", "--hard-negatives", 1, "--overwrite", status=2, said=given)


def test_texts_that_rows_share_leave_rows_out_of_batches(train: Train, tmp_path: Path) -> None:
    shared = tmp_path / "in" / "shared.tsv"
    shared.parent.mkdir()
    rows = [{**row, "positive": f"a {place % 4}"} for place, row in enumerate(triplet_rows())]
    options = ["--input", write_tsv(shared, rows), "--columns", "anchor,positive"]
    train("ranking", *options, said="note        16 of 64 rows are in an epoch's batches")
    write_tsv(shared, [{**row, "positive": f"a {place < 2}"} for place, row in enumerate(rows)])
    none = "batches have no negatives"
    train("ranking", *options, "--output", tmp_path / "other", status=2, said=none)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "model"]


def test_a_loss_that_is_not_finite_names_step_and_rows(train: Train, tmp_path: Path) -> None:
    options = ["--lr", "1e30", "--warmup", 0, "--checkpoint-steps", 1]
    done = train("regression", *options, status=1, said="is not finite at step 2 (")
    assert "scored.tsv, rows " in done.err
    kept = tmp_path / "model.training" / "checkpoints" / "checkpoint-1"
    assert f"the last good checkpoint is {kept}" in done.err
    assert (kept / "modules.json").is_file()
    assert not (tmp_path / "model").exists()


def test_a_training_that_only_loses_keeps_the_start(
    train: Train, data: Path, tmp_path: Path
) -> None:
    """Dev scores that turn the training's round: the more is learnt, the lower they are."""
    write_tsv(data / "turned.tsv", [{**row, "score": 5 - row["score"]} for row in scored_rows()])
    asked = ["--epochs", 6, "--dev", data / "turned.tsv", "--checkpoint-steps", 8]
    loses = "no checkpoint beats the start (dev spearman "
    train("regression", *asked, "--must-improve", status=3, said=f"--must-improve: {loses}")
    assert not (tmp_path / "model").exists()
    train("regression", *asked, "--resume", said=f"note        {loses}")
    found = record(tmp_path / "model")
    scores = [point["dev"] for point in found["curve"] if point.get("dev") is not None]
    assert (found["best_step"], found["dev"]["score"]) == (0, pytest.approx(max(scores)))
    assert found["dev"]["difference"]["score"] == 0
    assert max(scores[1:]) < scores[0]
    after = load_file(tmp_path / "model" / "model.safetensors")
    for name, weight in load_file(data / "bert" / "model.safetensors").items():
        np.testing.assert_array_equal(after[name], weight)


@pytest.mark.slow
def test_patience(train: Train, data: Path, tmp_path: Path) -> None:
    write_tsv(data / "other.tsv", scored_rows(seed=5))
    options = ["--epochs", 20, "--dev", data / "other.tsv", "--checkpoint-steps", 4]
    train("regression", *options, "--patience", 2)
    found = record(tmp_path / "model")
    assert found["stopped_early"]
    assert found["steps"] == found["best_step"] + 8 < 80


def test_a_folder_is_replaced_as_a_whole(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = train("regression", "--quiet", "--json")
    assert done.err == ""
    assert json.loads(done.out)["space"] == record(tmp_path / "model")["space"]
    train("regression", status=2, said="say --overwrite to replace it")
    old = weights(tmp_path / "model")

    def broken(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("sentence_beam.transforms.training.training_run.write_record", broken)
        train("regression", "--overwrite", "--seed", 3, status=1)
    assert weights(tmp_path / "model") == old
    resumed = train("regression", "--resume", "--seed", 3)
    assert "no checkpoint to resume" not in resumed.err
    assert weights(tmp_path / "model") != old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.slow
def test_a_killed_training_leaves_the_old_folder(train: Train, data: Path, tmp_path: Path) -> None:
    """SIGKILL after the first checkpoint; then --resume gives what an undisturbed training
    gives.
    """
    options = ["--epochs", 6, "--checkpoint-steps", 1]
    train("regression", *options, "--output", tmp_path / "whole")
    train("regression")
    old = weights(tmp_path / "model")
    words = ["train", "--objective", "regression", "--scores", "0,5", "--lr", "3e-3", "--overwrite"]
    words += ["--input", data / "scored.tsv", "--model", data / "bert", *options]
    argv = [sys.executable, "-m", "sentence_beam", *words, "--output", tmp_path / "model"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen([str(word) for word in argv], env=environment, cwd=tmp_path)
    work = tmp_path / "model.training" / "checkpoints"
    while killed.poll() is None and not list(work.glob("checkpoint-*")):
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    if (tmp_path / "model.training").exists():
        assert weights(tmp_path / "model") == old
        train("regression", *options, "--resume")
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")


def test_a_table_of_token_embeddings_is_trained(train: Train, data: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(data / "bert" / "tokenizer.json"))
    table = SentenceTransformer(modules=[modules.StaticEmbedding(tokenizer, embedding_dim=8)])
    table.save(str(tmp_path / "static"))
    train("regression", "--model", tmp_path / "static", "--epochs", 2)
    assert losses(tmp_path / "model")
    assert weights(tmp_path / "model") != weights(tmp_path / "static")


@pytest.mark.slow
def test_all_seeds_are_kept_with_the_spread_of_their_scores(
    train: Train, data: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    held = scored_rows(seed=2)
    options = ["--dev", data / "scored.tsv", "--test", write_tsv(tmp_path / "held.tsv", held)]
    options += ["--seeds", 3, "--seed", 5, "--epochs", 2]
    done = train("regression", *options)
    out = tmp_path / "model"
    found = json.loads((out / "seeds.json").read_text())
    folders = [out / each["folder"] for each in found["seeds"]]
    assert [each["seed"] for each in found["seeds"]] == [5, 6, 7]
    assert [record(folder)["options"]["seed"] for folder in folders] == [5, 6, 7]
    before = [weights(folder) for folder in folders]
    assert len(set(before)) == 3
    for part in ("dev", "test"):
        scores = [record(folder)[part]["score"] for folder in folders]
        mean, deviation = np.mean(scores), np.std(scores, ddof=1)
        assert len(set(scores)) == 3
        assert found[part]["mean"] == pytest.approx(mean)
        assert found[part]["deviation"] == pytest.approx(deviation)
        assert (found[part]["low"], found[part]["high"]) == (min(scores), max(scores))
        assert f"{mean:.2f} on average, standard deviation {deviation:.2f}" in done.out
    best = max(found["seeds"], key=lambda each: each["dev"]["score"])["seed"]
    assert (found["best"], f"best        seed {best} by dev score" in done.out) == (best, True)
    # the score on test rows is that of the folder, by another implementation
    model = SentenceTransformer(str(folders[0]), device="cpu")
    first, second = (
        model.encode([row[side] for row in held], normalize_embeddings=True)
        for side in ("sentence1", "sentence2")
    )
    gold = [row["score"] for row in held]
    spearman = 100 * stats.spearmanr((first * second).sum(axis=1), gold).statistic
    tested = record(folders[0])["test"]
    assert tested["score"] == pytest.approx(spearman, abs=0.05)
    assert tested["low"] < tested["score"] < tested["high"]
    train("regression", *options, "--resume")
    assert [weights(folder) for folder in folders] == before
    other = write_tsv(tmp_path / "dev.tsv", scored_rows(seed=1))
    changed = [other if word == tmp_path / "held.tsv" else word for word in options]
    train("regression", *changed, "--resume", status=2, said="its test was")
