"""`sentence-beam pairs` as a person runs it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import sentences, write_jsonl, write_lines, write_parquet

from sentence_beam.transforms.encoder import Encoder


@pytest.fixture
def pairs(run: Run, model: Path) -> Run:
    def call(*arguments: object) -> Outcome:
        return run("pairs", "--model", model, "--dtype", "float32", *arguments)

    return call


def found(pairs: Run, path: Path, *arguments: object) -> list[dict[str, Any]]:
    """The pairs, by a file."""
    out = path.parent / "pairs.jsonl"
    pairs("--input", path, "--output", out, *arguments).ok()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    out.unlink()
    return rows


def brute_force(model: Path, texts: list[str], **options: Any) -> np.ndarray:
    """Cosines of every pair, best first."""
    vectors = Encoder.load(str(model), dtype="float32", **options).encode(texts).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.sort((vectors @ vectors.T)[np.triu_indices(len(texts), 1)])[::-1]


@pytest.mark.parametrize("options", [("--no-normalize",), ("--pooler", "max", "--dim", 8)])
def test_the_pairs_are_those_of_brute_force(
    pairs: Run, inputs: Path, model: Path, options: tuple[object, ...]
) -> None:
    texts = {f"k{n}": text for n, text in enumerate(sentences(60))}
    path = write_parquet(inputs / "a.parquet", [*texts.values()], key=[*texts])
    rows = found(pairs, path, "--id-column", "key", "-k", 25, *options)
    given = {"pooler": "max", "truncate_dim": 8} if "max" in options else {}
    expected = brute_force(model, [*texts.values()], **given)[:25]
    np.testing.assert_allclose([row["score"] for row in rows], expected, atol=1e-5)
    assert [row["rank"] for row in rows] == list(range(1, 26))
    assert len({(row["id_1"], row["id_2"]) for row in rows}) == 25
    for row in rows:
        assert (row["text_1"], row["text_2"]) == (texts[row["id_1"]], texts[row["id_2"]])


def test_rows_of_one_text_are_pairs_of_cosine_1_and_encoded_once(
    pairs: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = sentences(12)
    encoded: list[str] = []
    original = Encoder.tokenize
    monkeypatch.setattr(Encoder, "tokenize", lambda self, t: encoded.extend(t) or original(self, t))
    path = write_lines(inputs / "a.txt", [*texts, texts[3], texts[5], texts[3]])
    outcome = pairs("--input", path, "-k", 4).ok()
    assert sorted(text for text in encoded if text in texts) == sorted(texts)
    lines = [line for line in outcome.out.splitlines() if line[:1].isdigit()]
    assert [line.split()[1] for line in lines[:4]] == ["1.0000"] * 4
    assert "15 rows with 12 texts, 0 rejected; every pair compared" in outcome.out
    rows = found(pairs, path, "-k", 5)
    assert [row["text_1"] == row["text_2"] for row in rows] == [True] * 4 + [False]
    assert all(row["score"] <= 1 for row in rows)


def test_several_files_and_formats_with_rejected_rows(pairs: Run, inputs: Path) -> None:
    texts = sentences(9)
    write_parquet(inputs / "a.parquet", [*texts[:3], ""])
    write_lines(inputs / "b.txt.gz", texts[3:6])
    write_jsonl(inputs / "c.jsonl", [{"text": text} for text in [*texts[6:], " "]])
    out = inputs.parent / "pairs.parquet"
    outcome = pairs("--input", inputs / "*", "-k", 99, "--output", out).ok()
    assert "36 pairs in" in outcome.out
    assert "9 rows with 9 texts, 2 rejected" in outcome.out
    table = pq.read_table(out)
    assert table.num_rows == 36
    names = {i.partition("#")[0].partition("@")[0] for i in table["id_1"].to_pylist()}
    assert names == {"a.parquet", "b.txt.gz", "c.jsonl"}


def test_where_there_is_no_pair(pairs: Run, inputs: Path) -> None:
    for lines in ([], ["one"]):
        path = write_lines(inputs / "a.txt", lines)
        assert "no pairs" in pairs("--input", path).ok().out
        assert found(pairs, path) == []


def test_mistakes_are_one_line(
    pairs: Run, run: Run, inputs: Path, model: Path, store: Path
) -> None:
    path = write_lines(inputs / "a.txt", ["one", "two"])
    pairs("--input", inputs / "*.parquet").failed(2, "no file matches")
    pairs("--input", path, "-k", 0).failed(2, "-k")
    run("pairs", "--input", path, "--model", inputs / "none").failed(2, "none")
    parquet = write_parquet(inputs / "b.parquet", ["one"])
    pairs("--input", parquet, "--text-column", "body").failed(2, parquet, "--text-column")
    run("embed", "--input", path, "--store", store, "--model", model).ok()
    run("pairs", "--store", store, "--pooler", "max").failed(2, "--pooler", "--store")
    run("pairs", "--store", store, "--input", path).failed(2, "--input", "--store")
    run("pairs", "--store", store, "--min-score", 1.5).failed(2, "--min-score", "1.5")
    run("pairs", "--store", inputs).failed(2, "no store")


@pytest.mark.parametrize("kept", ["--keep-text", "--no-keep-text"])
def test_the_pairs_of_a_store_are_those_of_its_files(
    run: Run, embed: Run, pairs: Run, inputs: Path, store: Path, kept: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    texts = [*sentences(40), *sentences(3)]
    path = write_parquet(inputs / "a.parquet", texts, key=[f"k{n}" for n in range(43)])
    embed(path, "--id-column", "key", "--dtype", "float32", "--unit-tokens", 100, kept).ok()
    expected = found(pairs, path, "--id-column", "key", "-k", 30)
    monkeypatch.setattr(Encoder, "from_recipe", None)  # no model is loaded
    out = inputs / "pairs.jsonl"
    run("pairs", "--store", store, "-k", 30, "--output", out).ok()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    # Equal texts score 1 but for rounding, which orders them differently on different processors.
    equal = sorted((row["id_1"], row["id_2"]) for row in rows[:3])
    assert equal == [("k0", "k40"), ("k1", "k41"), ("k2", "k42")]
    scores = [row["score"] for row in expected]
    np.testing.assert_allclose([row["score"] for row in rows], scores, atol=1e-5)
    assert all(("text_1" in row) == (kept == "--keep-text") for row in rows)
    assert "43 rows with 40 texts" in run("pairs", "--store", store, "-k", 2).ok().out


def test_only_similar_pairs_of_distinct_texts(pairs: Run, inputs: Path, model: Path) -> None:
    texts = [*sentences(30), *sentences(2), *sentences(1)]
    path = write_lines(inputs / "a.txt", texts)
    scores = brute_force(model, sentences(30))
    least = float(scores[11]) - 1e-6
    rows = found(pairs, path, "--distinct", "--min-score", least, "-k", 100)
    np.testing.assert_allclose([row["score"] for row in rows], scores[:12], atol=1e-5)
    counts = {row[f"text_{side}"]: row[f"rows_{side}"] for row in rows for side in (1, 2)}
    assert all(counts[text] == texts.count(text) for text in counts)
    with_copies = found(pairs, path, "--min-score", least, "-k", 100)
    assert len(with_copies) >= len(rows) + 4
    assert min(row["score"] for row in with_copies) >= least - 1e-6
    assert "no pairs" in pairs("--input", path, "--distinct", "--min-score", 1).ok().out
