"""What is found out about a run, on its way to the commit."""

from dataclasses import dataclass, field

from transforms.base.measures import Summary
from transforms.store.entries import IndexEntry, RangesEntry
from transforms.store.records import Problem
from transforms.store.runs.changes import Changes
from transforms.store.runs.settled import Settled, SettledStretch


@dataclass(frozen=True)
class IndexRecord:
    """The manifest's entry of the index; `measures` say what the steps took that made it
    (`measures.STAGES`).
    """

    entry: IndexEntry
    measures: dict[str, Summary] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class RunFact:
    """One fact about a run: one of these fields; the others are None.

    `problem` ends the run. `changes_unknown` says that an old shard is damaged or gone, so that
    changes cannot be counted. `deleted` rows of the last snapshot are missing in the coming one, as
    the gate counts them; `duplicate_ids` rows have the id of an earlier row. Changes and both
    counts come in parts, to be summed.
    """

    stretch: SettledStretch | None = None
    settled: Settled | None = None
    problem: Problem | None = None
    changes: Changes | None = None
    changes_unknown: bool = False
    deleted: int | None = None
    duplicate_ids: int | None = None
    index: IndexRecord | None = None
    ranges: RangesEntry | None = None
