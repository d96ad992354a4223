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
from sentence_beam.transforms.evaluation.diagnostics import impact

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
    (tmp_path / "fit.txt").write_text("\n".join(sentences(200)) + "\n")
    store = ("--store", tmp_path / "store")
    run(
        "embed",
        "--input",
        tmp_path / "fit.txt",
        *store,
        "--model",
        model,
        "--pooler",
        "mean",
        "--dtype",
        "float32",
    ).ok()
    run("fit", *store, "--method", "whitening", "--output", tmp_path / "whitening").ok()
    (tmp_path / "qa.tsv").write_text(
        "q\ta\n" + "".join(f"{a}\t{b}\n" for a, b in zip(first, second, strict=True))
    )
    output = tmp_path / "figures.jsonl"
    figures = ("--figure", "auc,edit-distance,agreement,pairs,cosines", "--output", output)
    tasks = ("--task", f"sts={path}", "--task", f"qa:faq={tmp_path / 'qa.tsv'}")
    methods = (
        "--pooler",
        "mean",
        "--pooler",
        "cls",
        "--calibration",
        tmp_path / "whitening",
        "--model",
        model,
    )
    out = run("diagnose", *tasks, *methods, *figures).ok().out
    rows = rows_of(output)
    calibrated = f"mean, {tmp_path / 'whitening'}"
    encoders = {
        name: Encoder.load(str(model), pooler=name, dtype="float32", normalize=False)
        for name in ("mean", "cls")
    }
    whitening = load_calibration(tmp_path / "whitening")
    near = {}
    for name, encoder in encoders.items():
        sides = encoder.encode(first), encoder.encode(second)
        near[name] = cosines(*sides)
        if name == "mean":
            near[calibrated] = cosines(*(whitening.apply(side) for side in sides))
    for one, other in (("mean", calibrated), ("mean", "cls"), (calibrated, "cls")):
        (row,) = [
            row for row in rows if (row["figure"], row["pooler"], row.get("other")) == ("agreement", one, other)
            and row["task"] == "sts"
        ]  # fmt: skip
        assert row["value"] == pytest.approx(
            100 * stats.spearmanr(near[one], near[other]).statistic, abs=0.2
        )
    assert {row["pooler"] for row in rows if row["figure"] == "auc"} == {"mean", "cls", calibrated}
    each = [
        row
        for row in rows
        if row["figure"] == "pair" and row["pooler"] == calibrated and row["task"] == "sts"
    ]
    by_gold = {}
    for row in each:
        by_gold.setdefault(row["gold"], []).append(row["value"])
    assert sorted(value for row in by_gold.values() for value in row) == pytest.approx(
        sorted(near[calibrated]), abs=1e-4
    )
    distances = [row["value"] for row in rows if row["figure"] == "edit-distance" and row["pooler"] == calibrated
                 and row["pairs"] == "all" and row["task"] == "sts"]  # fmt: skip
    wanted = (
        100
        * stats.spearmanr([row["value"] for row in each], [row["edits"] for row in each]).statistic
    )
    assert distances == [pytest.approx(wanted, abs=1e-6)]
    assert f"with {calibrated}"[:12] in out


def test_a_calibration_of_nothing_that_is_looked_at(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "fit.txt").write_text("\n".join(sentences(40)) + "\n")
    store = ("--store", tmp_path / "store")
    run(
        "embed",
        "--input",
        tmp_path / "fit.txt",
        *store,
        "--model",
        model,
        "--pooler",
        "mean",
        "--dtype",
        "float32",
    ).ok()
    run("fit", *store, "--method", "standardize", "--output", tmp_path / "fitted").ok()
    run("diagnose", *store, "--calibration", tmp_path / "fitted").failed(2, "say --pooler too")
    asked = (
        "--input",
        tmp_path / "fit.txt",
        "--model",
        model,
        "--pooler",
        "cls",
        "--calibration",
        tmp_path / "fitted",
    )
    run("diagnose", *asked, "--figure", "cosines").failed(2, "fitted on another space")


def test_words_by_variance_are_those_of_transformers(run: Run, model: Path, tmp_path: Path) -> None:
    texts = sentences(60)
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    output = tmp_path / "figures.jsonl"
    asked = (
        "--input",
        tmp_path / "in.txt",
        "--model",
        model,
        "--figure",
        "word-variance",
        "--output",
        output,
    )
    out = run("diagnose", *asked).ok().out
    tokenizer, transformer = (
        AutoTokenizer.from_pretrained(model),
        AutoModel.from_pretrained(model).eval(),
    )
    found: dict[str, list[float]] = {}
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = transformer(**ids, output_hidden_states=True).hidden_states
        layers = torch.stack(states)[:, 0, 1:-1].double()
        steps = torch.nn.functional.cosine_similarity(layers[:-1], layers[1:], dim=2).numpy()
        for token, variance in zip(
            ids["input_ids"][0, 1:-1].tolist(), steps.var(axis=0), strict=True
        ):
            found.setdefault(tokenizer.convert_ids_to_tokens(token), []).append(float(variance))
    del found["[UNK]"]  # a special token, which counts in no figure
    rows = rows_of(output)
    assert {row["token"]: row["n"] for row in rows} == {
        token: len(values) for token, values in found.items()
    }
    for row in rows:
        assert row["value"] == pytest.approx(np.mean(found[row["token"]]), rel=1e-3, abs=1e-7)
    values = [row["value"] for row in rows]
    assert values == sorted(values, reverse=True)
    shown = [line.split()[2] for line in out.splitlines() if line.startswith("word-variance")]
    common = [row["token"] for row in rows if row["n"] >= 5]
    assert len(common) > 10
    assert shown == [*common[:5], *common[:-6:-1]]


def test_influence_over_sentences_is_that_of_each_of_them(run: Run, tmp_path: Path) -> None:
    masked = save_tiny_model("bert", tmp_path / "masked")
    tokenizer = json.loads((masked / "tokenizer_config.json").read_text())
    tokenizer["mask_token"] = "big"  # any word of the vocabulary
    (masked / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    texts = [
        "the dog is riding",
        "a cat was eating the apple",
        "a dog",
        "a child is playing the guitar in the park",
    ]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    output = tmp_path / "figures.jsonl"
    asked = ("--input", tmp_path / "in.txt", "--model", masked, "--output", output)
    out = run("diagnose", *asked, "--figure", "influence").ok().out
    (row,) = rows_of(output)
    assert "influence: 1 texts have fewer than 3 or more than 64 tokens" in out
    influence, ids = [], []
    for text in texts:
        if text == "a dog":
            continue
        run(
            "diagnose", "--sentence", text, "--model", masked, "--output", tmp_path / "one.jsonl"
        ).ok()
        influence += [
            each["value"]
            for each in rows_of(tmp_path / "one.jsonl")
            if each["figure"] == "influence"
        ]
        ids.append(text.split())
    documents = [set(text.split()) for text in texts]
    weights = [
        words.count(word) * np.log2(len(texts) / sum(word in document for document in documents))
        for words in ids
        for word in words
    ]
    assert (row["figure"], row["n"], row["texts"]) == ("influence-tfidf", len(influence), 3)
    assert row["value"] == pytest.approx(
        100 * stats.pearsonr(influence, weights).statistic, abs=1e-3
    )
    assert row["spearman"] == pytest.approx(
        100 * stats.spearmanr(influence, weights).statistic, abs=1e-3
    )


def test_influence_needs_a_mask(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the dog is riding\n")
    asked = ("--input", tmp_path / "in.txt", "--model", model, "--figure", "influence")
    run("diagnose", *asked).failed(2, "--figure influence: the tokenizer of")


def test_no_sentence_of_a_usable_length() -> None:
    (row,) = impact.influence_figures(
        impact.Influences([], [], 2), impact.WordCounts(np.ones(3), np.ones(3), "none")
    )
    assert (row["value"], row["n"], row["spearman"]) == (None, 0, None)
