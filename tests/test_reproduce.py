"""Every figure of docs/reproduce.md that is MiniLM's, made again by the commands that the page
names.
"""

import json
import math
import re
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

from sentence_beam.pipelines.cli import load_parser
from sentence_beam.pipelines.common import beam_flags
from sentence_beam.pipelines.common.options import as_options
from sentence_beam.pipelines.train import with_recipe
from sentence_beam.transforms.evaluation import score_rows as rows
from sentence_beam.transforms.evaluation.compared_methods import expand
from sentence_beam.transforms.evaluation.encode_many import ModelSettings
from sentence_beam.transforms.training.option_checks import check
from sentence_beam.transforms.training.train_options import TrainOptions

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
    return lambda made, words: one(made["figures.jsonl"], "value", pooler=", ".join(words), **told)


def of_token(made: Made, words: list[str]) -> float:
    """The variance of a word across the layers."""
    return one(made["figures.jsonl"], "value", figure="word-variance", token=words[0])


def similar(made: Made, words: list[str]) -> float:
    """The score of STS-B by another similarity, whose name is that of a file; by the cosine of all
    others.
    """
    told = {"task": "STS-B", "subset": "all", "pooler": "mean", "calibration": None}
    file = "scores.jsonl" if words[0] == "cosine" else f"{words[0]}.jsonl"
    return one(made[file], "spearman", **told)


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
    Figures("SBERT-WK, table I", "### Words by variance", (of_token,), "plain"),
    Figures(
        "SBERT-WK, figure 3",
        "### Where it starts, and how far it looks",
        (average(*PEARSON, sts("STS-B", field="pearson")),),
    ),
    Figures(
        "SBERT-WK, figure 3, SICK-E",
        "### SICK-E by start and window",
        (judged("starts.jsonl", "SICK-E", "accuracy"),),
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
    Figures("SBERT, section 4", "### Other similarities", (similar,)),
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


PAPERS = {
    "SBERT-WK": "figure 1, figure 2, figure 3, table I, table II, table III, table IV, table V, table VI, table VII, table VIII",
    "Ditto": "figure 1, figure 2, figure 3, figure 4, table 1, table 2, table 3, table 4, table 5, table 6",
    "SBERT": "figure 1, figure 2, table 1, table 2, table 3, table 4, table 5, table 6, table 7",
    "CNN-SBERT": "figures, table I, table II, table III",
    "BERT-flow": "figure 1, figure 2, table 1, table 2, table 3, table 4, table 5, table 6",
}
NAMED = re.compile(r"(figure|table)s? ((?:[IV]+|\d)(?: and (?:[IV]+|\d))?)\b")


def listed() -> dict[str, list[tuple[str, str]]]:
    """The rows of the list of tables and figures by paper: what each is of, and what makes it."""
    found: dict[str, list[tuple[str, str]]] = {}
    (table,) = tables(PAGE.section("## Every table and figure"))
    paper = ""
    for named, what, made in table:
        paper = re.findall(r"\[(.*)\]", named)[0] if named else paper
        found.setdefault(paper, []).append((what, made))
    return found


def test_the_list_has_every_table_and_figure_of_the_papers() -> None:
    there = {}
    for paper, lines in listed().items():
        whole = ["figures"] if any(what == "figures" for what, _ in lines) else []
        each = [
            f"{kind} {number}"
            for what, _ in lines
            for kind, both in NAMED.findall(what)
            for number in both.split(" and ")
        ]
        there[paper] = {*whole, *each}
    assert there == {paper: set(what.split(", ")) for paper, what in PAPERS.items()}


def commands_of(made: str) -> list[list[str]]:
    """The commands of a row as words."""
    found = [shlex.split(text.replace(r"\|", "|")) for text in names(made)]
    return [words for words in found if words[0] in ("sentence-beam", "python") and len(words) > 1]


@pytest.mark.parametrize(
    ("what", "made"),
    [(f"{paper}, {what}", made) for paper, lines in listed().items() for what, made in lines],
    ids=lambda value: value.split(",")[0] if "`" not in value else "made",
)
def test_a_row_of_the_list_is_a_command_that_there_is_or_a_reason(what: str, made: str) -> None:
    if made.startswith("not made: "):
        assert len(made) > len("not made: ") + 3
        return
    found = commands_of(made)
    assert found, what
    for words in found:
        if words[0] == "python":
            module = words[2]
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
            continue
        parser = load_parser(words[1])
        if words[1] == "train":
            (args,) = with_recipe(parser, words[2:])
            check(as_options(TrainOptions, args))
        else:
            args, _ = beam_flags.parse(parser, words[2:])
        for spec in getattr(args, "poolers", None) or ():
            expand(ModelSettings("minilm"), [spec])


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


LOOP = re.compile(r"^for set in (.*); do\n(.*?)^done\n", re.MULTILINE | re.DOTALL)


def lines_of(script: str) -> list[str]:
    """Return the commands of a shell script, with its loops `for set in ...` unrolled."""

    def unroll(loop: re.Match[str]) -> str:
        return "".join(loop[2].replace("$set", name) for name in loop[1].split())

    return LOOP.sub(unroll, script.replace("\\\n", " ")).splitlines()


def test_every_command_of_the_page_is_understood() -> None:
    script = "".join(block.text for block in PAGE.blocks if block.language == "sh")
    for line in lines_of(script):
        program, command, *arguments = shlex.split(line)
        assert program == "sentence-beam"
        assert beam_flags.parse(load_parser(command), arguments)


def made_by(run: Run, folder: Path) -> Made:
    """What all commands of the page wrote, in that folder."""
    for line in lines_of("".join(block.text for block in PAGE.blocks if block.language == "sh")):
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
