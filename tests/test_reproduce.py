"""Every figure of docs/reproduce.md that is MiniLM's, made again by the commands that the page
names.
"""

import json
import math
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.fixtures import run
from helpers.pages import ROOT, Page, names, tables

from transforms.evaluation import rows

__all__ = ["run"]

PAGE = Page(ROOT / "docs" / "reproduce.md")
MOVED = {"percent": 0.1, "plain": 0.005}
SETS = ("STS12", "STS13", "STS14", "STS15", "STS16")

Made = dict[str, list[dict]]  # the lines of each file that a command wrote
Lookup = Callable[[Made, list[str]], float]  # a figure, by the words in the first cell of its row


def one(lines: list[dict], field: str, **told: object) -> float:
    """The field of the one line that says this."""
    (found,) = [
        line for line in lines if all(line.get(key) == value for key, value in told.items())
    ]
    return float(found[field])


def sts(task: str, subset: str = "all", field: str = "spearman") -> Lookup:
    """A score of pooler and calibration; `*` in the calibration is the task."""

    def found(made: Made, words: list[str]) -> float:
        fitted = words[1].replace("*", task) if len(words) > 1 else None
        told = {"task": task, "subset": subset, "pooler": words[0], "calibration": fitted}
        return one(made["scores.jsonl"], field, **told)

    return found


def judged(file: str, task: str, metric: str) -> Lookup:
    """A score of a classifier or regressor over a pooler's vectors; or of their cosine."""
    return lambda made, words: one(
        made[file], "score", task=task, metric=metric, subset="all", pooler=words[0]
    )


def diagnosed(field: str, **told: object) -> Lookup:
    """A figure of `diagnose` that no pooler has part in."""
    return lambda made, words: one(made["figures.jsonl"], field, **told)


def of_pooler(**told: object) -> Lookup:
    """A figure of `diagnose` of a pooler's vectors, or of the scores."""
    return lambda made, words: one(made["figures.jsonl"], "value", pooler=words[0], **told)


def head(field: str) -> Lookup:
    """How the head of a Ditto pooler goes with TF-IDF."""

    def found(made: Made, words: list[str]) -> float:
        block, number = map(int, words[0].removeprefix("ditto:").split("-"))
        return one(made["figures.jsonl"], field, figure="head", layer=block, head=number)

    return found


def average(*several: Lookup) -> Lookup:
    """The mean of several figures."""
    return lambda made, words: sum(found(made, words) for found in several) / len(several)


def ranked(figure: str, **told: object) -> Lookup:
    """A figure of the word embeddings from the rank on with which the row begins."""
    return lambda made, words: one(
        made["figures.jsonl"], "value", figure=figure, low=int(words[0].split()[0]), **told
    )


SPEARMAN = tuple(sts(task) for task in (*SETS, "STS-B", "SICK-R"))
PEARSON = tuple(sts(task, "mean", "pearson") for task in SETS)
RELATED = tuple(judged("relatedness.jsonl", task, "pearson") for task in ("STS-B", "SICK-R"))
TRANSFER = tuple(judged("transfer.jsonl", task, "accuracy") for task in ("TREC", "SICK-E"))
DEV = judged("dev.jsonl", "dev", "spearman")
NEAR = tuple(
    ranked(f"neighbour-{what}", neighbours=k) for what in ("distance", "product") for k in (3, 5, 7)
)


@dataclass(frozen=True)
class Figures:
    """The figures of MiniLM in the table below a heading, by column; `moved` is how far one may be
    from the page's.
    """

    paper: str
    heading: str
    columns: tuple[Lookup, ...]
    moved: str = "percent"


FIGURES = (
    Figures(
        "SBERT-WK, table III", "### Similarity", (*PEARSON, *RELATED, average(*PEARSON, *RELATED))
    ),
    Figures("SBERT-WK, table V", "### Transfer", TRANSFER),
    Figures("SBERT-WK, table VII", "### Its parts", (average(*PEARSON, RELATED[0]), *RELATED)),
    Figures(
        "SBERT-WK, figure 1",
        "### Layers",
        tuple(diagnosed("value", figure="hop-cosine", hops=hops) for hops in range(1, 7)),
        "plain",
    ),
    Figures(
        "SBERT-WK, figure 3",
        "### Where it starts, and how far it looks",
        (average(*PEARSON, sts("STS-B", field="pearson")),),
    ),
    Figures("Ditto, STS sets", "### STS sets", (*SPEARMAN, average(*SPEARMAN))),
    Figures(
        "Ditto, table 4", "### Heads", (DEV, average(*SPEARMAN), head("value"), head("spearman"))
    ),
    Figures(
        "Ditto, figure 4",
        "### Alignment, uniformity and mean cosine",
        tuple(sts("STS-B", field=field) for field in ("alignment", "uniformity", "mean_cosine")),
        "plain",
    ),
    Figures("SBERT, table 1", "### Without training on STS", (*SPEARMAN, average(*SPEARMAN))),
    Figures("SBERT, table 6", "### Pooling", (DEV,)),
    Figures("CNN-SBERT, table I", "## CNN-SBERT", (sts("STS-B"), sts("STS-B", field="pearson"))),
    Figures("BERT-flow, table 1", "### Word embeddings", (ranked("norm"), *NEAR), "plain"),
    Figures(
        "BERT-flow, tables 2 and 3",
        "### Flows",
        (sts("STS-B"), sts("SICK-R"), *(sts(task, "wmean") for task in SETS)),
    ),
    Figures("BERT-flow, table 5", "### Other calibrations", (sts("STS-B"),)),
    Figures(
        "BERT-flow, table 6",
        "### Edit distance",
        (of_pooler(figure="edit-distance", pairs="all"), of_pooler(figure="spearman")),
    ),
)


def rows_of(figures: Figures) -> list[tuple[list[str], list[str]]]:
    """The words in backticks (the whole first cell where it has none) and the cells of each row of
    MiniLM's.
    """
    (table,) = tables(PAGE.section(figures.heading))
    return [(names(row[0]) or [row[0]], row[2:]) for row in table if row[1].startswith("MiniLM")]


def test_every_row_of_minilm_is_one_of_these() -> None:
    read = [(words, cells) for figures in FIGURES for words, cells in rows_of(figures)]
    there = [row for table in tables(PAGE.text) for row in table if row[1].startswith("MiniLM")]
    assert len(read) == len(there)
    for words, cells in read:
        assert words
        assert [cell for cell in cells if cell != "–" and not math.isfinite(float(cell))] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """The sets, and the sentences of each."""
    place = tmp_path_factory.mktemp("reproduce")
    for file in (
        *(shared / "data" / "sts").glob("*.tsv"),
        *(shared / "data" / "transfer").glob("*.tsv"),
    ):
        (place / file.name).symlink_to(file)
    for block in PAGE.blocks:
        if block.language == "bash":
            subprocess.run(["bash", "-ec", block.text], cwd=place, check=True)
    return place


def made_by(run: Run, folder: Path) -> Made:
    """What all commands of the page wrote, in that folder."""
    joined = [block.text.replace("\\\n", " ") for block in PAGE.blocks if block.language == "sh"]
    for line in "".join(joined).splitlines():
        assert run(*shlex.split(line)[1:]).status == 0, line
    return {
        path.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in folder.glob("*.jsonl")
    }


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_the_figures_of_the_page_are_those_of_its_commands(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    # the page has no intervals
    monkeypatch.setattr(rows, "draw", partial(rows.draw, resamples=2, permutations=2))
    made = made_by(run, folder)
    moved = [line for figures in FIGURES for line in moved_in(figures, made)]
    assert not moved, "\n".join(moved)


def moved_in(figures: Figures, made: Made) -> list[str]:
    """The figures of a table that are not the page's, a line each."""
    found = []
    for words, cells in rows_of(figures):
        assert len(cells) == len(figures.columns), (figures.paper, words)
        for place, (cell, column) in enumerate(zip(cells, figures.columns, strict=True)):
            if cell != "–":
                value = column(made, words)
                if abs(value - float(cell)) > MOVED[figures.moved]:
                    found.append(
                        f"{figures.paper}, {words}, column {place}: {value:.3f}, the page has {cell}"
                    )
    return found
