"""Ranges of lists: their bounds, and writing each from the rows that its sources left."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.index import ExactNeighbours, IndexPlan
from sentence_beam.transforms.index.choose import cut_lists
from sentence_beam.transforms.index.range_file import range_bytes
from sentence_beam.transforms.index.refine import RefineWriter
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.files import DEEP, Folder, leave_recall, trained_index
from sentence_beam.transforms.steps.index.listed import (
    PLACES,
    ListedSource,
    SourcePart,
    read_listed,
    sizes_of,
)
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import locators


@dataclass(frozen=True)
class RangeSpan:
    """A range to be written: its number, its lists, its first id, and the sources of its rows."""

    number: int
    first: int
    stop: int
    first_id: int
    sources: tuple[ListedSource, ...]

    @property
    def closeness(self) -> float | None:
        """The mean score of its sources' rows with their nearest centroid."""
        rows = sum(source.rows for source in self.sources)
        if not rows:
            return None
        return sum(source.closeness for source in self.sources) / rows


def spans(
    folder: Folder,
    plan: IndexPlan,
    sources: Sequence[ListedSource],
    kept: Iterable[SegmentEntry],
    numbers: Iterator[int],
) -> list[RangeSpan]:
    """Return the ranges of the sources' rows, with the next of some numbers.

    `kept` are the ranges that stay, whose ids are not used again.
    """
    sizes = np.zeros(plan.nlist, np.int64)
    for source in sources:
        sizes += sizes_of(folder, source)
    used = [(segment.first_id, segment.first_id + segment.rows) for segment in kept]
    found = []
    for first, stop in covered(sources, plan.nlist):
        for low, high in cut_lists(sizes[first:stop], plan):
            rows = int(sizes[first + low : first + high].sum())
            if not rows:
                continue
            start = _free(used, rows)
            used.append((start, start + rows))
            span = RangeSpan(next(numbers), first + low, first + high, start, tuple(sources))
            found.append(span)
    return found


def covered(sources: Sequence[ListedSource], nlist: int) -> list[tuple[int, int]]:
    """Return the lists that the sources may have rows of, as runs [first, stop), ascending."""
    runs: list[tuple[int, int]] = []
    every = {run for source in sources for run in source.lists or [(0, nlist)]}
    for first, stop in sorted(every):
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(stop, runs[-1][1]))
        else:
            runs.append((first, stop))
    return runs


def _free(used: list[tuple[int, int]], rows: int) -> int:
    """Return the first multiple of 8 at which so many ids are free."""
    start = 0
    for first, stop in sorted(used):
        if start + rows <= first:
            break
        start = max(start, -(-stop // 8) * 8)
    return start


def leave_exact(folder: Folder, sources: Iterable[ListedSource], metric: str) -> None:
    """Leave the queries' true neighbours among the rows of all sources."""
    queries = folder.take(scratch.QUERIES)
    exact = ExactNeighbours(queries, DEEP, metric)
    parse = functools.partial(ExactNeighbours.from_bytes, queries=queries)
    for source in sources:
        exact = exact.merge(folder.parsed(scratch.listed_exact(source.number), parse))
    folder.put(scratch.LISTED_EXACT, exact.to_bytes())


@dataclass(frozen=True)
class WrittenRange:
    """A range that has been written, and the source and row of each of its rows.

    `origins` int64 [rows] are positions: the number of the source << 32 | its row there.
    """

    segment: SegmentEntry
    origins: np.ndarray


def write_range(folder: Folder, span: RangeSpan, plan: IndexPlan) -> WrittenRange:
    """Write a range, its locator, and its rows' vectors if candidates are scored again."""
    dim = plan.dim if plan.rerank else None
    parts = [
        read_listed(folder, source, span.first, span.stop, plan.nlist, dim)
        for source in span.sources
    ]
    lists = np.concatenate([np.repeat(np.arange(len(part.sizes)), part.sizes) for part in parts])
    places, shard, names = _places(parts)
    order = np.lexsort((places.column("row").to_numpy(), shard, lists))
    codes = np.concatenate([part.codes for part in parts])[order]
    sizes = np.bincount(lists, minlength=span.stop - span.first)
    data, header = range_bytes(span.first, span.first_id, sizes, codes)
    path, sha256 = folder.write(data, "lists")
    refine_file = None
    if dim is not None:
        refine = RefineWriter(dim)
        refine.copy(
            np.concatenate([part.vectors for part in parts if part.vectors is not None])[order]
        )
        refine_file = folder.file(refine.to_bytes(), "refine")
    segment = SegmentEntry(
        span.number, "base", len(order), 0, path, sha256, len(data), "", "", span.closeness,
        folder.checksum(path), refine=refine_file, lists=(span.first, span.stop),
        first_id=span.first_id, header_sha256=header.sha256,
    )  # fmt: skip
    origins = np.concatenate(
        [part.rows | source.number << 32 for source, part in zip(span.sources, parts, strict=True)]
    )
    locator = _locator(places, shard, names, order)
    return WrittenRange(folder.located(segment, locator), origins[order])


def _places(parts: list[SourcePart]) -> tuple[pa.Table, np.ndarray, list[str]]:
    """Return the places of all parts, and each row's shard, int64 [n], among sorted names."""
    names = sorted({name for part in parts for name in part.shards})
    number = {name: place for place, name in enumerate(names)}
    shard = [
        np.array([number[name] for name in part.shards], np.int64)[part.shard] for part in parts
    ]
    places = pa.concat_tables([PLACES.empty_table(), *(part.places for part in parts)])
    return places, np.concatenate(shard), names


def _locator(places: pa.Table, shard: np.ndarray, names: list[str], order: np.ndarray) -> pa.Table:
    found = places.take(pa.array(order))
    column = locators.shard_column(shard[order], names)
    return pa.table(
        [found.column("id"), found.column("row_hash"), column, found.column("row")],
        schema=locators.SCHEMA,
    )


def leave_range_recall(
    folder: Folder, written: WrittenRange, trained: tuple[str, str], metric: str, depth: int,
    nprobes: list[int],
) -> None:  # fmt: skip
    """Leave a range's true neighbours of the queries, and those found at each nprobe.

    `trained` are path and sha256 of the trained index.
    """
    queries = folder.take(scratch.QUERIES)
    parse = functools.partial(ExactNeighbours.from_bytes, queries=queries)
    gains, positions, bound = folder.parsed(scratch.LISTED_EXACT, parse).lists()
    order = np.argsort(written.origins)
    at = np.minimum(np.searchsorted(written.origins[order], positions), len(order) - 1)
    rows = order[at]
    mine = (written.origins[rows] == positions) & (positions >= 0)
    exact = ExactNeighbours.of_lists(
        queries,
        DEEP,
        metric,
        np.where(mine, gains, -np.inf).astype(np.float32),
        np.where(mine, rows | written.segment.number << 32, -1),
        bound,
    )
    leave_recall(
        folder, written.segment, trained_index(folder, *trained), exact, None, depth, nprobes
    )
