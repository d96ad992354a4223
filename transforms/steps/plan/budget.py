"""The files that a run takes within its budget; the others are pending, left to later runs.

Files that share units or names of shards are taken together. A pending file keeps the rows that the
last snapshot has of it. Files whose vectors the last snapshot has cost nothing and never wait.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    as_numbers,
    find_equals,
    get_column,
    get_numbers,
    is_valid,
    look_up,
    make_places,
    replace_column,
    replace_rows,
    sum_by_place,
    texts,
)
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.grouped_files import LastFiles
from sentence_beam.transforms.steps.plan.planned import as_carried
from sentence_beam.transforms.store.runs.recorded_plan import PLAN, BudgetNotes, get_span_values
from sentence_beam.transforms.store.tables.file_rows import compare, match_bytes
from sentence_beam.transforms.store.tables.names import format_keys
from sentence_beam.transforms.store.tables.table_columns import COUNT, TEXT

# Options and fields of the space whose change leaves the pooled vectors of unchanged files.
KEEP_VECTORS = {
    "keep_columns", "keep_text", "id_column", "unit_tokens", "normalize", "truncate_dim",
    "precision", "calibration", "dim",
}  # fmt: skip
NO_COUNT = pa.scalar(None, COUNT)
NO_GROUP = pa.scalar(None, TEXT)


@dataclass(frozen=True)
class _Costs:
    """The cost of each file of a plan, in arrays [n].

    `at` is the place of the file of the same name in the last snapshot, -1 without one; `is_same`
    says that it has the same bytes. `tokens` are estimated, 0 for those whose vectors are known.
    Files with the same number `part` are taken together; those that `must` are taken in any case.
    """

    at: np.ndarray
    is_read: np.ndarray
    is_same: np.ndarray
    tokens: np.ndarray
    part: np.ndarray
    must: np.ndarray


def apply_budget(
    files: pa.Table, last: LastFiles, job: EmbedJob
) -> tuple[pa.Table, BudgetNotes | None]:
    """Return the plan with the files pending that are beyond the run's budget, and its notes.

    `files` are rows `PLANNED`, sorted by path. Files are taken in the order of their names as long
    as their tokens fit, at least one. Raises OptionError if a pending file would keep rows that the
    run changes.
    """
    if job.budget is None:
        return files, None
    costs = _compute_costs(files, last, job)
    is_waiting, expected = _choose_waiting(costs, job.budget)
    waits = np.flatnonzero(is_waiting[costs.part] & costs.is_read)
    is_kept = _has_rows(files, costs.at)[waits]
    if job.read_again and is_kept.any():
        raise OptionError(
            f"{', '.join(job.read_again)} would change in every row, and"
            f" {format_count(int(is_kept.sum()), 'file')} beyond {cite('budget')} {job.budget:,}"
            f" would stay as before: say {cite('budget')} none with it, or wait"
        )
    waiting = _list_waiting_tokens(files, costs, is_waiting)
    old, new = waits[is_kept], waits[~is_kept]
    rows = [_keep_rows(files, last, costs, old), _make_empty_rows(files, costs, new)]
    files = replace_rows(files, np.append(old, new), pa.concat_tables(rows))
    return files, BudgetNotes(job.budget, expected, waiting)


def _compute_costs(files: pa.Table, last: LastFiles, job: EmbedJob) -> _Costs:
    at = last.places_of(files)
    is_read = is_valid(files, "spans") & ~is_valid(files, "bad")
    is_same = compare(files, last.files, job.columns.path_names).is_same
    has_rows = (get_numbers(last.files, "units") > 0) | is_valid(last.files, "group")
    twins = match_bytes(files, is_read & (at < 0), last.files, has_rows & ~last.is_damaged)
    is_known = (is_same & ~last.damaged(at)) | (twins >= 0)
    is_known &= set(job.read_again) <= KEEP_VECTORS
    tokens = np.where(is_known, 0, _estimate_tokens(files, job.run.estimate.share))
    is_moved = is_valid(files, "was") & is_known
    is_regrouped = _is_regrouped(files, last, at)
    must = is_read & (last.damaged(at) | is_moved | is_regrouped | _has_lost_a_member(at, last))
    return _Costs(at, is_read, is_same, tokens, _number_parts(files, last, at, is_regrouped), must)


def _estimate_tokens(files: pa.Table, share: float) -> np.ndarray:
    """Return the estimated tokens of the spans of each file, int64 [n].

    `share` is that of the tokens which came of those that earlier plans had estimated.
    """
    of_spans = get_span_values(files, "tokens").to_numpy(zero_copy_only=False)
    parents = pc.list_parent_indices(get_column(files, "spans")).to_numpy(zero_copy_only=False)
    tokens = sum_by_place(parents, len(files), of_spans)
    return np.where(tokens > 0, np.maximum(1, np.rint(tokens * share)), 0).astype(np.int64)


def _is_regrouped(files: pa.Table, last: LastFiles, at: np.ndarray) -> np.ndarray:
    """Return which files are in another group than before, because there are more groups now."""
    now = get_column(files, "group")
    before = last.find_groups(at)
    has_both = as_numbers(pc.and_(now.is_valid(), before.is_valid()))
    return has_both & ~find_equals(now, before)


def _has_lost_a_member(at: np.ndarray, last: LastFiles) -> np.ndarray:
    """Return which files were in a group of which another file is deleted, bool [n].

    That one's rows leave the store tonight, so the group is read.
    """
    before = get_column(last.files, "group")
    names = before.unique().drop_null()
    now = look_up(last.find_groups(at), names)
    is_fewer = sum_by_place(now, len(names)) < sum_by_place(look_up(before, names), len(names))
    return np.append(is_fewer, False)[now]


def _number_parts(
    files: pa.Table, last: LastFiles, at: np.ndarray, is_regrouped: np.ndarray
) -> np.ndarray:
    """Return a number for each file, equal for those that are taken together, int64 [n].

    These share a group, now or in the last snapshot, or one has shards with the other's name. New
    files of a group need not come with the regrouped ones.
    """
    before = last.find_groups(at)
    now = pc.if_else(make_mask_array(is_regrouped), NO_GROUP, get_column(files, "group"))
    links = [look_up(before, before), look_up(now, now)]
    shards_of = get_column(last.files, "shards_of").take(make_places(at))
    if shards_of.null_count < len(shards_of):
        links.append(look_up(shards_of, format_keys(get_column(files, "path"))))
    part = np.arange(len(files))
    while True:
        earlier = part.copy()
        for link in links:
            place = np.flatnonzero(link >= 0)
            np.minimum.at(part, link[place], part[place])
            part[place] = part[link[place]]
        if (part == earlier).all():
            return part


def _choose_waiting(costs: _Costs, budget: int) -> tuple[np.ndarray, int]:
    """Return which parts wait, bool [n], and the tokens of those that are taken."""
    files = len(costs.part)
    tokens = sum_by_place(costs.part, files, costs.tokens)
    must = np.zeros(files, bool)
    must[costs.part[costs.must]] = True
    taken = int(tokens[must].sum())
    parts = _sort_parts(costs, (tokens > 0) & ~must)
    fits = taken + np.cumsum(tokens[parts]) <= budget
    if not taken:
        fits[:1] = True
    is_waiting = np.zeros(files, bool)
    is_waiting[parts[~fits]] = True
    return is_waiting, taken + int(tokens[parts[fits]].sum())


def _sort_parts(costs: _Costs, is_wanted: np.ndarray) -> np.ndarray:
    """Return the wanted parts in order of their first files that cost tokens."""
    costly = np.flatnonzero((costs.tokens > 0) & is_wanted[costs.part])
    return costs.part[costly][np.sort(np.unique(costs.part[costly], return_index=True)[1])]


def _list_waiting_tokens(files: pa.Table, costs: _Costs, is_waiting: np.ndarray) -> tuple[int, ...]:
    """Return the tokens of the parts that wait, and of files pending that are not named, in
    order.
    """
    of_parts = sum_by_place(costs.part, len(files), costs.tokens)
    parts = _sort_parts(costs, is_waiting)
    earlier = np.flatnonzero(is_valid(files, "pending_tokens") & ~costs.is_read)
    first = np.append(parts, earlier)
    tokens = np.append(of_parts[parts], get_numbers(files, "pending_tokens")[earlier])
    return tuple(tokens[np.argsort(first, kind="stable")].tolist())


def _has_rows(files: pa.Table, at: np.ndarray) -> np.ndarray:
    """Return which files have rows that they can keep, bool [n].

    Those that a renamed file has taken over are none.
    """
    carried = files.filter(files.column("carried"))
    is_given = look_up(files.column("path"), carried.column("was")) >= 0
    return (at >= 0) & ~is_given


def _keep_rows(files: pa.Table, last: LastFiles, costs: _Costs, at: np.ndarray) -> pa.Table:
    """Return the rows of pending files, at places of the plan, that keep their earlier rows.

    A later run sees by version and checksum that they have changed. Unchanged files of a group that
    waits are not pending.
    """
    names = ("folder", "source", "cut", "ms", "version", "size")
    now = files.select(names).take(pa.array(at))
    before = last.files.take(pa.array(costs.at[at]))
    is_same = make_mask_array(costs.is_same[at])
    rows = as_carried(before)
    for name in ("folder", "source", "cut", "ms"):
        rows = replace_column(rows, name, now.column(name))
    rows = replace_column(rows, "group", before.column("group"))
    rows = replace_column(
        rows, "version", pc.if_else(is_same, now.column("version"), before.column("version"))
    )
    tokens = pa.array(costs.tokens[at], COUNT)
    marks = {"pending_bytes": now.column("size"), "pending_tokens": tokens}
    for name, values in marks.items():
        rows = replace_column(rows, name, pc.if_else(is_same, NO_COUNT, values))
    return rows


def _make_empty_rows(files: pa.Table, costs: _Costs, at: np.ndarray) -> pa.Table:
    """Return the rows of pending files, at places of the plan, that have no rows in the store yet.

    Their cut stays that of their first night.
    """
    count = len(at)
    empty = texts([""] * count)
    spans = PLAN.field("spans").type
    none = pa.ListArray.from_arrays(
        pa.array(np.zeros(count + 1, np.int32)), pa.array([], spans.value_type), spans
    )
    values = {
        "checksum": empty,
        "version": empty,
        "size": pa.array(np.zeros(count, np.int64), COUNT),
        "spans": none,
        "pending_bytes": get_column(files, "size").take(pa.array(at)),
        "pending_tokens": pa.array(costs.tokens[at], COUNT),
    }
    for name in ("group", "shards_of", "was", "kept", "keys", "lacks"):
        values[name] = pa.nulls(count, files.schema.field(name).type)
    others = [name for name in files.column_names if name not in values]
    rows = files.select(others).take(pa.array(at))  # without spans, which take most memory
    columns = [values[name] if name in values else rows.column(name) for name in files.column_names]
    return pa.table(columns, schema=files.schema)
