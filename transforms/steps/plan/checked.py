"""The plan of a run checked as a whole: renamed files, groups, types, gates, the limit."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    as_numbers,
    get_column,
    get_numbers,
    is_valid,
    look_up,
    make_places,
    replace_column,
    replace_rows,
    take_rows_at,
)
from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.corpus import limit_spans
from sentence_beam.transforms.corpus.files import check_distinct
from sentence_beam.transforms.corpus.groups import list_spans as spans_in
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.append import add_earlier, check_earlier_shards
from sentence_beam.transforms.steps.plan.budget import apply_budget
from sentence_beam.transforms.steps.plan.footers import open_rows
from sentence_beam.transforms.steps.plan.grouped_files import (
    LastFiles,
    find_max_bits,
    put_in_groups,
)
from sentence_beam.transforms.steps.plan.kept_types import Types, choose_types, find_retyped
from sentence_beam.transforms.steps.plan.look_into import look_into_all
from sentence_beam.transforms.steps.plan.planned import (
    add_last,
    as_carried,
    clear_pending,
    replace_spans,
)
from sentence_beam.transforms.steps.plan.row_checks import check_files_left, check_plan_rows
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import read_last_snapshot
from sentence_beam.transforms.store.runs.recorded_plan import (
    BudgetNotes,
    list_input_files,
    list_spans,
)
from sentence_beam.transforms.store.tables.file_rows import (
    find_moved_files,
    match_bytes,
    must_make_way,
)
from sentence_beam.transforms.store.tables.names import Owners, format_keys, hash_files
from sentence_beam.transforms.store.tables.table_columns import FILES, PENDING

ROUNDING = 1e-6  # 0.29 of a hundred files are 28.999999999999996


@dataclass(frozen=True)
class WholePlan:
    """A plan that was checked: rows `PLANNED`, and the `types` that kept columns are read as.

    `budget` has the notes about a run's budget. `group_bits` are those of all files if some are
    pending.
    """

    files: pa.Table
    types: Types
    budget: BudgetNotes | None
    group_bits: int | None


def check_plan(files: pa.Table, states: pa.Table, job: EmbedJob) -> WholePlan:
    """Return the plan: sorted by path, each file once, the small ones in groups, cut to the run's
    limit, and within its budget.

    `states` are those of the last snapshot's shards. Raises OptionError if two files do not fit or
    have too few rows for the requested index, DataGateError if they have too few after the last
    snapshot.
    """
    manifest = read_last_snapshot(job.run)
    files = named = _drop_repeated(files)  # those of `found` are free then, which may be very many
    _check_bad(files, job)
    last = _read_last_files(manifest, states)
    if not job.by_content:
        files = _carry_last(files, last, job)
    files = _add_former_names(files, last.files)
    types = choose_types(files, job, manifest)
    has_carried = (get_numbers(files, "carried") & (get_numbers(files, "units") > 0)).any()
    if has_carried and find_retyped(types, manifest):
        return _read_again(named, states, job)
    bits = find_max_bits(files, last.group_bits if job.append else None)
    files, budget = apply_budget(files, last, job)
    check_files_left(job, files, manifest, last.files)
    if not job.by_content:
        check_plan_rows(job, files)
    if job.limit is not None:
        files = _limit_rows(files, job.limit, job)
    has_pending = is_valid(files, PENDING[0]).any()
    # without pending files the groups have the bits
    return WholePlan(files, types, budget, bits if has_pending else None)


def _read_last_files(manifest: Manifest | None, states: pa.Table) -> LastFiles:
    """Return the files of the last snapshot, with those that have a damaged shard."""
    if manifest is None:
        return LastFiles(FILES.empty_table(), np.zeros(0, bool), {})
    files = manifest.read_files().combine_chunks()
    is_damaged = np.zeros(len(files), bool)
    damaged = states.filter(states.column("is_damaged"))
    owners = Owners(files.column("path"), files.column("group"))
    at = owners.of(get_column(damaged, "unit"))
    is_damaged[at[at >= 0]] = True
    groups = get_column(files, "group")
    hurt = groups.filter(make_mask_array(is_damaged)).drop_null()
    is_damaged |= look_up(groups, hurt) >= 0
    shards = dict(zip(at.tolist(), damaged.column("path").to_pylist(), strict=True))
    return LastFiles(files, is_damaged, shards, manifest.group_bits)


def _drop_repeated(files: pa.Table) -> pa.Table:
    """Return the files sorted by path, each once: patterns that overlap name a file twice.

    Raises OptionError if two files have one relative path.
    """
    files = files.sort_by("path").combine_chunks()
    paths = get_column(files, "path")
    is_again = np.zeros(len(files), bool)
    is_again[1:] = as_numbers(pc.equal(paths[1:], paths[:-1]))
    if not is_again.any():
        return files
    check_distinct(list(list_input_files(files)))
    return files.filter(make_mask_array(~is_again)).combine_chunks()


def _check_bad(files: pa.Table, job: EmbedJob) -> None:
    """Raise SentenceBeamError if more files cannot be read than may be left out.

    The message ends with the reason of the first.
    """
    most = job.max_bad_files
    if most < 1:
        most *= len(files)
    bad = files.column("bad").drop_null()
    if len(bad) > most + ROUNDING:
        raise SentenceBeamError(
            f"{len(bad)} of {len(files)} files cannot be read, more than {cite('max_bad_files')}"
            f" {job.max_bad_files:g} allows: {bad[0]}"
        )


def _carry_last(files: pa.Table, last: LastFiles, job: EmbedJob) -> pa.Table:
    """Return the plan with earlier, renamed and grouped files of the last snapshot carried over."""
    named = files
    if job.append:
        files = add_earlier(files, last.files, job)
    files = _open_damaged(files, named, last, job)
    if job.carry and job.columns.id is not None:
        files = _carry_renamed(files, last, job)
    return put_in_groups(files, last, job)


def _open_damaged(files: pa.Table, named: pa.Table, last: LastFiles, job: EmbedJob) -> pa.Table:
    """Return the plan with the carried files opened that have a damaged shard of their own.

    Raises SentenceBeamError for such a file that cannot be read, or that a run which appends does
    not name.
    """
    at = last.places_of(files)
    has_units = np.append(get_numbers(last.files, "units") > 0, False)[at]
    is_alone = ~as_numbers(last.find_groups(at).is_valid())
    is_hurt = get_numbers(files, "carried") & has_units & is_alone & last.damaged(at)
    if not is_hurt.any():
        return files
    is_bad = is_hurt & is_valid(files, "bad")
    if is_bad.any():
        raise SentenceBeamError(files.column("bad")[int(np.argmax(is_bad))].as_py())
    is_earlier = is_hurt & (look_up(files.column("path"), named.column("path")) < 0)
    first = int(np.argmax(is_earlier))
    shard = storage.join(job.root, last.shards.get(int(at[first]), ""))
    check_earlier_shards(files, is_earlier, [shard])
    hurt = np.flatnonzero(is_hurt)
    return replace_rows(files, hurt, open_rows(files.take(pa.array(hurt)), job))


def _carry_renamed(files: pa.Table, last: LastFiles, job: EmbedJob) -> pa.Table:
    """Return the plan with renamed files carried, and those read whose shards could be written
    again by others.

    Only for rows whose ids are not made from their file's name. The units of a file go to one file;
    a copy of it is read, since no two units may share a shard. A file whose path has another value
    in a column that the run reads is read too.
    """
    at = last.places_of(files)
    is_carried = get_numbers(files, "carried")
    is_free = (get_numbers(last.files, "units") > 0) & ~is_valid(last.files, "group")
    is_free &= ~last.is_damaged
    is_free[at[is_carried & (at >= 0)]] = False
    is_read = as_numbers(pc.list_value_length(files.column("spans"))) > 0
    was = match_bytes(files, is_read, last.files, is_free, job.columns.path_names)
    renamed = np.flatnonzero(was >= 0)
    files = replace_rows(files, renamed, _carry_as(files, renamed, last.files, was[renamed]))
    to_open = np.flatnonzero(_must_make_way(files))
    return replace_rows(files, to_open, open_rows(files.take(pa.array(to_open)), job))


def _carry_as(files: pa.Table, at: np.ndarray, last: pa.Table, was: np.ndarray) -> pa.Table:
    """Return the rows of files at places that have the units of other files, int64 [n] each."""
    now = files.take(pa.array(at))
    before = take_rows_at(last, was)
    rows = clear_pending(as_carried(before))
    own = format_keys(before.column("path"))
    rows = replace_column(rows, "shards_of", pc.coalesce(before.column("shards_of"), own))
    rows = replace_column(rows, "was", before.column("path"))
    for name in ("path", "folder", "source", "version", "ms"):
        rows = replace_column(rows, name, now.column(name))
    return rows


def _must_make_way(files: pa.Table) -> np.ndarray:
    """Return which carried files must be read too, bool [n]: another's shards have their names."""
    if not is_valid(files, "shards_of").any():
        return np.zeros(len(files), bool)
    own = hash_files(files.column("path"))
    named = get_column(files, "shards_of").to_pylist()
    shards_of = own.copy()
    for place, key in enumerate(named):
        if key is not None:
            shards_of[place] = int(key, 16)
    return must_make_way(own, shards_of, get_numbers(files, "carried"))


def _add_former_names(files: pa.Table, last: pa.Table) -> pa.Table:
    """Return the plan with the former path of each file that has another one now."""
    moved = last.column("path").take(make_places(find_moved_files(files, last)))
    return replace_column(files, "was", pc.coalesce(files.column("was"), moved))


def _read_again(files: pa.Table, states: pa.Table, job: EmbedJob) -> WholePlan:
    """Return the plan of reading all files, because the shards have a column in another type."""
    job = replace(job, carry=False, read_again=("keep_columns",))
    listed = files.select(FILES.names)
    rows, problems = look_into_all(
        add_last(listed, FILES.empty_table(), np.full(len(listed), -1)), job
    )
    if problems:
        raise problems[0].error()
    return check_plan(rows, states, job)


def _limit_rows(files: pa.Table, limit: int, job: EmbedJob) -> pa.Table:
    """Return the plan with the spans of the first rows alone."""
    spans = [one for some in list_spans(files, job.syntax) for one in spans_in(some)]
    return replace_spans(files, limit_spans(spans, limit))
