"""The fates of rows between two snapshots: those of lost answers and of gained ones.

Only shards that one of the two snapshots lacks are read. A row of a shard that both have is the
same row.
"""

import contextlib
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import as_matrix, make_mask_array
from sentence_beam.transforms.base.columns import get_column, look_up
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.index.metric_vectors import prepare_vectors
from sentence_beam.transforms.steps.watch.answer_rows import (
    AnswerFiles,
    KnownRows,
    Place,
    are_known_by_text,
    find_rows,
)
from sentence_beam.transforms.steps.watch.causes import Gained, Lost
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.answer_figures import (
    INDEX_LOST,
    NEW_ROW,
    ROW_CHANGED,
    VECTOR_MOVED,
)
from sentence_beam.transforms.store.shards.shard_reading import take_rows
from sentence_beam.transforms.store.watched import Answer

MOVED = 1e-3  # difference of scores above which a vector moved, in parts of the larger score


def find_place(answer: Answer) -> Place:
    """Return the place of an answer's row."""
    return answer.shard, answer.row


class Fates:
    """The fates of rows between the last snapshot and the coming one.

    `queries` are the vectors float32 [q, dim] as the coming snapshot has its rows. If the snapshots
    have different spaces (`by_ids`), a row with the same text counts as moved.
    """

    def __init__(self, old: Manifest, new: Manifest, queries: np.ndarray):
        self._old = old
        self._new = new
        self._queries = prepare_vectors(queries, new.metric)
        self._old_rows = KnownRows()
        self._new_rows = KnownRows()
        self._vectors: dict[Place, np.ndarray] = {}
        self._old_files = AnswerFiles(old)
        self.by_ids = old.space.id != new.space.id
        self._by_text = are_known_by_text(old, new)

    def key(self, answer: Answer) -> object:
        """Return by what a row is the same in both snapshots: its id, or the hash of its text."""
        return answer.text_hash if self._by_text else answer.id

    def read(
        self, lost: Sequence[Answer], gained: Sequence[Answer], last: Sequence[Answer]
    ) -> None:
        """Find the rows of lost answers in the coming snapshot, and of gained ones in the last.

        Their vectors, and those of the `last` answers of queries, are read once for each shard.
        """
        self._new_rows = self._find(
            self._new, [row for row in lost if not self._is_in_both(row.shard)]
        )
        try:
            self._old_rows = self._find(
                self._old, [row for row in gained if not self._is_in_both(row.shard)]
            )
        except SentenceBeamError:  # damaged: its rows were embedded again, and count as new
            self._old_rows = KnownRows()
        new = {find_place(answer) for answer in (*gained, *last)}
        old = set()
        for answer in lost:
            if self._is_in_both(answer.shard):
                new.add(find_place(answer))
            else:
                new |= {row.place for row in self._new_rows.same(answer, self._by_text)}
                old.add(find_place(answer))
        for answer in gained:
            old |= {row.place for row in self._old_rows.same(answer, self._by_text)}
        self._read_vectors(new)
        if not self.by_ids:
            self._read_vectors(old - new)

    def _read_vectors(self, places: set[Place]) -> None:
        """Read the vectors of rows; those of a damaged shard stay unknown."""
        by_shard: dict[str, list[int]] = {}
        for shard, row in sorted(places):
            by_shard.setdefault(shard, []).append(row)
        for shard, rows in by_shard.items():
            path = storage.join(self._new.root, shard)
            with contextlib.suppress(SentenceBeamError):
                table = take_rows(path, np.array(rows), ["embedding"])
                vectors = prepare_vectors(
                    as_matrix(table.column(0).combine_chunks()), self._new.metric
                )
                self._vectors |= {
                    (shard, row): vector for row, vector in zip(rows, vectors, strict=True)
                }

    def _is_in_both(self, shard: str) -> bool:
        """Whether both snapshots have a shard."""
        return min(self._old.find_shard_number(shard), self._new.find_shard_number(shard)) >= 0

    def _find(self, manifest: Manifest, wanted: Sequence[Answer]) -> KnownRows:
        """Return the rows with the ids or texts of answers, in shards of one snapshot alone."""
        other = self._old if manifest is self._new else self._new
        at = look_up(get_column(manifest.shards, "path"), get_column(other.shards, "path"))
        return find_rows(manifest, np.flatnonzero(at < 0).tolist(), wanted)

    def lost(self, query: int, answers: Sequence[Answer]) -> list[Lost]:
        """Return what became of the rows of a query's lost answers."""
        return [self._follow_lost(query, answer) for answer in answers]

    def _follow_lost(self, query: int, answer: Answer) -> Lost:
        if self._is_in_both(answer.shard):
            return Lost(score=self.exact(query, answer))
        same = self._new_rows.same(answer, self._by_text)
        if not same:
            others = self._new_rows.by_id.get(answer.id)
            # if several files may have had the row, one that left the input is enough
            file_gone = not self._gone.isdisjoint(self._old_files.of(answer))
            return Lost(exists=bool(others), same_text=False, file_gone=file_gone)
        now = self._score(query, [row.place for row in same])
        before = self.exact(query, answer)
        return Lost(moved=self._is_moved(before, now), score=now)

    def _is_moved(self, before: float, now: float) -> bool:
        """Whether the vector of a row with the same text moved, by its scores for a query.

        A score is infinite if the vector could not be read.
        """
        if self.by_ids:
            return True
        if not np.isfinite(before) or not np.isfinite(now):
            return False
        return abs(before - now) > MOVED * max(1.0, abs(before), abs(now))

    def gained(
        self, query: int, answers: Sequence[Answer], texts: set[bytes], present: Sequence[Answer]
    ) -> list[Gained]:
        """Return why a query has answers that it did not have before.

        `texts` are the hashes of the answers before, `present` all present answers.
        """
        new_answers = []
        for answer in answers:
            copies = sum(other.text_hash == answer.text_hash for other in present)
            is_copy = copies > 1 or answer.text_hash in texts
            score = self.exact(query, answer)
            new_answers.append(Gained(score, self._explain_gained(query, answer), is_copy))
        return new_answers

    def _explain_gained(self, query: int, answer: Answer) -> str:
        if self._is_in_both(answer.shard):
            return INDEX_LOST
        same = self._old_rows.same(answer, self._by_text)
        if not same:
            return ROW_CHANGED if answer.id in self._old_rows.by_id else NEW_ROW
        before = self._score(query, [row.place for row in same])
        if self._is_moved(before, self.exact(query, answer)):
            return VECTOR_MOVED
        return INDEX_LOST

    def exact(self, query: int, answer: Answer) -> float:
        """Return the score of a present answer by its stored vector; the larger the nearer."""
        return self._score(query, [find_place(answer)])

    def _score(self, query: int, places: Iterable[Place]) -> float:
        """Return the best score of rows for a query; the larger the nearer.

        It is minus infinity if none of their vectors could be read.
        """
        best = -np.inf
        for place in places:
            vector = self._vectors.get(place)
            if vector is None:
                continue
            if self._new.metric == "l2":
                score = -float(np.sum((vector - self._queries[query]) ** 2))
            else:
                score = float(vector @ self._queries[query])
            best = max(best, score)
        return best

    @cached_property
    def _gone(self) -> set[str]:
        """The files of the last snapshot that left the input."""
        paths = self._old_files.paths
        is_gone = look_up(paths, self._new.read_files("path").column("path")) < 0
        return set(paths.filter(make_mask_array(is_gone)).to_pylist())
