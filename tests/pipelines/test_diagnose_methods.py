"""`diagnose` with calibrations, one method beside another, words by variance, influence over many
sentences.

Covers transforms/evaluation/diagnostics/pooler_figures.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.commands import Run
from helpers.corpora import sentences
from helpers.tiny_models import save_tiny_model
from scipy import stats
from transformers import AutoModel, AutoTokenizer

from sentence_beam.transforms.calibration import load_calibration
from sentence_beam.transforms.calibration.quality import cosines
from sentence_beam.transforms.encoder import Encoder

PAIRS = 24


def rows_of(path: Path) -> list[dict]:
    """The lines of figures."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[list[str], list[str], Path]:
    """Scored pairs, and the file of them."""
    texts = sentences(2 * PAIRS)
    first, second = texts[:PAIRS], texts[PAIRS:]
    lines = [f"{n % 5}\t{a}\t{b}" for n, (a, b) in enumerate(zip(first, second, strict=True))]
    path = tmp_path / "sts.tsv"
    path.write_text("\n".join(["score\tsentence1\tsentence2", *lines]) + "\n")
    return first, second, path


def test_figures_under_a_calibration_and_methods_beside_each_other(
    run: Run, model: Path, tmp_path: Path, pairs: tuple[list[str], list[str], Path]
) -> None:
    first, second, path = pairs
    texts, output, fitted = (tmp_path / name for name in ("fit.txt", "figures.jsonl", "whitening"))
    texts.write_text("\n".join(sentences(200)) + "\n")
    store = ("--store", tmp_path / "store")
    made = ("--model", model, "--pooler", "mean", "--dtype", "float32")
    run("embed", "--input", texts, *store, *made).ok()
    run("fit", *store, "--method", "whitening", "--output", fitted).ok()
    run("diagnose", *store, "--calibration", fitted).failed(2, "say --pooler too")
    other = ("--model", model, "--pooler", "cls", "--calibration", fitted, "--figure", "cosines")
    run("diagnose", "--input", texts, *other).failed(2, "fitted on another space")

    answers = "".join(f"{a}\t{b}\n" for a, b in zip(first, second, strict=True))
    (tmp_path / "qa.tsv").write_text("q\ta\n" + answers)
    asked = ["--task", f"sts={path}", "--task", f"qa:faq={tmp_path / 'qa.tsv'}", "--model", model]
    asked += ["--pooler", "mean", "--pooler", "cls", "--calibration", fitted]
    asked += ["--figure", "auc,edit-distance,agreement,pairs,cosines", "--output", output]
    out = run("diagnose", *asked).ok().out
    calibrated = f"mean, {fitted}"
    assert f"with {calibrated}"[:12] in out
    near = {}
    for name in ("mean", "cls"):
        encoder = Encoder.load(str(model), pooler=name, dtype="float32", normalize=False)
        sides = encoder.encode(first), encoder.encode(second)
        near[name] = cosines(*sides)
        if name == "mean":
            whitening = load_calibration(fitted)
            near[calibrated] = cosines(*(whitening.apply(side) for side in sides))
    rows = [row for row in rows_of(output) if row.get("task") != "faq"]
    agreement = {
        (row["pooler"], row["other"]): row["value"] for row in rows if row["figure"] == "agreement"
    }
    for one, other in (("mean", calibrated), ("mean", "cls"), (calibrated, "cls")):
        wanted = 100 * stats.spearmanr(near[one], near[other]).statistic
        assert agreement[one, other] == pytest.approx(wanted, abs=0.2)
    of_auc = {row["pooler"] for row in rows_of(output) if row["figure"] == "auc"}
    assert of_auc == {"mean", "cls", calibrated}
    each = [row for row in rows if (row["figure"], row["pooler"]) == ("pair", calibrated)]
    values, edits = ([row[key] for row in each] for key in ("value", "edits"))
    assert sorted(values) == pytest.approx(sorted(near[calibrated]), abs=1e-4)
    distances = [
        row["value"]
        for row in rows
        if (row["figure"], row["pooler"], row.get("pairs")) == ("edit-distance", calibrated, "all")
    ]
    wanted = 100 * stats.spearmanr(values, edits).statistic
    assert distances == [pytest.approx(wanted, abs=1e-6)]


def test_words_by_variance_are_those_of_transformers(run: Run, model: Path, tmp_path: Path) -> None:
    texts = sentences(60)
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    output = tmp_path / "figures.jsonl"
    asked = ("--input", tmp_path / "in.txt", "--model", model, "--output", output)
    out = run("diagnose", *asked, "--figure", "word-variance").ok().out
    tokenizer = AutoTokenizer.from_pretrained(model)
    transformer = AutoModel.from_pretrained(model).eval()
    found: dict[str, list[float]] = {}
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = transformer(**ids, output_hidden_states=True).hidden_states
        layers = torch.stack(states)[:, 0, 1:-1].double()
        steps = torch.nn.functional.cosine_similarity(layers[:-1], layers[1:], dim=2).numpy()
        tokens = tokenizer.convert_ids_to_tokens(ids["input_ids"][0, 1:-1].tolist())
        for token, variance in zip(tokens, steps.var(axis=0), strict=True):
            found.setdefault(token, []).append(float(variance))
    del found["[UNK]"]  # a special token, which counts in no figure
    rows = rows_of(output)
    counts = {token: len(values) for token, values in found.items()}
    assert {row["token"]: row["n"] for row in rows} == counts
    for row in rows:
        assert row["value"] == pytest.approx(np.mean(found[row["token"]]), rel=1e-3, abs=1e-7)
    values = [row["value"] for row in rows]
    assert values == sorted(values, reverse=True)
    shown = [line.split()[2] for line in out.splitlines() if line.startswith("word-variance")]
    common = [row["token"] for row in rows if row["n"] >= 5]
    assert len(common) > 10
    assert shown == [*common[:5], *common[:-6:-1]]


def test_influence_over_sentences_is_that_of_each_of_them(
    run: Run, model: Path, tmp_path: Path
) -> None:
    texts = ["the dog is riding", "a cat was eating the apple", "a dog"]
    texts.append("a child is playing the guitar in the park")
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    output, masked = tmp_path / "figures.jsonl", save_tiny_model("bert", tmp_path / "masked")
    asked = ("diagnose", "--output", output, "--input", tmp_path / "in.txt")
    asked += ("--figure", "influence", "--model")
    run(*asked, model).failed(2, "--figure influence: the tokenizer of")
    tokenizer = json.loads((masked / "tokenizer_config.json").read_text())
    tokenizer["mask_token"] = "big"  # any word of the vocabulary
    (masked / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    out = run(*asked, masked).ok().out
    assert "influence: 1 texts have fewer than 3 or more than 64 tokens" in out
    (row,) = rows_of(output)
    influence, weights = [], []
    documents = [set(text.split()) for text in texts]
    for words in (text.split() for text in texts if text != "a dog"):
        run("diagnose", "--sentence", " ".join(words), "--model", masked, "--output", output).ok()
        influence += [each["value"] for each in rows_of(output) if each["figure"] == "influence"]
        for word in words:
            having = sum(word in document for document in documents)
            weights.append(words.count(word) * np.log2(len(texts) / having))
    assert (row["figure"], row["n"], row["texts"]) == ("influence-tfidf", len(influence), 3)
    pearson = 100 * stats.pearsonr(influence, weights).statistic
    spearman = 100 * stats.spearmanr(influence, weights).statistic
    assert row["value"] == pytest.approx(pearson, abs=1e-3)
    assert row["spearman"] == pytest.approx(spearman, abs=1e-3)
