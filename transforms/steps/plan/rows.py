"""Checks of the number of rows in a plan, before anything is embedded."""

from collections.abc import Iterable, Sequence
from itertools import chain

from sentence_beam.transforms.corpus.counting import count_up_to
from sentence_beam.transforms.corpus.groups import AnySpan, spans_of
from sentence_beam.transforms.index.choose import check_rows_for
from sentence_beam.transforms.index.spec import IndexSpec
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import check_deletes, check_rows_left
from sentence_beam.transforms.store.runs.deletes import row_keys, rows_of_files_left
from sentence_beam.transforms.store.runs.packed_files import PackedPlan
from sentence_beam.transforms.store.runs.plan import PlannedFile, rows_at_most


def check_plan_rows(job: EmbedJob, planned: Sequence[PlannedFile], packed: PackedPlan) -> None:
    """Raise as `check_rows` does; counts uncounted rows, up to those that the index needs."""
    rows = rows_at_most(planned)
    known = packed.total("written") + packed.total("to_read")
    if rows is not None and not packed.total("uncounted_spans"):
        check_rows(job, rows + known)
    elif index := _index_of_rows(job):
        most = index.rows_needed - known
        rows = _rows_up_to(planned, packed.uncounted(job.syntax), most)
        _check_index(job, index, known + rows)


def check_files_left(
    job: EmbedJob, planned: Sequence[PlannedFile], last: Manifest | None, packed: PackedPlan
) -> None:
    """Raise DataGateError if too many rows are of files that left the input.

    Rows with ids from a column may be in other files now: they are compared when all rows have been
    read. `last` is the last snapshot without the packed files.
    """
    run = job.run
    files = [item.file for item in planned]
    if not run.has_delete_gate:
        return
    if last is None:
        return
    keys = row_keys(run.options, last, files, packed.count > 0)
    if keys is not None:
        check_deletes(run, rows_of_files_left(last, files, keys))


def check_rows(job: EmbedJob, rows: int) -> None:
    """Raise DataGateError if rows are too few after the last snapshot, OptionError if they are too
    few for the requested index.
    """
    check_rows_left(job.run, rows)
    if index := _index_of_rows(job):
        _check_index(job, index, rows)


def _index_of_rows(job: EmbedJob) -> IndexSpec | None:
    """Return the index of rows that is requested; the number of pieces is not known yet."""
    if job.chunks.cuts:
        return None
    return job.index_asked


def _check_index(job: EmbedJob, index: IndexSpec, rows: int) -> None:
    if job.limit is not None:
        rows = min(rows, job.limit)
    check_rows_for(index, rows, job.run.space.dim)


def _rows_up_to(planned: Sequence[PlannedFile], others: Iterable[AnySpan], most: int) -> int:
    """The rows of files and of other spans, or `most` if there are more."""
    rows = sum(unit.written for item in planned for unit in item.carried)
    work = chain((span for item in planned for span in item.work), others)
    for span in (one for some in work for one in spans_of(some)):
        if rows >= most:
            return most
        rows += count_up_to(span, most - rows)
    return min(rows, most)
