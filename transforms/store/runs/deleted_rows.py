"""Deleted rows, as `--max-deletes` counts them: rows that the next snapshot lacks.

If ids come from a column, a row is found by its id. Otherwise it is found by its file: its rows are
deleted if the file left the input or has fewer rows; files that were renamed or moved count as the
same. If files do not matter, rows are found by their texts: with `--partition content`, and for
input without a name of its own (standard input, rows in a program's memory).

If all files are in other folders than before, they may be another collection whose files or ids
have the same names. Then rows with another text count as deleted too.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_hashes, get_hash_prefixes
from sentence_beam.transforms.base.columns import look_up
from sentence_beam.transforms.corpus.buckets import split_by_bucket
from sentence_beam.transforms.corpus.files import is_unnamed
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.id_hashes import hash_ids, select_first_pieces
from sentence_beam.transforms.store.tables.file_rows import (
    count_rows_of_files_gone,
    list_full_paths,
)

PLACE = re.compile(r"[#@][0-9]+$")  # in an id that was made: the number of a row, or its first byte
OF_TEXTS = ("text_column", "text_template", "chunks", "chunk_prefix")


@dataclass(frozen=True)
class RowKeys:
    """The key by which a row of one snapshot is found in another: its text, its file or its id.

    With `by_row` it is the id and the text together. `renamed` are the new relative paths of files
    whose rows have ids with the old ones.
    """

    by_text: bool = False
    by_file: bool = False
    by_row: bool = False
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns of shards that the keys are made of."""
        if self.by_row:
            return ["id", "row_hash", "doc_hash", "piece"]
        return ["row_hash", "doc_hash", "piece"] if self.by_text else ["id", "piece"]

    def key_rows(self, batch: pa.RecordBatch, is_new: bool) -> "KeyedRows":
        """Return rows of a shard by their keys. A document counts by its first piece."""
        keys, rows = np.unique(self._hash_keys(batch, is_new), return_counts=True)
        sign = -1 if is_new else 1
        return KeyedRows(keys, sign * rows)

    def _hash_keys(self, batch: pa.RecordBatch, is_new: bool) -> np.ndarray:
        batch = select_first_pieces(batch)
        if self.by_text:
            return _hash_texts(batch)
        ids = batch.column("id")
        if self.by_row:
            return hash_ids(ids) ^ _hash_texts(batch)
        if not self.by_file:
            return hash_ids(ids)
        renamed = {} if is_new else self.renamed
        paths = [PLACE.sub("", row_id) for row_id in ids.to_pylist()]
        return hash_ids(pa.array([renamed.get(path, path) for path in paths], pa.string()))


def _hash_texts(batch: pa.RecordBatch) -> np.ndarray:
    """Return a key of each row's text, of each document's for first pieces, uint64 [n]."""
    name = "doc_hash" if "doc_hash" in batch.schema.names else "row_hash"
    return get_hash_prefixes(as_hashes(batch.column(name)))


@dataclass(frozen=True)
class KeyedRows:
    """Keys uint64 [n], and the rows of each int64 [n]: old rows count 1, new ones -1."""

    keys: np.ndarray
    rows: np.ndarray

    @classmethod
    def from_parts(cls, parts: Iterable["KeyedRows"]) -> "KeyedRows":
        """Return the sum of several shards' rows, without keys of which no row is left over."""
        every = [cls(np.empty(0, np.uint64), np.empty(0, np.int64)), *parts]
        keys, places = np.unique(np.concatenate([part.keys for part in every]), return_inverse=True)
        rows = np.bincount(places, np.concatenate([part.rows for part in every]), len(keys))
        left = rows != 0
        return cls(keys[left], rows[left].astype(np.int64))

    def by_bucket(self, buckets: int) -> Iterator[tuple[int, bytes]]:
        """Yield (bucket, packed rows) for the keys."""
        for number, places in split_by_bucket(self.keys % np.uint64(buckets), buckets):
            rows = self.rows[places].astype("<i4")
            yield number, self.keys[places].astype("<u8").tobytes() + rows.tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> "KeyedRows":
        """Return rows that `by_bucket` packed: 8 bytes for each key, then 4 for its rows."""
        n = len(data) // 12
        return cls(np.frombuffer(data, "<u8", n), np.frombuffer(data, "<i4", n, 8 * n))


def count_rows_gone(packed: Iterable[bytes]) -> int:
    """Return the number of old rows beyond the new rows that have the same keys.

    `packed` are the packed rows of one bucket.
    """
    rows = KeyedRows.from_parts(map(KeyedRows.unpacked, packed)).rows
    return int(rows[rows > 0].sum())


def choose_row_keys(options: RememberedOptions, last: Manifest, files: pa.Table) -> RowKeys | None:
    """Return the keys by which rows of the last snapshot are found in the next one.

    `files` are those of the plan. Returns None if no key serves for both.
    """
    before = last.options
    same_texts = all(getattr(options, name) == getattr(before, name) for name in OF_TEXTS)
    if options.id_column != before.id_column:
        return RowKeys(by_text=True) if same_texts else None
    if options.id_column is not None:
        return RowKeys()
    has_names = any(not is_unnamed(path) for path in list_full_paths(files).to_pylist())
    if same_texts and (last.partition == "content" or not has_names):
        return RowKeys(by_text=True)
    moved = files.filter(files.column("was").is_valid())
    renamed = dict(zip(*(moved.column(name).to_pylist() for name in ("was", "path")), strict=True))
    return RowKeys(by_file=True, renamed=renamed)


def choose_replaced_keys(
    options: RememberedOptions, last: Manifest, files: pa.Table
) -> RowKeys | None:
    """Return the keys by which the last snapshot's rows are found once all rows have been read.

    They are those of `choose_row_keys`, unless all files are in other folders than before.
    """
    keys = choose_row_keys(options, last, files)
    if keys is None or keys.by_text or not _are_elsewhere(files, last.read_files()):
        return keys
    if any(getattr(options, name) != getattr(last.options, name) for name in OF_TEXTS):
        return keys
    return RowKeys(by_text=True) if keys.by_file else RowKeys(by_row=True)


def _are_elsewhere(files: pa.Table, last: pa.Table) -> bool:
    """Whether no file that has a name is in a folder that the last snapshot's files are in."""
    now, before = (_find_folders(some) for some in (files, last))
    return bool(now) and bool(before) and now.isdisjoint(before)


def _find_folders(files: pa.Table) -> set[str | None]:
    """Return the folders of named files, and those that their relative paths begin in."""
    columns = (files.column("folder").to_pylist(), list_full_paths(files).to_pylist())
    named = [(root, path) for root, path in zip(*columns, strict=True) if not is_unnamed(path)]
    return {folder for root, path in named for folder in (root, path[: path.rfind("/") + 1])}


def count_rows_left(last: pa.Table, files: pa.Table, keys: RowKeys) -> int:
    """Return the rows of the last snapshot's files that are not among these.

    The result is 0 unless rows are found by their files.
    """
    if not keys.by_file:
        return 0
    paths = last.column("path")
    is_there = look_up(paths, files.column("path")) >= 0
    is_there |= look_up(paths, files.column("was")) >= 0
    return count_rows_of_files_gone(last, is_there)
