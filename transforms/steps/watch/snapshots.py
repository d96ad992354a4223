"""Compare the answers of any two snapshots of a store, and show the queries that changed most."""

import contextlib
from collections.abc import Sequence

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.report.answers import ShownAnswer, ShownQuery
from sentence_beam.transforms.steps.watch.ask import Asked, ask, current_queries, final_vectors
from sentence_beam.transforms.steps.watch.compare import ComparedAnswers, ComparedQuery, compare
from sentence_beam.transforms.store.entries import WatchEntry
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.shards.reading import take_rows
from sentence_beam.transforms.store.watched import (
    Answer,
    Answers,
    WatchedQueries,
    read_answers,
    read_queries,
)

SHOWN = 30  # queries of a page
EXCERPT = 240  # characters of an answer's text


def compare_snapshots(old: Manifest, new: Manifest, model: str | None = None) -> ComparedAnswers:
    """Compare the answers of two snapshots to the queries that the store watches now.

    A snapshot that watched the same queries has its answers on record; another one is asked.
    `model` is the path of the store's model on this machine. Raises OptionError if the store
    watches no queries.
    """
    current = read_manifest(new.root)
    if current is None or current.watch is None:
        raise OptionError(f"{new.root} watches no queries; name some with sentence-beam watch")
    watch = current.watch
    watched = read_queries(new.root, watch)
    for_new = current_queries(watched, new, model)
    before = _answers(old, watch, watched, model)
    after = _asked(new, watch, for_new)
    vectors = final_vectors(for_new, new)
    return compare((old, new), (before, after), watched, vectors, watch.k)


def _kept(manifest: Manifest, watch: WatchEntry) -> Answers | None:
    """Return the answers that a snapshot has on record; None if it watched other queries."""
    if manifest.watch is None or manifest.watch.digest != watch.digest:
        return None
    return read_answers(manifest.root, manifest.watch)


def _answers(
    manifest: Manifest, watch: WatchEntry, watched: WatchedQueries, model: str | None
) -> Answers:
    kept = _kept(manifest, watch)
    if kept is not None:
        return kept
    return _asked(manifest, watch, current_queries(watched, manifest, model)).answers


def _asked(manifest: Manifest, watch: WatchEntry, watched: WatchedQueries) -> Asked:
    kept = _kept(manifest, watch)
    if kept is not None:
        return Asked(kept, manifest.index is not None)
    return ask(manifest, final_vectors(watched, manifest), watch.k)


def shown_queries(compared: ComparedAnswers, old: Manifest, new: Manifest) -> list[ShownQuery]:
    """Return the queries with most lost answers, with their answers side by side."""
    changed = [query for query in compared.queries if query.lost]
    changed.sort(key=lambda query: (-len(query.lost), query.rbo))
    shown = changed[:SHOWN]
    before = _texts(old, [answer for query in shown for answer in query.before])
    after = _texts(new, [answer for query in shown for answer in query.after])
    return [_shown(query, before, after) for query in shown]


def _shown(query: ComparedQuery, before: dict[Answer, str], after: dict[Answer, str]) -> ShownQuery:
    return ShownQuery(
        text=query.text,
        overlap=query.overlap,
        before=[
            ShownAnswer(answer.id, answer.score, before.get(answer, ""), _cause(query, place))
            for place, answer in enumerate(query.before)
        ],
        after=[
            ShownAnswer(
                answer.id, answer.score, after.get(answer, ""), is_new=place in query.gained
            )
            for place, answer in enumerate(query.after)
        ],
    )


def _cause(query: ComparedQuery, place: int) -> str:
    if place in query.lost:
        return query.lost[place].cause
    return ""


def _texts(manifest: Manifest, answers: Sequence[Answer]) -> dict[Answer, str]:
    """Return the beginnings of the answers' texts, if the store keeps text and has the shard."""
    column = manifest.options.kept_text
    found: dict[Answer, str] = {}
    if column is None:
        return found
    by_shard: dict[str, list[Answer]] = {}
    for answer in answers:
        by_shard.setdefault(answer.shard, []).append(answer)
    for shard, some in by_shard.items():
        with contextlib.suppress(SentenceBeamError):
            path = storage.join(manifest.root, shard)
            table = take_rows(path, np.array([answer.row for answer in some]), [column])
            texts = table.column(0).to_pylist()
            found |= {
                answer: (text or "")[:EXCERPT] for answer, text in zip(some, texts, strict=True)
            }
    return found
