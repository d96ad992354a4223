"""Compare the answers of two stores to the queries that one of them watches.

Their vectors are of two spaces, so that no score of one is compared with one of the other.
"""

from collections.abc import Sequence
from functools import cached_property

import pyarrow.compute as pc

from sentence_beam.transforms.steps.watch.answer_rows import (
    AnswerFiles,
    KnownRows,
    are_known_by_text,
    find_rows,
)
from sentence_beam.transforms.steps.watch.ask import ask, choose_searched_part, make_final_vectors
from sentence_beam.transforms.steps.watch.causes import Reason
from sentence_beam.transforms.steps.watch.compared_answers import (
    ComparedAnswers,
    count_figures,
    find_changed_places,
    make_compared_query,
    sampled,
)
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.answer_figures import (
    ABSENT,
    PENDING,
    RANKED_LOWER,
    ROW_CHANGED,
)
from sentence_beam.transforms.store.watched import Answer, WatchedQueries, read_answers


def compare_stores(old: Manifest, new: Manifest, watched: WatchedQueries) -> ComparedAnswers:
    """Ask a snapshot the queries that another store watches, and compare the answers of both.

    The other store has its answers on record. `watched` have vectors for the snapshot.
    """
    assert old.watch is not None
    k = old.watch.k
    answered = ask(new, make_final_vectors(watched, new), k, choose_searched_part(old))
    before = sampled(read_answers(old.root, old.watch), answered.rows)
    rows = _RowsElsewhere(old, new)
    places = find_changed_places(rows.key, before, answered.answers)
    rows.read([old[place] for old, (lost, _) in zip(before, places, strict=True) for place in lost])
    queries = [
        make_compared_query(rows.key, text, (old, new), rows.reasons(old, lost), gained)
        for text, old, new, (lost, gained) in zip(
            watched.texts, before, answered.answers, places, strict=True
        )
    ]
    return ComparedAnswers(queries, count_figures(queries, answered, k))


class _RowsElsewhere:
    """The rows of the answers of one store in another one."""

    def __init__(self, old: Manifest, new: Manifest):
        self._new = new
        self._files = AnswerFiles(old)
        self._by_text = are_known_by_text(old, new)
        self._found = KnownRows()

    def key(self, answer: Answer) -> object:
        """Return by what a row is the same in both stores: its id, or the hash of its text."""
        return answer.text_hash if self._by_text else answer.id

    def read(self, lost: Sequence[Answer]) -> None:
        """Find the rows of lost answers."""
        self._found = find_rows(self._new, range(len(self._new.shards)), lost)

    def reasons(self, answers: Sequence[Answer], lost: Sequence[int]) -> dict[int, Reason]:
        """Return why answers were lost, by their places."""
        return {place: Reason(self._name_cause(answers[place])) for place in lost}

    def _name_cause(self, answer: Answer) -> str:
        if self._found.same(answer, self._by_text):
            return RANKED_LOWER
        if not self._pending.isdisjoint(self._files.of(answer)):
            return PENDING
        if answer.id in self._found.by_id:
            return ROW_CHANGED
        return ABSENT

    @cached_property
    def _pending(self) -> set[str]:
        """The paths of the files that the store's runs left to later ones."""
        if not self._new.pending.files:
            return set()
        files = self._new.read_files("path", "pending_bytes")
        paths = files.filter(pc.is_valid(files.column("pending_bytes"))).column("path")
        return set(paths.to_pylist())
