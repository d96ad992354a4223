"""Look into the files that are not known to be unchanged, and check shards; on any worker."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import InputChangedError, SentenceBeamError, cite
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.elements import ShardStates, pack_table
from sentence_beam.transforms.steps.plan.footers import (
    FILES_AT_ONCE,
    check_readable,
    compute_checksum,
    open_file,
)
from sentence_beam.transforms.steps.plan.planned import NOT_PENDING, make_planned_rows, make_row
from sentence_beam.transforms.store.entries import TableEntry, TablePart
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried_check import ShardCheck, check_all
from sentence_beam.transforms.store.runs.commit import Run, read_last_snapshot
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files
from sentence_beam.transforms.store.tables.file_rows import compare
from sentence_beam.transforms.store.tables.names import AFTER
from sentence_beam.transforms.store.tables.table_columns import FILES

Row = dict[str, Any]


def look_into_all(listed: pa.Table, job: EmbedJob) -> tuple[pa.Table, list[Problem]]:
    """Return the rows `PLANNED` of listed files, and a problem for each that cannot be used."""
    files = list(list_input_files(listed, job.syntax))
    last = listed.column("last").to_pylist()
    step = max(1, -(-len(files) // FILES_AT_ONCE))
    # A thread has several: handing over one small file takes longer than looking at it.
    places = [range(start, min(start + step, len(files))) for start in range(0, len(files), step)]

    def look_at(some: range) -> list[Row | Problem]:
        return [_look_into(files[place], last[place], job) for place in some]

    with progress.stage("planning", things="files"), ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        looked = [item for items in pool.map(look_at, places) for item in items]
    rows = [item for item in looked if not isinstance(item, Problem)]
    return make_planned_rows(rows), [item for item in looked if isinstance(item, Problem)]


def _look_into(file: InputFile, last: Row | None, job: EmbedJob) -> Row | Problem:
    """Return the row of a file, or its problem."""
    started = perf_counter()
    try:
        row = _make_row_or_leave_out(file, last, job)
    except SentenceBeamError as error:
        return Problem.from_error(error)
    progress.step()
    return row | {"ms": round(1000 * (perf_counter() - started), 3)}


def _make_row_or_leave_out(file: InputFile, last: Row | None, job: EmbedJob) -> Row:
    """Return the row of a file; leave an unreadable one out, with the reason, if the run may.

    The rows of the last snapshot are carried over with its checksum, so that a later run sees the
    difference.
    """
    if not job.max_bad_files:
        return _make_row(file, last, job, to_check=False)
    try:
        return _make_row(file, last, job, to_check=True)
    except InputChangedError:
        raise
    except SentenceBeamError as error:
        if error.exit_code != SentenceBeamError.exit_code:
            raise
        return _leave_out(file, last, job, error)


def _make_row(file: InputFile, last: Row | None, job: EmbedJob, to_check: bool) -> Row:
    """Return the row of a file, carried over or opened."""
    if last is not None and _has_cut(last) and "reembed" not in job.read_again:
        file = replace(file, cut=last["cut"])
    file = replace(file, checksum=compute_checksum(file))
    if job.carry and last is not None and _is_same(file, last, job):
        return carry_row(file, last)
    opened = open_file(file, job)
    if to_check:
        check_readable(opened, job)
    return opened.row()


def _has_cut(last: Row) -> bool:
    """Whether the last snapshot says how a file is cut; an empty file was not."""
    return bool(last["size"] or last["pending_bytes"])


def _is_same(file: InputFile, last: Row, job: EmbedJob) -> bool:
    """Whether a file has the content that the last snapshot has of it, also in its path."""
    now, before = (pa.Table.from_pylist([row], FILES) for row in (make_row(file), last))
    return bool(compare(now, before, job.columns.path_names).is_same[0])


def carry_row(file: InputFile, last: Row) -> Row:
    """Return the row of a file that is carried over as the last snapshot has it."""
    now = make_row(file)
    named = {name: now[name] for name in ("path", "folder", "source", "version")}
    return {**last, **named, **NOT_PENDING, "group": None, "carried": True}


def _leave_out(file: InputFile, last: Row | None, job: EmbedJob, error: SentenceBeamError) -> Row:
    """Return the row of an unreadable file with the rows that it had.

    Raises the error if they are mixed or cannot be carried over.
    """
    if last is not None and last["size"] and has_counted_rows(last, job):
        _check_can_stay(job, error)
        return {**last, **NOT_PENDING, "group": None, "carried": True, "bad": error.message}
    empty = replace(file, size=0, checksum="", version="", cut=None)
    return make_row(empty) | {"carried": False, "spans": [], "bad": error.message}


def has_counted_rows(last: Row, job: EmbedJob) -> bool:
    """Whether a unit counts the rows of a file of the last snapshot: its own, a group's, a
    bucket.

    Buckets are of no single file, so the files of a snapshot by content have no counts.
    """
    if job.by_content or last["units"] > 0 or last["group"] is not None:
        return True
    before = read_last_snapshot(job.run)
    return before is not None and before.partition == "content"


def _check_can_stay(job: EmbedJob, error: SentenceBeamError) -> None:
    """Raise SentenceBeamError if the store cannot keep the rows of an unreadable file."""
    if job.by_content:
        raise SentenceBeamError(
            f"{error.message}; {cite('max_bad_files')} cannot leave it out, since with"
            f" {cite('partition')} content the rows that it had are mixed with those of other files"
        ) from error
    if not job.carry:
        raise SentenceBeamError(
            f"{error.message}; {cite('max_bad_files')} cannot keep its rows, because"
            f" {', '.join(job.read_again)} would change and all files are read again; mend the file"
            " first, or leave that out"
        ) from error


def check_shards(parts: Sequence[TablePart], root: str, check: ShardCheck) -> ShardStates:
    """Return the states of the shards of some parts of the last snapshot's units."""
    units = TableEntry(sum(part.rows for part in parts), tuple(parts))
    return ShardStates(pack_table(check_all(root, units, check)))


def choose_check(
    run: Run, parts: Sequence[TablePart], of_all: Callable[[], ShardCheck]
) -> ShardCheck:
    """Return the check of the shards of some parts; that of all if a storage cannot list some."""
    if storage.storage_of(run.root).lists_ranges(run.root):
        return run.make_shard_check(parts[0].first, parts[-1].last + AFTER)
    return of_all()
