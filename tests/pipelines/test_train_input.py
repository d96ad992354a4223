"""`train` on data and options that cannot be used: one line, before any model is loaded."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.training import labelled_rows, scored_rows, triplet_rows, write_tsv

from sentence_beam.transforms.training import recipes

pytest.importorskip("accelerate", reason="the extra train is not installed")

MISTAKES = {
    "--scores": ("regression --input scored.tsv", "scored.tsv, row 1: score 4.2 is not from 0 to 1; say --scores LOW,HIGH"),
    "--dev": ("regression --input scored.tsv --dev nowhere.tsv", "nowhere.tsv: no file matches"),
    "--lr": ("regression --input scored.tsv --lr 0", "--lr has to be above 0"),
    "--objective": ("rank --input scored.tsv", "invalid choice: 'rank'"),
    "dev label": ("classification --input labelled.tsv --dev other.tsv", "other.tsv, row 5: 'maybe' is a label that no training row has; there are 'no', 'perhaps', 'yes'"),
    "--labels": ("classification --input labelled.tsv --labels yes,no", "labelled.tsv, row 2: 'perhaps' is not among --labels; there are 'yes', 'no'"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scored, labelled = scored_rows(), labelled_rows()
    scored[0] = {"score": 4.2, "sentence1": "a cat", "sentence2": "dog a park"}
    write_tsv(tmp_path / "scored.tsv", scored)
    write_tsv(tmp_path / "labelled.tsv", labelled)
    labelled[4]["label"] = "maybe"
    write_tsv(tmp_path / "other.tsv", labelled)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(run: Run, mistake: str) -> None:
    words, said = MISTAKES[mistake]
    run("train", "--output", "model", "--objective", *words.split()).failed(2, said)
    assert not Path("model").exists()
    assert not Path("model.training").exists()


def test_rows_without_a_text_are_rejected_and_counted(run: Run) -> None:
    rows = triplet_rows()
    rows[7]["positive"] = " "
    rows[9]["anchor"] = ""
    write_tsv(Path("triplets.tsv"), rows)
    done = run("train", "--input", "triplets.tsv", "--objective", "triplet", "--output", "model")
    assert done.status == 3
    assert "2 of 64 rows cannot be used (2 empty text; of " in done.err
    assert "triplets.tsv rows 8, 10), more than --max-rejects 0.01" in done.err


def test_recipes_are_printed(run: Run) -> None:
    for name in recipes.list_recipes():
        printed = run("train", "--print-recipe", name).ok().out
        assert printed == recipes.find_recipe(name).read_text(encoding="utf8")
    run("train", "--recipe", "bert", "--input", "a.tsv").failed(2, "invalid choice: 'bert'")
