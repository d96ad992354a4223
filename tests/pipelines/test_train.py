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
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Outcome, Run
from helpers.tiny_models import TEXTS, save_tiny_model
from helpers.training import (
    labelled_rows,
    record,
    scored_rows,
    sentences,
    triplet_rows,
    weights,
    write_tsv,
)
from safetensors.numpy import load_file

pytest.importorskip("accelerate", reason="the extra train is not installed")

Train = Callable[..., Outcome]
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that can learn by heart, and pairs and triplets for it to learn."""
    folder = tmp_path_factory.mktemp("training")
    save_tiny_model("bert", folder / "bert", **WITHOUT_DROPOUT)
    write_tsv(folder / "scored.tsv", scored_rows())
    write_tsv(folder / "labelled.tsv", labelled_rows())
    write_tsv(folder / "triplets.tsv", triplet_rows())
    return folder


@pytest.fixture
def train(run: Run, data: Path, tmp_path: Path) -> Train:
    """`train` with the tiny model into `tmp_path/model`: objective, input, further options, which
    win.
    """

    def call(objective: str, file: str, *options: object) -> Outcome:
        own = {"--output": tmp_path / "model", "--model": data / "bert", "--lr": "3e-3"}
        own = {flag: value for flag, value in own.items() if flag not in options}
        named = [str(word) for pair in own.items() for word in pair]
        if objective == "regression" and "--scores" not in options:
            named += ["--scores", "0,5"]
        return run("train", "--objective", objective, "--input", data / file, *named, *options)

    return call


def losses(folder: Path) -> list[float]:
    return [point["loss"] for point in record(folder)["curve"] if "loss" in point]


def test_scores_are_learnt_and_the_folder_is_a_model(
    train: Train, run: Run, data: Path, tmp_path: Path, store: Path
) -> None:
    done = train("regression", "scored.tsv", "--epochs", 40, "--dev", data / "scored.tsv")
    folder = tmp_path / "model"
    assert done.status == 0, done.err
    assert "text1 from sentence1, text2 from sentence2, score from score" in done.err
    assert "64 of 64 dev rows are training rows too" in done.err
    assert losses(folder)[-1] < 1e-3
    found = record(folder)
    assert found["dev"]["score"] > 99
    assert (
        found["dev"]["before"]["score"]
        < 50
        < found["dev"]["low"]
        <= found["dev"]["score"]
        <= found["dev"]["high"]
    )
    assert found["data"][0]["rows"] == 64
    assert found["data"][0]["columns"] == {
        "text1": "sentence1",
        "text2": "sentence2",
        "score": "score",
    }
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {
        ".json", ".safetensors", ".md", ".html", ".txt"
    }  # fmt: skip
    assert "<polyline" in (folder / "training.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]

    from sentence_transformers import SentenceTransformer

    from sentence_beam.transforms.encoder import Encoder

    texts = [text for text in TEXTS if text]
    encoder = Encoder.load(str(folder), dtype="float32")
    ours, theirs = (
        encoder.encode(texts),
        SentenceTransformer(str(folder), device="cpu").encode(texts),
    )
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    assert (
        encoder.space.id
        == found["space"]
        != Encoder.load(str(data / "bert"), dtype="float32").space.id
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(train: Train, tmp_path: Path) -> None:
    for name in ("model", "again"):
        assert (
            train("regression", "scored.tsv", "--epochs", 2, "--output", tmp_path / name).status
            == 0
        )
    assert weights(tmp_path / "model") == weights(tmp_path / "again")
    assert (
        train(
            "regression", "scored.tsv", "--epochs", 2, "--output", tmp_path / "other", "--seed", 1
        ).status
        == 0
    )
    assert weights(tmp_path / "model") != weights(tmp_path / "other")


@pytest.mark.parametrize(
    ("objective", "file", "more"),
    [
        ("classification", "labelled.tsv", []),
        pytest.param("ranking", "triplets.tsv", [], marks=pytest.mark.slow),
        pytest.param("regression", "scored.tsv", ["--lora", 4], marks=pytest.mark.slow),
    ],
)
def test_a_stopped_training_goes_on_as_if_nothing_had_been(
    train: Train,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objective: str,
    file: str,
    more: list,
) -> None:
    """With dev scores, and for `classification` with a layer that is in no model folder."""
    options = ["--epochs", 3, "--dev", data / file, "--checkpoint-steps", 3, *more]
    begun = train(objective, file, *options, "--output", tmp_path / "whole", "--resume")
    assert (begun.status, "no checkpoint to resume; the training begins" in begun.err) == (0, True)
    from sentence_beam.transforms.training.training_progress import TrainingWatch

    step = TrainingWatch.step
    monkeypatch.setattr(TrainingWatch, "step", stopping_at(8))
    stopped = train(objective, file, *options)
    assert (stopped.status, "the same command with --resume goes on" in stopped.err) == (130, True)
    monkeypatch.setattr(TrainingWatch, "step", step)
    assert not (tmp_path / "model").exists()

    refused = train(objective, file, *options)
    assert (refused.status, "say --resume to go on" in refused.err) == (2, True)
    other = train(objective, file, *options, "--resume", "--lr", "1e-3")
    assert (other.status, "its lr was 0.003, and is 0.001 now" in other.err) == (2, True)

    done = train(objective, file, *options, "--resume")
    assert done.status == 0, done.err
    assert "step 3:" not in done.err
    assert "no checkpoint to resume" not in done.err
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")
    whole, resumed = record(tmp_path / "whole"), record(tmp_path / "model")
    assert (resumed["dev"], resumed["curve"], resumed["best_step"]) == (
        whole["dev"], whole["curve"], whole["best_step"]
    )  # fmt: skip
    again = train(objective, file, *options, "--resume")
    assert (again.status, "finished already" in again.err) == (0, True)


def stopping_at(last: int) -> Callable[[object, int], None]:
    """A watch's step that stops the training as Ctrl-C does."""

    def step(self: object, step: int) -> None:
        if step == last:
            raise KeyboardInterrupt

    return step


@pytest.mark.parametrize(
    ("objective", "file", "options"),
    [
        ("classification", "labelled.tsv", ["--epochs", 30]),
        ("triplet", "triplets.tsv", ["--epochs", 15]),
        ("ranking", "triplets.tsv", ["--epochs", 40, "--columns", "anchor,positive"]),
    ],
    ids=["classification", "triplet", "ranking"],
)
@pytest.mark.slow
def test_labels_and_ranks_are_learnt(
    train: Train, data: Path, tmp_path: Path, objective: str, file: str, options: list
) -> None:
    done = train(objective, file, *options, "--dev", data / file)
    assert done.status == 0, done.err
    assert record(tmp_path / "model")["dev"]["score"] == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["cosent", "scored.tsv"],
        ["regression", "scored.tsv", "--pooler", "cls"],
        ["regression", "scored.tsv", "--pooler", "max", "--matryoshka", "12,6"],
        ["ranking", "triplets.tsv", "--mini-batch", 4],
        ["ranking", "triplets.tsv", "--guide", "minilm"],
        ["ranking", "triplets.tsv", "--guide", "minilm", "--mini-batch", 4],
        ["ranking", "triplets.tsv", "--matryoshka", "12", "--mini-batch", 4],
        ["classification", "labelled.tsv", "--freeze-backbone"],
        ["regression", "scored.tsv", "--dtype", "bfloat16"],
    ],
    ids=lambda options: "-".join(str(word) for word in options if not str(word).endswith("tsv")),
)
def test_every_way_to_train_ends_with_a_model(train: Train, tmp_path: Path, options: list) -> None:
    done = train(*options)
    assert done.status == 0, done.err
    assert all(np.isfinite(losses(tmp_path / "model")))


@pytest.mark.slow
def test_labels_are_learnt_from_vectors_of_any_length(
    train: Train, data: Path, tmp_path: Path
) -> None:
    """A model that ends with vectors of length 1 does so afterwards too."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    layers = [modules.Transformer(str(data / "bert")), modules.Pooling(24), modules.Normalize()]
    SentenceTransformer(modules=layers, device="cpu").save_pretrained(
        str(tmp_path / "unit"), create_model_card=False
    )
    for name, model in (("model", data / "bert"), ("other", tmp_path / "unit")):
        done = train(
            "classification", "labelled.tsv", "--model", model, "--output", tmp_path / name
        )
        assert done.status == 0, done.err
    assert weights(tmp_path / "model") == weights(tmp_path / "other")
    vectors = SentenceTransformer(str(tmp_path / "other"), device="cpu").encode(sentences(3))
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5


@pytest.mark.slow
def test_a_cnn_head_is_trained_and_trained_again(train: Train, data: Path, tmp_path: Path) -> None:
    """Its vector is a text's own, whatever is beside it, and that of sentence-transformers; its
    code is not run here.
    """
    from sentence_transformers import SentenceTransformer

    from sentence_beam.transforms.encoder import Encoder

    options = ["--recipe", "cnn-sbert", "--batch", 16, "--epochs", 30, "--dev", data / "scored.tsv"]
    done = train("regression", "scored.tsv", *options)
    assert done.status == 0, done.err
    folder = tmp_path / "model"
    assert record(folder)["options"]["recipe"] == "cnn-sbert"
    assert record(folder)["dev"]["difference"]["low"] > 0
    (folder / "modeling_cnn.py").write_text(
        (folder / "modeling_cnn.py").read_text() + "\nimport sys\nsys.run_here = 1\n"
    )
    texts = [text for text in TEXTS if text]
    encoder = Encoder.load(str(folder), dtype="float32", normalize=False)
    ours = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.abs(ours - alone).max() <= 2e-5 * np.abs(ours).max()
    again = train(
        "regression",
        "scored.tsv",
        "--model",
        folder,
        "--output",
        tmp_path / "again",
        "--freeze-backbone",
    )
    assert again.status == 0, again.err
    assert not hasattr(sys, "run_here")
    assert weights(tmp_path / "again") == weights(folder)
    head = Path("1_CNN003") / "model.safetensors"
    assert (tmp_path / "again" / head).read_bytes() != (folder / head).read_bytes()
    theirs = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True).encode(texts)
    assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()
    assert sys.__dict__.pop("run_here") == 1
    refused = train(
        "regression",
        "scored.tsv",
        "--pooler",
        "mean",
        "--freeze-backbone",
        "--output",
        tmp_path / "no",
    )
    assert (refused.status, "leaves nothing to train" in refused.err) == (2, True)


def test_a_dry_run_says_what_is_to_come_and_writes_nothing(
    train: Train, data: Path, tmp_path: Path
) -> None:
    done = train(
        "regression",
        "scored.tsv",
        "--dry-run",
        "--epochs",
        3,
        "--dev",
        data / "scored.tsv",
        "--json",
    )
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["rows"], found["batches"], found["steps"]) == (64, 4, 12)
    assert found["trained"] == found["parameters"] > 10_000
    assert found["memory"] > 0 < found["seconds"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_adapters_are_in_the_weights(train: Train, tmp_path: Path, data: Path) -> None:
    """The folder loads where the base model is gone, and says what the model with adapters said."""
    from sentence_transformers import SentenceTransformer

    gone = save_tiny_model("bert", tmp_path / "gone", **WITHOUT_DROPOUT)
    done = train(
        "regression",
        "scored.tsv",
        "--lora",
        4,
        "--epochs",
        15,
        "--model",
        gone,
        "--dev",
        data / "scored.tsv",
    )
    assert done.status == 0, done.err
    gone.rename(tmp_path / "elsewhere")
    assert not list((tmp_path / "model").glob("adapter*"))
    texts = sentences(5)
    before = SentenceTransformer(str(data / "bert"), device="cpu").encode(texts)
    after = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(texts)
    assert np.abs(before - after).max() > 1e-2
    assert losses(tmp_path / "model")[-1] < 0.5 * losses(tmp_path / "model")[0]


@pytest.mark.slow
def test_hard_negatives_are_looked_for(train: Train, data: Path, tmp_path: Path) -> None:
    done = train(
        "ranking",
        "triplets.tsv",
        "--columns",
        "anchor,positive",
        "--hard-negatives",
        1,
        "--guide",
        "minilm",
        "--batch",
        4,
    )
    assert done.status == 0, done.err
    assert "negatives   1 to each of" in done.err
    refused = train("ranking", "triplets.tsv", "--hard-negatives", 1, "--overwrite")
    assert (refused.status, "the data has a column of negatives" in refused.err) == (2, True)


def test_texts_that_rows_share_leave_rows_out_of_batches(
    train: Train, data: Path, tmp_path: Path
) -> None:
    rows = [{**row, "positive": f"a {place % 4}"} for place, row in enumerate(triplet_rows())]
    write_tsv(data / "shared.tsv", rows)
    done = train("ranking", "shared.tsv", "--columns", "anchor,positive")
    assert (done.status, "note        16 of 64 rows are in an epoch's batches" in done.err) == (
        0,
        True,
    ), done.err
    write_tsv(
        data / "shared.tsv",
        [{**row, "positive": f"a {place < 2}"} for place, row in enumerate(rows)],
    )
    refused = train(
        "ranking", "shared.tsv", "--columns", "anchor,positive", "--output", tmp_path / "other"
    )
    assert (refused.status, "batches have no negatives" in refused.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_loss_that_is_not_finite_names_step_and_rows(train: Train, tmp_path: Path) -> None:
    done = train("regression", "scored.tsv", "--lr", "1e30", "--warmup", 0, "--checkpoint-steps", 1)
    assert done.status == 1
    assert "is not finite at step 2 (" in done.err
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
    refused = train("regression", "scored.tsv", *asked, "--must-improve")
    assert refused.status == 3, refused.err
    assert "--must-improve: no checkpoint beats the start (dev spearman " in refused.err
    assert not (tmp_path / "model").exists()
    done = train("regression", "scored.tsv", *asked, "--resume")
    assert done.status == 0, done.err
    assert "note        no checkpoint beats the start (dev spearman " in done.err
    found = record(tmp_path / "model")
    scores = [point["dev"] for point in found["curve"] if point.get("dev") is not None]
    assert (found["best_step"], found["dev"]["score"]) == (0, pytest.approx(max(scores)))
    assert found["dev"]["difference"]["score"] == 0
    assert max(scores[1:]) < scores[0]
    before, after = (
        load_file(folder / "model.safetensors") for folder in (data / "bert", tmp_path / "model")
    )
    for name, weight in before.items():
        np.testing.assert_array_equal(after[name], weight)
    unknown = train("regression", "scored.tsv", "--must-improve", "--output", tmp_path / "other")
    assert (
        unknown.status,
        "--must-improve compares dev scores; say --dev PATH too" in unknown.err,
    ) == (2, True)


@pytest.mark.slow
def test_patience(train: Train, data: Path, tmp_path: Path) -> None:
    options = [
        "--epochs",
        20,
        "--dev",
        data / "other.tsv",
        "--patience",
        2,
        "--checkpoint-steps",
        4,
    ]
    write_tsv(data / "other.tsv", scored_rows(seed=5))
    done = train("regression", "scored.tsv", *options)
    found = record(tmp_path / "model")
    assert done.status == 0, done.err
    assert found["stopped_early"]
    assert found["steps"] == found["best_step"] + 8 < 80


def test_a_folder_is_replaced_as_a_whole(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    assert train("regression", "scored.tsv").status == 0
    refused = train("regression", "scored.tsv")
    assert (refused.status, "say --overwrite to replace it" in refused.err) == (2, True)
    old = weights(tmp_path / "model")

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("sentence_beam.transforms.training.training_run.write_record", broken)
    assert train("regression", "scored.tsv", "--overwrite", "--seed", 3).status == 1
    assert weights(tmp_path / "model") == old
    monkeypatch.undo()
    resumed = train("regression", "scored.tsv", "--resume", "--seed", 3)
    assert (resumed.status, "no checkpoint to resume" in resumed.err) == (0, False)
    assert weights(tmp_path / "model") != old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("mine")
    refused = train("regression", "scored.tsv", "--output", other, "--overwrite")
    assert (refused.status, "no training wrote it" in refused.err) == (2, True)
    other.rename(tmp_path / "third.training")
    refused = train("regression", "scored.tsv", "--output", tmp_path / "third", "--overwrite")
    assert (refused.status, "no training wrote it" in refused.err) == (2, True)
    assert (tmp_path / "third.training" / "precious.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_killed_training_leaves_the_old_folder(train: Train, data: Path, tmp_path: Path) -> None:
    """SIGKILL after the first checkpoint; then --resume gives what an undisturbed training
    gives.
    """
    options = ["--epochs", 6, "--checkpoint-steps", 1]
    assert train("regression", "scored.tsv", *options, "--output", tmp_path / "whole").status == 0
    assert train("regression", "scored.tsv").status == 0
    old = weights(tmp_path / "model")
    words = [
        "train",
        "--objective",
        "regression",
        "--scores",
        "0,5",
        "--input",
        str(data / "scored.tsv"),
        "--lr",
        "3e-3",
    ]
    words += [
        "--model",
        str(data / "bert"),
        "--output",
        str(tmp_path / "model"),
        *map(str, options),
        "--overwrite",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen(
        [sys.executable, "-m", "sentence_beam", *words], env=environment, cwd=tmp_path
    )
    work = tmp_path / "model.training" / "checkpoints"
    while killed.poll() is None and not list(work.glob("checkpoint-*")):
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    if (tmp_path / "model.training").exists():
        assert weights(tmp_path / "model") == old
        assert train("regression", "scored.tsv", *options, "--resume").status == 0
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")


def test_quiet_and_json(train: Train, tmp_path: Path) -> None:
    done = train("regression", "scored.tsv", "--quiet", "--json")
    assert done.status == 0
    assert done.err == ""
    assert json.loads(done.out)["space"] == record(tmp_path / "model")["space"]


def test_a_table_of_token_embeddings_is_trained(
    train: Train, run: Run, data: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(data / "bert" / "tokenizer.json"))
    SentenceTransformer(modules=[modules.StaticEmbedding(tokenizer, embedding_dim=8)]).save(
        str(tmp_path / "static")
    )
    done = train("regression", "scored.tsv", "--model", tmp_path / "static", "--epochs", 2)
    assert done.status == 0, done.err
    assert losses(tmp_path / "model")
    assert weights(tmp_path / "model") != weights(tmp_path / "static")
