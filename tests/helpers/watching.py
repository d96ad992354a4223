"""Made-up stores that watch queries, brought from night to night without any model."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from helpers.nights import Files, Nights, run_steps, vector_of
from helpers.settled import settled

from sentence_beam.transforms.steps.commit.commit_run import commit_run
from sentence_beam.transforms.steps.watch.watch_run import WatchJob, begin_watch, watch_answers
from sentence_beam.transforms.store.entries import RememberedOptions, WatchEntry
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.answer_figures import AnswerFigures
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.run_facts import RunFact, WatchRecord
from sentence_beam.transforms.store.runs.run_result import Result
from sentence_beam.transforms.store.watched import WatchedQueries

BY_ID = RememberedOptions(id_column="id")


def watched_nights(folder: Path, options: RememberedOptions = BY_ID) -> "WatchedNights":
    """A store without a snapshot, whose rows have ids of a column."""
    return WatchedNights(folder / "store", options=options)


class WatchedNights(Nights):
    """A store that asks watched queries in each night after `watch`."""

    def watch(self, texts: Iterable[str], k: int = 3) -> WatchEntry:
        """Watch these queries, named by their texts, from now on; the entry with the answers."""
        names = tuple(texts)
        vectors = np.array([vector_of(text) for text in names])
        queries = WatchedQueries(names, names, vectors, self.space.pooled_id)
        self.entry, _ = begin_watch(self.manifest, queries, k)
        return self.entry

    def night(
        self,
        files: Files,
        gates: UsedGates = UsedGates(),  # noqa: B008
        request: IndexRequest | None = None,
        **changed: object,
    ) -> tuple[AnswerFigures, Result]:
        """Commit these rows if the gates allow it; the figures of the answers, and the result.

        `changed` are fields of the coming index.
        """
        run, units = self.begin(files)
        run = replace(run, watch=self.entry, gates=gates)
        facts = [settled(run, units)]
        if request is not None:
            built = run_steps(run, units, request)
            entry = replace(built.index.entry, **changed)
            facts.append(replace(built, index=replace(built.index, entry=entry)))
        found = list(watch_answers(facts, WatchJob(run)))
        record = record_of(found)
        result = commit_run([*facts, *found], run)
        if not result.exit_code:
            self.entry = record.entry
        return record.figures, result


def record_of(facts: Iterable[RunFact]) -> WatchRecord:
    """The record of the watched queries among facts."""
    for fact in facts:
        assert not isinstance(fact.problem, Problem), fact.problem
        if fact.watch is not None:
            return fact.watch
    raise AssertionError("nothing was asked")
