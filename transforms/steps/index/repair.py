"""Making a damaged segment again, a range of lists or one of rows, from the shards and alone.

Its rows are those that no other segment has. Rows that were deleted are left out, so the rows have
other places than before.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow import as_hashes, as_keys
from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index import ExactNeighbours
from sentence_beam.transforms.index.range_file import range_bytes
from sentence_beam.transforms.index.refine import RefineWriter
from sentence_beam.transforms.index.segment import ListedRows, SegmentWriter, flat_vectors
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.files import DEEP, RowBlock, stack
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.steps.index.listed import ListedSource, leave_listed
from sentence_beam.transforms.steps.index.ranges import RangeSpan, WrittenRange, write_range
from sentence_beam.transforms.steps.index.update import (
    HELD_OUT,
    IndexUpdate,
    IndexUpdateJob,
    Repair,
)
from sentence_beam.transforms.store.index_entries import ChangeEntry, IndexFileEntry, SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.shards.reading import (
    check_shard,
    open_shard,
    read_wanted,
    take_rows,
)


@progress.stage("index: repairing a segment")
def repair(job: IndexUpdateJob, segment: SegmentEntry, why: str) -> Repair:
    """Write a damaged segment again, and leave its true neighbours of the known queries.

    Raises DamagedIndexError if another file of the index is damaged, so that it cannot be made.
    """
    update = job.update()
    trained = update.current.trained
    writer = SegmentWriter(index_files.read(job.folder.stored(trained.path), trained.sha256))
    refine = RefineWriter(job.dim) if update.current.rerank else None
    locator = locators.LocatorBuilder()
    vectors = []
    for block in _missing_rows(job, update):
        locator.add(block.shard, block.start + np.arange(len(block.vectors)), block.ids,
                    block.hash_column)  # fmt: skip
        vectors.append(block.vectors)
        writer.add(block.vectors)
        if refine:
            refine.add(block.vectors)
    added = stack(vectors, job.dim)
    table = locator.table()
    if segment.lists:
        written = _range_again(job, update, segment, (writer, refine, table))
        entry = written.segment
        added = added[written.origins & 0xFFFFFFFF]
    else:
        entry = job.folder.segment(segment.number, segment.kind, writer.finish(), table, refine)
    if entry.rows != segment.live:
        raise DamagedIndexError(f"{why}; its rows are not known")
    exact = ExactNeighbours(_known_vectors(job, update), DEEP, update.metric)
    exact.add(added, segment.number << 32)
    job.folder.put(scratch.repaired(segment.number), exact.to_bytes())
    return Repair(replace(entry, closeness=segment.closeness, repairs=segment.repairs + 1), why)


def _range_again(
    job: IndexUpdateJob,
    update: IndexUpdate,
    segment: SegmentEntry,
    rows: tuple[SegmentWriter, RefineWriter | None, pa.Table],
) -> WrittenRange:
    """Write a range of those of some rows that are in its lists.

    The rows have codes, their vectors if candidates are scored again, and places.
    """
    writer, refine, locator = rows
    assert segment.lists is not None
    first, stop = segment.lists
    plan = job.plan(update)
    every = writer.by_list()
    bounds = np.concatenate([[0], np.cumsum(every.sizes)])[[first, stop]]
    here = slice(*bounds)
    listed = ListedRows(every.sizes[first:stop], every.codes[here], every.rows[here])
    kept = refine.rows() if refine else None
    # the names of what the steps of an update leave of the same segment are others
    folder = replace(job.folder, prefix="repair")
    leave_listed(folder, segment.number, listed, first, plan.nlist, locator, kept)
    source = ListedSource(
        segment.number, len(listed.rows), writer.code_size, lists=(segment.lists,)
    )
    span = RangeSpan(segment.number, first, stop, segment.first_id, (source,))
    return write_range(folder, span, plan)


def restore(job: IndexUpdateJob, update: IndexUpdate, segment: SegmentEntry, why: str) -> Repair:
    """Write a damaged segment again with every row in its place.

    This is for damage met after rows were matched by their places. No search returns a deleted row.
    Raises DamagedIndexError if another file of the index is damaged, the locator too, or if a row
    of a range belongs to another list now.
    """
    if segment.kind == HELD_OUT:
        raise DamagedIndexError(why)
    if segment.lists:
        return Repair(_restored_range(job, update, segment, why), why)
    return Repair(_restored_rows(job, update, segment, why), why)


def _restored_rows(
    job: IndexUpdateJob, update: IndexUpdate, segment: SegmentEntry, why: str
) -> SegmentEntry:
    """Write a segment of rows again; a deleted row has the code of another row."""
    locator = locators.from_bytes(job.folder.locator(segment))
    vectors, live = _vectors_in_place(job, update, locator)
    if not len(live):
        raise DamagedIndexError(f"{why}; all of its rows are deleted")
    vectors[~locator.column("shard").is_valid().to_numpy()] = vectors[live[0]]
    trained = update.current.trained
    writer = SegmentWriter(index_files.read(job.folder.stored(trained.path), trained.sha256))
    writer.add(vectors)
    refine = RefineWriter(job.dim) if update.current.rerank else None
    if refine:
        refine.add(vectors)
    entry = job.folder.segment(segment.number, segment.kind, writer.finish(), locator, refine)
    return replace(entry, closeness=segment.closeness, repairs=segment.repairs + 1)


def _restored_range(
    job: IndexUpdateJob, update: IndexUpdate, segment: SegmentEntry, why: str
) -> SegmentEntry:
    """Write a range again; the code of a deleted row is zeros."""
    assert segment.lists is not None
    first, stop = segment.lists
    trained = update.current.trained
    writer = SegmentWriter(index_files.read(job.folder.stored(trained.path), trained.sha256))
    locator = locators.from_bytes(job.folder.locator(segment), ["shard", "row"])
    vectors, live = _vectors_in_place(job, update, locator)
    writer.add(vectors[live])
    listed = writer.by_list()
    codes = np.zeros((len(vectors), writer.code_size), np.uint8)
    codes[live[listed.rows]] = listed.codes
    lists = np.full(len(vectors), first)
    lists[live[listed.rows]] = np.repeat(np.arange(len(listed.sizes)), listed.sizes)
    ascending = np.maximum.accumulate(lists)
    others = (ascending[live] != lists[live]) | (lists[live] < first) | (lists[live] >= stop)
    if others.any():
        raise DamagedIndexError(f"{why}; its rows are in other lists now")
    sizes = np.bincount(ascending - first, minlength=stop - first)
    data, header = range_bytes(first, segment.first_id, sizes, codes)
    path, sha256 = job.folder.write(data, "lists")
    entry = replace(
        segment, path=path, sha256=sha256, bytes=len(data), checksum=job.folder.checksum(path),
        header_sha256=header.sha256, repairs=segment.repairs + 1, answers=None,
    )  # fmt: skip
    if update.current.rerank:
        refine = RefineWriter(job.dim)
        refine.add(vectors)
        entry = replace(entry, refine=job.folder.file(refine.to_bytes(), "refine"))
    return entry


def _vectors_in_place(
    job: IndexUpdateJob, update: IndexUpdate, locator: pa.Table
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of a locator's rows, float32 [n, dim], and the live rows, int64 [m].

    Those of deleted rows are zeros.
    """
    numbers, names = locators.shards_of(locator)
    rows = locator.column("row").to_numpy()
    vectors = np.zeros((len(numbers), job.dim), np.float32)
    for number, name in enumerate(names):
        path = job.folder.stored(name)
        if name in update.sha256_of:
            check_shard(path, update.sha256_of[name])
        here = numbers == number
        column = take_rows(path, rows[here], ["embedding"]).column(0).combine_chunks()
        vectors[here] = job.folder.vectors(column)
    return vectors, np.flatnonzero(numbers >= 0)


def _missing_rows(job: IndexUpdateJob, update: IndexUpdate) -> Iterator[RowBlock]:
    """Yield the rows of the last snapshot that no sound segment has, shard by shard."""
    named = _named_rows(job, update)
    old = [path for path, _, _ in update.shards if path not in set(update.added_shards)]
    for shard in sorted([*old, *update.removed]):
        path = job.folder.stored(shard)
        with open_shard(path) as parquet:
            missing = np.ones(parquet.metadata.num_rows, bool)
        for rows in named.get(shard, []):
            missing[rows] = False
        numbers = np.flatnonzero(missing)
        # the run does not know the digest of a shard that it removes; its pages have checksums
        if len(numbers) and shard in update.sha256_of:
            check_shard(path, update.sha256_of[shard])
        start = 0
        for table in read_wanted(path, missing, ["id", "row_hash", "embedding"]):
            ids, hashes, vectors = (column.combine_chunks() for column in table.columns)
            places = numbers[start : start + len(table)]
            start += len(table)
            for run in np.split(np.arange(len(table)), np.flatnonzero(np.diff(places) != 1) + 1):
                some = slice(int(run[0]), int(run[-1]) + 1)
                yield RowBlock(
                    shard,
                    int(places[some.start]),
                    job.folder.vectors(vectors[some]),
                    as_hashes(hashes[some]),
                    ids[some],
                    hashes[some],
                )


def _named_rows(job: IndexUpdateJob, update: IndexUpdate) -> dict[str, list[np.ndarray]]:
    """Return the rows, int64, that sound segments have of each shard, by its path."""
    named: dict[str, list[np.ndarray]] = {}
    for segment in update.segments.values():
        try:
            job.folder.check(segment)
            locator = locators.from_bytes(job.folder.locator(segment), ["shard", "row"])
        except DamagedIndexError:
            if segment.kind == HELD_OUT:
                raise
            continue
        numbers, names = locators.shards_of(locator)
        rows = locator.column("row").to_numpy()
        for number, name in enumerate(names):
            named.setdefault(name, []).append(rows[numbers == number])
    return named


def _known_vectors(job: IndexUpdateJob, update: IndexUpdate) -> np.ndarray:
    """Return the vectors of the known queries, float32 [q, dim], from the held-out segment."""
    texts = job.known_queries(update).texts
    if update.held_out is None or not len(texts):
        return np.empty((0, job.dim), np.float32)
    locator = locators.from_bytes(job.folder.locator(update.held_out), ["row_hash"])
    keys = as_keys(as_hashes(locator.column("row_hash").combine_chunks()))
    with job.folder.on_disk(update.held_out) as path:
        vectors = flat_vectors(path)
    unique, place = np.unique(keys, return_index=True)
    return vectors[place[np.searchsorted(unique, as_keys(texts))]]


def repaired(
    job: IndexUpdateJob, update: IndexUpdate, repairs: Sequence[Repair]
) -> tuple[IndexUpdateJob, IndexUpdate]:
    """Return the job and the update of the index with repaired segments, which is recorded."""
    segments = {one.segment.number: one.segment for one in repairs}
    named = job.folder.write(_known_again(job, update, list(segments)).to_bytes(), "parquet")
    why = "; ".join(sorted(one.why for one in repairs))
    current = replace(
        update.current,
        segments=tuple(segments.get(one.number, one) for one in update.current.segments),
        queries=IndexFileEntry(*named),
        change=ChangeEntry("repaired", why, added=0, deleted=0, moved=0),
    )
    found = replace(update, current=current)
    again = replace(job, repaired=True)
    again.record(found)
    return again, found


def _known_again(job: IndexUpdateJob, update: IndexUpdate, numbers: list[int]) -> KnownQueries:
    """Return the known queries with the repaired segments' neighbours at their present places."""
    known = job.known_queries(update)
    queries = _known_vectors(job, update)
    gone = np.isin(known.positions >> 32, numbers)
    exact = ExactNeighbours.of_lists(
        queries,
        DEEP,
        update.metric,
        np.where(gone, -np.inf, known.gains).astype(np.float32),
        np.where(gone, -1, known.positions),
        known.bound,
    )
    parse = functools.partial(ExactNeighbours.from_bytes, queries=queries)
    for number in numbers:
        exact = exact.merge(job.folder.parsed(scratch.repaired(number), parse))
    gains, positions, bound = exact.lists()
    return KnownQueries(known.texts, gains, positions, bound, known.crowded)
