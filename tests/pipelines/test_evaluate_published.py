"""`evaluate` on the real model and the real sets gives the figures that the methods' own code gave."""

import json
from pathlib import Path

import pytest
from helpers.commands import Run

PUBLISHED = {
    "auto": 82.03, "cls": 73.50, "max": 78.80, "last-token": 77.97, "weighted-mean": 81.59, "cls-tanh": 73.08,
    "last2": 80.64, "first-last:first=block1": 81.55, "first-last": 82.38, "static": 48.89,
    "ditto:1-10": 71.66, "ditto:3-7,states=last": 78.38, "ditto:6-12,states=static": 50.45,
    "sbert-wk:start=4": 65.92, "sbert-wk:start=2": 54.09, "sbert-wk:start=4,weights=novelty": 68.86,
    "remove-biases": 67.03,
}  # fmt: skip


def spearman(run: Run, out: Path, tasks: list[str], poolers: list[str]) -> dict[tuple[str, str], float]:
    """Spearman over all pairs, by task and pooler."""
    named = [argument for task in tasks for argument in ("--task", task)]
    named += [argument for pooler in poolers for argument in ("--pooler", pooler)]
    run("evaluate", *named, "--output", out).ok()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {(row["task"], row["pooler"]): row["spearman"] for row in rows if row["subset"] == "all"}


def test_every_pooler_on_sts_b(run: Run, shared: Path, tmp_path: Path) -> None:
    task = f"B={shared}/data/sts/stsb-test.tsv"
    found = spearman(run, tmp_path / "out.jsonl", [task], list(PUBLISHED))
    assert {pooler: score for (_, pooler), score in found.items()} == pytest.approx(PUBLISHED, abs=0.02)


@pytest.mark.slow
def test_the_seven_tasks(run: Run, shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "sts"
    expected = {
        "sts12": 72.37,
        "sts13": 80.60,
        "sts14": 75.60,
        "sts15": 85.39,
        "sts16": 78.99,
        "stsb": 82.03,
        "sickr": 77.15,
    }
    files = {name: sorted(folder.glob(f"{name}-*.tsv")) for name in expected}
    files |= {name: [folder / f"{name}-test.tsv"] for name in ("stsb", "sickr")}
    tasks = [f"{name}={','.join(map(str, paths))}" for name, paths in files.items()]
    found = spearman(run, tmp_path / "out.jsonl", tasks, ["auto"])
    assert {task: score for (task, _), score in found.items()} == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_the_grid_of_heads(run: Run, shared: Path, tmp_path: Path) -> None:
    found = spearman(run, tmp_path / "out.jsonl", [f"B={shared}/data/sts/stsb-dev.tsv"], ["ditto:*"])
    best = sorted(found, key=lambda key: -found[key])[:5]
    assert [pooler for _, pooler in best] == [f"ditto:{head}" for head in ("1-9", "1-6", "1-11", "4-1", "1-5")]
    assert found[best[0]] == pytest.approx(85.35, abs=0.02)
