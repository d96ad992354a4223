"""Faults of the index of a snapshot: its files, and the rows that its segments name."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.columns import get_numbers, sum_column
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.store.index_coverage import Coverage
from sentence_beam.transforms.store.index_entries import IndexEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards import shard_reading


def check_segment(
    manifest: Manifest, segment: SegmentEntry
) -> tuple[tuple[str, ...], Coverage | None]:
    """Return the faults of a segment's locator, and the rows that it has (None: not known)."""
    try:
        table = locators.from_bytes(
            storage.read_bytes(storage.join(manifest.root, segment.locator))
        )
    except (OSError, SentenceBeamError) as error:
        return (f"{segment.locator}: {first_line(error)}",), None
    try:
        rows_of = get_numbers(manifest.shards, "rows")
    except SentenceBeamError as error:
        return (error.line,), None
    live = table.filter(table.column("shard").is_valid())
    counted = (
        ("rows", len(table), segment.rows),
        ("deleted rows", len(table) - len(live), segment.deleted),
    )
    lines = [
        f"{segment.locator}: {counted_rows} {name}, the segment has {recorded}"
        for name, counted_rows, recorded in counted
        if counted_rows != recorded
    ]
    codes, paths = locators.list_shards(live)
    order = np.argsort(codes, kind="stable")
    live = live.take(order)
    counted_rows, starts = np.unique(codes[order], return_index=True)
    shards = np.array([manifest.find_shard_number(paths[code]) for code in counted_rows], np.int32)
    ends = [*starts[1:], len(live)]
    for code, shard, start, stop in zip(counted_rows, shards, starts, ends, strict=True):
        path = paths[code]
        mine = live.slice(start, stop - start)
        row = mine.column("row").to_numpy()
        if shard < 0 or row.max() >= rows_of[shard] or row.min() < 0:
            lines.append(f"{segment.locator}: names rows of {path} that are not in the snapshot")
            return tuple(lines), None
        if not have_same_rows(storage.join(manifest.root, path), row, mine):
            lines.append(f"{segment.locator}: points to other rows of {path} than it names")
    repeats = np.diff([*starts, len(live)])
    covered = Coverage.from_shards(np.repeat(shards, repeats), live.column("row").to_numpy())
    return tuple(lines), covered


def find_coverage_faults(
    manifest: Manifest, index: IndexEntry, covered: Coverage | None
) -> Iterator[str]:
    """Yield a line for each shard with a row that is not in exactly one segment."""
    if covered is None:
        return
    yield from covered.faults(manifest.shards)
    if index.rows != (rows := sum_column(manifest.shards, "rows")):
        yield f"index: {index.rows} rows, the snapshot has {rows}"


def find_index_file_faults(manifest: Manifest, relative: str, sha256: str) -> Iterator[str]:
    """Yield a line if a file of the index is missing or was changed."""
    path = storage.join(manifest.root, relative)
    if storage.storage_of(path).stat(path) is None:
        yield f"{path}: the index file is missing"
    elif storage.sha256_of(path)[0] != sha256:
        yield f"{path}: the index file was changed after it was written (sha256 differs)"


def have_same_rows(path: str, row: np.ndarray, locator: pa.Table) -> bool:
    """Return whether a locator's ids and hashes are those of the shard's rows.

    A damaged shard is a fault of its own.
    """
    try:
        rows = shard_reading.take_rows(path, row, ["id", "row_hash"])
    except SentenceBeamError:
        return True
    return all(rows.column(name).equals(locator.column(name)) for name in ("id", "row_hash"))
