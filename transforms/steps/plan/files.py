"""The plan of a run: files to carry over, files to cut into spans, and its record."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.beside import Beside, merged
from sentence_beam.transforms.corpus.find import find_inputs
from sentence_beam.transforms.corpus.groups import AnySpan, spans_of
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content
from sentence_beam.transforms.steps.plan.append import by_names_on_record
from sentence_beam.transforms.steps.plan.checked import checked_plan
from sentence_beam.transforms.steps.plan.elements import (
    ListedFiles,
    PlannedFiles,
    by_key_ranges,
    spans_per_element,
)
from sentence_beam.transforms.store.known_files import with_files_like
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.manifest_parts import starts_of
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.carried_again import carried_again
from sentence_beam.transforms.store.runs.carried_ranges import CarriedRange, by_ranges
from sentence_beam.transforms.store.runs.commit import last_snapshot
from sentence_beam.transforms.store.runs.lease import kept_alive
from sentence_beam.transforms.store.runs.packed_files import NO_FILES, PackedPlan
from sentence_beam.transforms.store.runs.plan import PlannedFile, Standing, has_plan
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.plan_work import RecordedWork
from sentence_beam.transforms.store.runs.reuse import with_before
from sentence_beam.transforms.store.runs.unchanged import in_full


def list_files(pattern: str, job: EmbedJob) -> Iterator[InputFile | Beside | Problem | Standing]:
    """List the files of a pattern and what lies beside them, or the problem with it.

    If an earlier attempt has recorded the run's plan, nothing is listed: the plan holds, whatever
    was added since.
    """
    if job.retried and has_plan(job.root, job.run.id):
        yield Standing()
        return
    try:
        with kept_alive(job.root, job.run.id), progress.stage("listing the input"):
            part = job.table_part(pattern)
            bad_too = job.max_bad_files > 0
            found = find_inputs(
                pattern, job.input_format, job.hidden, job.syntax, part, bad_too, job.root
            )
            check_were_no_files(found.folders, job)
            if job.append:
                files = by_names_on_record(found.files, job)
            else:
                files = found.files
        yield from files
        if found.beside or found.left_out:
            yield Beside.of(found.beside, found.left_out, frozenset(job.run.globs), job.hidden)
    except SentenceBeamError as error:
        yield Problem.of(error)


def check_were_no_files(folders: list[str], job: EmbedJob) -> None:
    """Raise SentenceBeamError for an unused folder in the place of a file that the store has."""
    if not folders or job.append:
        return
    last = last_snapshot(job.run)
    if last is None:
        return
    files = {entry.source for entry in last.files if entry.size}
    for folder in folders:
        if folder in files:
            raise SentenceBeamError(
                f"{folder} is a folder without files of --input now, and the store has the rows of"
                " the file that it was; put the file back, or remove the folder"
            )


Begun = UnitRecord | PlannedFiles | Beside | Problem | Standing


def begin_by_content(found: list[Any], job: EmbedJob) -> list[Begun]:
    """Return the files, some of them to be opened, or all units as carried; or only problems."""
    with kept_alive(job.root, job.run.id):
        return _begun_by_content(found, job)


def _begun_by_content(found: list[Any], job: EmbedJob) -> list[Begun]:
    try:
        if _stands(found, job):
            return list(content.begin_again(job))
        # held, since all that follows looks into it
        last = last_snapshot(job.run)
        planned, _, problems = _whole_plan(found, job, last)
        if problems:
            return [*problems]
        return list(content.begin(planned, merged(found), job))
    except SentenceBeamError as error:
        return [Problem.of(error)]


def file_batches(
    pattern: str, job: EmbedJob, slots: int | None = None
) -> Iterator[ListedFiles | Beside | Problem | Standing]:
    """List files as `list_files`, in batches by ranges of their keys.

    So the worker that plans a batch reads its share of the last snapshot, a part of its manifest.
    One worker plans many small files in threads; `slots` as for `spans_per_element`.
    """
    found = list(list_files(pattern, job))
    files = [item for item in found if isinstance(item, InputFile)]
    starts: list[str] = []
    with contextlib.suppress(SentenceBeamError):  # what plans the files says so
        last = last_snapshot(job.run)
        if last is not None:
            starts = starts_of(last.parts)
    yield from by_key_ranges(files, slots, starts)
    yield from (item for item in found if not isinstance(item, InputFile))


def record(
    found: list[Any], job: EmbedJob, slots: int | None
) -> Iterator[list[AnySpan] | UnitRecord | CarriedRange | Problem]:
    """Check the whole plan, write it down and hand it out; or yield only its problems.

    Carried units are handed out by `by_ranges`. A plan that is already on record is handed out
    instead, because some of its units may be finished.
    """
    try:
        with kept_alive(job.root, job.run.id):
            plan = hand_out(found, job)
        yield from _elements(plan, job, slots)
    except SentenceBeamError as error:
        yield Problem.of(error)


def _elements(
    plan: "HandedOut", job: EmbedJob, slots: int | None
) -> Iterator[list[AnySpan] | UnitRecord | CarriedRange | Problem]:
    """Yield the work of a plan: spans in lists, for one worker each."""
    yield from plan.problems
    progress.planned(plan.tokens)
    yield from plan.carried
    spans = iter(plan.spans)
    if job.reuse and plan.last is not None:
        spans = iter(with_before(list(spans), plan.last, plan.packed))
    step = spans_per_element(plan.count, slots)
    while some := list(islice(spans, step)):
        yield some


@dataclass(frozen=True)
class HandedOut:
    """Spans to embed, their number and estimated tokens, and units to carry over.

    `last` is the last snapshot without the `packed` files. With `problems` there is nothing else.
    """

    spans: Iterable[AnySpan] = ()
    count: int = 0
    tokens: int = 0
    carried: Iterable[UnitRecord | CarriedRange] = ()
    last: Manifest | None = None
    packed: PackedPlan = NO_FILES
    problems: list[Problem] = field(default_factory=list)


def hand_out(found: list[Any], job: EmbedJob) -> HandedOut:
    """Return the work of a plan, as put on record or found there."""
    if _stands(found, job):
        return _on_record(job)
    problems = [item for item in found if isinstance(item, Problem)]
    if problems:
        return HandedOut(problems=problems)
    # Held, since all that follows looks into it too.
    last = last_snapshot(job.run)
    packed, others = _apart(found, last)
    planned, packed, problems = _whole_plan(found, job, others, packed)
    if problems:
        return HandedOut(problems=problems)
    if not write_plan(job.root, job.run.id, planned, None, merged(found), packed=packed):
        return _on_record(job)
    spans = [span for file in planned for span in file.work]
    units = [unit for file in planned for unit in file.carried]
    carried: Iterable[UnitRecord | CarriedRange] = by_ranges(units, others)
    if last is not None:
        carried = chain(carried, packed.ranges(last))
    return HandedOut(
        chain(spans, packed.spans(job.syntax)),
        len(spans) + packed.total("spans"),
        sum(span.tokens for span in spans) + packed.total("tokens"),
        carried,
        others,
        packed,
    )


def _on_record(job: EmbedJob) -> HandedOut:
    """Return the work in the plan on record.

    Raises SentenceBeamError if the plan or the last snapshot has changed.
    """
    work = RecordedWork(job.root, job.run.id, job.syntax)
    last = None
    if job.reuse or work.has_carried:
        last = last_snapshot(job.run)
    if last is None:
        return HandedOut(work.spans(), *work.totals)
    spans = list(work.spans())
    files = [one.file for span in spans for one in spans_of(span)]
    like = with_files_like(
        last, {file.relative for file in files}, {file.checksum for file in files}
    )
    return HandedOut(spans, *work.totals, carried_again(work.carried(), last), like)


def put_together(found: list[Any], job: EmbedJob) -> tuple[list[PlannedFile], PackedPlan]:
    """Return the checked plan of what workers have found, and the files that stay packed.

    Raises SentenceBeamError if files do not fit each other or the run.
    """
    last = last_snapshot(job.run)
    packed, others = _apart(found, last)
    files = [item for item in found if isinstance(item, PlannedFiles)]
    return checked_plan(_in_full(files, others, job.syntax), job, others, packed)


def _apart(found: list[Any], last: Manifest | None) -> tuple[PackedPlan, Manifest | None]:
    """Return the packed files, and the last snapshot without them."""
    parts = [item.packed for item in found if isinstance(item, PlannedFiles) and item.packed]
    if not parts:
        return NO_FILES, last
    packed = PackedPlan(parts).distinct(_opened(found))
    if last is None:
        return packed, None
    return packed, packed.others(last)


def _opened(found: list[Any]) -> list[PlannedFile]:
    """Return the files that travel in full."""
    return [file for item in found if isinstance(item, PlannedFiles) for file in item.files]


def _stands(found: list[Any], job: EmbedJob) -> bool:
    """Whether a plan is on record: before files were listed, or by a worker that has died."""
    return Standing() in found or (job.retried and has_plan(job.root, job.run.id))


def _whole_plan(
    found: list[Any], job: EmbedJob, last: Manifest | None, packed: PackedPlan = NO_FILES
) -> tuple[list[PlannedFile], PackedPlan, list[Problem]]:
    """Return the checked plan: files that are not packed, and the packed ones; or the problems."""
    problems = [item for item in found if isinstance(item, Problem)]
    if problems:
        return [], packed, problems
    try:
        planned = [item for item in found if isinstance(item, PlannedFiles)]
        files = _in_full(planned, last, job.syntax)
        return *checked_plan(files, job, last, packed), []
    except SentenceBeamError as error:
        return [], packed, [Problem.of(error)]


def _in_full(
    planned: list[PlannedFiles], last: Manifest | None, syntax: Syntax
) -> list[PlannedFile]:
    """Return all files of the plan; complete from the last snapshot those that travelled by
    name.
    """
    files = [file for item in planned for file in item.files]
    for file in (file for item in planned for file in item.unchanged):
        assert last is not None, "files travel by name only if there is a last snapshot"
        files.append(in_full(file, last, syntax))
    return files
