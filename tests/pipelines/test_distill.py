"""`sentence-beam distill`, by the command line.

Covers transforms/training/distillation.py.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.commands import Run
from helpers.tiny_models import HIDDEN, TEXTS, WORDS, save_tiny_model
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.encoder import Encoder

pytest.importorskip("model2vec.distill", reason="the extra train is not installed")

DIM = 8


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return save_tiny_model("bert", tmp_path_factory.mktemp("teacher") / "m")


@pytest.fixture(scope="module")
def made(teacher) -> Path:
    folder = teacher.parent / "made"
    assert (
        main(
            [
                "distill",
                "--model",
                str(teacher),
                "--dim",
                str(DIM),
                "--output",
                str(folder),
                "--quiet",
            ]
        )
        == 0
    )
    return folder


def test_the_table_holds_the_models_vectors_of_single_tokens(run: Run, teacher, made):
    tokenizer, table = (
        Tokenizer.from_file(str(made / "tokenizer.json")),
        load_file(made / "model.safetensors"),
    )
    words = WORDS.split()
    rows = table["embedding.weight"][[tokenizer.token_to_id(word) for word in words]]
    assert rows.dtype == np.float32
    assert rows.shape == (len(words), DIM)
    # principal components turn and shift vectors: distances from the others keep their order,
    # weights change lengths
    own = Encoder.load(str(teacher), dtype="float32", normalize=False).encode(words)
    full = teacher.parent / "full"
    run("distill", "--model", teacher, "--dim", HIDDEN, "--output", full).ok()
    table = load_file(full / "model.safetensors")["embedding.weight"]
    places = [tokenizer.token_to_id(word) for word in words]
    ranks = 1 / np.arange(2, len(table) + 2)
    weights = 1e-4 / (1e-4 + ranks / ranks.sum())
    turned = table[places] / weights[places, None]
    assert np.allclose(np.linalg.norm(turned[:, None] - turned[None], axis=2),
                       np.linalg.norm(own[:, None] - own[None], axis=2), atol=1e-3)  # fmt: skip


def test_all_readers_agree(made):
    texts = [text for text in TEXTS if text] + ["the " * 700 + "dog"]
    found = Encoder.load(str(made), device="cpu").encode(texts)
    expected = SentenceTransformer(str(made), device="cpu", local_files_only=True).encode(texts)
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def _with_word_pieces(teacher: Path, folder: Path) -> Path:
    """The model with a tokenizer that cuts words."""
    shutil.copytree(teacher, folder)
    said = json.loads((folder / "tokenizer.json").read_text())
    pieces = {"blue": "##child", "small": "##man"}
    vocabulary = {
        pieces.get(token, token): number for token, number in said["model"]["vocab"].items()
    }
    settings = {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    said["model"] = {"type": "WordPiece", "vocab": vocabulary, **settings}
    said["padding"] = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                       "pad_type_id": 0, "pad_token": "[PAD]"}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(said))
    return folder


def test_words_of_a_corpus_become_tokens(run: Run, teacher, tmp_path):
    model = _with_word_pieces(teacher, tmp_path / "m")
    rows = [
        "manchild, the dog the dog",
        *["manchild childman"] * 3,
        "womanman womanman",
        "catman",
        "zzz zzz",
        "",
    ]
    (tmp_path / "in.txt").write_text("\n".join(rows) + "\n")
    asked = (
        "distill",
        "--model",
        model,
        "--dim",
        DIM,
        "--input",
        tmp_path / "in.txt",
        "--words",
        2,
    )
    said = run(*asked, "--output", tmp_path / "o").ok()
    assert "2 new ones of 7 rows, 1 rejected" in said.out
    record = json.loads((tmp_path / "o" / "distill.json").read_text())
    assert [Path(source["path"]).name for source in record["data"]] == ["in.txt"]
    assert all(len(source["sha256"]) == 64 for source in record["data"])
    words = Tokenizer.from_file(str(tmp_path / "o" / "tokenizer.json"))
    assert words.encode("manchild childman womanman").tokens == [
        "manchild",
        "childman",
        "woman",
        "##man",
    ]
    assert np.isfinite(Encoder.load(str(tmp_path / "o")).encode(rows[:-1])).all()


def test_embed_takes_it(run: Run, made, tmp_path):
    (tmp_path / "in.txt").write_text("a dog\nthe red horse\n")
    run("embed", "--model", made, "--input", tmp_path / "in.txt", "--store", tmp_path / "s").ok()


def test_a_folder_that_is_there_is_replaced_on_demand_only(run: Run, teacher, made, tmp_path):
    before = (made / "model.safetensors").read_bytes()
    run("distill", "--model", teacher, "--dim", 4, "--output", made).failed(2, made, "--overwrite")
    assert (made / "model.safetensors").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    run(
        "distill", "--model", teacher, "--dim", 4, "--output", tmp_path / "mine", "--overwrite"
    ).failed(2, "no distillation wrote it")
    copy = tmp_path / "copy"
    for dim in (4, 6):
        run("distill", "--model", teacher, "--dim", dim, "--output", copy, "--overwrite").ok()
        assert Encoder.load(str(copy)).dim == dim
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "mine"]


def test_what_cannot_be_is_one_line(run: Run, teacher, made, tmp_path):
    def fails(*options: object) -> str:
        found = run("distill", "--output", tmp_path / "o", *options).failed(2)
        assert not (tmp_path / "o").exists()
        return found

    (tmp_path / "in.txt").write_text("!!\n??\n")
    assert "holds no words" in fails("--model", teacher, "--dim", 4, "--input", tmp_path / "in.txt")
    assert f"has {HIDDEN} dimensions" in fails("--model", teacher, "--dim", HIDDEN + 1)
    assert "by --input" in fails("--model", teacher, "--dim", 4, "--words", 5)
    assert "already" in fails("--model", made, "--dim", 4)
    assert "nothing" in fails("--model", teacher, "--dim", 4, "--input", tmp_path / "nothing.txt")
    assert "no such directory" in fails("--model", tmp_path / "none", "--dim", 4)
    for name, after in (
        ("max", [st.Pooling(HIDDEN, "max")]),
        ("dense", [st.Pooling(HIDDEN), st.Dense(HIDDEN, 10)]),
    ):
        SentenceTransformer(modules=[st.Transformer(str(teacher)), *after], device="cpu").save(
            str(tmp_path / name)
        )
        assert "model2vec would leave out" in fails("--model", tmp_path / name, "--dim", 4)
