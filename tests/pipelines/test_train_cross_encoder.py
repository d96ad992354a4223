"""`train --cross-encoder`, and what softmax sees of two vectors: what is learnt, and folders that
the library opens.

Covers transforms/training/cross_encoder.py.
"""

import shutil
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.training import labelled_rows, record, scored_rows, weights, write_tsv
from helpers.training_fixtures import Train, data, one_thread, train
from safetensors.numpy import load_file, save_file

pytest.importorskip("accelerate", reason="the extra train is not installed")

__all__ = ["data", "one_thread", "train"]


@pytest.mark.parametrize("kind", [("--cross-encoder",), ()])
def test_weights_that_the_library_would_leave_out_are_not_trained(
    train: Train, data: Path, tmp_path: Path, kind: tuple[str, ...]
) -> None:
    folder = shutil.copytree(data / "bert", tmp_path / "named")
    path = folder / "model.safetensors"
    renamed = {f"module.{name}": value for name, value in load_file(path).items()}
    save_file(renamed, path, {"format": "pt"})
    done = train("regression", "--model", folder, "--quiet", *kind, status=2)
    done.failed(2, folder, "begin with 'module.'")


def test_a_cross_encoder_learns_scores_by_heart(
    train: Train, run: Run, data: Path, tmp_path: Path
) -> None:
    from scipy import stats
    from sentence_transformers import CrossEncoder

    done = train("regression", "--cross-encoder", "--dev", data / "scored.tsv", "--epochs", 40)
    folder, found = tmp_path / "model", record(tmp_path / "model")
    assert (found["space"], found["dim"], found["options"]["cross_encoder"]) == (None, None, True)
    assert found["dev"]["score"] > 95 > 60 > found["dev"]["before"]["score"]
    assert "--cross-encoder" in done.out
    assert "CrossEncoder(" in (folder / "README.md").read_text()
    rows = scored_rows()
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
    scores = model.predict(pairs, show_progress_bar=False)
    spearman = 100 * stats.spearmanr(scores, [row["score"] for row in rows]).statistic
    assert spearman == pytest.approx(found["dev"]["score"], abs=0.01)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    embed = ("embed", "--model", folder, "--input", data / "scored.tsv")
    encoded = run(*embed, "--store", tmp_path / "store")
    assert encoded.status == 2
    assert "Traceback" not in encoded.err


@pytest.mark.slow
def test_a_cross_encoder_learns_labels_and_goes_on_from_another_one(
    train: Train, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    names = {"question1": "sentence1", "question2": "sentence2", "is_duplicate": "label"}
    rows = [{name: row[role] for name, role in names.items()} for row in labelled_rows()]
    qqp = write_tsv(tmp_path / "qqp.tsv", rows)
    read = "text1 from question1, text2 from question2, label from is_duplicate"
    learnt = ("--input", qqp, "--dev", qqp, "--epochs", 40)
    train("classification", "--cross-encoder", *learnt, said=read)
    assert record(tmp_path / "model")["dev"]["score"] > 90
    model = CrossEncoder(str(tmp_path / "model"), device="cpu", local_files_only=True)
    assert [model.config.id2label[place] for place in range(3)] == ["no", "perhaps", "yes"]
    second = ("--cross-encoder", "--model", tmp_path / "model", "--output", tmp_path / "second")
    train("regression", *second)
    model = CrossEncoder(str(tmp_path / "second"), device="cpu", local_files_only=True)
    assert model.num_labels == 1
    train("regression", *second, "--resume")


@pytest.mark.slow
def test_the_default_is_the_papers_and_another_one_learns_too(train: Train, tmp_path: Path) -> None:
    default, same, other = (tmp_path / name for name in ("default", "same", "other"))
    train("classification", "--output", default)
    train("classification", "--output", same, "--concat", "u,v,|u-v|")
    train("classification", "--output", other, "--concat", "|u-v|,u*v")
    assert weights(default) == weights(same) != weights(other)
    asked = [record(folder)["asked"]["concat"] for folder in (default, same, other)]
    assert asked == ["u,v,|u-v|", "u,v,|u-v|", "|u-v|,u*v"]
    keys = [load_file(folder / "model.safetensors").keys() for folder in (same, other)]
    assert keys[0] == keys[1]
