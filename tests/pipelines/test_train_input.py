"""`train` on data and options that cannot be used: one line each, before any model is loaded.

Covers transforms/training/option_checks.py.
Covers transforms/training/train_options.py.
"""

import tomllib
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.training import labelled_rows, scored_rows, triplet_rows, write_tsv

from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.training import recipes
from sentence_beam.transforms.training.train_options import TrainOptions

pytest.importorskip("accelerate", reason="the extra train is not installed")

BY_SCORE = ["--objective", "regression", "--scores", "0,5"]
BY_LABEL = ["--objective", "classification"]
MISTAKES = {
    "score outside": (["--objective", "regression"], 2, "scored.tsv, row 1: score 4.2 is not from 0 to 1; say --scores LOW,HIGH"),
    "scale too small": (["--objective", "regression", "--scores", "0,2"], 2, "row 1: score 4.2 is not from 0 to 2; mend"),
    "scale upside down": (["--objective", "regression", "--scores", "5,0"], 2, "the first has to be the smaller one"),
    "columns swapped": ([*BY_SCORE, "--columns", "score,sentence1,sentence2"], 2, "row 1: 'dog a park' in column sentence2 is no score"),
    "column missing": ([*BY_SCORE, "--columns", "a,b,score"], 2, "has no column a (--columns); its columns: score, sentence1, sentence2"),
    "roles missing": (["--objective", "ranking"], 2, "has no column anchor; its columns: score, sentence1, sentence2; say --columns with those for anchor,positive[,negative], in this order"),
    "too few columns": ([*BY_SCORE, "--columns", "sentence1,sentence2"], 2, "has the roles text1,text2,score; name each once"),
    "labels from texts": ([*BY_LABEL, "--columns", "score,sentence1,sentence2"], 2, "is sentence2 the column of labels?"),
    "fewer rows than a batch": ([*BY_SCORE, "--batch", "65"], 2, "64 rows are fewer than a batch of 65; say --batch 64 or less"),
    "option of another objective": ([*BY_SCORE, "--mini-batch", "4"], 2, "--mini-batch is for --objective ranking"),
    "labels of scores": ([*BY_SCORE, "--labels", "a,b"], 2, "--labels is for --objective classification"),
    "patience without dev": ([*BY_SCORE, "--patience", "2"], 2, "say --dev PATH too"),
    "adapters and frozen": ([*BY_SCORE, "--lora", "4", "--freeze-backbone"], 2, "say one of them"),
    "no such objective": (["--objective", "rank"], 2, "invalid choice: 'rank'"),
    "no such file": ([*BY_SCORE, "--dev", "nowhere.tsv"], 2, "nowhere.tsv: no file matches"),
    "no rate": ([*BY_SCORE, "--lr", "0"], 2, "--lr has to be above 0"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = scored_rows()
    rows[0] = {"score": 4.2, "sentence1": "a cat", "sentence2": "dog a park"}
    write_tsv(tmp_path / "scored.tsv", rows)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(run: Run, mistake: str) -> None:
    options, code, said = MISTAKES[mistake]
    done = run("train", "--input", "scored.tsv", "--output", "model", *options)
    assert done.status == code
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not Path("model").exists()
    assert not Path("model.training").exists()


def test_labels_that_cannot_be(run: Run) -> None:
    rows = labelled_rows()
    write_tsv(Path("labelled.tsv"), rows)
    write_tsv(
        Path("other.tsv"),
        [{**row, "label": "maybe"} if place == 4 else row for place, row in enumerate(rows)],
    )
    write_tsv(Path("one.tsv"), [{**row, "label": "yes"} for row in rows])

    def said(*words: str) -> tuple[int, str]:
        done = run("train", *BY_LABEL, "--output", "model", *words)
        return done.status, done.err

    assert said("--input", "one.tsv") == (
        2,
        "sentence-beam train: all labels are 'yes'; there is nothing to tell apart\n",
    )
    code, error = said("--input", "labelled.tsv", "--dev", "other.tsv")
    assert code == 2
    assert (
        "other.tsv, row 5: 'maybe' is a label that no training row has; there are 'no', 'perhaps', 'yes'"
        in error
    )
    code, error = said("--input", "labelled.tsv", "--labels", "yes,no")
    assert code == 2
    assert "labelled.tsv, row 2: 'perhaps' is not among --labels; there are 'yes', 'no'" in error
    code, error = said("--input", "labelled.tsv", "--labels", "yes,no,perhaps,other")
    assert (code, "no training row has 'other'" in error) == (2, True)


def test_rows_without_a_text_are_rejected_and_counted(run: Run) -> None:
    rows = triplet_rows()
    rows[7]["positive"] = " "
    rows[9]["anchor"] = ""
    write_tsv(Path("triplets.tsv"), rows)
    done = run("train", "--input", "triplets.tsv", "--objective", "triplet", "--output", "model")
    assert done.status == 3
    assert "2 of 64 rows cannot be used (2 empty text; of " in done.err
    assert "triplets.tsv rows 8, 10), more than --max-rejects 0.01" in done.err


def test_recipes_are_printed_and_flags_win(run: Run) -> None:
    from sentence_beam.pipelines.common.options import as_options
    from sentence_beam.pipelines.train import parser, with_recipe

    found = {}
    for name in recipes.list_recipes():
        (args,) = with_recipe(
            parser(), ["--recipe", name, "--input", "a.tsv", "--lr", "1", "--dev=b.tsv"]
        )
        found[name] = as_options(TrainOptions, args)
        printed = run("train", "--print-recipe", name)
        assert printed.status == 0
        assert tomllib.loads(printed.out)["batch"] == found[name].batch
    assert len(found) == 12
    assert {one.lr for one in found.values()} == {1.0}
    assert found["sbert-stsb"].model == found["sbert-nli"].output
    assert found["sbert-nli"].labels == ("contradiction=2", "entailment=0", "neutral=1")
    assert (found["cnn-sbert"].pooler, found["cnn-sbert"].scores, found["cnn-sbert"].epochs) == (
        "cnn",
        (0.0, 5.0),
        10,
    )
    wrong = run("train", "--recipe", "bert", "--input", "a.tsv")
    assert (wrong.status, "invalid choice: 'bert'" in wrong.err) == (2, True)


def test_the_extra_that_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "accelerate" else find(name)
    )
    done = run("train", "--input", "scored.tsv", "--output", "model", *BY_SCORE)
    assert (done.status, done.err) == (
        2,
        f"sentence-beam train: training needs accelerate: {format_pip_line('train')}\n",
    )
