"""`fit`: token statistics of a corpus, the same however it lies in files, and poolers that use
them.
"""

import collections
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, vectors_of, write_parquet
from transformers import AutoTokenizer

from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.load import load_statistics

TEXTS = [*sentences(400), "the the dog", "dog [SEP] dog", "a " * 200]


def expected(model: Path) -> list[int]:
    """Texts that hold each token, by the tokenizer itself."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    counted: collections.Counter[int] = collections.Counter()
    for text in TEXTS:
        counted.update({*tokenizer(text)["input_ids"]} - {*tokenizer.all_special_ids})
    return [counted[token] for token in range(len(tokenizer))]


def test_counts_are_exact_whatever_the_split(
    run: Run, model: Path, inputs: Path, tmp_path: Path
) -> None:
    """A second fit replaces the first; rows without text are no documents."""
    fit = ("fit", "--method", "tfidf", "--model", model, "--output")
    one, several = tmp_path / "one", tmp_path / "several"
    path = write_parquet(inputs / "all.parquet", ["a dog", None, "  ", "a cat"])
    run(*fit, one, "--input", path).ok()
    assert load_statistics(one).documents == 2
    assert json.loads((one / "fit.json").read_text())["rejected"] == 2
    write_parquet(path, TEXTS)
    run(*fit, one, "--input", path).ok()
    write_parquet(inputs / "parts" / "a.parquet", TEXTS[:150], row_group_size=40)
    write_parquet(inputs / "parts" / "b.parquet", TEXTS[150:300][::-1], row_group_size=7)
    (inputs / "parts" / "c.txt").write_text("\n".join(TEXTS[300:]))
    patterns = ("--input", inputs / "parts" / "*.parquet", "--input", inputs / "parts" / "*")
    run(*fit, several, *patterns).ok()
    fitted, again = load_statistics(one), load_statistics(several)
    assert fitted.counts.tolist() == again.counts.tolist() == expected(model)
    assert fitted.documents == again.documents == len(TEXTS)
    table = "token_statistics.json"
    assert (one / table).read_bytes() == (several / table).read_bytes()


@pytest.mark.parametrize(
    ("method", "pooler"), [("tfidf", "tfidf:table"), ("token-counts", "remove-biases:table,top=3")]
)
def test_embed_uses_the_statistics(
    run: Run, embed: Run, model: Path, store: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch,
    method: str, pooler: str,
) -> None:  # fmt: skip
    """A table that is named from one folder is found from everywhere."""
    monkeypatch.chdir(inputs)
    path = write_parquet(inputs / "a.parquet", TEXTS)
    run("fit", "--input", path, "--method", method, "--model", model, "--output", "table").ok()
    embed(path, "--pooler", pooler, "--dtype", "float32").ok()
    encoder = Encoder.load(str(model), pooler=pooler, dtype="float32")
    found = np.stack(list(vectors_of(store).values()))
    assert np.abs(found - encoder.encode(TEXTS)).max() < 2e-5
    monkeypatch.chdir("/")
    assert "403 carried" in embed(path).ok().out


def test_mistakes_are_one_line(run: Run, model: Path, inputs: Path, tmp_path: Path) -> None:
    good = write_parquet(inputs / "a.parquet", ["a dog"])
    (inputs / "b.parquet").write_bytes(b"PAR1 nothing")
    (tmp_path / "file").write_text("")
    fit = ("fit", "--method", "tfidf", "--model", model, "--output")
    for output, given, status, *said in (
        ("t", ["--input", good, "--text-column", "body"], 2, "no column body", "text"),
        ("t", ["--input", inputs / "*.parquet"], 1, "b.parquet"),
        ("t", ["--input", tmp_path / "none*"], 2, "no file matches"),
        ("t", [], 2, "--method tfidf", "--input"),
        ("file", ["--input", good], 2, "is a file"),
    ):
        run(*fit, tmp_path / output, *given).failed(status, *said)
    assert not (tmp_path / "t" / "token_statistics.json").exists()
