"""Watched queries without those that were drawn from erased rows, and answers without the rows."""

from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base.arrow import as_hashes, hash_column
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.index import MovedShard
from sentence_beam.transforms.steps.forget.select import ErasedRows
from sentence_beam.transforms.steps.watch.draw import keys_of
from sentence_beam.transforms.store.entries import WatchEntry
from sentence_beam.transforms.store.watched import (
    Answer,
    Grades,
    WatchedQueries,
    answers_to_bytes,
    digest_of_queries,
    judgements_to_bytes,
    keep_watch_file,
    read_answers,
    read_grades,
    read_queries,
)


@dataclass(frozen=True)
class RewrittenWatch:
    """The watched queries that are left, None if there are none, and what left."""

    entry: WatchEntry | None
    queries: int
    answers: int


def rewritten_watch(
    root: str, watch: WatchEntry, selection: ErasedRows, moved: dict[str, MovedShard]
) -> RewrittenWatch | None:
    """Return the watched queries without erased rows; None if nothing of them changes."""
    queries = read_queries(root, watch)
    grades = read_grades(root, watch)
    answers = read_answers(root, watch)
    stay = _staying(queries, selection)
    left = [
        [_placed(answer, moved) for answer in of if not _is_erased(answer, selection, moved)]
        for of in answers
    ]
    kept_grades = _grades(grades, {queries.ids[n] for n in stay}, selection)
    if len(stay) == len(queries.ids) and left == answers and kept_grades == grades:
        return None
    gone = sum(map(len, answers)) - sum(map(len, left))
    if not stay:
        return RewrittenWatch(None, len(queries.ids), gone)
    some = _some(queries, stay)
    entry = replace(
        watch,
        queries=keep_watch_file(root, some.to_bytes()),
        answers=keep_watch_file(root, answers_to_bytes([left[n] for n in stay])),
        count=len(stay),
        digest=digest_of_queries(some.ids, some.texts, kept_grades, watch.k),
    )
    if watch.judgements is not None:
        judged = keep_watch_file(root, judgements_to_bytes(kept_grades))
        entry = replace(entry, judgements=judged)
    return RewrittenWatch(entry, len(queries.ids) - len(stay), gone)


def _staying(queries: WatchedQueries, selection: ErasedRows) -> list[int]:
    """Return the places of queries that were not drawn from an erased row and are no such text."""
    texts = {text for of in selection.texts.values() for text in of.rows}
    drawn = set()
    if texts:
        column = hash_column(np.frombuffer(b"".join(texts), np.uint8).reshape(-1, 16))
        drawn = {f"drawn-{key:016x}" for key in keys_of(as_hashes(column)).tolist()}
    hashes = row_hashes(list(queries.texts))
    return [
        place
        for place, (name, text) in enumerate(zip(queries.ids, hashes, strict=True))
        if name not in drawn and text not in texts
    ]


def _some(queries: WatchedQueries, places: list[int]) -> WatchedQueries:
    return replace(
        queries,
        ids=tuple(queries.ids[n] for n in places),
        texts=tuple(queries.texts[n] for n in places),
        pooled=queries.pooled[places],
    )


def _is_erased(answer: Answer, selection: ErasedRows, moved: dict[str, MovedShard]) -> bool:
    if answer.id in selection.texts:
        return True
    if not selection.by_id and answer.text_hash in selection.gone:
        return True
    found = moved.get(answer.shard)
    return found is not None and bool(found.removed[answer.row])


def _placed(answer: Answer, moved: dict[str, MovedShard]) -> Answer:
    found = moved.get(answer.shard)
    if found is None:
        return answer
    before = int(np.count_nonzero(found.removed[: answer.row]))
    return replace(answer, shard=found.path, row=answer.row - before)


def _grades(grades: Grades, queries: set[str], selection: ErasedRows) -> Grades:
    left: Grades = {}
    for query, rows in grades.items():
        kept = {row: grade for row, grade in rows.items() if row not in selection.texts}
        if query in queries and kept:
            left[query] = kept
    return left
