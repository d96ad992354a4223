"""Checks of the number of rows in a plan, before anything is embedded."""

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.columns import sum_column
from sentence_beam.transforms.corpus.groups import list_spans as spans_in
from sentence_beam.transforms.corpus.row_counting import count_up_to
from sentence_beam.transforms.index.index_kinds import check_rows_for
from sentence_beam.transforms.index.index_spec import IndexSpec
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import check_deletes, check_rows_left
from sentence_beam.transforms.store.runs.deleted_rows import choose_row_keys, count_rows_left
from sentence_beam.transforms.store.runs.recorded_plan import get_span_values, list_spans


def check_plan_rows(job: EmbedJob, files: pa.Table) -> None:
    """Raise as `check_rows` does; counts uncounted rows, up to those that the index needs."""
    carried = sum_column(files, "written")
    rows = get_span_values(files, "rows")
    if not rows.null_count:
        check_rows(job, carried + (pc.sum(rows).as_py() or 0))
    elif index := _find_index(job):
        _check_index(job, index, _count_rows_up_to(index.rows_needed, carried, files, job))


def check_files_left(
    job: EmbedJob, files: pa.Table, last: Manifest | None, last_files: pa.Table
) -> None:
    """Raise DataGateError if too many rows are of files that left the input.

    Rows with ids from a column may be in other files now: they are compared when all rows have been
    read.
    """
    run = job.run
    if not run.has_delete_gate or last is None:
        return
    keys = choose_row_keys(run.options, last, files)
    if keys is not None:
        check_deletes(run, count_rows_left(last_files, files, keys))


def check_rows(job: EmbedJob, rows: int) -> None:
    """Raise DataGateError if rows are too few after the last snapshot, OptionError if they are too
    few for the requested index.
    """
    check_rows_left(job.run, rows)
    if index := _find_index(job):
        _check_index(job, index, rows)


def count_rows_at_most(files: pa.Table) -> int | None:
    """Return the rows of all spans to embed, None if those of a span are not known."""
    rows = get_span_values(files, "rows")
    return None if rows.null_count else pc.sum(rows).as_py() or 0


def _find_index(job: EmbedJob) -> IndexSpec | None:
    """Return the index of rows that is requested; the number of pieces is not known yet."""
    return None if job.chunks.cuts else job.index_asked


def _check_index(job: EmbedJob, index: IndexSpec, rows: int) -> None:
    if job.limit is not None:
        rows = min(rows, job.limit)
    check_rows_for(index, rows, job.run.space.dim)


def _count_rows_up_to(most: int, rows: int, files: pa.Table, job: EmbedJob) -> int:
    """Return `rows` and those of the spans to embed, or `most` if there are more."""
    for span in (span for spans in list_spans(files, job.syntax) for span in spans_in(spans)):
        if rows >= most:
            return most
        rows += count_up_to(span, most - rows)
    return min(rows, most)
