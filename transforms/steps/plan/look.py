"""The work that a run would find, counted by one process or by the workers of a job."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.columns import get_numbers, is_valid, sum_column
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.beside import Beside, merge_counts
from sentence_beam.transforms.corpus.groups import list_spans as spans_in
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content_plan
from sentence_beam.transforms.steps.plan.elements import (
    FilesToLookInto,
    PlannedFiles,
    ShardsToCheck,
    pack_table,
)
from sentence_beam.transforms.steps.plan.list_files import list_files
from sentence_beam.transforms.steps.plan.look_into import (
    check_shards,
    choose_check,
    look_into_all,
)
from sentence_beam.transforms.steps.plan.planned import count_lacking_columns
from sentence_beam.transforms.steps.plan.whole_plan import find_problems, join_states, put_together
from sentence_beam.transforms.store.counts import NONE_PENDING, PendingCounts
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.recorded_plan import (
    count_pending,
    list_bad_files,
    list_spans,
)

MEASURED_SPANS = 64  # that a job names to be measured where the command runs


@dataclass(frozen=True)
class Looked:
    """Counts of a run's plan: files and units carried or to embed, input bytes.

    `unchanged_files` are as in the last snapshot; by content they are read all the same if another
    changed. `rows` are those of spans that count them; the others have `uncounted` estimated
    tokens. `tokens` are estimated. `carried_rows` are those of carried units; `beside` counts the
    files that lie beside those of the input and are not taken, by reason; `bad` has the files that
    are left out, with the reason, by relative path; `lacking` counts the files that lack a kept
    column, by its name. `spans` are read to measure the pace. `pending` counts the files that are
    left to later runs, `waiting` are their tokens, in order.
    """

    files: int = 0
    carried_files: int = 0
    unchanged_files: int = 0
    units: int = 0
    carried_units: int = 0
    rows: int = 0
    uncounted: int = 0
    tokens: int = 0
    input_bytes: int = 0
    carried_rows: int = 0
    beside: dict[str, int] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    pending: PendingCounts = NONE_PENDING
    waiting: tuple[int, ...] = ()

    @classmethod
    def from_files(cls, files: pa.Table, beside: Beside, work: Sequence[Span]) -> "Looked":
        """Add up a plan: `work` is embedded."""
        is_pending = is_valid(files, "pending_bytes")
        is_carried = get_numbers(files, "carried") & ~is_valid(files, "bad") & ~is_pending
        sizes = np.where(
            is_pending, get_numbers(files, "pending_bytes"), get_numbers(files, "size")
        )
        carried_files = int(is_carried.sum())
        return cls(
            files=len(files),
            carried_files=carried_files,
            unchanged_files=carried_files,
            units=len(work),
            carried_units=sum_column(files, "units"),
            rows=sum(span.rows or 0 for span in work),
            uncounted=sum(span.tokens for span in work if span.rows is None),
            tokens=sum(span.tokens for span in work),
            input_bytes=int(sizes.sum()),
            carried_rows=sum_column(files, "rows"),
            beside=beside.total(),
            bad=list_bad_files(files),
            lacking=count_lacking_columns(files),
            spans=tuple(work),
            pending=count_pending(files),
        )

    def to_json(self) -> bytes:
        """Return the counts as JSON, with a random sample of the spans."""
        spans = random.Random(0).sample(self.spans, min(len(self.spans), MEASURED_SPANS))
        return json.dumps(asdict(replace(self, spans=tuple(spans)))).encode()


def look(job: EmbedJob) -> Looked:
    """Plan a run in this process. Raises the first problem."""
    return _count_work(job, look_at_all(job))


def look_at_all(job: EmbedJob) -> list[Any]:
    """Return what workers would find of a run's input, found in this process."""
    items: list[Any] = []
    of_all = cache(job.run.make_shard_check)
    for glob in job.run.globs:
        for item in list_files(glob, job):
            if isinstance(item, FilesToLookInto):
                rows, problems = look_into_all(item.table, job)
                items += [PlannedFiles(pack_table(rows)), *problems]
            elif isinstance(item, ShardsToCheck):
                check = choose_check(job.run, item.parts, of_all)
                items.append(check_shards(item.parts, job.root, check))
            else:
                items.append(item)
    return items


def _count_work(job: EmbedJob, items: list[Any]) -> Looked:
    """Count a plan; by content, other files are opened too if one has changed.

    Raises the first problem.
    """
    problems = find_problems(items)
    if problems:
        raise problems[0].error()
    whole = put_together(items, job)
    files, types = whole.files, whole.types
    same = content_plan.find_unchanged(files, join_states(items), job) if job.by_content else None
    unchanged = sum_column(files, "carried")
    if job.by_content and same is None:
        files, types = content_plan.check_opened(content_plan.open_files(files, job), job)
    work: list[Span] = []
    units = 0
    if same is None:
        spans = list(list_spans(files, job.syntax, types))
        work = [one for some in spans for one in spans_in(some)]
        units = len(spans)
    waiting = whole.budget.waiting if whole.budget is not None else ()
    looked = Looked.from_files(files, merge_counts(items), work)
    looked = replace(looked, units=units, waiting=waiting)
    if job.by_content:
        looked = count_in_buckets(looked, same, job)
        # some of these have other names
        looked = replace(looked, unchanged_files=max(unchanged, looked.carried_files))
    return looked


def count_in_buckets(looked: Looked, same: Manifest | None, job: EmbedJob) -> Looked:
    """Return the counts with the units of a run by content, all of them those of the snapshot
    `same` if it is given.
    """
    if same is None:
        return replace(looked, units=content_plan.choose_buckets([*looked.spans], job).count)
    return replace(
        looked,
        units=0,
        carried_units=same.units.rows,
        carried_files=looked.files,
        carried_rows=same.rows.stored,
    )


def write_looked(items: list[Any], job: EmbedJob, output: str) -> None:
    """Write the counts of what a job's workers have found to the file `output`; or the problem."""
    try:
        answer = _count_work(job, items).to_json()
    except SentenceBeamError as error:
        answer = json.dumps({"problem": asdict(Problem.from_error(error))}).encode()
    # a retried bundle has the same answer
    storage.storage_of(output).put_if_absent(output, answer)


def read_looked(output: str, root: str) -> Looked:
    """Return the counts that a job wrote into a store, and remove the file and its empty folders.

    Raises the job's problem, and SentenceBeamError if it wrote nothing or the file is damaged.
    """
    place = storage.storage_of(output)
    stored = place.read_versioned(output)
    place.delete(output)
    storage.delete_empty_folders(output, root)
    if stored is None:
        raise SentenceBeamError("the job ended without a result; see the runner's log")
    with refuse_damage(f"{output} is not what the job wrote", "run plan again"):
        values = json.loads(stored[0])
        if "problem" not in values:
            looked: Looked = read_dataclass(Looked, values)
            return looked
        problem: Problem = read_dataclass(Problem, values["problem"])
    raise problem.error()
