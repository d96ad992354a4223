"""`export`: sentence-transformers and the encoder give a store's own vectors from the folder
alone.

Covers transforms/space/exported.py.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.corpora import sentences, vectors_of, write_bytes, write_parquet
from helpers.prompted import GEMMA, reference, save_prompted
from helpers.tiny_models import HIDDEN, edit_json, save_tiny_model

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.store import open_store

TEXTS = [*sentences(60), "the " * 80]


@pytest.fixture
def made(run, model, inputs, tmp_path, store):
    """A store of texts with these options, calibrated by a method, and its export; gives the
    outcome of `export`.
    """

    def make(*options: object, method: str | None = None, model: Path = model) -> str:
        path = write_parquet(inputs / "a.parquet", TEXTS)
        embed = ["embed", "--input", path, "--store", store, "--model", model]
        embed += ["--dtype", "float32", *options]
        run(*embed).ok()
        if method is not None:
            run("fit", "--store", store, "--method", method, "--output", tmp_path / "c").ok()
            run(*embed, "--calibration", tmp_path / "c").ok()
        return run("export", "--store", store, "--output", tmp_path / "e").ok().out

    return make


def stored(store: Path) -> np.ndarray:
    """The store's vectors in the order of the texts."""
    found = {int(name.partition("#")[2]): vector for name, vector in vectors_of(store).items()}
    return np.array([found[place] for place in sorted(found)])


def check_encoder(store: Path, folder: Path) -> None:
    """The encoder has the store's space and gives its vectors."""
    encoder, expected = Encoder.load(str(folder)), stored(store)
    assert encoder.space.id == open_store(str(store)).space.id
    assert np.abs(encoder.encode(TEXTS) - expected).max() <= 2e-5 * np.abs(expected).max()


def check_sentence_transformers(store: Path, folder: Path) -> None:
    """sentence-transformers gives the store's vectors."""
    from sentence_transformers import SentenceTransformer

    found = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(TEXTS)
    expected = stored(store)
    assert found.shape == expected.shape
    cosine = (
        (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    )
    assert cosine.min() >= 0.99999
    assert np.linalg.norm(found, axis=1) == pytest.approx(
        np.linalg.norm(expected, axis=1), rel=1e-3
    )


def test_token_statistics_come_along_though_not_for_sentence_transformers(
    run, made, model, inputs, store, tmp_path
):
    path, table = write_parquet(inputs / "a.parquet", TEXTS), tmp_path / "table"
    fit = ("fit", "--input", path, "--method", "tfidf", "--output", table, "--model", model)
    run(*fit).ok()
    out = made("--pooler", f"tfidf:{table}")
    assert "not with sentence-transformers: it has no pooler tfidf" in out
    shutil.rmtree(table)
    check_encoder(store, tmp_path / "e")


def test_a_models_own_modules_stay(made, store, tmp_path, model):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as st

    torch.manual_seed(3)
    pooling, dense = st.Pooling(HIDDEN, "cls"), st.Dense(HIDDEN, 10)
    stack = [st.Transformer(str(model)), pooling, dense, st.Normalize()]
    own = SentenceTransformer(
        modules=stack,
        device="cpu",
        prompts={"query": "a ", "document": "the "},
        default_prompt_name="document",
    )
    own.save(str(tmp_path / "own"))
    out = made(method="whitening:4", model=tmp_path / "own")
    assert f'SentenceTransformer("{tmp_path}/e")' in out
    shutil.rmtree(tmp_path / "own")
    check_encoder(store, tmp_path / "e")
    check_sentence_transformers(store, tmp_path / "e")
    assert reference(tmp_path / "e").prompts["query"] == "a "


@pytest.mark.parametrize(
    ("options", "prompt", "query"),
    [
        ((), "a cat ", "the red dog "),
        (("--prompt", "", "--query-prompt", "the man "), "", "the man "),
    ],
)
def test_prompts_of_rows_and_queries_are_exported(
    made, run, store, tmp_path, inputs, options, prompt, query
):
    made(*options, model=save_prompted(tmp_path / "own", GEMMA, "STS"))
    check_encoder(store, tmp_path / "e")
    exported = reference(tmp_path / "e")
    assert np.abs(exported.encode_document(TEXTS) - stored(store)).max() < 2e-5
    queries = reference(tmp_path / "own").encode(["a dog"], prompt=query)
    assert np.abs(exported.encode_query(["a dog"]) - queries).max() < 2e-5
    again = tmp_path / "again"
    run(*f"embed --input {inputs}/* --store {again} --model {tmp_path}/e".split()).ok()
    made_again = open_store(str(again)).manifest
    assert made_again.space.id == open_store(str(store)).space.id
    assert (made_again.space.prompt, made_again.options.query_prompt) == (prompt, query)


def test_the_folder_stands_alone_and_moves(made, run, store, tmp_path, inputs):
    copy, moved, again = tmp_path / "copy", tmp_path / "elsewhere", tmp_path / "again"
    save_tiny_model("bert", copy)
    made(method="standardize", model=copy)
    expected = stored(store)
    shutil.rmtree(copy)
    shutil.rmtree(tmp_path / "c")
    shutil.move(tmp_path / "e", moved)
    assert np.abs(Encoder.load(str(moved)).encode(TEXTS) - expected).max() < 1e-5
    embed = ("embed", "--input", inputs / "a.parquet", "--store", again, "--model", moved)
    run(*embed).ok()
    assert open_store(str(again)).space.id == open_store(str(store)).space.id
    assert np.abs(stored(again) - expected).max() < 1e-5
    run(*embed).ok()


def test_evaluate_scores_the_exported_vectors(made, run, tmp_path):
    made("--pooler", "cls", method="whitening:8")
    pairs = [f"{i}\t{TEXTS[i]}\t{TEXTS[i + 7]}" for i in range(6)]
    (tmp_path / "t.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs]) + "\n")
    out = tmp_path / "o.jsonl"
    how = f"--task t={tmp_path}/t.tsv --pooler auto --pooler max --output {out}"
    run("evaluate", "--model", tmp_path / "e", *how.split()).ok()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(row["pooler"], row["dim"]) for row in rows} == {("auto", 8), ("max", HIDDEN)}


def test_an_export_is_replaced_and_nothing_else_is(made, run, store, tmp_path):
    made()
    export = ("export", "--store", store, "--output")
    (tmp_path / "e" / "old").write_text("")
    run(*export, tmp_path / "e").ok()
    assert not (tmp_path / "e" / "old").exists()
    thesis = write_bytes(tmp_path / "mine" / "thesis.txt", b"")
    run(*export, tmp_path / "mine").failed(2, "mine", "is no export")
    assert thesis.exists()
    run(*export, "gs://bucket/e").failed(2, "local folder")
    assert not list(tmp_path.glob("*.tmp-*"))


def test_another_model_is_refused_by_field(made, run, store, tmp_path):
    copy = save_tiny_model("bert", tmp_path / "copy")
    made(model=copy)
    edit_json(copy / "config.json", hidden_act="relu")
    export = run("export", "--store", store, "--output", tmp_path / "f")
    export.failed(2, "architecture differ", copy)
    assert not (tmp_path / "f").exists()


def test_an_exported_calibration_can_be_left_out(made, run, store, tmp_path, inputs):
    made("--normalize", method="whitening:8")
    plain, again, folder = tmp_path / "plain", tmp_path / "again", tmp_path / "e"
    embed = ("embed", "--input", inputs / "a.parquet", "--dtype", "float32")
    run(*embed, "--model", folder, "--calibration", "", "--store", plain).ok()
    assert open_store(str(plain)).space.calibration is None
    expected = Encoder.load(str(folder), calibration="").encode(TEXTS)
    assert np.abs(stored(plain) - expected).max() < 1e-5
    (hit,) = open_store(str(plain)).search(TEXTS[3], k=1)
    assert hit["text"] == TEXTS[3]
    write_parquet(inputs / "a.parquet", [*TEXTS, "another one"])
    run(*embed, "--store", plain).ok()
    assert open_store(str(plain)).space.calibration is None
    run(*embed, "--model", folder, "--store", again).ok()
    assert open_store(str(again)).space.id == open_store(str(store)).space.id
