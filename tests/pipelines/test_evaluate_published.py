"""`evaluate` on the real model and the real sets gives the figures that the methods' own code
gave.
"""

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


def spearman(
    run: Run, out: Path, tasks: list[str], poolers: list[str]
) -> dict[tuple[str, str], float]:
    """Spearman over all pairs, by task and pooler."""
    named = [argument for task in tasks for argument in ("--task", task)]
    named += [argument for pooler in poolers for argument in ("--pooler", pooler)]
    run("evaluate", *named, "--output", out).ok()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {(row["task"], row["pooler"]): row["spearman"] for row in rows if row["subset"] == "all"}


FEW = ("auto", "static", "ditto:3-7,states=last", "sbert-wk:start=4")


@pytest.mark.slow
@pytest.mark.parametrize("poolers", [FEW, pytest.param(tuple(PUBLISHED), marks=pytest.mark.slow)])
def test_poolers_on_sts_b(run: Run, shared: Path, tmp_path: Path, poolers: tuple[str, ...]) -> None:
    task = f"B={shared}/data/sts/stsb-test.tsv"
    found = spearman(run, tmp_path / "out.jsonl", [task], list(poolers))
    assert {pooler: score for (_, pooler), score in found.items()} == pytest.approx(
        {pooler: PUBLISHED[pooler] for pooler in poolers}, abs=0.02
    )


# The rows of the table of scores that a pooler is meant to give, on every task.
ROWS = {
    "auto": "st_mean", "cls": "st_cls", "max": "st_max", "mean-sqrt-len": "st_mean_sqrt_len_tokens",
    "last-token": "st_lasttoken", "weighted-mean": "st_weightedmean", "cls-tanh": "simcse_cls",
    "last2": "simcse_avg_top2", "first-last:first=block1": "simcse_avg_first_last",
    "first-last": "ditto_avg_first_last", "static": "ditto_avg_static",
    "remove-biases": "promptbert_static_remove_biases",
    "sbert-wk:start=2": "sbertwk_ls2_w2", "sbert-wk:start=4": "sbertwk_ls4_w2",
    "sbert-wk:start=2,weights=alignment": "sbertwk_ls2_w2_alignment_only",
    "sbert-wk:start=2,weights=novelty": "sbertwk_ls2_w2_novelty_only",
    "sbert-wk:start=4,weights=alignment": "sbertwk_ls4_w2_alignment_only",
    "sbert-wk:start=4,weights=novelty": "sbertwk_ls4_w2_novelty_only",
} | {
    f"ditto:{head},states={states}": f"ditto_att_{states.replace('-', '_')}_{head}"
    for head in ("1-10", "3-7", "6-12") for states in ("static", "last", "first-last")
}  # fmt: skip
TASKS = {
    "dev": "STS-B dev", "stsb": "STS-B test", "sickr": "SICK-R test", "sts12": "STS12+MSRvid",
    "sts13": "STS13", "sts14": "STS14", "sts15": "STS15", "sts16": "STS16",
}  # fmt: skip
# Published MTEB figures of all-MiniLM-L6-v2: the mean of these is what a leaderboard calls the STS
# average.
MEAN = {
    "sts12": 72.37,
    "sts13": 80.60,
    "sts14": 75.60,
    "sts15": 85.39,
    "sts16": 78.99,
    "stsb": 82.03,
    "sickr": 77.15,
}


def table(page: Path) -> dict[tuple[str, str], float]:
    """The first table of the page of scores: (column, row) -> score, where there is one."""
    lines = [
        line.strip("|").split("|")
        for line in page.read_text().split("\n\n| method |")[1].splitlines()
    ]
    heads = [cell.strip() for cell in lines[0]]
    scores = {}
    for cells in (line for line in lines[2:] if len(line) == len(heads) + 1):
        for head, cell in zip(heads, cells[1:], strict=True):
            if cell.strip() != "not run":
                scores[head, cells[0].strip()] = float(cell)
    return scores


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_pooler_on_every_task(run: Run, shared: Path, tmp_path: Path) -> None:
    folder, published = shared / "data" / "sts", table(shared / "golden" / "sts_scores.md")
    files = {name: sorted(folder.glob(f"{name}-*.tsv")) for name in TASKS}
    files |= {name: [folder / f"{name}-test.tsv"] for name in ("stsb", "sickr")} | {
        "dev": [folder / "stsb-dev.tsv"]
    }
    tasks = [f"{name}={','.join(map(str, paths))}" for name, paths in files.items()]
    found = spearman(run, tmp_path / "out.jsonl", tasks, list(ROWS))
    assert {task: found[task, "auto"] for task in MEAN} == pytest.approx(MEAN, abs=0.02)
    assert found["Avg.", "auto"] == pytest.approx(sum(MEAN.values()) / len(MEAN), abs=0.02)
    expected = {
        (task, pooler): published[column, row]
        for pooler, row in ROWS.items()
        for task, column in TASKS.items()
        if (column, row) in published
    }
    assert len(expected) == 8 * 21 + 2 * 6
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_the_grid_of_heads(run: Run, shared: Path, tmp_path: Path) -> None:
    found = spearman(
        run, tmp_path / "out.jsonl", [f"B={shared}/data/sts/stsb-dev.tsv"], ["ditto:*"]
    )
    best = sorted(found, key=lambda key: -found[key])[:5]
    assert [pooler for _, pooler in best] == [
        f"ditto:{head}" for head in ("1-9", "1-6", "1-11", "4-1", "1-5")
    ]
    assert found[best[0]] == pytest.approx(85.35, abs=0.02)
