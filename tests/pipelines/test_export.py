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
from helpers.corpora import sentences, vectors_of, write_parquet
from helpers.prompted import GEMMA, reference, save_prompted
from helpers.tiny_models import HIDDEN, edit_json, save_tiny_model
from helpers.variants import variants

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
        embed = [
            "embed",
            "--input",
            path,
            "--store",
            store,
            "--model",
            model,
            "--dtype",
            "float32",
            *options,
        ]
        run(*embed).ok()
        if method is not None:
            run("fit", "--store", store, "--method", method, "--output", tmp_path / "c").ok()
            run(*embed, "--calibration", tmp_path / "c").ok()
        return run("export", "--store", store, "--output", tmp_path / "e").ok().out

    return make


def stored(store: Path) -> np.ndarray:
    """The store's vectors in the order of the texts."""
    return np.array(
        [
            vector
            for _, vector in sorted(
                vectors_of(store).items(), key=lambda it: int(it[0].split("#")[1])
            )
        ]
    )


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


@variants(
    ("options", "method"),
    [
        (["--pooler", "mean", "--prompt", "the "], "whitening:8"),
        (["--dim", "5"], "standardize+remove-top:2"),
    ],
    kept=(0,),
)
def test_both_give_the_stores_vectors(made, store, tmp_path, options, method):
    assert f'SentenceTransformer("{tmp_path}/e")' in made(*options, method=method)
    check_encoder(store, tmp_path / "e")
    check_sentence_transformers(store, tmp_path / "e")


def test_what_sentence_transformers_has_not_the_encoder_loads(made, store, tmp_path):
    out = made("--pooler", "first-last", method="flow")
    assert "not with sentence-transformers: it has no pooler first-last" in out
    check_encoder(store, tmp_path / "e")


def test_token_statistics_come_along(run, made, model, inputs, store, tmp_path):
    path = write_parquet(inputs / "a.parquet", TEXTS)
    run(
        "fit",
        "--input",
        path,
        "--method",
        "tfidf",
        "--output",
        tmp_path / "table",
        "--model",
        model,
    ).ok()
    made("--pooler", f"tfidf:{tmp_path}/table")
    shutil.rmtree(tmp_path / "table")
    check_encoder(store, tmp_path / "e")


def test_a_models_own_modules_stay(made, store, tmp_path, model):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as st

    torch.manual_seed(3)
    stack = [
        st.Transformer(str(model)),
        st.Pooling(HIDDEN, "cls"),
        st.Dense(HIDDEN, 10),
        st.Normalize(),
    ]
    prompts = {"query": "a ", "document": "the "}
    own = SentenceTransformer(
        modules=stack, device="cpu", prompts=prompts, default_prompt_name="document"
    )
    own.save(str(tmp_path / "own"))
    made(method="whitening:4", model=tmp_path / "own")
    shutil.rmtree(tmp_path / "own")
    check_encoder(store, tmp_path / "e")
    check_sentence_transformers(store, tmp_path / "e")
    exported = SentenceTransformer(str(tmp_path / "e"), device="cpu", local_files_only=True)
    assert exported.prompts["query"] == "a "


@pytest.mark.parametrize(
    ("options", "prompt", "query"),
    [
        ((), "a cat ", "the red dog "),
        (("--prompt", "", "--query-prompt", "the man "), "", "the man "),
        (("--prompt", "the big "), "the big ", "the red dog "),
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
    copy = tmp_path / "copy"
    save_tiny_model("bert", copy)
    made(method="standardize", model=copy)
    expected = stored(store)
    shutil.rmtree(copy)
    shutil.rmtree(tmp_path / "c")
    shutil.move(tmp_path / "e", tmp_path / "elsewhere")
    assert np.abs(Encoder.load(str(tmp_path / "elsewhere")).encode(TEXTS) - expected).max() < 1e-5
    again = tmp_path / "again"
    embed = [
        "embed",
        "--input",
        inputs / "a.parquet",
        "--store",
        again,
        "--model",
        tmp_path / "elsewhere",
    ]
    run(*embed).ok()
    assert open_store(str(again)).space.id == open_store(str(store)).space.id
    assert np.abs(stored(again) - expected).max() < 1e-5
    run(*embed).ok()


def test_evaluate_scores_the_exported_vectors(made, run, tmp_path):
    made("--pooler", "cls", method="whitening:8")
    pairs = [f"{i}\t{TEXTS[i]}\t{TEXTS[i + 7]}" for i in range(6)]
    (tmp_path / "t.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs]) + "\n")
    options = [
        "--task",
        f"t={tmp_path}/t.tsv",
        "--pooler",
        "auto",
        "--pooler",
        "max",
        "--output",
        tmp_path / "o.jsonl",
    ]
    run("evaluate", "--model", tmp_path / "e", *options).ok()
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert {(row["pooler"], row["dim"]) for row in rows} == {("auto", 8), ("max", HIDDEN)}


def test_an_export_is_replaced_and_nothing_else_is(made, run, store, tmp_path):
    made()
    (tmp_path / "e" / "old").write_text("")
    run("export", "--store", store, "--output", tmp_path / "e").ok()
    assert not (tmp_path / "e" / "old").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    run("export", "--store", store, "--output", tmp_path / "mine").failed(2, "mine", "is no export")
    run("export", "--store", store, "--output", "gs://bucket/e").failed(2, "local folder")
    assert sorted(path.name for path in tmp_path.iterdir() if ".tmp-" in path.name) == []


def test_another_model_is_refused_by_field(made, run, store, tmp_path):
    copy = save_tiny_model("bert", tmp_path / "copy")
    made(model=copy)
    edit_json(copy / "config.json", hidden_act="relu")
    run("export", "--store", store, "--output", tmp_path / "f").failed(
        2, "architecture differ", copy
    )
    assert not (tmp_path / "f").exists()


def test_a_damaged_description_is_named(made, run, tmp_path):
    made()
    for text, said in (("{", "not valid JSON"), ("{}", "of another format")):
        (tmp_path / "e" / "sentence_beam.json").write_text(text)
        with pytest.raises(Exception, match=f"sentence_beam.json is {said}"):
            Encoder.load(str(tmp_path / "e"))


def test_an_exported_calibration_can_be_left_out(made, run, store, tmp_path, inputs):
    made("--normalize", method="whitening:8")
    plain, again = tmp_path / "plain", tmp_path / "again"
    embed = [
        "embed",
        "--input",
        inputs / "a.parquet",
        "--dtype",
        "float32",
        "--keep-columns",
        "text",
    ]
    run(*embed, "--model", tmp_path / "e", "--calibration", "", "--store", plain).ok()
    assert open_store(str(plain)).space.calibration is None
    assert (
        np.abs(
            stored(plain) - Encoder.load(str(tmp_path / "e"), calibration="").encode(TEXTS)
        ).max()
        < 1e-5
    )
    (hit,) = open_store(str(plain)).search([TEXTS[3]], k=1)[0]
    assert hit["text"] == TEXTS[3]
    write_parquet(inputs / "a.parquet", [*TEXTS, "another one"])
    run(*embed, "--store", plain).ok()
    assert open_store(str(plain)).space.calibration is None
    run(*embed, "--model", tmp_path / "e", "--store", again).ok()
    assert open_store(str(again)).space.id == open_store(str(store)).space.id
