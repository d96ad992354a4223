"""Carried shards: check that the files of units that a run carries over are as written.

If listings of the storage have checksums, every shard is compared with its unit's record, and none
is read. Otherwise each run reads a part of them. Every shard has a place on a round, by a hash of
its path. A run begins where the last one stopped and covers the share `CHECKED` of the round, but
at least up to the next shard. After 1 / `CHECKED` runs every shard was read, or after as many runs
as there are shards, if these are fewer. A file of rejected rows is read with the shard of its unit.
"""

import hashlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    as_numbers,
    as_whole,
    find_equals,
    get_column,
    get_numbers,
    is_valid,
    sum_column,
)
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.storage import Entry
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.tables.names import Owners
from sentence_beam.transforms.store.tables.table_parts import read_in_turns

ROUND = 1 << 32
CHECKED = 0.01  # share of the round that each run reads
ALMOST_SURELY = 20  # so many shards expected on a run's way: of e**20 runs one meets none
READ_AT_ONCE = 4
# of a unit, to check its shard and its file of rejected rows
COLUMNS = ("unit", "path", "bytes", "sha256", "checksum", "rejects", "rejects_sha256")
Written = tuple[str | None, bytes | None, str | None, bytes | None]  # path and sha256 of both
STATES = pa.schema(
    [
        ("unit", pa.string()),
        ("path", pa.string()),
        ("is_damaged", pa.bool_()),
        ("is_compared", pa.bool_()),  # by the checksum of the listing
        ("is_read", pa.bool_()),
        ("bytes", pa.int64()),  # that were read
        ("checksum", pa.string()),  # the listing's, if the record of a sound shard has another one
    ]
)


@dataclass(frozen=True)
class Checked:
    """The counts of a check of `shards` carried shards, and the damaged ones.

    `compared` were compared by checksum, `read` were read (`bytes`), the others exist in their
    size. `damaged` are shards that are missing or changed, by path in the store.
    """

    shards: int = 0
    compared: int = 0
    read: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()

    @classmethod
    def from_states(cls, states: pa.Table) -> "Checked":
        """Return the counts over states (`STATES`) of shards."""
        damaged = states.filter(states.column("is_damaged")).column("path").to_pylist()
        return cls(
            shards=len(states),
            compared=sum_column(states, "is_compared"),
            read=sum_column(states, "is_read"),
            bytes=sum_column(states, "bytes"),
            damaged=tuple(damaged),
        )


NOTHING = Checked()


def list_checksums(states: pa.Table) -> list[dict[str, str]]:
    """Return unit and checksum of sound shards whose records have another one than the listing."""
    differing = states.filter(states.column("checksum").is_valid()).select(["unit", "checksum"])
    listed: list[dict[str, str]] = differing.to_pylist()
    return listed


def stride(manifest: Manifest | None, start: int) -> int:
    """Return how far on the round a run reads from the place `start`.

    At least the share `CHECKED`, and far enough for one shard of the snapshot.
    """
    least = math.ceil(CHECKED * ROUND)
    if manifest is None or CHECKED * manifest.units.rows > ALMOST_SURELY:
        return least
    ways = compute_ways(get_column(manifest.shards, "path"), start)
    return max(least, int(ways.min(initial=ROUND - 1)) + 1 if len(ways) else 0)


def compute_ways(paths: pa.StringArray, start: int) -> np.ndarray:
    """Return the distances on the round from a place to those of shards, int64 [n]."""
    heads = b"".join(
        hashlib.sha256(path).digest()[:4] for path in paths.cast(pa.binary()).to_pylist()
    )
    return (np.frombuffer(heads, ">u4").astype(np.int64) - start) % ROUND


class ShardCheck:
    """The check of shards that a run may carry over.

    `start` is the run's place on the round, `stride` how far it reads. With names from `low` up to
    `high`, only the store's shards between them are listed, and others are asked for one by one.
    """

    def __init__(self, root: str, start: int = 0, stride: int = 0, low: str = "", high: str = ""):
        self._root = root
        self._start = start
        self._stride = stride
        self._low = low
        self._high = high
        self._listed: dict[str, dict[str, Entry]] = {}

    def _list_entries(self, folder: str) -> dict[str, Entry]:
        """Return the files of a folder of the store by full path; it is listed once."""
        if folder not in self._listed:
            full = storage.join(self._root, folder)
            place = storage.storage_of(full)
            has_range = self._high and place.lists_ranges(self._root)
            entries = place.between(full, self._low, self._high) if has_range else place.below(full)
            self._listed[folder] = {entry.path: entry for entry in entries}
        return self._listed[folder]

    def _find_entry(self, path: str) -> Entry | None:
        """Return the entry of a file, by its path in the store; None if it is missing.

        The files of a renamed file's units have names outside the range.
        """
        entries = self._list_entries(path.partition("/")[0])
        full = storage.join(self._root, path)
        if full not in entries and self._high:
            entry = storage.storage_of(full).stat(full)
            if entry is not None:
                entries[full] = entry
        return entries.get(full)

    def states(self, units: pa.Table) -> pa.Table:
        """Return the state (`STATES`) of the shard of each unit that has one, with its rejects.

        A unit without a written row has the state of its file of rejected rows. `units` have
        `COLUMNS`.
        """
        has_file = pc.or_(units.column("path").is_valid(), units.column("rejects").is_valid())
        units = units.select(COLUMNS).filter(has_file)
        paths = get_column(units, "path").fill_null(get_column(units, "rejects"))
        entries = [self._find_entry(path) for path in paths.to_pylist()]
        is_there = self._are_there(units, entries)
        listed = pa.array([(entry and entry.checksum) or None for entry in entries], pa.string())
        recorded = get_column(units, "checksum")
        has_both = as_numbers(pc.and_(listed.is_valid(), recorded.is_valid()))
        # one that differs may be of a copy of the store
        is_same = find_equals(listed, recorded)
        is_due = compute_ways(paths, self._start) < self._stride
        to_read = is_there & np.where(has_both, ~is_same, is_due)
        to_read |= is_there & is_due & is_valid(units, "rejects")
        written = units.select(["path", "sha256", "rejects", "rejects_sha256"])
        columns = (
            column.to_pylist() for column in written.filter(make_mask_array(to_read)).columns
        )
        read = self._read([*zip(*columns, strict=True)])
        is_sound = is_there.copy()
        is_sound[to_read] = [sound for sound, _ in read]
        sizes_read = np.zeros(len(entries), np.int64)
        sizes_read[to_read] = [size for _, size in read]
        is_new = to_read & is_sound & ~is_same
        return pa.table(
            {
                "unit": units.column("unit"),
                "path": paths,
                "is_damaged": make_mask_array(~is_sound),
                "is_compared": make_mask_array(is_there & has_both & is_same),
                "is_read": make_mask_array(to_read),
                "bytes": pa.array(sizes_read),
                "checksum": pc.if_else(
                    make_mask_array(is_new), listed, pa.scalar(None, pa.string())
                ),
            },
            schema=STATES,
        )

    def _are_there(self, units: pa.Table, entries: Sequence[Entry | None]) -> np.ndarray:
        """Return whether the files of each unit exist, a shard in its size; bool [n].

        `entries` are those of its shard, or of its rejected rows if it has none.
        """
        sizes = np.array([-1 if entry is None else entry.size for entry in entries], np.int64)
        is_there = np.where(
            is_valid(units, "path"), sizes == get_numbers(units, "bytes"), sizes >= 0
        )
        rejects = get_column(units, "rejects").to_pylist()
        has_rejects = [path is None or self._find_entry(path) is not None for path in rejects]
        return is_there & np.array(has_rejects, bool)

    def _read(self, shards: Sequence[Written]) -> list[tuple[bool, int]]:
        """Read shards; return whether each is as written, and its size in bytes."""
        if not shards:
            return []
        with ThreadPoolExecutor(READ_AT_ONCE) as pool:
            return list(pool.map(self._is_as_written, shards))

    def _is_as_written(self, written: Written) -> tuple[bool, int]:
        shard, rejects = written[:2], written[2:]
        read = 0
        for path, digest in (shard, rejects):
            if path is None or digest is None:
                continue
            try:
                sha256, size = storage.sha256_of(storage.join(self._root, path))
            except (OSError, SentenceBeamError):
                return False, 0
            if sha256 != digest.hex():
                return False, size
            read += size
        return True, read


def check_all(root: str, units: TableEntry, check: ShardCheck) -> pa.Table:
    """Return the states of all shards of a snapshot, checked in this process."""
    states = [check.states(rows) for _, rows in read_in_turns(root, units, COLUMNS)]
    return pa.concat_tables([STATES.empty_table(), *states])


def select_carried(states: pa.Table, files: pa.Table, replaces: str) -> pa.Table:
    """Return the states of those shards that a plan carries over, and of damaged ones.

    `files` are the plan's. With `replaces` all units of the last snapshot are carried.
    """
    if replaces or not len(states):
        return states
    names = pc.coalesce(files.column("was"), files.column("path"))
    carried = files.filter(files.column("carried"))
    paths = as_whole(names).filter(get_column(files, "carried"))
    order = pc.sort_indices(paths)
    owners = Owners(paths.take(order), get_column(carried, "group").take(order))
    is_carried = owners.of(get_column(states, "unit")) >= 0
    return states.filter(make_mask_array(is_carried | get_numbers(states, "is_damaged")))
