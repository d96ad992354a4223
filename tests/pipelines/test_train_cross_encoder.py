"""`train --cross-encoder`, and what softmax sees of two vectors: what is learnt, and folders that
the library opens.

Covers transforms/training/cross_encoder.py.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.commands import Outcome, Run
from helpers.tiny_models import save_tiny_model
from helpers.training import labelled_rows, record, scored_rows, weights, write_tsv
from safetensors.numpy import load_file, save_file

pytest.importorskip("accelerate", reason="the extra train is not installed")

Train = Callable[..., Outcome]
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that can learn by heart, and pairs for it to learn."""
    folder = tmp_path_factory.mktemp("training")
    save_tiny_model("bert", folder / "bert", **WITHOUT_DROPOUT)
    write_tsv(folder / "scored.tsv", scored_rows())
    rows = [
        {"question1": r["sentence1"], "question2": r["sentence2"], "is_duplicate": r["label"]}
        for r in labelled_rows()
    ]
    write_tsv(folder / "qqp.tsv", rows)
    return folder


@pytest.fixture
def train(run: Run, data: Path, tmp_path: Path) -> Train:
    """`train` with the tiny model into `tmp_path/model`: objective, input, further options."""

    def call(objective: str, file: str, *options: object) -> Outcome:
        model = () if "--model" in options else ("--model", data / "bert")
        output = () if "--output" in options else ("--output", tmp_path / "model")
        own = (
            "train",
            "--objective",
            objective,
            "--input",
            data / file,
            *model,
            *output,
            "--lr",
            "3e-3",
        )
        return run(*own, *options)

    return call


@pytest.mark.parametrize("kind", [("--cross-encoder",), ()])
def test_weights_that_the_library_would_leave_out_are_not_trained(
    train: Train, data: Path, tmp_path: Path, kind: tuple[str, ...]
) -> None:
    folder = shutil.copytree(data / "bert", tmp_path / "named")
    path = folder / "model.safetensors"
    renamed = {f"module.{name}": value for name, value in load_file(path).items()}
    save_file(renamed, path, {"format": "pt"})
    options = ("--scores", "0,5", "--model", folder, "--quiet", *kind)
    train("regression", "scored.tsv", *options).failed(2, folder, "begin with 'module.'")


def test_a_cross_encoder_learns_scores_by_heart(
    train: Train, run: Run, data: Path, tmp_path: Path
) -> None:
    from scipy import stats
    from sentence_transformers import CrossEncoder

    options = ("--scores", "0,5", "--cross-encoder", "--dev", data / "scored.tsv")
    done = train("regression", "scored.tsv", *options, "--epochs", 40)
    assert done.status == 0, done.err
    folder = tmp_path / "model"
    found = record(folder)
    assert (found["space"], found["dim"], found["options"]["cross_encoder"]) == (None, None, True)
    assert found["dev"]["score"] > 95 > 60 > found["dev"]["before"]["score"]
    assert "--cross-encoder" in done.out
    assert "CrossEncoder(" in (folder / "README.md").read_text()
    rows = scored_rows()
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    scores = model.predict(
        [(row["sentence1"], row["sentence2"]) for row in rows], show_progress_bar=False
    )
    spearman = 100 * stats.spearmanr(scores, [row["score"] for row in rows]).statistic
    assert spearman == pytest.approx(found["dev"]["score"], abs=0.01)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    encoded = run(
        "embed", "--model", folder, "--input", data / "scored.tsv", "--store", tmp_path / "store"
    )
    assert encoded.status == 2
    assert "Traceback" not in encoded.err


@pytest.mark.slow
def test_a_cross_encoder_learns_labels_and_goes_on_from_another_one(
    train: Train, data: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    done = train(
        "classification", "qqp.tsv", "--cross-encoder", "--dev", data / "qqp.tsv", "--epochs", 40
    )
    assert done.status == 0, done.err
    assert "text1 from question1, text2 from question2, label from is_duplicate" in done.err
    assert record(tmp_path / "model")["dev"]["score"] > 90
    model = CrossEncoder(str(tmp_path / "model"), device="cpu", local_files_only=True)
    assert [model.config.id2label[place] for place in range(3)] == ["no", "perhaps", "yes"]
    options = (
        "--scores",
        "0,5",
        "--cross-encoder",
        "--model",
        tmp_path / "model",
        "--output",
        tmp_path / "second",
    )
    done = train("regression", "scored.tsv", *options)
    assert done.status == 0, done.err
    assert (
        CrossEncoder(str(tmp_path / "second"), device="cpu", local_files_only=True).num_labels == 1
    )
    assert train("regression", "scored.tsv", *options, "--resume").status == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pooler", "mean"), "--pooler is for encoders"),
        (("--lora", "4"), "--lora is for encoders"),
        (("--matryoshka", "8"), "--matryoshka is for encoders"),
        (("--freeze-backbone",), "--freeze-backbone is for encoders"),
    ],
)
def test_options_of_vectors_are_refused(train: Train, options: tuple[str, ...], said: str) -> None:
    done = train("regression", "scored.tsv", "--scores", "0,5", "--cross-encoder", *options)
    assert (done.status, said in done.err) == (2, True)


def test_only_scores_and_labels_are_learnt(train: Train) -> None:
    done = train("cosent", "scored.tsv", "--cross-encoder")
    assert (done.status, "say --objective regression or classification" in done.err) == (2, True)


@pytest.mark.slow
def test_the_default_is_the_papers_and_another_one_learns_too(train: Train, tmp_path: Path) -> None:
    for name, more in (
        ("default", ()),
        ("same", ("--concat", "u,v,|u-v|")),
        ("other", ("--concat", "|u-v|,u*v")),
    ):
        done = train("classification", "qqp.tsv", "--output", tmp_path / name, *more)
        assert done.status == 0, done.err
    assert (
        weights(tmp_path / "default") == weights(tmp_path / "same") != weights(tmp_path / "other")
    )
    assert "concat" not in record(tmp_path / "same")["asked"]
    assert record(tmp_path / "other")["asked"]["concat"] == "|u-v|,u*v"
    assert (
        load_file(tmp_path / "other" / "model.safetensors").keys()
        == load_file(tmp_path / "same" / "model.safetensors").keys()
    )
    done = train("regression", "scored.tsv", "--scores", "0,5", "--concat", "u,v")
    assert (done.status, "--concat is for --objective classification" in done.err) == (2, True)
