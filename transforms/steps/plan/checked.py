"""The plan of a run checked as a whole: renamed files, groups, types, gates, the limit."""

from dataclasses import replace

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import limit_spans
from sentence_beam.transforms.corpus.files import check_distinct
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.append import with_earlier
from sentence_beam.transforms.steps.plan.footers import read_footer
from sentence_beam.transforms.steps.plan.groups import in_groups
from sentence_beam.transforms.steps.plan.kept_types import retyped, with_types
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.steps.plan.rows import check_files_left, check_plan_rows
from sentence_beam.transforms.store.key_range import ALL_KEYS, NO_KEYS
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried import CarriedShards
from sentence_beam.transforms.store.runs.carry import carry_renamed, of_files_read
from sentence_beam.transforms.store.runs.commit import carried_shards, last_snapshot
from sentence_beam.transforms.store.runs.packed_files import NO_FILES, PackedPlan
from sentence_beam.transforms.store.runs.plan import ROWS_AT_ONCE, PlannedFile
from sentence_beam.transforms.store.runs.plan_rows import RowReader

LOOKED_UP = 1_000  # shards at most that are asked for one by one, not listed with all others
ROUNDING = 1e-6  # 0.29 of a hundred files are 28.999999999999996


def checked_plan(
    planned: list[PlannedFile],
    job: EmbedJob,
    last: Manifest | None,
    packed: PackedPlan = NO_FILES,
) -> tuple[list[PlannedFile], PackedPlan]:
    """Return the files sorted by relative path, each once, the small ones in groups, cut to the
    run's limit; and the packed files with the types of kept columns.

    `packed` are other files, each once. `last` lacks those that are as in the last snapshot.
    Raises OptionError if two do not fit or have too few rows for the requested index,
    DataGateError if they have too few after the last snapshot.
    """
    check_distinct([item.file for item in planned])
    check_bad([item for item in planned if item.bad], len(planned) + packed.count, job)
    files = _each_once(planned)
    if not job.by_content:
        files = _with_last(files, job, last, _shards(job, last, packed))
    typed = with_types([*files, *packed.examples], job, last_snapshot(job.run))
    types = next((item.file.types for item in typed if not item.bad), ())
    has_carried = packed.carried_count or any(item.carried for item in typed)
    if has_carried and retyped(types, last_snapshot(job.run)):
        return _read_again(planned, job, packed)
    packed = packed.reading(types)
    files = typed[: len(files)]
    check_files_left(job, files, last, packed)
    if not job.by_content:
        check_plan_rows(job, files, packed)
    if job.limit is not None:
        files = _limited(files, job.limit)
    return files, packed


def _read_again(
    planned: list[PlannedFile], job: EmbedJob, packed: PackedPlan
) -> tuple[list[PlannedFile], PackedPlan]:
    """Return the plan of reading all files, because the shards have a column in another type."""
    job = replace(job, carry=False, read_again=("keep_columns",))
    files = [item.file for item in planned]
    for rows in packed.tables(ROWS_AT_ONCE):
        files += RowReader(job.syntax).files(rows).values()
    found = FilePlanner(job).plan_all(files)
    for item in found:
        if isinstance(item, Problem):
            raise item.error()
    opened = [item for item in found if isinstance(item, PlannedFile)]
    return checked_plan(opened, job, last_snapshot(job.run))


def _each_once(planned: list[PlannedFile]) -> list[PlannedFile]:
    by_name = sorted(planned, key=lambda item: (item.file.relative, item.file.path))
    return list({item.file.path: item for item in by_name}.values())


def _shards(job: EmbedJob, last: Manifest | None, packed: PackedPlan) -> CarriedShards:
    """Return the shards that may be carried over; beside packed files, few are looked up alone."""
    keys = ALL_KEYS
    if last is not None and packed.count and last.unit_count <= LOOKED_UP:
        keys = NO_KEYS
    return carried_shards(job.run, keys)


def _with_last(
    files: list[PlannedFile], job: EmbedJob, last: Manifest | None, shards: CarriedShards
) -> list[PlannedFile]:
    """Return the plan with earlier, renamed and grouped files of the last snapshot carried over."""
    if job.append and last is not None:
        files = with_earlier(files, last, job, shards)
    has_ids = job.columns.id is not None
    if job.carry and has_ids and last is not None and any(item.spans for item in files):
        files = with_renamed(files, last, job, shards)
    return in_groups(files, last, job, shards)


def check_bad(bad: list[PlannedFile], files: int, job: EmbedJob) -> None:
    """Raise SentenceBeamError if more files cannot be read than may be left out.

    The message ends with the reason of the first.
    """
    most = job.max_bad_files
    if most < 1:
        most *= files
    if len(bad) > most + ROUNDING:
        first = min(bad, key=lambda item: item.file.relative).bad
        raise SentenceBeamError(
            f"{len(bad)} of {files} files cannot be read, more than --max-bad-files"
            f" {job.max_bad_files:g} allows: {first}"
        )


def with_renamed(
    files: list[PlannedFile], last: Manifest, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """Return the plan with renamed files carried, and those read whose shards could be written
    again by others.
    """
    files = carry_renamed(files, last, shards, job.columns)
    while moving := of_files_read(files):
        paths = {item.file.path for item in moving}
        opened = {
            item.file.path: read_footer(item, job) for item in files if item.file.path in paths
        }
        files = [opened.get(item.file.path, item) for item in files]
    return files


def _limited(files: list[PlannedFile], limit: int) -> list[PlannedFile]:
    spans = limit_spans([span for item in files for span in item.spans], limit)
    return [replace(item, spans=tuple(s for s in spans if s.file == item.file)) for item in files]
