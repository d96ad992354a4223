"""Compare the answers of any two snapshots of a store, and show the queries that changed most."""

import contextlib
from collections.abc import Sequence

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.report.answers_page import ShownAnswer, ShownQuery
from sentence_beam.transforms.steps.watch.ask import (
    Asked,
    ask,
    embed_current_queries,
    make_final_vectors,
)
from sentence_beam.transforms.steps.watch.compared_answers import (
    ComparedAnswers,
    ComparedQuery,
    compare,
)
from sentence_beam.transforms.store.entries import WatchEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_reading import take_rows
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
    """Compare the answers of two snapshots to the queries that the newer one watches.

    The newer one has its answers on record, and so has the older one if it watched the same
    queries; else it is asked. `model` is the path of the store's model on this machine. Raises
    OptionError if the newer one watches no queries.
    """
    watch = new.watch
    if watch is None:
        raise OptionError(f"{new.root} watches no queries; name some with sentence-beam watch")
    watched = read_queries(new.root, watch)
    before = _read_answers(old, watch, watched, model)
    after = Asked(read_answers(new.root, watch), new.index is not None)
    vectors = make_final_vectors(embed_current_queries(watched, new, model), new)
    return compare((old, new), (before, after), watched, vectors, watch.k)


def _read_answers(
    manifest: Manifest, watch: WatchEntry, watched: WatchedQueries, model: str | None
) -> Answers:
    """Return the answers of a snapshot to watched queries, on record or asked now."""
    if manifest.watch is not None and manifest.watch.digest == watch.digest:
        return read_answers(manifest.root, manifest.watch)
    queries = embed_current_queries(watched, manifest, model)
    return ask(manifest, make_final_vectors(queries, manifest), watch.k).answers


def list_changed_queries(compared: ComparedAnswers) -> list[ComparedQuery]:
    """Return the queries with lost answers, those that lost most first."""
    changed = [query for query in compared.queries if query.lost]
    return sorted(changed, key=lambda query: (-len(query.lost), query.rbo))


def show_queries(compared: ComparedAnswers, old: Manifest, new: Manifest) -> list[ShownQuery]:
    """Return the queries with most lost answers, with their answers side by side."""
    shown = list_changed_queries(compared)[:SHOWN]
    before = _read_texts(old, [answer for query in shown for answer in query.before])
    after = _read_texts(new, [answer for query in shown for answer in query.after])
    is_one_store = old.root == new.root
    return [_show(query, before, after, is_one_store) for query in shown]


def _show(
    query: ComparedQuery, before: dict[Answer, str], after: dict[Answer, str], has_scores: bool
) -> ShownQuery:
    return ShownQuery(
        text=query.text,
        overlap=query.overlap,
        before=[
            ShownAnswer(
                answer.id,
                answer.score if has_scores else None,
                before.get(answer, ""),
                query.lost[place].cause if place in query.lost else "",
            )
            for place, answer in enumerate(query.before)
        ],
        after=[
            ShownAnswer(
                answer.id,
                answer.score if has_scores else None,
                after.get(answer, ""),
                is_new=place in query.gained,
            )
            for place, answer in enumerate(query.after)
        ],
    )


def _read_texts(manifest: Manifest, answers: Sequence[Answer]) -> dict[Answer, str]:
    """Return the beginnings of the answers' texts, if the store keeps text and has the shard."""
    column = manifest.options.kept_text
    excerpts: dict[Answer, str] = {}
    if column is None:
        return excerpts
    by_shard: dict[str, list[Answer]] = {}
    for answer in answers:
        by_shard.setdefault(answer.shard, []).append(answer)
    for shard, some in by_shard.items():
        with contextlib.suppress(SentenceBeamError):
            path = storage.join(manifest.root, shard)
            table = take_rows(path, np.array([answer.row for answer in some]), [column])
            texts = table.column(0).to_pylist()
            excerpts |= {
                answer: (text or "")[:EXCERPT] for answer, text in zip(some, texts, strict=True)
            }
    return excerpts
