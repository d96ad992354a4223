"""Ranges of lists: their bounds, and writing each from the rows that its sources left by list.

A source is a group of shards, a segment, or a group of new rows. Of each, a range reads its lists
alone.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.index import ExactNeighbours, IndexPlan
from sentence_beam.transforms.index.exact_vectors import RefineWriter, row_type
from sentence_beam.transforms.index.index_kinds import cut_lists
from sentence_beam.transforms.index.range_file import range_bytes
from sentence_beam.transforms.index.segment import ListedRows, SegmentWriter
from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.steps.index.index_folder import Folder, lines_of
from sentence_beam.transforms.steps.index.index_recall import DEEP, Asking, leave_recall
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import locators

PLACES = pa.schema(
    [("id", pa.string()), ("row_hash", pa.binary(16)), ("shard", pa.int32()), ("row", pa.int64())]
)
SLICES = 1024  # tables of places, each of equally many lists
FIRST_IDS = 8  # ids of a range begin at a multiple of this


@dataclass(frozen=True)
class ListedSource:
    """A source whose rows have been left: its number, and the sum of its rows' closeness.

    Rows that `is_new` were in no segment before. `same` has the lists [first, stop) of the range
    that they go into, and its first id, if they stay among themselves.
    """

    number: int
    rows: int
    code_size: int
    closeness: float
    is_new: bool = False
    same: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class SourcePart:
    """Rows of a source in some consecutive lists.

    `places` [n] of `PLACES` have numbers of `shards`; `vectors` [n] of `row_type`, None if none are
    kept.
    """

    listed: ListedRows
    places: pa.Table
    shards: list[str]
    vectors: np.ndarray | None


@dataclass(frozen=True)
class RangeSpan:
    """A range to be written: its number, its lists, its first id, and sources with rows of it."""

    number: int
    first: int
    stop: int
    first_id: int
    sources: tuple[ListedSource, ...]
    closeness: float  # the mean score of all sources' rows with their nearest centroid


def leave_listed(
    folder: Folder,
    source: int,
    listed: ListedRows,
    first: int,
    nlist: int,
    locator: pa.Table,
    vectors: np.ndarray | None,
) -> None:
    """Leave the rows of a source; `locator` and `vectors` have them by their local rows.

    `listed` has the lists from `first` on.
    """
    sizes = np.zeros(nlist, np.int64)
    sizes[first : first + len(listed.sizes)] = listed.sizes
    starts = np.concatenate([[0], np.cumsum(sizes)])
    folder.put(scratch.listed_starts(source), starts.astype("<i8").tobytes())
    records = np.empty(len(listed.rows), _record_type(listed.codes.shape[1]))
    records["code"] = listed.codes
    records["row"] = listed.rows
    folder.put(scratch.listed_codes(source), records.tobytes())
    rows_by_list = locator.take(pa.array(listed.rows))
    numbers, names = locators.list_shards(rows_by_list)
    places = rows_by_list.set_column(2, PLACES.field("shard"), pa.array(numbers, pa.int32()))
    width = _choose_slice_width(nlist)
    bounds = starts[np.minimum(np.arange(0, nlist + width, width), nlist)]
    tables = [
        places.slice(start, stop - start) for start, stop in itertools.pairwise(bounds.tolist())
    ]
    folder.put(scratch.listed_places(source), matching.to_bytes(tables))
    folder.put(scratch.listed_shards(source), "\n".join(names).encode())
    if vectors is not None:
        folder.put(scratch.listed_vectors(source), vectors[listed.rows].tobytes())


def leave_written(
    folder: Folder, number: int, nlist: int, writer: SegmentWriter, locator: pa.Table,
    refine: RefineWriter | None, exact: ExactNeighbours,
) -> ListedSource:  # fmt: skip
    """Leave the rows of a writer as a source, and the queries' true neighbours among them."""
    vectors = refine.rows() if refine else None
    leave_listed(folder, number, writer.list_rows(), 0, nlist, locator, vectors)
    folder.put(scratch.listed_exact(number), exact.to_bytes())
    closeness = (writer.closeness or 0.0) * writer.rows
    return ListedSource(number, writer.rows, writer.code_size, closeness)


def _read_listed(
    folder: Folder, source: ListedSource, span: RangeSpan, plan: IndexPlan
) -> SourcePart:
    """Return the rows of a source in the lists of a range."""
    width = _choose_slice_width(plan.nlist)
    slice_first = span.first // width
    slices = (span.stop - 1) // width + 1 - slice_first
    low = slice_first * width
    starts = np.frombuffer(
        folder.part(scratch.listed_starts(source.number), 8 * low, 8 * (span.stop + 1)), "<i8"
    )
    here = starts[span.first - low :]
    begin = int(here[0])
    end = int(here[-1])
    name = scratch.listed_codes(source.number)
    records = _read_records(folder, name, _record_type(source.code_size), begin, end)
    vectors = None
    if plan.rerank:
        name = scratch.listed_vectors(source.number)
        vectors = _read_records(folder, name, row_type(plan.dim), begin, end)
    places = PLACES.empty_table()
    if begin < end:
        name = scratch.listed_places(source.number)
        tables = folder.tables(name, PLACES, slice_first, slices)
        places = pa.concat_tables(tables).slice(begin - int(starts[0]), end - begin)
    names = folder.parsed(scratch.listed_shards(source.number), lines_of)
    listed = ListedRows(np.diff(here), records["code"], records["row"].astype(np.int64))
    return SourcePart(listed, places, names, vectors)


def _read_records(folder: Folder, name: str, kind: np.dtype, start: int, stop: int) -> np.ndarray:
    """Return the records from `start` up to `stop` of a file of them."""
    if start == stop:
        return np.empty(0, kind)
    return np.frombuffer(folder.part(name, start * kind.itemsize, stop * kind.itemsize), kind)


def _record_type(code_size: int) -> np.dtype:
    return np.dtype([("code", "u1", (code_size,)), ("row", "<u4")])


def _choose_slice_width(nlist: int) -> int:
    """Return the number of lists in a table of places."""
    return -(-nlist // SLICES)


def cut_spans(
    folder: Folder,
    plan: IndexPlan,
    most_bytes: int,
    sources: Sequence[ListedSource],
    numbers: Iterator[int],
) -> list[RangeSpan]:
    """Return the ranges of the sources' rows, of at most so many bytes, with the next numbers.

    Leaves the queries' true neighbours among the rows of all sources.
    """
    _leave_exact(folder, sources, plan.metric)
    sizes = np.zeros(plan.nlist, np.int64)
    bounds = []
    for source in sources:
        starts = folder.parsed(
            scratch.listed_starts(source.number), lambda data: np.frombuffer(data, "<i8")
        )
        filled = np.flatnonzero(np.diff(starts))
        bounds.append((source, filled[0], filled[-1]))
        sizes += np.diff(starts)
    closeness = sum(part.closeness for part in sources) / sum(part.rows for part in sources)
    ranges = []
    first_id = 0
    for first, stop in cut_lists(sizes, plan, most_bytes):
        rows = int(sizes[first:stop].sum())
        if rows:
            here = tuple(part for part, low, high in bounds if low < stop and high >= first)
            ranges.append(RangeSpan(next(numbers), first, stop, first_id, here, closeness))
            first_id += -(-rows // FIRST_IDS) * FIRST_IDS
    return ranges


def keep_spans(
    folder: Folder, metric: str, sources: Sequence[ListedSource], numbers: Iterator[int]
) -> list[RangeSpan]:
    """Return a range for each source, with the lists and the first id that it had before.

    Leaves the queries' true neighbours among the rows of all sources.
    """
    _leave_exact(folder, sources, metric)
    ranges = []
    for source in sources:
        assert source.same is not None
        first, stop, first_id = source.same
        closeness = source.closeness / source.rows
        ranges.append(RangeSpan(next(numbers), first, stop, first_id, (source,), closeness))
    return ranges


def _leave_exact(folder: Folder, sources: Iterable[ListedSource], metric: str) -> None:
    queries = folder.take(scratch.QUERIES)
    exact = ExactNeighbours(queries, DEEP, metric)
    parse = functools.partial(ExactNeighbours.from_bytes, queries=queries)
    for source in sources:
        exact = exact.merge(folder.parsed(scratch.listed_exact(source.number), parse))
    folder.put(scratch.LISTED_EXACT, exact.to_bytes())


def write_range(folder: Folder, span: RangeSpan, plan: IndexPlan, asking: Asking) -> SegmentEntry:
    """Write a range, its locator, and its rows' vectors if candidates are scored again.

    Leaves its true neighbours of the queries, what it answers, and which of those are new.
    """
    parts = [_read_listed(folder, source, span, plan) for source in span.sources]
    listed = [part.listed for part in parts]
    lists = np.concatenate([np.repeat(np.arange(len(rows.sizes)), rows.sizes) for rows in listed])
    places, shard, names = _join_places(parts)
    order = np.lexsort((places.column("row").to_numpy(), shard, lists))
    codes = np.concatenate([rows.codes for rows in listed])[order]
    sizes = np.bincount(lists, minlength=span.stop - span.first)
    data, header = range_bytes(span.first, span.first_id, sizes, codes)
    path, sha256 = folder.write(data, "lists")
    refine_file = None
    if plan.rerank:
        refine = RefineWriter(plan.dim)
        vectors = [part.vectors for part in parts if part.vectors is not None]
        refine.copy(np.concatenate(vectors)[order])
        refine_file = folder.file(refine.to_bytes(), "refine")
    segment = SegmentEntry(
        span.number, "base", len(order), 0, path, sha256, len(data), "", "", span.closeness,
        folder.checksum(path), refine=refine_file, lists=(span.first, span.stop),
        first_id=span.first_id, header_sha256=header.sha256,
    )  # fmt: skip
    segment = folder.located(segment, _make_locator(places, shard, names, order))
    origins = np.concatenate(
        [rows.rows | part.number << 32 for part, rows in zip(span.sources, listed, strict=True)]
    )
    _leave_range_recall(folder, span, segment, origins[order], asking)
    return segment


def _join_places(parts: list[SourcePart]) -> tuple[pa.Table, np.ndarray, list[str]]:
    """Return the places of all parts, and each row's shard, int64 [n], among sorted names."""
    names = sorted({name for part in parts for name in part.shards})
    number = {name: place for place, name in enumerate(names)}
    shard = []
    for part in parts:
        shards = np.array([number[name] for name in part.shards], np.int64)
        shard.append(shards[part.places.column("shard").to_numpy()])
    places = pa.concat_tables([PLACES.empty_table(), *(part.places for part in parts)])
    return places, np.concatenate(shard), names


def _make_locator(
    places: pa.Table, shard: np.ndarray, names: list[str], order: np.ndarray
) -> pa.Table:
    column = locators.make_shard_column(shard[order], names)
    return places.take(pa.array(order)).set_column(2, locators.SCHEMA.field("shard"), column)


def _leave_range_recall(
    folder: Folder, span: RangeSpan, segment: SegmentEntry, origins: np.ndarray, asking: Asking
) -> None:
    """Leave a range's true neighbours of the queries, and its answers.

    `origins` int64 [rows] are the number of each row's source << 32 | its row there.
    """
    queries = folder.take(scratch.QUERIES)
    parse = functools.partial(ExactNeighbours.from_bytes, queries=queries)
    gains, positions, bound = folder.parsed(scratch.LISTED_EXACT, parse).lists()
    order = np.argsort(origins)
    at = np.minimum(np.searchsorted(origins[order], positions), len(order) - 1)
    rows = order[at]
    mine = (origins[rows] == positions) & (positions >= 0)
    here = np.where(mine, rows | segment.number << 32, -1)
    exact = ExactNeighbours.from_lists(
        queries, DEEP, asking.metric, np.where(mine, gains, np.float32(-np.inf)), here, bound
    )
    new = [source.number for source in span.sources if source.is_new]
    folder.leave(scratch.fresh(segment.number), here[mine & np.isin(positions >> 32, new)])
    leave_recall(folder, segment, asking, exact)
