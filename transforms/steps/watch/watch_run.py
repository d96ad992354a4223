"""The watched queries in a run: asked of the coming snapshot before its commit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import get_column
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.watch.ask import (
    Asked,
    ask,
    embed_current_queries,
    make_final_vectors,
)
from sentence_beam.transforms.steps.watch.compared_answers import ComparedAnswers, compare
from sentence_beam.transforms.store.entries import WatchEntry
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.commit import Run, make_manifest, read_last_snapshot
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.runs.run_facts import RunFact, WatchRecord
from sentence_beam.transforms.store.runs.settled_tables import Settled
from sentence_beam.transforms.store.watched import (
    WatchedQueries,
    compute_digest_of_queries,
    keep_watch_file,
    pack_answers,
    read_answers,
    read_queries,
)


@dataclass(frozen=True)
class WatchJob:
    """A run that asks the watched queries.

    `model` is the path of the model on the workers, None for the run's own.
    """

    run: Run
    model: str | None = None


def watch_answers(facts: Sequence[RunFact], job: WatchJob) -> Iterator[RunFact]:
    """Yield the record of the watched queries, from all facts about a run; or a problem.

    If the run is to fail, nothing is asked.
    """
    settled = next((fact.settled for fact in facts if fact.settled is not None), None)
    if settled is None or any(fact.problem is not None for fact in facts):
        return
    if job.run.watch is None:
        return
    ranges = next((fact.ranges for fact in facts if fact.ranges is not None), job.run.ranges)
    index = next((fact.index for fact in facts if fact.index is not None), None)
    entry = index.entry if index is not None else None
    try:
        with progress.stage("comparing answers"):
            record = _record(replace(job.run, ranges=ranges), settled, entry, job.model)
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.from_error(error))
        return
    if record is not None:
        yield RunFact(watch=record)


def _record(
    run: Run, settled: Settled, index: IndexEntry | None, model: str | None
) -> WatchRecord | None:
    """Return the record of the watched queries; None if no answer can have changed."""
    old = read_last_snapshot(run)
    watch = run.watch
    if old is None or watch is None:
        return None
    new = make_manifest(run, read_plan(run.root, run.id), settled, index)
    if _has_same_answers(old, new):
        return None
    watched = read_queries(run.root, watch)
    now = embed_current_queries(watched, new, model)
    entry, compared = compare_with_kept(old, new, watch, now)
    return WatchRecord(entry, compared.figures)


def _has_same_answers(old: Manifest, new: Manifest) -> bool:
    """Whether two snapshots have the same shards and the same index, and so the same answers."""
    return (
        old.space.id == new.space.id
        and old.index == new.index
        and _list_shards(old).equals(_list_shards(new))
    )


def _list_shards(manifest: Manifest) -> pa.Array:
    return get_column(manifest.shards, "path").sort()


def compare_with_kept(
    old: Manifest, new: Manifest, watch: WatchEntry, watched: WatchedQueries
) -> tuple[WatchEntry, ComparedAnswers]:
    """Ask a snapshot, compare it with the kept answers of another, and keep its own answers.

    `watched` have vectors for the new snapshot. Returns its entry and the comparison.
    """
    vectors = make_final_vectors(watched, new)
    answered = ask(new, vectors, watch.k)
    answers = read_answers(new.root, watch), answered
    compared = compare((old, new), answers, watched, vectors, watch.k)
    entry = replace(
        watch,
        queries=keep_watch_file(new.root, watched.to_bytes()),
        answers=keep_watch_file(new.root, pack_answers(answered.answers)),
    )
    return entry, compared


def begin_watch(manifest: Manifest, watched: WatchedQueries, k: int) -> tuple[WatchEntry, Asked]:
    """Ask the current snapshot new queries; return its entry, whose files are written."""
    answered = ask(manifest, make_final_vectors(watched, manifest), k)
    entry = WatchEntry(
        queries=keep_watch_file(manifest.root, watched.to_bytes()),
        answers=keep_watch_file(manifest.root, pack_answers(answered.answers)),
        count=len(watched.ids),
        k=k,
        digest=compute_digest_of_queries(watched.ids, watched.texts, k),
    )
    return entry, answered
