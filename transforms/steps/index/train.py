"""The training of an index: its sample, the lists, the codec.

1. `sample`: each group of shards leaves its rows of the sample, in parts of so many bytes.
2. `divide`: few lists are one cell; if they are many, coarse cells are found.
3. `assign`: each part's rows are sorted by their cells.
4. `allot`: each cell gets lists in proportion to its rows.
5. `cluster`: the lists of a cell are found by its rows alone.
6. Passes over all rows, if there are several cells: `again`, `assign` by the nearest list,
   `allot`, `cluster`.
7. `finish`: all lists and the codec make the trained index, the held-out rows a Flat segment.

No step but `sample` reads shards, and none holds more than the sample once: if there are several
cells, a part or a cell of it. Rows and lists are in an order that depends on the groups alone.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transforms.base import progress
from transforms.base.arrow import as_hashes, as_keys
from transforms.base.errors import SentenceBeamError
from transforms.index import (
    SegmentChecks,
    WrittenSegment,
    cells,
    flat_segment,
    held_out_keys,
    sample_keys,
    select,
)
from transforms.index.budgets import SAMPLE
from transforms.index.choose import lack_of_rows
from transforms.index.kmeans import kmeans
from transforms.index.train import CODEC_ROWS, assembled
from transforms.steps.index import choice as index_choice
from transforms.steps.index import held_out, scratch
from transforms.steps.index.build import BuildWork, IndexJob, ShardGroup, Trained, TrainingGroup
from transforms.steps.index.files import Folder, lines_of, locate, stack
from transforms.store.index_files import locators
from transforms.store.records import Problem
from transforms.store.runs.facts import RunFact
from transforms.store.shards.reading import check_shard

PART_BYTES = 1 << 26  # of the rows of a part
PIECE_BYTES = 1 << 23  # read at a time


@dataclass(frozen=True)
class SampledGroup:
    """A group of a build whose share of the sample is in the run's folder.

    `parts` are the rows of each part, `held_out` the rows held out; `problem` says why it failed.
    """

    job: IndexJob
    group: ShardGroup
    parts: tuple[int, ...] = ()
    held_out: int = 0
    problem: Problem | None = None


@dataclass(frozen=True)
class SamplePart:
    """Rows of the sample in one file."""

    name: str
    rows: int


@dataclass(frozen=True)
class PartWork:
    """One part, whose rows are to be sorted by cells in pass `turn` over all rows (0: first)."""

    job: IndexJob
    part: SamplePart
    turn: int = 0


@dataclass(frozen=True)
class CellWork:
    """One cell, whose lists `first` to `last` are to be `found` in pass `turn`.

    If `turn` is None, the cell is the whole sample, and one pass finds its lists.
    """

    job: IndexJob
    number: int
    first: int
    last: int
    turn: int | None = None
    found: bool = False


def sample(work: TrainingGroup) -> SampledGroup:
    """Leave a group's share of the training sample and of the held-out rows in the run's folder.

    The problem of a group names a shard that is missing or is not what was written.
    """
    try:
        return sample_group(work.job, work.group)
    except SentenceBeamError as error:
        return SampledGroup(work.job, work.group, problem=Problem.of(error))


def sample_group(job: IndexJob, group: ShardGroup) -> SampledGroup:
    """Leave the sampled vectors of a group, its held-out vectors, and the locator of the latter."""
    for path, sha256 in zip(group.shards, group.sha256s, strict=True):
        check_shard(job.folder.stored(path), sha256)
    parts = PartWriter(job, group.number)
    queries = []
    locator = locators.LocatorBuilder()
    with progress.stage("index: sampling", job.rows, "rows"):
        for block in job.folder.blocks(group.shards):
            held = select(held_out_keys(block.hashes), job.held_out_below)
            keys = sample_keys(block.hashes, block.ids.to_pylist())
            chosen = select(keys, job.sample_below) & ~held
            parts.add(block.vectors[chosen], keys[chosen])
            queries.append(block.vectors[held])
            locate(locator, block, np.flatnonzero(held))
            progress.step(len(block.vectors))
    held_rows = stack(queries, job.plan.dim)
    leave_rows(job.folder, scratch.held_out(group.number), held_rows)
    job.folder.put(scratch.held_out_locator(group.number), locators.to_bytes(locator.table()))
    return SampledGroup(job, group, parts.finish(), len(held_rows))


class PartWriter:
    """Writes sampled rows in parts, each in the order of its keys, which are random.

    So the first rows of a part are any of it.
    """

    def __init__(self, job: IndexJob, group: int):
        self._job = job
        self._group = group
        self._most = max(1, PART_BYTES // (4 * job.plan.dim))
        self._rows: list[np.ndarray] = []
        self._keys: list[np.ndarray] = []
        self._written: list[int] = []

    def add(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Take rows float32 [n, dim] with their keys uint64 [n]."""
        self._rows.append(rows)
        self._keys.append(keys)
        if sum(map(len, self._keys)) >= self._most:
            self._write()

    def finish(self) -> tuple[int, ...]:
        """Return the number of rows in each written part."""
        if any(map(len, self._keys)):
            self._write()
        return tuple(self._written)

    def _write(self) -> None:
        order = np.argsort(np.concatenate(self._keys), kind="stable")
        leave_rows(
            self._job.folder,
            scratch.part(self._group, len(self._written)),
            np.concatenate(self._rows)[order],
        )
        self._written.append(len(order))
        self._rows = []
        self._keys = []


def parts_of(found: list[SampledGroup]) -> list[SamplePart]:
    """Return all parts of the sample in order; also held-out rows if every row is needed."""
    ordered = sorted(found, key=lambda sampled: sampled.group.number)
    parts = [
        SamplePart(scratch.part(sampled.group.number, number), rows)
        for sampled in ordered
        for number, rows in enumerate(sampled.parts)
    ]
    if lack_of_rows(ordered[0].job.plan.factory, sum(part.rows for part in parts)):
        parts += [
            SamplePart(scratch.held_out(sampled.group.number), sampled.held_out)
            for sampled in ordered
        ]
    return parts


def divide(sampled: list[SampledGroup]) -> Iterator[PartWork | CellWork]:
    """Yield the one cell of few lists, or the parts to be sorted by cells.

    Yields nothing if no lists are to be found.
    """
    if any(group.problem for group in sampled) or not sampled[0].job.plan.nlist:
        return
    job = sampled[0].job
    parts = parts_of(sampled)
    count = cells.cells_for(job.plan.nlist)
    job.folder.put(scratch.PARTS, "\n".join(f"{part.name} {part.rows}" for part in parts).encode())
    if not count:
        yield CellWork(job, 0, 0, job.plan.nlist)
        return
    with progress.stage("index: training"):
        rows = np.concatenate(list(any_rows(job, parts, cells.COARSE_ROWS * count)))
        job.folder.leave(scratch.COARSE, kmeans(rows, min(count, len(rows)), job.plan.metric))
    yield from (PartWork(job, part) for part in parts)


def assign(work: PartWork | CellWork) -> PartWork | CellWork:
    """Leave a part's rows sorted by their cells, and the rows in each; a cell passes.

    In the first pass a row's cell is the nearest one, and copies of a row are left out; later it is
    the cell of the nearest list, whose number then follows the row.
    """
    if isinstance(work, CellWork):
        return work
    job = work.job
    folder = work.job.folder
    dim = work.job.plan.dim
    turn = work.turn
    with progress.stage("index: training"):
        coarse = folder.take(scratch.COARSE)
        if not turn:
            rows = cells.distinct(read_rows(folder, [(work.part.name, 0, work.part.rows)], dim))
            cell = numbers = cells.nearest(rows, coarse, job.plan.metric)[1][:, 0]
        else:
            count = int(folder.take(scratch.counts(turn - 1, work.part.name)).sum())
            rows = read_rows(
                folder, [(scratch.sorted_part(turn - 1, work.part.name), 0, count)], dim + 1
            )[:, :dim]
            rows = np.ascontiguousarray(rows)
            bounds = folder.take(scratch.BOUNDS)
            lists = _lists_after(folder, turn - 1)
            numbers = cells.nearest_of_cells(rows, coarse, lists, bounds, job.plan.metric)
            cell = np.searchsorted(bounds, numbers, side="right") - 1
        order = np.argsort(cell, kind="stable")
        marked = np.empty((len(rows), dim + 1), np.float32)
        marked[:, :dim], marked[:, dim] = (
            rows[order],
            numbers[order].astype(np.int32).view(np.float32),
        )
        leave_rows(folder, scratch.sorted_part(turn, work.part.name), marked)
        folder.leave(scratch.counts(turn, work.part.name), np.bincount(cell, minlength=len(coarse)))
    return work


def allot(found: list[PartWork | CellWork]) -> Iterator[CellWork]:
    """Yield the cells, each with its lists; leave the places of its rows in each part's file."""
    if isinstance(found[0], CellWork):
        yield from (work for work in found if isinstance(work, CellWork))
        return
    job = found[0].job
    turn = found[0].turn or 0
    counts = np.stack(
        [job.folder.take(scratch.counts(turn, part.name)) for part in known_parts(job.folder)]
    )
    if not turn:
        given = cells.allotted(job.plan.nlist, counts.sum(axis=0))
        job.folder.leave(scratch.BOUNDS, np.concatenate([[0], np.cumsum(given)]))
    bounds = job.folder.take(scratch.BOUNDS)
    ends = np.cumsum(counts, axis=1)
    # What one cell needs of this lies together, so that it reads no more.
    places = np.stack([ends - counts, ends]).transpose(2, 0, 1)
    job.folder.put(scratch.places(turn), places.astype("<i8").tobytes())
    for number in np.flatnonzero(np.diff(bounds)):
        yield CellWork(job, int(number), int(bounds[number]), int(bounds[number + 1]), turn)


def cluster(work: CellWork) -> CellWork:
    """Leave the centroids of a cell's lists.

    They are found by k-means over its rows in the first pass, later as means of the lists.
    """
    if work.found:
        return work
    folder = work.job.folder
    plan = work.job.plan
    lists = work.last - work.first
    with progress.stage("index: training"):
        if work.turn is None:
            rows = read_rows(
                folder, [(part.name, 0, part.rows) for part in known_parts(folder)], plan.dim
            )
            found = kmeans(rows, min(lists, len(rows)), plan.metric)
        else:
            rows, numbers = rows_of_cell(work, work.turn)
            if work.turn:
                former = folder.take(scratch.lists_of_cell(work.number, work.turn - 1))
                found = cells.middles(rows, numbers - work.first, former, plan.metric)
            else:
                found = cells.lists_of_cell(rows, lists, plan.metric)
        folder.leave(
            scratch.lists_of_cell(work.number, work.turn), np.resize(found, (lists, plan.dim))
        )
    return replace(work, found=True)


def rows_of_cell(work: CellWork, turn: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows float32 [n, dim] of a cell in all parts, and their numbers int32 [n]."""
    folder = work.job.folder
    parts = known_parts(work.job.folder)
    size = 2 * 8 * len(parts)
    places = folder.part(scratch.places(turn), work.number * size, (work.number + 1) * size)
    starts, ends = np.frombuffer(places, "<i8").reshape(2, -1).tolist()
    names = [scratch.sorted_part(turn, part.name) for part in parts]
    marked = read_rows(folder, list(zip(names, starts, ends, strict=True)), work.job.plan.dim + 1)
    return np.ascontiguousarray(marked[:, :-1]), np.ascontiguousarray(marked[:, -1]).view(np.int32)


def again(found: list[CellWork]) -> Iterator[PartWork | CellWork]:
    """Yield the parts for the next pass over all rows; a cell that is the whole sample passes."""
    job = found[0].job
    turn = found[0].turn
    if turn is None:
        yield found[0]
        return
    job.folder.leave(scratch.lists_after(turn), gathered(found))
    yield from (PartWork(job, part, turn + 1) for part in known_parts(job.folder))


def gathered(found: list[CellWork]) -> np.ndarray:
    """Return the centroids of all lists, cell by cell."""
    ordered = sorted(found, key=lambda work: work.first)
    return np.concatenate(
        [work.job.folder.take(scratch.lists_of_cell(work.number, work.turn)) for work in ordered]
    )


def finish(found: list[SampledGroup | CellWork]) -> Iterator[BuildWork | RunFact]:
    """Yield every group with what was trained on the sample; or the problem of sampling."""
    sampled = sorted(
        (item for item in found if isinstance(item, SampledGroup)),
        key=lambda sampled: sampled.group.number,
    )
    problems = [item.problem for item in sampled if item.problem is not None]
    if problems:
        yield RunFact(problem=min(problems, key=lambda problem: problem.message))
        return
    clustered = [item for item in found if isinstance(item, CellWork)]
    job = sampled[0].job
    try:
        with progress.stage("index: training"):
            job, trained = _trained(job, sampled, clustered)
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.of(error))
        return
    yield from (BuildWork(job, trained, item.group) for item in sampled)


def _trained(
    job: IndexJob, sampled: list[SampledGroup], clustered: list[CellWork]
) -> tuple[IndexJob, Trained]:
    """Return the job with its chosen plan, and the trained index with the held-out rows.

    The latter are a Flat segment, written. Raises DataGateError if no index serves the request.
    """
    parts = parts_of(sampled)
    if clustered:
        lists = gathered(clustered)
    else:
        lists = np.empty((0, job.plan.dim), np.float32)
    data = assembled(job.plan, lists, any_rows(job, parts, CODEC_ROWS))
    _lists_after.cache_clear()
    vectors, locator = _held_out(job, sampled)
    job, data = _chosen(job, data, parts)
    segment = None
    if len(vectors):
        flat = flat_segment([vectors], job.plan.dim, job.plan.metric)
        made = WrittenSegment(flat, SegmentChecks.of(flat))
        refine = job.refine_writer()
        if refine:
            refine.add(vectors)
        segment = job.folder.segment(len(sampled), "held-out", made, locator, refine)
    path, sha256 = job.folder.write(data, "faiss")
    return job, Trained(path, sha256, sum(part.rows for part in parts), segment)


def _chosen(job: IndexJob, trained: bytes, parts: list[SamplePart]) -> tuple[IndexJob, bytes]:
    """Return the job with its kind of index, and the trained index of that kind."""
    request = job.request
    if not index_choice.budgets_of(request).choose:
        return replace(job, choice=index_choice.as_asked(request, job.plan, job.rows)), trained
    queries = job.folder.take(scratch.QUERIES)
    tuning = held_out.tuning_half(job.folder.take(scratch.TEXTS))
    few = np.concatenate(list(any_rows(job, parts, SAMPLE)))
    kind, choice = index_choice.compared(
        request, job.plan, trained, job.rows, job.unit, few, queries, tuning, job.required
    )
    return replace(job, plan=kind.plan, choice=choice, most_lists=kind.most_lists), kind.trained


def _held_out(job: IndexJob, sampled: list[SampledGroup]) -> tuple[np.ndarray, pa.Table]:
    """Return vectors and locator of the held-out rows; leave queries and texts' hashes."""
    vectors = read_rows(
        job.folder,
        [(scratch.held_out(item.group.number), 0, item.held_out) for item in sampled],
        job.plan.dim,
    )
    names = [scratch.held_out_locator(item.group.number) for item in sampled]
    tables = [job.folder.parsed(name, locators.from_bytes) for name in names]
    locator = locators.concat(tables)
    hashes = as_hashes(locator.column("row_hash").combine_chunks())
    _, first, place, copies = np.unique(
        as_keys(hashes), return_index=True, return_inverse=True, return_counts=True
    )
    few = copies <= held_out.COPIES_HELD_OUT
    job.folder.leave(scratch.QUERIES, vectors[first[few]])
    job.folder.leave(scratch.TEXTS, hashes[first[few]])
    job.folder.leave(scratch.CROWDED, hashes[first[~few]])
    rows = np.flatnonzero(few[place])
    return vectors[rows], locator.take(rows)


def leave_rows(folder: Folder, name: str, rows: np.ndarray) -> None:
    """Leave rows float32 [n, width] in the run's folder as their bytes alone.

    So some of them can be read.
    """
    folder.put(name, rows.astype("<f4", copy=False).tobytes())


def read_rows(folder: Folder, wanted: list[tuple[str, int, int]], width: int) -> np.ndarray:
    """Return rows float32 [n, width] of files that `leave_rows` left.

    `wanted` has name, first and end for each file. Pieces are read into the one array.
    """
    found = np.empty((sum(last - first for _, first, last in wanted), width), np.float32)
    at = 0
    for piece in read_pieces(folder, wanted, width):
        found[at : at + len(piece)] = piece
        at += len(piece)
    return found


def read_pieces(
    folder: Folder, wanted: list[tuple[str, int, int]], width: int
) -> Iterator[np.ndarray]:
    """Yield the same rows, in read-only pieces of a few megabytes."""
    size = 4 * width
    most = max(1, PIECE_BYTES // (4 * width))
    for name, start, last in wanted:
        for first in range(start, last, most):
            data = folder.part(name, first * size, min(first + most, last) * size)
            yield np.frombuffer(data, "<f4").reshape(-1, width)


def any_rows(job: IndexJob, parts: list[SamplePart], most: int) -> Iterator[np.ndarray]:
    """Yield about `most` rows of the sample in pieces: the first of each part, which are any."""
    rows = sum(part.rows for part in parts)
    share = min(1.0, most / max(1, rows))
    return read_pieces(
        job.folder, [(part.name, 0, math.ceil(part.rows * share)) for part in parts], job.plan.dim
    )


def known_parts(folder: Folder) -> list[SamplePart]:
    """Return the parts of the sample, in order."""
    return folder.parsed(scratch.PARTS, _parts_of)


def _parts_of(data: bytes) -> list[SamplePart]:
    lines = (line.split() for line in lines_of(data))
    return [SamplePart(name, int(rows)) for name, rows in lines]


@functools.lru_cache(maxsize=1)
def _lists_after(folder: Folder, turn: int) -> np.ndarray:
    """Return the centroids of all lists after a pass, kept for the next part."""
    return folder.take(scratch.lists_after(turn))
