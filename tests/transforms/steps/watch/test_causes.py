"""The causes of lost answers, on made-up stores: each rule has a night of its own.

Covers transforms/steps/watch/ask.py.
Covers transforms/steps/watch/compared_answers.py.
Covers transforms/steps/watch/fates.py.
Covers transforms/store/runs/answer_figures.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.nights import vector_of
from helpers.watching import WatchedNights, watched_nights

from sentence_beam.transforms.base.errors import name_keywords
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.runs.answer_figures import (
    FILE_GONE,
    INDEX_LOST,
    NEW_ROW,
    ROW_CHANGED,
    ROW_DELETED,
    VECTOR_MOVED,
    AnswerFigures,
)
from sentence_beam.transforms.store.runs.gates import UsedGates

LETTERS = "abcdefgh"
QUERIES = [f"{letter}?" for letter in LETTERS]


def corpus(rows: int = 6) -> dict[str, list[tuple[str, str]]]:
    """Rows whose texts begin with each letter; a file for each letter."""
    return {
        f"{letter}.txt": [(f"{letter}{n}", f"{letter} text {n}") for n in range(rows)]
        for letter in LETTERS
    }


@pytest.fixture
def nights(tmp_path: Path) -> WatchedNights:
    found = watched_nights(tmp_path)
    found.commit_without_index(corpus())
    found.watch(QUERIES)
    return found


def answers_of(nights: WatchedNights, query: str) -> list[str]:
    """The ids of the rows that answer a query in the current snapshot, best first."""
    searcher = Searcher(nights.manifest)
    return [hit.id for hit in searcher.search(vectors=np.array([vector_of(query)]), k=3)[0]]


def test_a_night_without_changes_asks_nothing_new(nights: WatchedNights) -> None:
    files = corpus()
    files["z.txt"] = [("z0", "z far from every query")]
    figures, result = nights.night(files)
    assert result.exit_code == 0
    assert (figures.lost, figures.overlap, figures.rbo) == (0, 1.0, 1.0)
    assert nights.manifest.watch == nights.entry


def test_a_deleted_row(nights: WatchedNights) -> None:
    best = answers_of(nights, "a?")[0]
    files = corpus()
    files["a.txt"] = [row for row in files["a.txt"] if row[0] != best]
    figures, _ = nights.night(files)
    assert figures.causes == {ROW_DELETED: 1}
    assert figures.examples[ROW_DELETED].before == best
    assert figures.examples[ROW_DELETED].after != best
    assert figures.first_changed == 1 / 8


def test_a_file_that_left_the_input_goes_before_deleted_rows(nights: WatchedNights) -> None:
    files = corpus()
    del files["b.txt"]
    figures, _ = nights.night(files)
    assert figures.causes == {FILE_GONE: 3}


def test_a_row_with_another_text(nights: WatchedNights) -> None:
    lost = answers_of(nights, "c?")
    files = corpus()
    files["c.txt"] = [
        (name, f"z {text}" if name in lost else text) for name, text in files["c.txt"]
    ]
    figures, _ = nights.night(files)
    assert figures.causes == {ROW_CHANGED: 3}


def test_a_new_row_above_is_growth(nights: WatchedNights) -> None:
    files = corpus()
    files["d.txt"] = [*files["d.txt"], ("new", "d?")]
    figures, result = nights.night(files, UsedGates(max_answer_change=0.01))
    assert figures.causes == {NEW_ROW: 1}
    assert figures.by_growth == 1
    assert result.exit_code == 0
    assert result.watch is not None
    assert (result.watch["explained"], result.watch["beyond"]) == (1, 0.0)


def test_copies_of_rows_are_new_but_no_growth(nights: WatchedNights) -> None:
    files = {
        name: [(f"{row}.{copy}", text) for row, text in rows for copy in range(10)] + list(rows)
        for name, rows in corpus().items()
    }
    figures, result = nights.night(files, UsedGates(max_answer_change=0.1))
    assert set(figures.causes) == {NEW_ROW}
    assert figures.by_growth == 0
    assert result.exit_code == 3
    assert "mostly new row above it" in result.message


def test_growth_explains_three_times_the_share_of_new_rows_at_most() -> None:
    figures = AnswerFigures(queries=100, k=10, answers=1000, causes={NEW_ROW: 400}, by_growth=400)
    grown = figures.explain_growth(added=500, rows=1000)
    assert (grown.explained, grown.beyond) == (400, 0.0)
    flooded = figures.explain_growth(added=20, rows=1000)
    assert (flooded.explained, flooded.beyond) == (60, 0.34)
    assert figures.explain_growth(None, 1000).explained == 400


def test_a_vector_that_moved_though_its_text_did_not(
    nights: WatchedNights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.nights.vector_of", lambda text, dim: vector_of("?" + text, dim))
    nights.space = replace(nights.space, calibration=None, pooler={"name": "cls"})
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.watch.watch_run.embed_current_queries",
        lambda watched, *_: watched,
    )
    figures, result = nights.night(corpus(), UsedGates(max_answer_change=0.5))
    assert figures.by_ids
    assert set(figures.causes) == {VECTOR_MOVED}
    assert result.exit_code == 3
    assert "vector moved though its text did not" in result.message


def test_a_vector_that_moved_in_the_same_space(
    nights: WatchedNights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.nights.vector_of", lambda text, dim: vector_of("?" + text, dim))
    files = corpus()
    files = {name: [*rows, (f"{name}+", "z")] for name, rows in files.items()}  # other shards
    figures, _ = nights.night(files)
    assert not figures.by_ids
    assert set(figures.causes) == {VECTOR_MOVED}


def test_the_index_lost_rows(tmp_path: Path) -> None:
    nights = watched_nights(tmp_path)
    files = corpus(60)
    request = IndexRequest("IVF32,Flat", "ip", 1.0)
    assert nights.commit(files, request)["nprobe"] > 1
    nights.watch([f"{letter}{n}" for letter in LETTERS for n in range(5)])
    gates = UsedGates(max_answer_change=0.02)
    figures, result = nights.night(files, gates, request, nprobe=1)
    assert set(figures.causes) == {INDEX_LOST}
    assert result.exit_code == 3
    assert "mostly index lost it" in result.message


def test_ids_made_of_places_do_not_count(tmp_path: Path) -> None:
    nights = watched_nights(tmp_path, RememberedOptions())
    nights.commit_without_index(corpus())
    nights.watch(QUERIES)
    shifted = {
        name: [(f"{name}#{n}", text) for n, (_, text) in enumerate([("", "z first"), *rows])]
        for name, rows in corpus().items()
    }
    figures, _ = nights.night(shifted)
    assert figures.lost == 0


def test_the_gate_commits_nothing_and_names_an_example(nights: WatchedNights) -> None:
    run = nights.manifest.run
    first = {query: answers_of(nights, query)[0] for query in QUERIES}
    files = {name: [(i, f"z {text}") for i, text in rows] for name, rows in corpus().items()}
    figures, result = nights.night(files, UsedGates(max_answer_change=0.05))
    assert nights.manifest.run == run
    assert result.exit_code == 3
    assert "\n" not in result.message
    example = figures.examples[ROW_CHANGED]
    assert first[example.query] == example.before
    assert f"as {example.query!r}, whose first hit was {example.before}" in result.message
    assert "say max_answer_change 1" in name_keywords(result.message)
    _, accepted = nights.night(files)
    assert accepted.exit_code == 0
