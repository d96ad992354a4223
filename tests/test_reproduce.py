"""Every figure of docs/reproduce.md that is MiniLM's, made again by the commands that the page names."""

import json
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.fixtures import run
from helpers.pages import ROOT, Page, names, tables

__all__ = ["run"]

PAGE = Page(ROOT / "docs" / "reproduce.md")
MOVED = 0.1


def rows_of(path: Path) -> list[dict]:
    """The JSON lines of a command."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_figures_of_the_page_are_those_of_the_commands(run: Run, shared: Path, tmp_path: Path) -> None:
    sts = shared / "data" / "sts"
    sections = ("## STS-B and SICK-R", "## The parts of SBERT-WK")
    told = [row for section in sections for table in tables(PAGE.section(section)) for row in table]
    claimed = {names(row[-3])[0]: (float(row[-2]), float(row[-1])) for row in told}
    assert len(claimed) == 12
    poolers = [word for pooler in claimed for word in ("--pooler", pooler)]
    tasks = ("--task", f"STS-B={sts}/stsb-test.tsv", "--task", f"SICK-R={sts}/sickr-test.tsv")
    run("evaluate", *tasks, *poolers, "--output", tmp_path / "scores.jsonl").ok()
    scores = {
        (r["task"], r["pooler"]): r["spearman"] for r in rows_of(tmp_path / "scores.jsonl") if r["subset"] == "all"
    }
    for pooler, figures in claimed.items():
        found = [scores[task, pooler] for task in ("STS-B", "SICK-R")]
        assert found == pytest.approx(figures, abs=MOVED), pooler


@pytest.mark.slow
def test_edit_distances(run: Run, shared: Path, tmp_path: Path) -> None:
    (table,) = tables(PAGE.section("## Edit distance"))
    task = ("--task", f"stsb={shared}/data/sts/stsb-dev.tsv", "--figure", "edit-distance", "--pooler", "mean")
    run("diagnose", *task, "--output", tmp_path / "figures.jsonl").ok()
    found = {
        row["pooler"]: row["value"]
        for row in rows_of(tmp_path / "figures.jsonl")
        if row["figure"] == "edit-distance" and row["pairs"] == "all"
    }
    assert found == pytest.approx({names(row[2])[0]: float(row[3]) for row in table}, abs=MOVED)
