"""The files of a glob, compared with those of the last snapshot."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.beside import Beside
from sentence_beam.transforms.corpus.files import BROKEN, make_link_error
from sentence_beam.transforms.corpus.find import find_inputs
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.append import keep_recorded_names
from sentence_beam.transforms.steps.plan.elements import (
    ROWS_PER_ELEMENT,
    FilesToLookInto,
    PlannedFiles,
    ShardsToCheck,
    count_files_per_element,
    pack_batches,
)
from sentence_beam.transforms.steps.plan.planned import (
    add_last,
    make_carried_rows,
    make_listed_rows,
)
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.commit import read_last_snapshot
from sentence_beam.transforms.store.runs.lease import kept_alive
from sentence_beam.transforms.store.runs.recorded_plan import Standing, has_plan
from sentence_beam.transforms.store.tables.file_rows import compare, list_full_paths
from sentence_beam.transforms.store.tables.table_columns import FILES

Listed = FilesToLookInto | PlannedFiles | ShardsToCheck | Beside | Problem | Standing


def list_files(pattern: str, job: EmbedJob, slots: int | None = None) -> Iterator[Listed]:
    """Yield the files of a pattern: those to look into, and the rows of unchanged ones.

    With them come what lies beside them and, for the first pattern, the shards of the last snapshot
    to check; or the problem with it. If an earlier attempt has recorded the run's plan, nothing is
    listed: the plan holds, whatever was added since. `slots` as for `count_spans_per_element`.
    """
    if job.retried and has_plan(job.root, job.run.id):
        yield Standing()
        return
    try:
        with kept_alive(job.root, job.run.id):
            yield from _list_pattern(pattern, job, slots)
    except SentenceBeamError as error:
        yield Problem.from_error(error)


def _list_pattern(pattern: str, job: EmbedJob, slots: int | None) -> Iterator[Listed]:
    manifest = read_last_snapshot(job.run)
    last = manifest.read_files() if manifest is not None else FILES.empty_table()
    files, beside = _find(pattern, job, last)
    listed = make_listed_rows(files)
    _check_were_no_folders(files, last)
    yield from compare_rows(listed, last, job, slots)
    if beside is not None:
        yield beside
    if manifest is not None and pattern == job.run.globs[0] and (job.carry or job.append):
        yield from (ShardsToCheck((part,)) for part in manifest.units.parts)


def _find(pattern: str, job: EmbedJob, last: pa.Table) -> tuple[list[InputFile], Beside | None]:
    """Return the files of a pattern, and what lies beside them."""
    with progress.stage("listing the input"):
        inputs = find_inputs(
            pattern,
            job.input_format,
            job.hidden,
            job.syntax,
            job.find_table_part(pattern),
            job.max_bad_files > 0,
            job.root,
        )
    _check_were_no_files(inputs.folders, last, job)
    files = keep_recorded_names(inputs.files, last) if job.append else inputs.files
    beside = None
    if inputs.beside or inputs.left_out:
        beside = Beside.from_paths(
            inputs.beside, inputs.left_out, frozenset(job.run.globs), job.hidden
        )
    return files, beside


def compare_rows(
    listed: pa.Table, last: pa.Table, job: EmbedJob, slots: int | None = None
) -> Iterator[FilesToLookInto | PlannedFiles]:
    """Yield listed files: unchanged ones as rows of the plan, others to look into.

    A file is unchanged if the last snapshot has its version; `last` are that snapshot's files.
    """
    compared = compare(listed, last, job.columns.path_names)
    is_known = compared.is_same & job.carry
    carried = np.flatnonzero(is_known)
    rows = make_carried_rows(listed.take(pa.array(carried)), last, compared.at[carried])
    for data in pack_batches(rows, ROWS_PER_ELEMENT):
        yield PlannedFiles(data)
    others = add_last(listed.filter(make_mask_array(~is_known)), last, compared.at[~is_known])
    for data in pack_batches(others, count_files_per_element(len(others), slots)):
        yield FilesToLookInto(data)


def _check_were_no_files(folders: list[str], last: pa.Table, job: EmbedJob) -> None:
    """Raise SentenceBeamError for an unused folder in the place of a file that the store has."""
    if not folders or job.append:
        return
    files = set(list_full_paths(last.filter(pc.greater(last.column("size"), 0))).to_pylist())
    for folder in folders:
        if folder in files:
            raise SentenceBeamError(
                f"{folder} is a folder without files of {cite('input')} now, and the store has the"
                " rows of the file that it was; put the file back, or remove the folder"
            )


def _check_were_no_folders(files: list[InputFile], last: pa.Table) -> None:
    """Raise SentenceBeamError for a broken link that was a folder with files of the store."""
    broken = [file for file in files if file.version == BROKEN]
    if not broken:
        return
    last_paths = last.column("path").to_pylist()
    for file in broken:
        if any(path.startswith(f"{file.relative}/") for path in last_paths):
            raise make_link_error(file.path)
