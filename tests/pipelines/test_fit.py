"""`fit`: token statistics of a corpus, the same however it lies in files, and poolers that use
them.
"""

import collections
import json

import numpy as np
import pytest
from helpers.corpora import sentences, write_parquet
from transformers import AutoTokenizer

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.load import load_statistics

TEXTS = [*sentences(400), "the the dog", "dog [SEP] dog", "a " * 200]


@pytest.fixture
def fit(run, model, tmp_path):
    """Fit with the tiny model into a folder of this name; gives the folder."""

    def call(name: str, method: str, *inputs: object, options: tuple[object, ...] = ()) -> object:
        named = [argument for glob in inputs for argument in ("--input", glob)]
        run(
            "fit",
            *named,
            "--method",
            method,
            "--output",
            tmp_path / name,
            "--model",
            model,
            *options,
        ).ok()
        return tmp_path / name

    return call


def _expected(model, method: str) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    counted: collections.Counter[int] = collections.Counter()
    for text in TEXTS:
        ids = [
            token
            for token in tokenizer(text)["input_ids"]
            if token not in tokenizer.all_special_ids
        ]
        counted.update(set(ids) if method == "tfidf" else ids)
    return [counted[token] for token in range(len(tokenizer))]


@pytest.mark.parametrize("method", ["tfidf", "token-counts"])
def test_counts_are_exact_whatever_the_split(fit, model, inputs, method):
    one = fit("one", method, write_parquet(inputs / "all.parquet", TEXTS))
    write_parquet(inputs / "parts" / "a.parquet", TEXTS[:150], row_group_size=40)
    write_parquet(inputs / "parts" / "b.parquet", TEXTS[150:300][::-1], row_group_size=7)
    (inputs / "parts" / "c.txt").write_text("\n".join(TEXTS[300:]))
    several = fit("several", method, inputs / "parts" / "*.parquet", inputs / "parts" / "*")
    fitted, again = load_statistics(one), load_statistics(several)
    assert fitted.counts.tolist() == again.counts.tolist() == _expected(model, method)
    assert fitted.documents == again.documents == len(TEXTS)
    assert (one / "token_statistics.json").read_bytes() == (
        several / "token_statistics.json"
    ).read_bytes()


def test_rows_without_text_are_not_documents(fit, run, model, inputs):
    folder = fit("t", "tfidf", write_parquet(inputs / "a.parquet", ["a dog", None, "  ", "a cat"]))
    assert load_statistics(folder).documents == 2
    assert json.loads((folder / "fit.json").read_text())["rejected"] == 2


def test_fitting_again_replaces_what_stands(fit, inputs):
    write_parquet(inputs / "a.parquet", ["a dog"])
    first = load_statistics(fit("t", "tfidf", inputs / "*.parquet"))
    write_parquet(inputs / "b.parquet", ["a cat"])
    second = load_statistics(fit("t", "tfidf", inputs / "*.parquet"))
    assert (first.documents, second.documents) == (1, 2)


@pytest.mark.parametrize(
    ("method", "pooler"), [("tfidf", "tfidf:{}"), ("token-counts", "remove-biases:{},top=3")]
)
def test_embed_uses_the_statistics(fit, embed, model, store, inputs, method, pooler):
    path = write_parquet(inputs / "a.parquet", TEXTS)
    spec = pooler.format(fit("t", method, path))
    embed(path, "--pooler", spec, "--dtype", "float32").ok()
    from sentence_beam.transforms.store import open_store

    found = open_store(str(store)).dataset().to_table().column("embedding").combine_chunks()
    found = found.values.to_numpy().reshape(len(TEXTS), -1)
    expected = Encoder.load(str(model), pooler=spec, dtype="float32").encode(TEXTS)
    assert np.abs(found - expected).max() < 2e-5


@pytest.mark.parametrize(
    ("texts", "options", "status", "names"),
    [
        (["a"], ["--method", "idf"], 2, ["tfidf", "token-counts"]),
        (["a"], ["--text-column", "body"], 2, ["no column body", "text"]),
        ([None, " "], [], 2, ["no row with text"]),
    ],
)
def test_mistakes_are_one_line(run, model, inputs, tmp_path, texts, options, status, names):
    path = write_parquet(inputs / "a.parquet", texts)
    method = [] if "--method" in options else ["--method", "tfidf"]
    command = [
        "fit",
        "--input",
        path,
        "--output",
        tmp_path / "t",
        "--model",
        model,
        *method,
        *options,
    ]
    run(*command).failed(status, *names)
    assert not (tmp_path / "t" / "token_statistics.json").exists()


def test_corrupt_inputs_and_places_that_cannot_be_written_are_named(run, model, inputs, tmp_path):
    good = write_parquet(inputs / "a.parquet", ["a dog"])
    (inputs / "b.parquet").write_bytes(b"PAR1 nothing")
    fit = ["fit", "--method", "tfidf", "--model", model]
    run(*fit, "--input", inputs / "*.parquet", "--output", tmp_path / "t").failed(1, "b.parquet")
    (tmp_path / "file").write_text("")
    run(*fit, "--input", good, "--output", tmp_path / "file").failed(2, "is a file")
    run(*fit, "--input", tmp_path / "none*", "--output", tmp_path / "t").failed(
        2, "no file matches"
    )
