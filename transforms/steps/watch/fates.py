"""The fates of rows between two snapshots: those of lost answers and of gained ones.

Only shards that one of the two snapshots lacks are read. A row of a shard that both have is the
same row.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import as_matrix, mask_array
from sentence_beam.transforms.base.columns import column, lookup
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.index.metric_vectors import prepared
from sentence_beam.transforms.steps.watch.ask import hash_column
from sentence_beam.transforms.steps.watch.causes import Gained, Lost
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.ledger import span_name
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.answer_figures import (
    INDEX_LOST,
    NEW_ROW,
    ROW_CHANGED,
    VECTOR_MOVED,
)
from sentence_beam.transforms.store.runs.deletes import PLACE
from sentence_beam.transforms.store.shards.shard_reading import read_shard, take_rows
from sentence_beam.transforms.store.watched import Answer

Place = tuple[str, int]  # a shard, relative to the store, and a row in it
MOVED = 1e-3  # difference of scores above which a vector moved, in parts of the larger score


class FoundRow(NamedTuple):
    """A row of a shard: its id, the hash of its text, and its place."""

    id: str
    text_hash: bytes
    shard: str
    row: int

    @property
    def place(self) -> Place:
        """The shard, relative to the store, and the row in it."""
        return self.shard, self.row


def place_of(answer: Answer) -> Place:
    """Return the place of an answer's row."""
    return answer.shard, answer.row


@dataclass
class _KnownRows:
    """Rows by id and by the hash of their text."""

    by_id: dict[str, list[FoundRow]] = field(default_factory=dict)
    by_text: dict[bytes, list[FoundRow]] = field(default_factory=dict)

    def add(self, row: FoundRow) -> None:
        """Add a row."""
        self.by_id.setdefault(row.id, []).append(row)
        self.by_text.setdefault(row.text_hash, []).append(row)


class Fates:
    """The fates of rows between the last snapshot and the coming one.

    `queries` are the vectors float32 [q, dim] as the coming snapshot has its rows. If the snapshots
    have different spaces (`by_ids`), a row with the same text counts as moved.
    """

    def __init__(self, old: Manifest, new: Manifest, queries: np.ndarray):
        self._old = old
        self._new = new
        self._queries = prepared(queries, new.metric)
        self._old_rows = _KnownRows()
        self._new_rows = _KnownRows()
        self._vectors: dict[Place, np.ndarray] = {}
        self.by_ids = old.space.id != new.space.id

    @cached_property
    def by_text(self) -> bool:
        """Whether a row is known by its text, because ids are places in files."""
        before = self._old.options.id_column
        return before is None or before != self._new.options.id_column

    def key(self, answer: Answer) -> object:
        """Return by what a row is the same in both snapshots: its id, or the hash of its text."""
        if self.by_text:
            return answer.text_hash
        return answer.id

    def read(
        self, lost: Sequence[Answer], gained: Sequence[Answer], last: Sequence[Answer]
    ) -> None:
        """Find the rows of lost answers in the coming snapshot, and of gained ones in the last.

        Their vectors, and those of the `last` answers of queries, are read once for each shard.
        """
        self._new_rows = self._find(
            self._new, [row for row in lost if not self._in_both(row.shard)]
        )
        try:
            self._old_rows = self._find(
                self._old, [row for row in gained if not self._in_both(row.shard)]
            )
        except SentenceBeamError:  # damaged: its rows were embedded again, and count as new
            self._old_rows = _KnownRows()
        new = {place_of(answer) for answer in (*gained, *last)}
        old = set()
        for answer in lost:
            if self._in_both(answer.shard):
                new.add(place_of(answer))
            else:
                new |= {row.place for row in self._same(self._new_rows, answer)}
                old.add(place_of(answer))
        for answer in gained:
            old |= {row.place for row in self._same(self._old_rows, answer)}
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
                vectors = prepared(as_matrix(table.column(0).combine_chunks()), self._new.metric)
                self._vectors |= {
                    (shard, row): vector for row, vector in zip(rows, vectors, strict=True)
                }

    def _in_both(self, shard: str) -> bool:
        """Whether both snapshots have a shard."""
        return min(self._old.shard_number(shard), self._new.shard_number(shard)) >= 0

    def _find(self, manifest: Manifest, wanted: Sequence[Answer]) -> _KnownRows:
        """Return the rows with the ids or texts of answers, in shards of one snapshot alone."""
        known_rows = _KnownRows()
        if not wanted:
            return known_rows
        ids = pa.array({answer.id for answer in wanted}, pa.string())
        texts = pa.array({answer.text_hash for answer in wanted}, pa.binary(16))
        text = hash_column(manifest)
        for number in self._alone(manifest):
            shard = manifest.shard(number)
            start = 0
            for batch in read_shard(shard.full_path, ["id", text], shard.bytes):
                is_wanted = pc.or_(
                    pc.is_in(batch.column("id"), ids), pc.is_in(batch.column(text), texts)
                )
                places = np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False))
                rows = batch.take(pa.array(places))
                values = zip(*(part.to_pylist() for part in rows.columns), strict=True)
                for place, (row_id, text_hash) in zip(places.tolist(), values, strict=True):
                    known_rows.add(FoundRow(row_id, text_hash, shard.path, start + place))
                start += batch.num_rows
        return known_rows

    def _alone(self, manifest: Manifest) -> list[int]:
        """Return the numbers of the shards of one snapshot that the other lacks."""
        other = self._old if manifest is self._new else self._new
        at = lookup(column(manifest.shards, "path"), column(other.shards, "path"))
        return np.flatnonzero(at < 0).tolist()

    def lost(self, query: int, answers: Sequence[Answer]) -> list[Lost]:
        """Return what became of the rows of a query's lost answers."""
        return [self._lost(query, answer) for answer in answers]

    def _lost(self, query: int, answer: Answer) -> Lost:
        if self._in_both(answer.shard):
            return Lost(score=self._score(query, [place_of(answer)]))
        same = self._same(self._new_rows, answer)
        if not same:
            others = self._new_rows.by_id.get(answer.id)
            return Lost(exists=bool(others), same_text=False, file_gone=self._file_is_gone(answer))
        now = self._score(query, [row.place for row in same])
        before = self._score(query, [place_of(answer)])
        return Lost(moved=self._is_moved(before, now), score=now)

    def _same(self, known_rows: _KnownRows, answer: Answer) -> list[FoundRow]:
        """Return the rows that are an answer's, with the same text."""
        if self.by_text:
            return known_rows.by_text.get(answer.text_hash, [])
        rows = known_rows.by_id.get(answer.id, [])
        return [row for row in rows if row.text_hash == answer.text_hash]

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
            new_answers.append(Gained(score, self._gained(query, answer), is_copy))
        return new_answers

    def _gained(self, query: int, answer: Answer) -> str:
        if self._in_both(answer.shard):
            return INDEX_LOST
        same = self._same(self._old_rows, answer)
        if not same:
            if answer.id in self._old_rows.by_id:
                return ROW_CHANGED
            return NEW_ROW
        before = self._score(query, [row.place for row in same])
        if self._is_moved(before, self._score(query, [place_of(answer)])):
            return VECTOR_MOVED
        return INDEX_LOST

    def exact(self, query: int, answer: Answer) -> float:
        """Return the score of a present answer by its stored vector; the larger the nearer."""
        return self._score(query, [place_of(answer)])

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

    def _file_is_gone(self, answer: Answer) -> bool:
        """Whether the file of a row of the last snapshot left the input.

        If it is not known which of several files had the row, whether one of these did.
        """
        return any(path in self._gone for path in self._files_of(answer))

    @cached_property
    def _files(self) -> pa.Table:
        """The paths and groups of the files of the last snapshot."""
        return self._old.read_files("path", "group")

    @cached_property
    def _gone(self) -> set[str]:
        paths = column(self._files, "path")
        is_gone = lookup(paths, self._new.read_files("path").column("path")) < 0
        return set(paths.filter(mask_array(is_gone)).to_pylist())

    def _files_of(self, answer: Answer) -> Iterable[str]:
        """Return the files that may have had a row of the last snapshot."""
        if self._old.options.id_column is None:
            return [PLACE.sub("", answer.id)]
        for unit in self._units_with(answer.shard):
            if unit.file:
                return [unit.file]
        name = span_name(layout.unit(answer.shard))
        members = self._files.filter(pc.equal(self._files.column("group"), name))
        if not len(members):
            members = self._files
        paths: list[str] = members.column("path").to_pylist()
        return paths

    def _units_with(self, shard: str) -> list[UnitRecord]:
        """Return the unit of a shard of the last snapshot; none if it lacks the shard."""
        number = self._old.shard_number(shard)
        if number < 0:
            return []
        name = self._old.shards.column("unit")[number].as_py()
        return [unit for unit in self._old.units_of(name) if unit.path == shard]
