"""Ordinary nights of made-up stores pass the recommended gate, and faults do not."""

import random
from pathlib import Path

import pytest
from helpers.watching import WatchedNights, watched_nights

from sentence_beam.transforms.report.run_history import (
    RUNS_SEEN,
    RunSummary,
    recommend_answer_change,
)
from sentence_beam.transforms.store.runs.answer_figures import (
    FILE_GONE,
    NEW_ROW,
    ROW_CHANGED,
    ROW_DELETED,
)
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.run_result import COMMITTED

LETTERS = "abcdefghij"
NIGHTS = 12
Rows = dict[str, tuple[str, str]]  # file and text by id


def files_of(rows: Rows) -> dict[str, list[tuple[str, str]]]:
    """The rows by file."""
    files: dict[str, list[tuple[str, str]]] = {}
    for name, (file, text) in rows.items():
        files.setdefault(file, []).append((name, text))
    return files


def next_night(rows: Rows, chance: random.Random, number: int) -> Rows:
    """The rows after a night: 0 to 5 % deleted or edited, on every second night in one file; 0 to
    3 % added.
    """
    names = list(rows)
    chance.shuffle(names)
    if number % 2:
        names.sort(key=lambda name: rows[name][0])
    after = dict(rows)
    for name in names[: max(1, int(chance.uniform(0, 0.05) * len(rows)))]:
        file, text = after.pop(name)
        if chance.random() < 0.5:
            after[name] = (file, f"{text} edited")
    for new in range(int(chance.uniform(0, 0.03) * len(rows))):
        letter = chance.choice(LETTERS)
        after[f"new{number}-{new}"] = (f"{letter}.txt", f"{letter} new {number} {new}")
    return after


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)])
def grown(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[WatchedNights, Rows, float]:
    """A store after ordinary nights, its rows, and the gate that seven of them recommend."""
    chance = random.Random(request.param)
    rows = {
        f"{letter}{n}": (f"{letter}.txt", f"{letter} text {n}")
        for letter in LETTERS
        for n in range(40)
    }
    nights = watched_nights(tmp_path)
    nights.commit_without_index(files_of(rows))
    nights.watch([f"{letter} question {n}" for letter in LETTERS for n in range(8)], k=5)
    seen: list[RunSummary] = []
    gates = UsedGates()
    value = 1.0
    for number in range(RUNS_SEEN + NIGHTS):
        if number == RUNS_SEEN:
            value = recommend_answer_change(seen) or 0.0
            gates = UsedGates(max_answer_change=value)
        rows = next_night(rows, chance, number)
        _, result = nights.night(files_of(rows), gates)
        assert result.exit_code == 0, result.message
        assert result.watch is not None
        beyond = result.watch["beyond"]
        seen.append(RunSummary(result.run, COMMITTED, "", command="embed", answers_beyond=beyond))
    return nights, rows, value


def test_faults_do_not_pass_and_are_named(grown: tuple[WatchedNights, Rows, float]) -> None:
    nights, rows, value = grown
    assert 0.02 <= value <= 0.15
    gone = {name: row for name, row in rows.items() if row[0] > "e"}
    fewer = {name: row for n, (name, row) in enumerate(rows.items()) if n % 3}
    texts = [text for _, text in rows.values()]
    swapped = {
        name: (file, text)
        for (name, (file, _)), text in zip(rows.items(), [*texts[100:], *texts[:100]], strict=True)
    }
    copied = rows | {f"{name}.{copy}": row for name, row in rows.items() for copy in range(5)}
    faults = {
        FILE_GONE: gone,
        ROW_DELETED: fewer,
        ROW_CHANGED: swapped,
        NEW_ROW: copied,
    }
    for cause, fault in faults.items():
        figures, result = nights.night(files_of(fault), UsedGates(max_answer_change=value))
        assert (result.exit_code, figures.largest) == (3, cause)
