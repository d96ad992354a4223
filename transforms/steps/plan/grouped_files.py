"""Small files of a plan put into groups, which are carried over or read as one.

The last snapshot says which files its groups have. Sizes only decide if files go that are read.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    as_numbers,
    as_whole,
    get_column,
    get_numbers,
    is_valid,
    look_up,
    make_places,
    replace_column,
    replace_rows,
    texts,
)
from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.corpus.formats.registry import FORMATS
from sentence_beam.transforms.corpus.groups import (
    SMALL,
    choose_bits,
    estimate_tokens_by_size,
    name_group,
    parse_bits,
)
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.append import refresh_files
from sentence_beam.transforms.steps.plan.footers import open_rows
from sentence_beam.transforms.steps.plan.planned import (
    as_carried,
    clear_pending,
    make_planned_rows,
    make_row,
)
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files
from sentence_beam.transforms.store.tables.file_rows import (
    Compared,
    compare_groups,
    find_compressions,
    get_full_path,
)
from sentence_beam.transforms.store.tables.names import hash_files

Row = dict[str, Any]
NO_GROUPS = pa.array([], pa.string())


@dataclass(frozen=True)
class LastFiles:
    """The files of the last snapshot, and which of them have a damaged shard, bool [n].

    Of a group with a damaged shard all are damaged; `shards` has one of each such file or group.
    `group_bits` are those of the groups that its files would have if none were pending.
    """

    files: pa.Table
    is_damaged: np.ndarray
    shards: dict[int, str]
    group_bits: int | None = None

    @property
    def bits(self) -> int | None:
        """The bits of its groups; None without groups."""
        return find_max_bits(self.files, self.group_bits)

    def places_of(self, files: pa.Table) -> np.ndarray:
        """Return the place of the file of each name, int64 [n]; -1 without one."""
        return look_up(files.column("path"), self.files.column("path"))

    def damaged(self, at: np.ndarray) -> np.ndarray:
        """Return which of the files at places have a damaged shard, bool [n]; of -1 none."""
        return np.append(self.is_damaged, False)[at]

    def find_groups(self, at: np.ndarray) -> pa.StringArray:
        """Return the groups of the files at places; null for -1."""
        return get_column(self.files, "group").take(make_places(at))


def put_in_groups(files: pa.Table, last: LastFiles, job: EmbedJob) -> pa.Table:
    """Return the rows `PLANNED` of a plan with the small files in groups.

    A run with `--limit` reads files one by one. A run that appends keeps the groups of the
    snapshot, and new files stay alone. A file that leaves its group is opened.
    """
    stuck = _find_stuck_groups(files, last, job)
    if len(stuck):
        files = _keep_as_they_were(files, last, stuck, job)
    groups = _choose_groups(files, last, job, stuck)
    at = last.places_of(files)
    is_same = compare_groups(groups, Compared(at, get_numbers(files, "carried")), last.files)
    is_same &= job.carry
    is_sound = ~_are_grouped_with(groups, last.damaged(at))
    if job.append and (is_same & ~is_sound).any():
        shard = next(iter(last.shards.values()))
        raise SentenceBeamError(
            f"{shard} in the store is missing or was changed; run again without"
            f" {cite('append=True')}"
        )
    is_stuck = is_valid(files, "group")
    is_kept = is_stuck | is_same & is_sound
    groups = pc.if_else(make_mask_array(is_stuck), get_column(files, "group"), groups)
    return _open_groups(files, groups, is_kept, last, job)


def _are_grouped_with(groups: pa.StringArray, marked: np.ndarray) -> np.ndarray:
    """Return which files are in a group with a marked file, bool [n]."""
    of_group = look_up(groups, groups.unique().drop_null())
    return (of_group >= 0) & np.isin(of_group, of_group[marked & (of_group >= 0)])


def _open_groups(
    files: pa.Table, groups: pa.StringArray, is_kept: np.ndarray, last: LastFiles, job: EmbedJob
) -> pa.Table:
    """Return the plan with the groups that are read, all of whose files are opened.

    So is a file that had its rows in a group, and is in none now.
    """
    is_grouped = as_numbers(groups.is_valid())
    is_unopened = get_numbers(files, "carried") & ~is_valid(files, "bad")
    to_read = is_grouped & ~is_kept & is_unopened
    had_group = as_numbers(last.find_groups(last.places_of(files)).is_valid())
    is_renamed = is_valid(files, "was")
    left_group = ~is_grouped & is_unopened & had_group & ~is_renamed
    to_open = np.flatnonzero(to_read | left_group)
    if job.append:
        files = refresh_files(files, np.flatnonzero(to_read), groups)
    files = replace_rows(files, to_open, open_rows(files.take(pa.array(to_open)), job))
    # a group without any row is none
    lengths = as_numbers(pc.list_value_length(files.column("spans")))
    has_rows = is_kept | _are_grouped_with(groups, lengths > 0)
    return replace_column(files, "group", pc.if_else(make_mask_array(has_rows), groups, None))


def _choose_groups(
    files: pa.Table, last: LastFiles, job: EmbedJob, stuck: pa.StringArray
) -> pa.StringArray:
    """Return the group of each readable file; null for those that stay alone."""
    is_readable = ~is_valid(files, "bad")
    if job.append:
        at = np.where(is_readable, last.places_of(files), -1)
        return last.find_groups(at)
    if job.limit is not None:
        return pa.nulls(len(files), pa.string())
    tokens = _estimate_tokens(files)
    is_small = is_readable & (SMALL * tokens < job.run.unit_tokens)
    bits = last.bits
    if not len(stuck):
        small = int(is_small.sum())
        bits = choose_bits(small, int(tokens[is_small].sum()), job.run.unit_tokens, bits)
    if bits is None:
        return pa.nulls(len(files), pa.string())
    groups: list[str | None] = [None] * len(files)
    at = np.flatnonzero(is_small)
    keys = hash_files(get_column(files, "path").take(pa.array(at)))
    for place, key in zip(at.tolist(), keys.tolist(), strict=True):
        groups[place] = name_group(key, bits)
    return texts(groups)


def _estimate_tokens(files: pa.Table) -> np.ndarray:
    """Return the estimated tokens of files, int64 [n]."""
    by_line = [name for name, format in FORMATS.items() if format.is_by_line]
    is_by_line = pc.is_in(files.column("format"), value_set=pa.array(by_line, pa.string()))
    is_plain = pc.and_(as_whole(is_by_line), pc.equal(find_compressions(files), ""))
    return estimate_tokens_by_size(get_numbers(files, "size"), as_numbers(is_plain))


def find_max_bits(files: pa.Table, others: int | None = None) -> int | None:
    """Return the bits of the groups of files, or of `others` if these are more; None without."""
    names = files.column("group").unique().drop_null().to_pylist()
    bits = [parse_bits(name) or 0 for name in names]
    if others is not None:
        bits.append(others)
    return max(bits, default=None)


def _find_stuck_groups(files: pa.Table, last: LastFiles, job: EmbedJob) -> pa.StringArray:
    """Return the groups that have rows of files which cannot be read now."""
    if not job.carry:
        return NO_GROUPS
    at = last.places_of(files.filter(files.column("bad").is_valid()))
    had = last.files.take(pa.array(at[at >= 0]))
    return (
        as_whole(had.filter(pc.greater(had.column("size"), 0)).column("group")).unique().drop_null()
    )


def _keep_as_they_were(
    files: pa.Table, last: LastFiles, stuck: pa.StringArray, job: EmbedJob
) -> pa.Table:
    """Return the plan with the groups of unreadable files as in the last snapshot, since all files
    of a group share its units.

    Changed, missing and new files are bad too. Raises SentenceBeamError if a shard is damaged.
    """
    is_member = as_numbers(pc.is_in(last.files.column("group"), value_set=stuck))
    had = last.files.filter(make_mask_array(is_member))
    at = look_up(had.column("path"), files.column("path"))
    now = files.take(make_places(at)).to_pylist()
    bad = _find_first_bad(had, now)
    hurt = np.flatnonzero(last.is_damaged[is_member])
    if len(hurt):
        raise SentenceBeamError(bad[had.column("group")[int(hurt[0])].as_py()]["bad"])
    reasons = [
        _explain(row, current, f"it shares units with {get_full_path(bad[row['group']])}")
        for row, current in zip(had.to_pylist(), now, strict=True)
    ]
    kept = replace_column(clear_pending(as_carried(had)), "bad", texts(reasons))
    kept = replace_column(kept, "group", had.column("group"))
    others = files.filter(
        pc.invert(pc.is_in(files.column("path"), value_set=get_column(had, "path")))
    )
    groups = _choose_groups(others, last, job, stuck)
    is_new = look_up(groups, stuck) >= 0
    left_out = [
        _leave_out(row, bad[group])
        for row, group in zip(
            others.filter(make_mask_array(is_new)).to_pylist(),
            groups.filter(make_mask_array(is_new)).to_pylist(),
            strict=True,
        )
    ]
    tables = [others.filter(make_mask_array(~is_new)), kept, make_planned_rows(left_out)]
    return pa.concat_tables(tables).sort_by("path").combine_chunks()


def _find_first_bad(had: pa.Table, now: list[Row]) -> dict[str, Row]:
    """Return the first unreadable file of each group."""
    first: dict[str, Row] = {}
    for group, row in zip(had.column("group").to_pylist(), now, strict=True):
        if row["bad"] is not None:
            first.setdefault(group, row)
    return first


def _explain(row: Row, now: Row, shares: str) -> str | None:
    """Return why a file of a group stays as it was; None if it is unchanged."""
    why = f"{shares}, which cannot be read"
    if now["path"] is None:
        return f"{get_full_path(row)} is gone and stays in the store: {why}"
    if now["bad"] is not None:
        bad: str = now["bad"]
        return bad
    if now["checksum"] == row["checksum"]:
        return None
    return f"{get_full_path(row)} has changed and stays as it was: {why}"


def _leave_out(row: Row, bad: Row) -> Row:
    """Return the row of a new file that would share units with an unreadable one."""
    path = get_full_path(row)
    (file,) = list_input_files(make_planned_rows([row]))
    empty = make_row(replace(file, size=0, checksum="", version="", cut=None))
    why = f"it shares units with {get_full_path(bad)}, which cannot be read"
    return empty | {
        "carried": False,
        "spans": [],
        "bad": f"{path} is new and left out: {why}",
    }
