"""What the number of rows in a plan has to allow, looked at before anything is embedded."""

from transforms.index.choose import check_rows_for
from transforms.steps.job import EmbedJob
from transforms.store.commit import check_deletes


def check_rows(job: EmbedJob, rows: int) -> None:
    """Raise DataGateError where rows are too few after the last snapshot, OptionError for the index asked for."""
    check_deletes(job.run, rows)
    if job.index_asked is not None and job.chunks == "none":  # nobody knows yet how many pieces there are
        check_rows_for(job.index_asked, rows if job.limit is None else min(rows, job.limit), job.run.space.dim)
