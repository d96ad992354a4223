"""The work that a run would find, counted by one process or by the workers of a job."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.entries import dataclass_of
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.beside import Beside, merged
from sentence_beam.transforms.corpus.groups import AnySpan, spans_of
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content
from sentence_beam.transforms.steps.plan.checked import checked_plan
from sentence_beam.transforms.steps.plan.files import list_files, put_together
from sentence_beam.transforms.steps.plan.footers import read_footers
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried import CarriedShards
from sentence_beam.transforms.store.runs.commit import last_snapshot
from sentence_beam.transforms.store.runs.packed_files import NO_FILES, PackedPlan
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.plan_file import count_lacking

MEASURED_SPANS = 64  # that a job names to be measured where the command runs


@dataclass(frozen=True)
class Looked:
    """Counts of the files and units that a run would find.

    `spans` are read to measure the pace: of packed files some, of others all.
    `rows` are those of spans that count them; the others have `uncounted` estimated tokens. The
    other fields are those of `Estimate`.
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

    @classmethod
    def of(
        cls,
        planned: Sequence[PlannedFile],
        beside: Beside,
        work: Sequence[AnySpan],
        packed: PackedPlan = NO_FILES,
        syntax: Syntax = AS_FOUND,
    ) -> "Looked":
        """Add up a plan: `work` is embedded, `packed` are other files; `syntax` is the run's."""
        some = packed.some_spans(MEASURED_SPANS, syntax)
        carried_files = packed.carried_count + sum(map(_is_carried, planned))
        carried = [unit for item in planned for unit in item.carried]
        return cls(
            files=len(planned) + packed.count,
            carried_files=carried_files,
            unchanged_files=carried_files,
            units=len(work) + packed.total("spans"),
            carried_units=len(carried) + packed.total("units"),
            rows=sum(span.rows or 0 for span in work) + packed.total("to_read"),
            uncounted=sum(span.tokens for span in work if span.rows is None)
            + packed.total("uncounted_tokens"),
            tokens=sum(span.tokens for span in work) + packed.total("tokens"),
            input_bytes=sum(item.file.size for item in planned) + packed.total("size"),
            carried_rows=sum(unit.rows for unit in carried) + packed.total("rows"),
            beside=beside.total(),
            bad={item.file.relative: item.bad for item in planned if item.bad},
            lacking=count_lacking(planned, packed),
            spans=tuple(part for span in chain(work, some) for part in spans_of(span)),
        )

    def to_json(self) -> bytes:
        """Return the counts as JSON, with a random sample of the spans."""
        spans = random.Random(0).sample(self.spans, min(len(self.spans), MEASURED_SPANS))
        return json.dumps(asdict(replace(self, spans=tuple(spans)))).encode()


def _is_carried(item: PlannedFile) -> bool:
    """Whether a file is carried over: it has units, or was not opened."""
    return not item.bad and (bool(item.carried) or item.kept is None)


def look(job: EmbedJob) -> Looked:
    """Plan a run in this process. Raises the first problem."""
    return _looked(job, *plan_files(job))


def plan_files(job: EmbedJob) -> tuple[list[PlannedFile], Beside]:
    """Plan a run in this process; returns the files, and what lies beside them. Raises the first
    problem.
    """
    found = [item for glob in job.run.globs for item in list_files(glob, job)]
    _raise_first(found)
    planned = FilePlanner(job).plan_all([item for item in found if isinstance(item, InputFile)])
    _raise_first(planned)
    items = [item for item in planned if isinstance(item, PlannedFile)]
    return checked_plan(items, job, last_snapshot(job.run))[0], merged(found)


def _raise_first(found: Iterable[Any]) -> None:
    """Raise the error of the first problem among other things."""
    for item in found:
        if isinstance(item, Problem):
            raise item.error()


def _looked(
    job: EmbedJob, planned: list[PlannedFile], beside: Beside, packed: PackedPlan = NO_FILES
) -> Looked:
    """Count a plan; by content, other files are opened too if one has changed."""
    same = None
    if job.by_content:
        same = content.unchanged(planned, job, CarriedShards(job.root))[0]
    unchanged = sum(item.is_unopened for item in planned)
    if job.by_content and same is None:
        planned = content.checked_opened(read_footers(planned, job), job)
    work = []
    if same is None:
        work = [span for item in planned for span in item.work]
    found = Looked.of(planned, beside, work, packed, job.syntax)
    if job.by_content:
        found = in_buckets(found, same, job)
        # some of these have other names
        found = replace(found, unchanged_files=max(unchanged, found.carried_files))
    return found


def in_buckets(found: Looked, same: Manifest | None, job: EmbedJob) -> Looked:
    """Return the counts with the units of a run by content, all of them those of the snapshot
    `same` if it is given.
    """
    if same is None:
        return replace(found, units=content.buckets_for([*found.spans], job).count)
    return replace(
        found,
        units=0,
        carried_units=len(same.units),
        carried_files=found.files,
        carried_rows=same.rows.stored,
    )


def write_looked(found: list[Any], job: EmbedJob, output: str) -> None:
    """Write the counts of what a job's workers have found to the file `output`; or the problem."""
    try:
        _raise_first(found)
        planned, packed = put_together(found, job)
        answer = _looked(job, planned, merged(found), packed).to_json()
    except SentenceBeamError as error:
        answer = json.dumps({"problem": asdict(Problem.of(error))}).encode()
    # a retried bundle has the same answer
    storage.storage_of(output).put_if_absent(output, answer)


def read_looked(output: str, root: str) -> Looked:
    """Return the counts that a job wrote into a store, and remove the file and its empty folders.

    Raises the job's problem, and SentenceBeamError if it wrote nothing or the file is damaged.
    """
    place = storage.storage_of(output)
    found = place.read_versioned(output)
    place.delete(output)
    storage.delete_empty_folders(output, root)
    if found is None:
        raise SentenceBeamError("the job ended without a result; see the runner's log")
    with refuse_damage(f"{output} is not what the job wrote", "run plan again"):
        values = json.loads(found[0])
        if "problem" not in values:
            looked: Looked = dataclass_of(Looked, values)
            return looked
        problem: Problem = dataclass_of(Problem, values["problem"])
    raise problem.error()
