"""`diagnose`: on a store without its model, on files and pairs the same sample whatever their
order, its page.

Covers transforms/evaluation/diagnostics/diagnosis.py.
Covers transforms/evaluation/diagnostics/material.py.
Covers transforms/evaluation/diagnostics/model_figures.py.
Covers transforms/evaluation/diagnostics/diagnostics_page.py.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.commands import Run
from helpers.corpora import sentences, write_lines
from helpers.tiny_models import save_tiny_model
from transformers import AutoModel, AutoTokenizer

from sentence_beam.pipelines.diagnose import format_figures
from sentence_beam.transforms.calibration.quality import mean_cosine
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import figure
from sentence_beam.transforms.store import open_store

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PAIRS = "score\tsentence1\tsentence2\n" + "".join(
    f"{score}\t{a}\t{b}\n"
    for score, a, b in [
        (5.0, "a man is playing the guitar", "the man is playing a guitar"),
        (0.5, "a dog", "the street is big"),
        (3.0, "a child is riding", "a woman was riding"),
        (4.5, "cat dog", "dog cat"),
        (2.0, "the cat is small", "a horse is big"),
    ]
)
WANTED = {"figure", "pooler", "layer", "head", "value", "n"}


def rows_of(path: Path) -> list[dict]:
    """The JSON lines of a diagnosis."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokenizer has a mask token."""
    folder = save_tiny_model("bert", tmp_path_factory.mktemp("masked"))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    torch.manual_seed(11)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_store_is_looked_at_without_its_model(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(write_lines(inputs / "a.txt", sentences(60))).ok()
    output = tmp_path / "figures.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.transforms.encoder.load.load_model",
            lambda *_: pytest.fail("the model was loaded"),
        )
        patch.setattr(
            "sentence_beam.transforms.evaluation.evaluation_progress.tell",
            lambda text: pytest.fail(f"it said {text!r}"),
        )
        out = run("diagnose", "--store", store, "--output", output).ok().out
    rows = rows_of(output)
    assert all(row.keys() >= WANTED and row["n"] == 60 for row in rows)
    assert {row["figure"] for row in rows} == {line.split()[0] for line in out.splitlines()[1:-2]}
    (mean,) = (row["value"] for row in rows if row["figure"] == "mean-cosine")
    assert mean == pytest.approx(mean_cosine(open_store(str(store)).numpy()[1]), abs=1e-6)
    assert "60 of 60 rows, drawn by keyed hash" in out
    run("diagnose", "--store", store, "--figure", "layers,heads", "--output", output).ok()
    figures = {row["figure"] for row in rows_of(output)}
    assert figures == {"head", "chosen-head", "layer-cosine", "hop-cosine"}


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (
            [figure("cosine-share", share, 9, "mean", low=n / 50 - 1, high=n / 50 - 0.98) for n, share in enumerate([0.0] * 55 + [0.25, 0.125] + [0.0] * 42 + [0.625])],
            ["cosine-share mean 0.9 to 1.0 0.6250 9", "cosine-share mean 0.1 to 0.2 0.3750 9"],
        ),
        (
            [figure("head", 10.0 * n, 1200, None, 1, n, spearman=0.0) for n in range(12)],
            [f"head - layer 1, head {n} {10.0 * n:.4f} 1,200" for n in range(11, 1, -1)] + ["and more: 2 of head; --output FILE has all"],
        ),
        (
            [figure("layer-cosine", 1.0 - abs(one - other) / 4, 5, layer=one, other=other) for one in range(3) for other in range(3)],
            ["layer-cosine - layers 0 and 1 0.7500 5", "layer-cosine - layers 0 and 2 0.5000 5", "layer-cosine - layers 1 and 2 0.7500 5"],
        ),
        ([figure("hop-cosine", 0.5, 5, hops=1), figure("hop-cosine", 0.25, 5, hops=2)], ["hop-cosine - 1 layer apart 0.5000 5", "hop-cosine - 2 layers apart 0.2500 5"]),
        (
            [figure("impact", float(one + 2 * other), 3, token=f"t{one}", place=one, perturbed=f"t{other}", other=other) for one in range(2) for other in range(2)],
            ["impact - t1 (1) on t0 (0) 2.0000 3", "impact - t0 (0) on t1 (1) 1.0000 3"],
        ),
        ([figure("influence", value, 3, token="dog", place=1) for value in (float("nan"), 2.0)], ["influence - dog (1) 2.0000 3", "influence - dog (1) - 3"]),
        ([figure("neighbour-product", 0.5, 8, low=0, high=8000, neighbours=3)], ["neighbour-product - ranks 0 to 8,000, 3 neighbours 0.5000 8"]),
        ([figure("deviation", 2.5, 9, "auto", component=1)], ["deviation auto component 1 2.5000 9"]),
    ],
    ids=lambda value: value[0]["figure"] if isinstance(value[0], dict) else "",
)  # fmt: skip
def test_every_kind_of_figure_is_printed(rows: list[dict], lines: list[str]) -> None:
    head, *found = format_figures(rows).splitlines()
    assert head.split() == ["figure", "pooler", "of", "value", "n"]
    assert [" ".join(line.split()) for line in found] == lines


def test_pairs_have_every_figure_and_say_where_words_are_from(
    run: Run, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "sts.tsv").write_text(PAIRS)
    (tmp_path / "qa.tsv").write_text(
        "question\tanswer\nthe dog\tcat dog\na horse\tthe horse\nan apple\tan apple\n"
    )
    output, report = tmp_path / "figures.jsonl", tmp_path / "figures.html"
    tasks = ("--task", f"sts={tmp_path}/sts.tsv", "--task", f"qa:faq={tmp_path}/qa.tsv")
    out = run(
        "diagnose", *tasks, "--model", model, "--pooler", "mean", "--pooler", "cls", "--output", output,
        "--report", report,
    ).ok().out  # fmt: skip
    rows = rows_of(output)
    figures = {row["figure"] for row in rows}
    assert figures >= {"alignment", "edit-distance", "spearman", "auc", "norm", "head"}
    assert {row["pooler"] for row in rows if row["figure"] == "auc"} == {"mean", "cls"}
    (auc,) = (row for row in rows if row["figure"] == "auc" and row["pooler"] == "mean")
    assert (auc["n"], auc["made"]) == (6, True)
    assert "words are counted in the 22 texts themselves" in out
    assert "half of the pairs are made" in out
    assert "Uniformity and alignment" in report.read_text()


def test_words_from_a_table(run: Run, model: Path, inputs: Path, tmp_path: Path) -> None:
    glob, table = write_lines(inputs / "a.txt", sentences(40)), tmp_path / "t"
    fit = ("fit", "--input", glob, "--method", "token-counts", "--model", model)
    run(*fit, "--output", table).ok()
    output = tmp_path / "figures.jsonl"
    asked = ("diagnose", "--input", glob, "--figure", "norms", "--table", table, "--model")
    run(*asked, model, "--output", output).ok()
    assert {row["words"] for row in rows_of(output)} == {f"{table}, token-counts, 40 texts"}
    other = save_tiny_model("roberta", tmp_path / "other")
    run(*asked, other).failed(2, "another tokenizer")


def test_impact_is_that_of_masking_by_hand(run: Run, masked: Path, tmp_path: Path) -> None:
    output = tmp_path / "figures.jsonl"
    run("diagnose", "--sentence", "the dog is riding", "--model", masked, "--output", output).ok()
    rows = [row for row in rows_of(output) if row["figure"] == "impact"]
    tokenizer, model = (
        AutoTokenizer.from_pretrained(masked),
        AutoModel.from_pretrained(masked).eval(),
    )
    ids = tokenizer("the dog is riding", return_tensors="pt")["input_ids"]

    def state(at: int, *hidden: int) -> np.ndarray:
        masked_ids = ids.clone()
        masked_ids[0, [place + 1 for place in hidden]] = tokenizer.mask_token_id
        with torch.inference_mode():
            return model(input_ids=masked_ids).last_hidden_state[0, at + 1].double().numpy()

    assert len(rows) == 16
    for row in rows:
        i, j = row["place"], row["other"]
        expected = np.linalg.norm(state(i, i) - state(i, i, j)) if i != j else 0.0
        assert row["value"] == pytest.approx(expected, abs=1e-4)


def test_mistakes_are_one_line(run: Run, masked: Path, inputs: Path) -> None:
    file = write_lines(inputs / "a.txt", sentences(3))
    asked = ("diagnose", "--model", masked)
    run(*asked).failed(2, "store holds no store")
    said = "--figure tails is not known; allowed: cosines"
    run(*asked, "--input", file, "--figure", "heads,tails").failed(2, said)
    run(*asked, "--sentence", "a dog").failed(2, "has 2 tokens; give 3 to 64")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_fits_into_its_window(run: Run, masked: Path, tmp_path: Path, width: int) -> None:
    (tmp_path / "sts.tsv").write_text(PAIRS)
    page = tmp_path / "figures.html"
    asked = ["--task", f"<b>sts</b>={tmp_path}/sts.tsv", "--pooler", "mean", "--pooler", "max"]
    asked += ["--sentence", "a big dog is eating an apple"]
    run("diagnose", *asked, "--model", masked, "--report", page).ok()
    html = page.read_text()
    assert "<b>sts" not in html
    assert not re.search(r"(src|href|url|@import|fetch)\b\s*[=(:]\s*[\"']?\w", html)
    counted = ["document.documentElement.scrollWidth", "innerWidth"]
    counted += [f"document.querySelectorAll('{what}').length" for what in ("svg", ".heat")]
    script = f"<script>document.title = [{', '.join(counted)}].join(' ')</script>"
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    page.write_text(policy.sub("", html).replace("</body>", f"{script}</body>"))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options += [f"--window-size={width},900", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    argv = [str(CHROMIUM), *options, page.as_uri()]
    dom = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    found = re.search(r"<title>(\d+) (\d+) (\d+) (\d+)</title>", dom.stdout)
    assert found, dom.stderr[-2000:]
    wide, window, charts, maps = map(int, found.groups())
    assert wide <= window
    assert (charts, maps) == (5, 3)
