"""Vectors of the last snapshot by the hash of their row's text, so that texts are embedded once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_matrix, get_hash_prefixes
from sentence_beam.transforms.base.columns import look_up, take_rows_at
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.gather import list_places
from sentence_beam.transforms.corpus import InputFile, UnitRows
from sentence_beam.transforms.corpus.buckets import Bucket, parse_name
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.manifest import Manifest, read_shared
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.run_result import has_committed
from sentence_beam.transforms.store.shards.shard_columns import REUSED_COLUMNS
from sentence_beam.transforms.store.shards.shard_reading import (
    compute_pooled_vectors,
    read_checked,
    read_shard,
)
from sentence_beam.transforms.store.shards.unit_vectors import Vectors
from sentence_beam.transforms.store.tables.names import format_keys

FEW_BYTES = 64 << 20
ALWAYS_READ = 16  # shards that a unit may take from however few rows they give
RENAMED = 64  # other names at most under which units are looked for, for all files of a group
ROWS_FOR_ONE = 256  # beyond those, a shard is read only if it gives one row in so many


@dataclass(frozen=True)
class Found:
    """Rows of old shards: `places` int64 [n] among the requested hashes, and their `vectors`.

    `vectors` is None without a row; `damaged` are shards that could not be used, by path in the
    store.
    """

    places: np.ndarray
    vectors: Vectors | None = None
    damaged: tuple[str, ...] = ()


NOTHING = Found(np.empty(0, np.int64))


class LastSnapshot:
    """The vectors that a run in `space` may reuse from the snapshot of `run`, if any.

    `digest` is that snapshot's, None if it is not known. Only the needed parts are read.
    """

    def __init__(self, root: str, run: str | None, space: Space, digest: str | None = None):
        self._root = root
        self._run = run
        self._wanted = space
        self._digest = digest
        self._committed: dict[str, bool] = {}
        self._last: tuple[str, OldShards] | None = None

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest of the snapshot; None without one."""
        return read_shared(self._root, self._run, self._digest)

    @cached_property
    def is_final(self) -> bool:
        """Whether its final vectors are reused unchanged; else its pooled ones are."""
        return self.manifest is None or (
            self.manifest.space.id == self._wanted.id and self._wanted.precision == "float32"
        )

    def had(self, unit: UnitRecord) -> bool:
        """Return whether a unit in the store is of this snapshot or an earlier one.

        Otherwise it is of an interrupted run.
        """
        if self.manifest is None:
            return False
        if any(old.path == unit.path for old in self.manifest.read_units_of(unit.unit)):
            return True
        if unit.run not in self._committed:
            self._committed[unit.run] = has_committed(self._root, unit.run)
        return self._committed[unit.run]

    def find_units_of_files(self, files: Sequence[InputFile]) -> list[UnitRecord]:
        """Return the earlier units of files, and those of files with the same bytes.

        At most `RENAMED` other names are looked up.
        """
        if self.manifest is None:
            return []
        own, twins = (
            {file.before[place]: None for file in files if file.before[place]} for place in (0, 1)
        )
        names = dict.fromkeys([*own, *list(twins)[:RENAMED]])
        by_shard = {unit.path: unit for name in names for unit in self.manifest.read_units_of(name)}
        return list(by_shard.values())

    def find_units_of_bucket(self, bucket: Bucket) -> list[UnitRecord]:
        """Return the units of a bucket, or of those that contain it or that it contains."""
        if self.manifest is None or self.manifest.buckets is None:
            return []
        bits = self.manifest.buckets.bits
        return [
            unit
            for number in bucket.at(bits)
            for unit in self.manifest.read_units_of(Bucket(bits, number).name)
        ]

    def open_shards_of(self, unit: UnitRows) -> "OldShards":
        """Return the shards that may have the texts of a unit.

        The last ones are kept: units of one file follow each other.
        """
        bucket = parse_name(unit.name)
        key = unit.file.relative if unit.file else unit.name.partition(".")[0]
        if self._last is None or self._last[0] != key:
            if bucket is not None:
                units = self.find_units_of_bucket(bucket)
            else:
                files = (unit.file,) if unit.file else unit.sources
                units = self.find_units_of_files(files)
            self._last = (key, self.shards(units))
        return self._last[1]

    def shards(self, units: list[UnitRecord]) -> "OldShards":
        """Return the shards of some of its units."""
        space = self.manifest.space if self.manifest else self._wanted
        return OldShards(self._root, space, units, self.is_final)


def add_units_before(
    spans: Iterator[AnySpan], files: pa.Table, last: Manifest | None
) -> Iterator[AnySpan]:
    """Yield the spans of a plan's files, which know the names of their units in the last snapshot.

    These names are `InputFile.before`. The planner has read the snapshot, so workers need not.
    """
    if last is None:
        yield from spans
        return
    before = _find_units_before(files, last.read_files())
    for span in spans:
        if isinstance(span, GroupSpan):
            parts = tuple(replace(part, file=_add_before(part.file, before)) for part in span.spans)
            yield replace(span, spans=parts)
        else:
            yield replace(span, file=_add_before(span.file, before))


def _add_before(file: InputFile, before: dict[str, tuple[str, str]]) -> InputFile:
    return replace(file, before=before.get(file.relative, ("", "")))


def _find_units_before(files: pa.Table, last: pa.Table) -> dict[str, tuple[str, str]]:
    """Return the names of the last snapshot's units that may hold the texts of files to read.

    By relative path: of the units of the file of that name, then of one with the same bytes; ""
    without one.
    """
    read = files.filter(pc.invert(files.column("carried")))
    listed = last.filter(pc.not_equal(last.column("checksum"), ""))
    own = look_up(read.column("path"), last.column("path"))
    twins = look_up(read.column("checksum"), listed.column("checksum"))
    pairs = (
        _name_units(last, own).to_pylist(),
        _name_units(listed, twins).to_pylist(),
        take_rows_at(listed, twins).column("path").to_pylist(),
    )
    units = {}
    for path, mine, twin, named in zip(read.column("path").to_pylist(), *pairs, strict=True):
        units[path] = (mine, "" if named == path else twin)
    return units


def _name_units(files: pa.Table, at: np.ndarray) -> pa.Array:
    """Return the beginnings of the names of the units of files at places; "" without units."""
    some = take_rows_at(files, at)
    paths = pc.fill_null(some.column("path"), "")
    own = pc.if_else(pc.greater(pc.fill_null(some.column("units"), 0), 0), format_keys(paths), "")
    return pc.coalesce(some.column("group"), own)


class OldShards:
    """Rows of some shards of one space by row hash, with final or with pooled vectors.

    Holds 16 bytes a row, or all rows of a few remote shards. A shard is read whole when rows are
    taken from it, and only if its sha256 is as written.
    """

    def __init__(self, root: str, space: Space, units: Iterable[UnitRecord], final: bool = True):
        self._root = root
        self._space = space
        self._final = final
        self._units = [unit for unit in units if unit.path]
        self._damaged: set[str] = set()
        # A remote request takes longer than a megabyte does: a few shards are fetched whole, once.
        self._few = (
            not storage.is_local(root) and sum(unit.bytes for unit in self._units) <= FEW_BYTES
        )
        self._tables: dict[int, pa.Table] = {}
        self._keys, self._shard, self._row = self._build_index()

    def _build_index(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return first halves of the hashes, sorted, and the shard and row of each.

        A hash occurs once for each shard.
        """
        parts = [self._read_keys(number) for number in range(len(self._units))]
        keys = np.concatenate([keys for keys, _ in parts] or [np.empty(0, np.uint64)])
        shard = np.repeat(np.arange(len(parts), dtype=np.int32), [len(keys) for keys, _ in parts])
        row = np.concatenate([row for _, row in parts] or [np.empty(0, np.int32)])
        order = np.argsort(keys, kind="stable")
        return keys[order], shard[order], row[order]

    def _read_keys(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        try:
            path = storage.join(self._root, self._units[number].path or "")
            rows = self._load(number).to_batches() if self._few else read_shard(path, ["row_hash"])
            hashes = np.concatenate([as_hashes(batch.column("row_hash")) for batch in rows])
        except Exception:  # a damaged footer, which has no checksum, raises what it likes
            hashes = np.empty((0, 16), np.uint8)
        if len(hashes) != self._units[number].rows:
            self._set_aside(number)
            hashes = hashes[:0]
        keys, row = np.unique(get_hash_prefixes(hashes), return_index=True)
        return keys, row.astype(np.int32)

    def _load(self, number: int) -> pa.Table:
        """Return a shard's rows, once its bytes have been checked."""
        unit = self._units[number]
        table = self._tables.get(number)
        if table is None:
            table = read_checked(
                storage.join(self._root, unit.path or ""), unit.sha256, REUSED_COLUMNS
            )
        if self._few:
            self._tables[number] = table
        return table

    def _set_aside(self, number: int) -> None:
        self._damaged.add(self._units[number].path or "")

    def find(self, hashes: list[bytes]) -> Found:
        """Return the rows with these hashes, one for each hash.

        Shards that give most of them are read first.
        """
        if not self._units:
            return NOTHING
        wanted = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 16)
        place, entry = self._find_candidates(get_hash_prefixes(wanted))
        parts: list[tuple[np.ndarray, Vectors]] = []
        while len(place):
            matches = np.bincount(self._shard[entry])
            number = int(matches.argmax())
            if (
                len(parts) >= ALWAYS_READ
                and matches[number] * ROWS_FOR_ONE < self._units[number].rows
            ):
                break
            here = self._shard[entry] == number
            part = self._take(number, self._row[entry[here]], wanted[place[here]])
            taken = place[here][part[0]] if part else place[:0]
            if part and len(taken):
                parts.append((taken, part[1]))
            left = ~here & ~np.isin(place, taken)
            place = place[left]
            entry = entry[left]
        damaged = tuple(sorted(self._damaged))
        if not parts:
            return Found(NOTHING.places, damaged=damaged)
        return Found(
            np.concatenate([p for p, _ in parts]), Vectors.concat([v for _, v in parts]), damaged
        )

    def _find_candidates(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every (place among the keys, place in the index) with the same key."""
        start = np.searchsorted(self._keys, keys, "left")
        stop = np.searchsorted(self._keys, keys, "right")
        count = stop - start
        return np.repeat(np.arange(len(keys)), count), list_places(start, count)

    def _take(
        self, number: int, rows: np.ndarray, hashes: np.ndarray
    ) -> tuple[np.ndarray, Vectors] | None:
        """Return those of the rows that have these hashes, and their vectors.

        Returns None for a damaged shard.
        """
        try:
            table = self._load(number)
        except SentenceBeamError:
            self._set_aside(number)
            return None
        batch = table.take(pa.array(rows)).combine_chunks().to_batches()[0]
        right = np.flatnonzero((as_hashes(batch.column("row_hash")) == hashes).all(axis=1))
        return right, make_stored_vectors(batch, self._space, self._final).take(right)


def make_stored_vectors(batch: pa.RecordBatch, space: Space, final: bool) -> Vectors:
    """Return rows of a shard with `REUSED_COLUMNS`, with final or with pooled vectors."""
    truncated = batch.column("truncated").to_numpy(zero_copy_only=False)
    tokens = batch.column("tokens").to_numpy()
    limit = space.max_tokens or 0  # without a limit nothing is cut
    pooled = None
    if final:
        embedding = as_matrix(batch.column("embedding"))
        if "pooled" in batch.schema.names:
            pooled = as_matrix(batch.column("pooled"))
    else:
        embedding = compute_pooled_vectors(batch, space.normalize)
    return Vectors(
        embedding=embedding,
        norm=batch.column("norm").to_numpy(),
        tokens=tokens,
        truncated=truncated,
        lost=np.where(truncated, tokens - limit, 0).astype(np.int32),
        pooled=pooled,
    )
