"""Facts about a run on their way to the commit."""

from dataclasses import dataclass, field

from sentence_beam.transforms.base.measures import Summary
from sentence_beam.transforms.store.entries import ChangedRowsEntry, RangesEntry, WatchEntry
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.answer_figures import AnswerFigures
from sentence_beam.transforms.store.runs.changed_rows import Changes
from sentence_beam.transforms.store.runs.settled_tables import Settled


@dataclass(frozen=True)
class IndexRecord:
    """The manifest's entry of the index, and the figures of the steps that made it.

    `measures` are by the names of `measures.STAGES`.
    """

    entry: IndexEntry
    measures: dict[str, Summary] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class WatchRecord:
    """The manifest's entry of the watched queries with the coming snapshot's answers.

    `figures` compare them with the last snapshot's.
    """

    entry: WatchEntry
    figures: AnswerFigures


@dataclass(frozen=True)
class RunFact:
    """A fact about a run; all fields but one are None, or `changes` and `changed` come together.

    `problem` ends the run. `changed` is a file with changed rows, which `changes` counts.
    `changes_unknown`: an old shard is damaged or missing, so that changes cannot be counted.
    `deleted` rows of the last snapshot are missing in the next one, as the gate counts them;
    `duplicate_ids` rows have the id of an earlier row. Changes and both counts come in parts, to be
    summed.
    """

    settled: Settled | None = None
    problem: Problem | None = None
    changes: Changes | None = None
    changed: ChangedRowsEntry | None = None
    changes_unknown: bool = False
    deleted: int | None = None
    duplicate_ids: int | None = None
    index: IndexRecord | None = None
    ranges: RangesEntry | None = None
    watch: WatchRecord | None = None
