"""Carried shards: check that the files of units that a run carries over are as written.

If listings of the storage have checksums, every shard is compared with its unit's record, and none
is read. Otherwise each run reads a part of them. Every shard has a place on a round, by a hash of
its path. A run begins where the last one stopped and covers a fraction of the round, but at least
up to the next shard. After 1 / fraction runs every shard was read, or after as many runs as there
are shards, if these are fewer.
"""

import hashlib
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.storage import Entry
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.key_range import ALL_KEYS, KeyRange
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord

ROUND = 1 << 32
ALMOST_SURELY = 20  # so many shards expected on a run's way: of e**20 runs one meets none
READ_AT_ONCE = 4


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

    def merge(self, other: "Checked") -> "Checked":
        """Return the sums of both."""
        return Checked.sum((self, other))

    @classmethod
    def sum(cls, parts: Iterable["Checked"]) -> "Checked":
        """Return the sums over all parts."""
        items = list(parts)
        counts = {
            name: sum(getattr(item, name) for item in items)
            for name in ("shards", "compared", "read", "bytes")
        }
        return cls(**counts, damaged=tuple(path for item in items for path in item.damaged))


NOTHING = Checked()
THERE = Checked(shards=1)
COMPARED = Checked(shards=1, compared=1)


def stride(manifest: Manifest | None, start: int, fraction: float) -> int:
    """Return how far on the round a run reads from the place `start`.

    At least the fraction, and far enough for one shard of the snapshot; 0 for the fraction 0.
    """
    if not fraction:
        return 0
    least = min(ROUND, math.ceil(fraction * ROUND))
    if manifest is None or fraction * manifest.unit_count > ALMOST_SURELY:
        return least
    return max(
        least, min((_way(start, unit.path) + 1 for unit in manifest.units if unit.path), default=0)
    )


def _way(start: int, path: str) -> int:
    """Return the distance on the round from a place to that of a shard."""
    place = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4])
    return (place - start) % ROUND


class CarriedShards:
    """The shards that a run may carry over; each is checked once.

    The first check lists the store's shards with these keys; others are asked for one by one.
    `start` is the run's place on the round, `stride` how far it reads.
    """

    def __init__(self, root: str, start: int = 0, stride: int = 0, keys: KeyRange = ALL_KEYS):
        self._root = root
        self._start = start
        self._stride = stride
        self._keys = keys
        self._seen: dict[str, Checked] = {}
        self._checksums: dict[str, str] = {}

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        folder = storage.join(self._root, layout.EMBEDDINGS)
        place = storage.storage_of(folder)
        if self._keys.is_empty:
            return {}
        if self._keys.is_all:
            found = place.below(folder)
        else:
            found = place.between(folder, self._keys.low, self._keys.high)
        return {entry.path: entry for entry in found}

    def _entry(self, path: str) -> Entry | None:
        """Return the entry of a shard, by its path in the store; None if it is missing.

        The shard of a renamed file may have a key of another range.
        """
        full = storage.join(self._root, path)
        if full not in self._entries and not self._keys.has(path.rpartition("/")[2]):
            found = storage.storage_of(full).stat(full)
            if found is not None:
                self._entries[full] = found
        return self._entries.get(full)

    def __call__(self, unit: UnitRecord) -> bool:
        """Return whether a unit has no shard, or one in which no damage was found."""
        return not self.check([unit]).damaged

    def check(self, units: Iterable[UnitRecord]) -> Checked:
        """Check the shards of units, and return the counts."""
        named = {unit.path: unit for unit in units if unit.path}
        if not named:
            return NOTHING
        to_read = [
            unit for path, unit in named.items() if path not in self._seen and not self._look(unit)
        ]
        if to_read:
            with ThreadPoolExecutor(READ_AT_ONCE) as pool:
                list(pool.map(self._read, to_read))
        return Checked.sum(self._seen[path] for path in named)

    def current(self, unit: UnitRecord) -> UnitRecord:
        """Return the record of a sound unit, with the listing's checksum if it was read."""
        checksum = self._checksums.get(unit.path or "")
        if checksum in (None, unit.checksum):
            return unit
        return replace(unit, checksum=checksum)

    def _look(self, unit: UnitRecord) -> bool:
        """Note the state of a shard in the listing; return False if it must be read."""
        path = unit.path or ""
        entry = self._entry(path)
        if entry is None or entry.size != unit.bytes:
            self._seen[path] = Checked(shards=1, damaged=(path,))
        elif entry.checksum and unit.checksum:  # one that differs may be of a copy of the store
            if entry.checksum != unit.checksum:
                return False
            self._seen[path] = COMPARED
        elif _way(self._start, path) < self._stride:
            return False
        else:
            self._seen[path] = THERE
        return True

    def _read(self, unit: UnitRecord) -> None:
        """Read a shard, and note whether it is as written."""
        path = unit.path or ""
        full = storage.join(self._root, path)
        try:
            sha256, size = storage.sha256_of(full)
        except (OSError, SentenceBeamError):
            sha256 = ""
            size = 0
        if sha256 != unit.sha256:
            self._seen[path] = Checked(shards=1, read=1, bytes=size, damaged=(path,))
            return
        self._seen[path] = Checked(shards=1, read=1, bytes=size)
        if self._entries[full].checksum:
            self._checksums[path] = self._entries[full].checksum
