"""Files of a run that appends: new ones, and those of earlier runs."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    find_equals,
    get_column,
    get_numbers,
    is_valid,
    look_up,
    replace_rows,
    take_rows_at,
)
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.footers import compute_checksum, open_rows
from sentence_beam.transforms.steps.plan.planned import as_carried, make_planned_rows, make_row
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files
from sentence_beam.transforms.store.tables.file_rows import compare, list_full_paths


def keep_recorded_names(files: list[InputFile], last: pa.Table) -> list[InputFile]:
    """Return the files; those that the last snapshot has keep their relative paths there."""
    # rows of a program have no path to find them again
    has_path = last.column("source").is_null().to_numpy() & ~_is_in_memory(last)
    on_record = last.filter(make_mask_array(has_path))
    paths = list_full_paths(on_record).to_pylist()
    names = dict(zip(paths, get_column(on_record, "path").to_pylist(), strict=True))
    return [replace(file, relative=names.get(file.path, file.relative)) for file in files]


def _is_in_memory(files: pa.Table) -> np.ndarray:
    """Return which files are rows of a program, bool [n]."""
    return np.array([storage.is_rows(path) for path in list_full_paths(files).to_pylist()], bool)


def add_earlier(files: pa.Table, last: pa.Table, job: EmbedJob) -> pa.Table:
    """Return the plan with the last snapshot's files that are not named now, carried over.

    Raises OptionError if the store has another file of the same name with other content.
    """
    _check_same_content(files, last, job)
    is_named = pc.is_in(last.column("path"), value_set=get_column(files, "path"))
    earlier = as_carried(last.filter(pc.invert(is_named)))
    if not job.carry:
        earlier = _open_earlier(earlier, job)
    return pa.concat_tables([files, earlier]).sort_by("path").combine_chunks()


def _check_same_content(files: pa.Table, last: pa.Table, job: EmbedJob) -> None:
    """Raise OptionError for a file with the name of another one in the store, and other content."""
    at = look_up(files.column("path"), last.column("path"))
    before = take_rows_at(last, at)
    is_known = (at >= 0) & ~find_equals(
        before.column("checksum"), pa.array([""] * len(at), pa.string())
    )
    paths = list_full_paths(take_rows_at(last, at[is_known]))
    is_moved = ~find_equals(list_full_paths(files.filter(make_mask_array(is_known))), paths)
    can_change = last.column("source").is_null().to_numpy() | _is_in_memory(last)
    is_other = is_moved | ~can_change[at[is_known]]
    listed = np.flatnonzero(is_known)[is_other]
    compared = compare(files.take(pa.array(listed)), last, job.columns.path_names)
    for place in listed[~compared.is_same].tolist():
        (file,) = list_input_files(files.slice(place, 1))
        raise _make_content_error(file, list_full_paths(last)[int(at[place])].as_py())


def _make_content_error(file: InputFile, source: str) -> OptionError:
    folder, _, name = file.path.rpartition("/")
    mend = f"name all files, without {cite('append=True')}"
    # a pattern that begins above the folder puts it into the names
    if source != file.path and folder:
        mend = (
            f"name the folder by a pattern, as in {cite('input')}"
            f" '{folder[:-1]}[{folder[-1]}]/{name}', so that they differ"
        )
    return OptionError(
        f"{cite('append')}: the store has the relative path {file.relative} of {file.path} already,"
        f" from {source}, with other content; {mend}"
    )


def _open_earlier(earlier: pa.Table, job: EmbedJob) -> pa.Table:
    """Open files of earlier runs, because the types of kept columns change.

    Raises OptionError if one is gone or has changed.
    """
    why = "the type of a kept column changes"
    mend = (
        f"or keep the type with {cite('keep_columns')} (NAME:str if the column has no value so far)"
    )
    has_rows = (get_numbers(earlier, "units") > 0) | ~earlier.column("group").is_null().to_numpy()
    at = np.flatnonzero(has_rows)
    files = [_find_file(file, why, mend) for file in list_input_files(earlier.take(pa.array(at)))]
    return replace_rows(
        earlier, at, open_rows(make_planned_rows([make_row(file) for file in files]), job)
    )


def check_earlier_shards(files: pa.Table, is_damaged: np.ndarray, shards: list[str]) -> None:
    """Raise SentenceBeamError for a damaged shard of a file that is not named now."""
    place = int(np.argmax(is_damaged))
    if is_damaged.any():
        raise SentenceBeamError(
            f"{shards[0]} is missing or was changed; name {list_full_paths(files)[place]} with"
            f" {cite('input')} too, to embed it again"
        )


def refresh_files(files: pa.Table, at: np.ndarray, groups: pa.StringArray) -> pa.Table:
    """Return the plan with the current versions of those files of earlier runs, at places
    int64 [n], that are read again because others of their groups have changed.

    Raises OptionError if one of these is gone, or has changed and was not pending.
    """
    names = groups.to_pylist()
    is_carried = get_numbers(files, "carried")
    is_pending = is_valid(files, "pending_bytes")
    paths = list_full_paths(files).to_pylist()
    changed = {
        group: paths[place]
        for place, group in reversed(list(enumerate(names)))
        if group is not None and not is_carried[place]
    }
    rows = []
    for place, file in zip(at.tolist(), list_input_files(files.take(pa.array(at))), strict=True):
        first = changed.get(names[place] or "", file.path)
        why = f"{first} has changed, and shares units with it"
        now = _find_file(file, why, may_differ=bool(is_pending[place]))
        rows.append(make_row(now) | {"carried": True})
    return replace_rows(files, at, make_planned_rows(rows))


def _find_file(
    file: InputFile, because: str, mend: str = "", may_differ: bool = False
) -> InputFile:
    """Return a file of an earlier run with its current version.

    Raises OptionError if it is gone, or has changed and was not pending (`may_differ`).
    """
    entry = storage.storage_of(file.path).stat(file.path)
    fault = "is gone"
    if entry is not None:
        now = replace(file, size=entry.size, checksum=entry.checksum, version=entry.version)
        if may_differ:
            return replace(now, checksum=compute_checksum(now))
        if now.version == file.version or compute_checksum(now) == file.checksum:
            return replace(now, checksum=file.checksum)
        fault = "has changed too"
    raise OptionError(
        f"{cite('append')}: {file.path} {fault}, and is to be read again, because {because}; name"
        f" all files, without {cite('append=True')}{mend and ', '}{mend}"
    )
