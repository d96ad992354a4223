"""The answers of two made-up stores, whose vectors have nothing in common.

Covers transforms/steps/watch/answer_rows.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.nights import Files, vector_of
from helpers.settled import settled
from helpers.watching import WatchedNights

from sentence_beam.transforms.steps.commit.commit_run import commit_run
from sentence_beam.transforms.steps.watch import ask
from sentence_beam.transforms.steps.watch.compared_answers import ComparedAnswers
from sentence_beam.transforms.steps.watch.snapshots import list_changed_queries, show_queries
from sentence_beam.transforms.steps.watch.two_stores import compare_stores
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.answer_figures import ABSENT, RANKED_LOWER, ROW_CHANGED
from sentence_beam.transforms.store.watched import WatchedQueries

BY_ID = RememberedOptions(id_column="id", keep_text=False)
OTHER_DIM = 8
TEXTS = [f"{letter} text {number}" for letter in "abc" for number in range(6)]
ROWS = [(f"r{number}", text) for number, text in enumerate(TEXTS)]
QUERIES = ("a text 0", "b text 1", "c text 2")
K = 3


class TwoStores:
    """A store that watches queries, and another one, of other vectors."""

    def __init__(self, folder: Path, options: RememberedOptions = BY_ID):
        self.old = WatchedNights(folder / "old", options=options)
        self.new = WatchedNights(folder / "new", options=options)
        self.new.space = replace(self.new.space, dim=OTHER_DIM, weights="other")

    def commit(self, old: Files, new: Files) -> None:
        """Commit a snapshot of each; the old one watches the queries."""
        self.old.commit_without_index(old)
        self.new.commit_without_index(new)
        entry = self.old.watch(QUERIES, K)
        run, units = self.old.begin(old)
        assert not commit_run([settled(run, units)], replace(run, watch=entry)).exit_code

    def compare(self, dim: int = OTHER_DIM) -> ComparedAnswers:
        """Compare the answers of both."""
        vectors = np.array([vector_of(text, dim) for text in QUERIES])
        watched = WatchedQueries(QUERIES, QUERIES, vectors, self.new.space.pooled_id)
        return compare_stores(self.old.manifest, self.new.manifest, watched)


def causes(compared: ComparedAnswers) -> dict[str, str]:
    """The cause of each lost answer, by query and id."""
    return {
        f"{query.text}: {query.before[place].id}": reason.cause
        for query in compared.queries
        for place, reason in query.lost.items()
    }


def test_what_only_ranks_lower_in_the_other_space_is_said_so(tmp_path: Path) -> None:
    stores = TwoStores(tmp_path)
    stores.commit({"a": ROWS}, {"a": ROWS})
    compared = stores.compare()
    figures = compared.figures
    assert (figures.queries, figures.k, figures.answers) == (3, K, 9)
    assert set(figures.causes) == {RANKED_LOWER}
    assert figures.lost == sum(len(query.gained) for query in compared.queries) > 0
    assert figures.overlap == pytest.approx(1 - figures.change, abs=1e-6)
    assert (figures.score, figures.score_before) == (None, None)
    for query in compared.queries:
        gone = {answer.id for answer in query.before} - {answer.id for answer in query.after}
        assert gone == {query.before[place].id for place in query.lost}
    shown = show_queries(compared, stores.old.manifest, stores.new.manifest)
    assert [query.text for query in shown] == [q.text for q in list_changed_queries(compared)]
    assert {answer.score for query in shown for answer in (*query.before, *query.after)} == {None}


def test_rows_that_the_other_store_lacks_or_has_with_another_text(tmp_path: Path) -> None:
    stores = TwoStores(tmp_path)
    stores.new.space = replace(stores.old.space, weights="other")
    others = {"r0": "z edited"}
    there = [(name, others.get(name, text)) for name, text in ROWS if name != "r7"]
    stores.commit({"a": ROWS}, {"a": there})
    found = causes(stores.compare(stores.old.space.dim))
    assert found == {"a text 0: r0": ROW_CHANGED, "b text 1: r7": ABSENT}


def test_rows_with_ids_of_places_are_known_by_their_texts(tmp_path: Path) -> None:
    stores = TwoStores(tmp_path, RememberedOptions(keep_text=False))
    stores.new.space = replace(stores.old.space, weights="other")
    moved = [(f"a#{number}", text) for number, text in enumerate(reversed(TEXTS[1:]))]
    named = [(f"a#{number}", text) for number, text in enumerate(TEXTS)]
    stores.commit({"a": named}, {"a": moved})
    assert causes(stores.compare(stores.old.space.dim)) == {"a text 0: a#0": ROW_CHANGED}


def test_the_other_store_is_asked_where_the_first_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = TwoStores(tmp_path)
    stores.new.space = replace(stores.old.space, weights="other")
    files = {f"{number}": [row] for number, row in enumerate(ROWS)}
    monkeypatch.setattr(ask, "EXACT_ROWS", 10)
    stores.commit(files, files)
    compared = stores.compare(stores.old.space.dim)
    assert compared.figures.rows == 0.5
    assert compared.figures.lost == 0
    few = dict(list(files.items())[:9])
    stores.new.commit_without_index(few)  # so few that all of them could be compared
    compared = stores.compare(stores.old.space.dim)
    assert compared.figures.rows == 0.5
    assert set(compared.figures.causes) <= {ABSENT}
