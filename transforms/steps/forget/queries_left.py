"""Watched queries without those that were drawn from erased rows."""

from dataclasses import dataclass, replace

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_hashes
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.forget.select import SelectedRows
from sentence_beam.transforms.steps.watch.draw import make_drawn_id, make_keys
from sentence_beam.transforms.store.entries import WatchEntry
from sentence_beam.transforms.store.watched import (
    WatchedQueries,
    compute_digest_of_queries,
    keep_watch_file,
    pack_answers,
    read_answers,
    read_queries,
)


@dataclass(frozen=True)
class QueriesLeft:
    """The watched queries that are left, None if there are none, and the number of the others."""

    entry: WatchEntry | None
    removed: int = 0


def find_queries_left(root: str, watch: WatchEntry | None, selected: SelectedRows) -> QueriesLeft:
    """Return the watched queries that are no text of the rows and were not drawn from one.

    They keep the answers of the last snapshot, with which the run compares its own.
    """
    if watch is None:
        return QueriesLeft(None)
    queries = read_queries(root, watch)
    stay = _find_left(queries, selected)
    removed = len(queries.ids) - len(stay)
    if not stay:
        return QueriesLeft(None, removed)
    if not removed:
        return QueriesLeft(watch)
    some = replace(
        queries,
        ids=tuple(queries.ids[place] for place in stay),
        texts=tuple(queries.texts[place] for place in stay),
        pooled=queries.pooled[stay],
    )
    answers = read_answers(root, watch)
    entry = replace(
        watch,
        queries=keep_watch_file(root, some.to_bytes()),
        answers=keep_watch_file(root, pack_answers([answers[place] for place in stay])),
        count=len(stay),
        digest=compute_digest_of_queries(some.ids, some.texts, watch.k),
    )
    return QueriesLeft(entry, removed)


def _find_left(queries: WatchedQueries, selected: SelectedRows) -> list[int]:
    """Return the places of the queries that are no text of the rows and were not drawn from one."""
    gone = {text for texts in selected.texts.values() for text in (*texts.rows, *texts.documents)}
    hashes = as_hashes(pa.array(sorted(gone), pa.binary(16)))
    drawn = {make_drawn_id(key) for key in make_keys(hashes).tolist()}
    rows = enumerate(zip(queries.ids, row_hashes(queries.texts), strict=True))
    return [place for place, (name, text) in rows if name not in drawn and text not in gone]
