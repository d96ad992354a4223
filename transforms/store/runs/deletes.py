"""Deleted rows, as `--max-deletes` counts them: rows that the next snapshot lacks.

If ids come from a column, a row is found by its id. Otherwise it is found by its file: its rows are
deleted if the file left the input or has fewer rows; files that were renamed or moved count as the
same. If files do not matter, rows are found by their texts: with `--partition content`, and for
input without a name of its own (standard input, rows in a program's memory).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow import as_hashes, hash_prefixes
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.buckets import in_buckets
from sentence_beam.transforms.corpus.files import is_unnamed
from sentence_beam.transforms.store.entries import InputEntry, RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.carry import content_of
from sentence_beam.transforms.store.shards.id_hashes import hash_ids
from sentence_beam.transforms.store.shards.reading import read_shard

PLACE = re.compile(r"[#@][0-9]+$")  # in an id that was made: the number of a row, or its first byte
OF_TEXTS = ("text_column", "text_template", "chunks", "chunk_prefix")


@dataclass(frozen=True)
class RowKeys:
    """The key by which a row of one snapshot is found in another: its text, its file or its id.

    `renamed` are the new relative paths of files whose rows have ids with the old ones.
    """

    by_text: bool = False
    by_file: bool = False
    renamed: dict[str, str] = field(default_factory=dict)

    def read(self, path: str, size: int, is_new: bool) -> "KeyedRows":
        """Return the rows of a shard by their keys. A document counts by its first piece."""
        if self.by_text:
            columns = ["row_hash", "doc_hash", "piece"]
        else:
            columns = ["id", "piece"]
        parts = [self._keys(batch, is_new) for batch in read_shard(path, columns, size)]
        keys, rows = np.unique(
            np.concatenate(parts or [np.empty(0, np.uint64)]), return_counts=True
        )
        sign = -1 if is_new else 1
        return KeyedRows(keys, sign * rows)

    def _keys(self, batch: pa.RecordBatch, is_new: bool) -> np.ndarray:
        names = batch.schema.names
        if "piece" in names:
            batch = batch.filter(pc.equal(batch.column("piece"), 0))
        if self.by_text:
            name = "doc_hash" if "doc_hash" in names else "row_hash"
            return hash_prefixes(as_hashes(batch.column(name)))
        ids = batch.column("id")
        if not self.by_file:
            return hash_ids(ids)
        renamed = {} if is_new else self.renamed
        return hash_ids(self._files(ids, renamed))

    def _files(self, ids: pa.StringArray, renamed: dict[str, str]) -> pa.StringArray:
        """Return the relative paths of the files in ids, by their new names."""
        paths = [PLACE.sub("", row_id) for row_id in ids.to_pylist()]
        return pa.array([renamed.get(path, path) for path in paths], pa.string())


@dataclass(frozen=True)
class KeyedRows:
    """Keys uint64 [n], and the rows of each int64 [n]: old rows count 1, new ones -1."""

    keys: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, parts: Iterable["KeyedRows"]) -> "KeyedRows":
        """Return the sum of several shards' rows, without keys of which no row is left over."""
        found = [cls(np.empty(0, np.uint64), np.empty(0, np.int64)), *parts]
        keys, places = np.unique(np.concatenate([part.keys for part in found]), return_inverse=True)
        rows = np.bincount(places, np.concatenate([part.rows for part in found]), len(keys))
        left = rows != 0
        return cls(keys[left], rows[left].astype(np.int64))

    def by_bucket(self, buckets: int) -> Iterator[tuple[int, bytes]]:
        """Yield (bucket, packed rows) for the keys."""
        for number, places in in_buckets(self.keys % np.uint64(buckets), buckets):
            rows = self.rows[places].astype("<i4")
            yield number, self.keys[places].astype("<u8").tobytes() + rows.tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> "KeyedRows":
        """Return rows that `by_bucket` packed: 8 bytes for each key, then 4 for its rows."""
        n = len(data) // 12
        return cls(np.frombuffer(data, "<u8", n), np.frombuffer(data, "<i4", n, 8 * n))


def rows_gone(found: Iterable[bytes]) -> int:
    """Return the number of old rows beyond the new rows that have the same keys.

    `found` are the packed rows of one bucket.
    """
    rows = KeyedRows.of(map(KeyedRows.unpacked, found)).rows
    return int(rows[rows > 0].sum())


def row_keys(
    options: RememberedOptions, last: Manifest, files: list[InputFile], has_others: bool = False
) -> RowKeys | None:
    """Return the keys by which rows of the last snapshot are found in the next one.

    `has_others`: there are other files too, which are as in the last snapshot and have names.
    Returns None if no key serves for both.
    """
    before = last.options
    same_texts = all(getattr(options, name) == getattr(before, name) for name in OF_TEXTS)
    if options.id_column != before.id_column:
        return RowKeys(by_text=True) if same_texts else None
    if options.id_column is not None:
        return RowKeys()
    has_names = has_others or not all(is_unnamed(file.path) for file in files)
    if same_texts and (last.partition == "content" or not has_names):
        return RowKeys(by_text=True)
    return RowKeys(by_file=True, renamed=renamed(last.files, files))


def renamed(before: Iterable[InputEntry], files: list[InputFile]) -> dict[str, str]:
    """Return the new relative paths of files, by their old ones.

    These files have the same full path, or equal content.
    """
    was = {entry.path: entry for entry in before if entry.size}
    new = [file for file in files if file.relative not in was and file.size]
    missing = [was[path] for path in sorted(was.keys() - {file.relative for file in files})]
    now_at = {file.path: file.relative for file in new}
    moved = {entry.path: now_at[entry.source] for entry in missing if entry.source in now_at}
    used = set(moved.values())
    others = [entry for entry in missing if entry.path not in moved]
    return moved | _copied(others, [file for file in new if file.relative not in used])


def _copied(missing: list[InputEntry], new: list[InputFile]) -> dict[str, str]:
    """Return the relative paths of new files with the content of missing ones, by their paths."""
    copies = _copies(new)
    copied = {}
    for entry in missing:
        same = copies.get(content_of(entry.path, entry.format, entry.size, entry.checksum))
        if same:
            copied[entry.path] = same.pop()
    return copied


def _copies(files: list[InputFile]) -> dict[tuple[object, ...], list[str]]:
    """Return the relative paths of files by their content."""
    copies: dict[tuple[object, ...], list[str]] = {}
    for file in files:
        content = content_of(file.relative, file.format, file.size, file.checksum)
        copies.setdefault(content, []).append(file.relative)
    return copies


def rows_of_files_left(last: Manifest, files: list[InputFile], keys: RowKeys) -> int:
    """Return the rows of the last snapshot whose files are not among these.

    The manifest tells them. Units of several files count if all of these left. The result is 0
    unless rows are found by their files.
    """
    if not keys.by_file:
        return 0
    there = {file.relative for file in files} | keys.renamed.keys()
    left = {entry.path for entry in last.files if entry.size and entry.path not in there}
    units = [unit for path in left for unit in last.units_by_file.get(path, [])]
    for name, entries in last.files_by_group.items():
        if all(entry.path in left for entry in entries):
            units += last.units_by_group[name]
    return sum(unit.written for unit in units)
