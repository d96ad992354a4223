"""Compare snapshots by the changed rows that the runs between them recorded.

Only shards that have a changed row are read, and of these the ids alone.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DataGateError, SentenceBeamError, cite
from sentence_beam.transforms.push.pushed_rows import find_columns
from sentence_beam.transforms.push.target import KEYS
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.changed_rows import (
    Changes,
    Step,
    find_steps,
    read_changes,
)
from sentence_beam.transforms.store.runs.run_result import read_result
from sentence_beam.transforms.store.shards.shard_reading import read_shard
from sentence_beam.transforms.store.tables.unit_rows import find_differing_parts

REPEATED = (
    "is that of several rows, and a database has one for each id; "
    f"give the rows ids of their own ({cite('id_column')}) and embed again"
)
MOST_ROWS = 5_000_000  # of files that are held in memory; a comparison of shards is bounded


@dataclass(frozen=True)
class Touched:
    """An id that some run changed: its shard after the last change, None if it is deleted.

    `was_there` says whether the old snapshot has it.
    """

    shard: str | None
    was_there: bool


@dataclass(frozen=True)
class RecordedDifference:
    """The rows to write, by the number of their shard, the ids to delete, and the counts."""

    rows: "dict[int, array[int]]"
    deleted: list[str]
    counts: Changes


def compare_recorded(
    new: Manifest, columns: pa.Schema, old: Sequence[Manifest]
) -> RecordedDifference | None:
    """Compare a snapshot with earlier ones, of which the last complete push left the first.

    Returns None if the recorded changes do not tell the difference: some are missing, rows are
    pieces of documents, ids repeat, or vectors or columns differ otherwise. Raises DataGateError if
    two rows have one id.
    """
    if not old or KEYS[1] in columns.names:
        return None
    chains = []
    for manifest in old:
        steps = find_steps(manifest, new)
        if steps is None or not _is_complete(manifest, new, columns, steps):
            return None
        chains.append(steps)
    try:
        touched = [_collect_touched(steps) for steps in chains]
    except SentenceBeamError:  # the shards themselves are compared
        return None
    return _combine(new, old, touched)


def _is_complete(old: Manifest, new: Manifest, columns: pa.Schema, steps: list[Step]) -> bool:
    """Return whether the recorded rows are all that differ, and few enough to be held."""
    same = all(_list_deciding(step.manifest) == _list_deciding(old) for step in steps)
    same = same and all(_has_own_ids(step.manifest) for step in steps)
    rows = sum(file.rows for step in steps for file in step.changes.files)
    return same and rows <= MOST_ROWS and find_columns(old).equals(columns)


def _list_deciding(manifest: Manifest) -> tuple[object, ...]:
    """Return what decides a row's vector and columns, beside its text and kept values."""
    options = manifest.options
    kept = (options.keep_columns, options.kept_text)
    return (manifest.space.id, manifest.generation, manifest.ranges, *kept)


def _has_own_ids(manifest: Manifest) -> bool:
    """Return whether each row of a snapshot is known to have an id of its own."""
    result = read_result(manifest.root, manifest.run)
    return result is not None and result.duplicate_ids == 0


def _collect_touched(steps: list[Step]) -> dict[str, Touched]:
    """Return the ids that some runs changed, the latest run first."""
    touched: dict[str, Touched] = {}
    for step in progress.count_over(steps, "comparing", "runs"):
        for file in step.changes.files:
            table = read_changes(step.manifest.root, file)
            there = pc.is_valid(table.column("old_row_hash")).to_pylist()
            gone = pc.is_null(table.column("new_row_hash")).to_pylist()
            ids, shards = (table.column(name).to_pylist() for name in ("id", "shard"))
            for row_id, was_there, is_gone, shard in zip(ids, there, gone, shards, strict=True):
                now = None if is_gone else shard
                if row_id in touched:
                    now = touched[row_id].shard
                touched[row_id] = Touched(now, was_there)
    return touched


def _combine(
    new: Manifest, old: Sequence[Manifest], touched: list[dict[str, Touched]]
) -> RecordedDifference | None:
    every = {row_id: change for ids in reversed(touched) for row_id, change in ids.items()}
    wanted = {row_id: change.shard for row_id, change in every.items() if change.shard is not None}
    rows = _find_places(new, old, wanted)
    if rows is None:
        return None
    first = touched[0]
    # an id that did not change since the first snapshot is there if it is in the new one
    was_there = {row_id for row_id in every if row_id not in first or first[row_id].was_there}
    deleted = sorted(every.keys() - wanted.keys())
    changed = len(was_there & wanted.keys())
    left = sum(row_id in first and first[row_id].was_there for row_id in deleted)
    return RecordedDifference(rows, deleted, Changes(len(wanted) - changed, changed, left))


def _find_places(
    new: Manifest, old: Sequence[Manifest], wanted: dict[str, str]
) -> "dict[int, array[int]] | None":
    """Return the rows of wanted ids by the number of their shard; None if they are not found.

    `wanted` are their shards. Some of these may have been rewritten since; then all shards are read
    that an old snapshot lacks. Raises DataGateError if two rows have one id.
    """
    shards = _find_shards(new, old, wanted)
    ids = pa.array(list(wanted), pa.string())
    places: dict[int, array[int]] = {}
    seen: list[pa.Array] = []
    for number in progress.count_over(shards, "comparing", "shards"):
        shard = new.shard(number)
        start = 0
        rows = array("i")
        for batch in read_shard(shard.full_path, ["id"], shard.bytes):
            here = np.flatnonzero(pc.is_in(batch.column(0), value_set=ids).to_numpy(False))
            seen.append(batch.column(0).take(pa.array(here)))
            rows.extend((here + start).tolist())
            start += batch.num_rows
        if rows:
            places[number] = rows
    _check_unique(seen)
    return places if sum(map(len, seen)) == len(wanted) else None


def _find_shards(new: Manifest, old: Sequence[Manifest], wanted: dict[str, str]) -> list[int]:
    """Return the numbers of the shards with the wanted ids; more if some were rewritten since."""
    paths = set(wanted.values())
    numbers = sorted(map(new.find_shard_number, paths))
    if not numbers or numbers[0] >= 0:
        return numbers
    others = (find_differing_parts(new.root, manifest.units, new.units)[1] for manifest in old)
    paths = {path for units in others for path in units.column("path").to_pylist()}
    return sorted(map(new.find_shard_number, paths))


def _check_unique(ids: list[pa.Array]) -> None:
    """Raise DataGateError if two rows have one id."""
    counted = pc.value_counts(pa.chunked_array(ids, pa.string()))
    repeated = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(repeated):
        raise DataGateError(f"the id {repeated.field('values')[0].as_py()!r} {REPEATED}")
