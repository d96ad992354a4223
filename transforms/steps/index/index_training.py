"""The training of an index: its sample, the lists, the codec.

1. `training_sample.sample`: each group of shards leaves its rows, in parts of so many bytes.
2. `divide`: few lists are one cell; if they are many, coarse cells are found.
3. `assign`: each part's rows are sorted by their cells.
4. `allot`: each cell gets lists in proportion to its rows.
5. `cluster`: the lists of a cell are found by its rows alone.
6. Passes over all rows, if there are several cells: `again`, `assign` by the nearest
   list, `allot`, `cluster`.
7. `finish`: all lists and the codec make the trained index, the held-out rows a Flat segment.

Only `sample` reads shards, and no step holds more than the sample once: if there are several
cells, a part or a cell of it. Rows and lists are in an order that depends on the groups alone.
"""

import functools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_keys
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.index import SegmentChecks, WrittenSegment, cells, flat_segment
from sentence_beam.transforms.index.budgets import SAMPLE
from sentence_beam.transforms.index.kmeans import kmeans
from sentence_beam.transforms.index.quantizer import CODEC_ROWS, assemble_index
from sentence_beam.transforms.index.walk import walk
from sentence_beam.transforms.steps.index import held_out, kind_choice, scratch
from sentence_beam.transforms.steps.index.index_build import BuildWork, IndexJob, Trained
from sentence_beam.transforms.steps.index.index_folder import Folder
from sentence_beam.transforms.steps.index.training_sample import (
    CellWork,
    PartWork,
    SampledGroup,
    SamplePart,
    TrainingItem,
    leave_rows,
    list_parts,
    read_any_rows,
    read_known_parts,
    read_rows,
    select_cells,
    select_groups,
)
from sentence_beam.transforms.store.index_entries import IndexFileEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.run_facts import RunFact


def divide(sampled: list[TrainingItem]) -> Iterator[TrainingItem]:
    """Yield the one cell of few lists, or the parts to be sorted by cells.

    Yields nothing if no lists are to be found.
    """
    groups = select_groups(sampled)
    job = groups[0].job
    if any(group.problem for group in groups) or not job.plan.nlist or job.again is not None:
        return
    parts = list_parts(groups)
    count = cells.count_cells(job.plan.nlist)
    job.folder.put(scratch.PARTS, "\n".join(f"{part.name} {part.rows}" for part in parts).encode())
    if not count:
        yield TrainingItem(cell=CellWork(job, 0, 0, job.plan.nlist))
        return
    with progress.stage("index: training"):
        rows = np.concatenate(list(read_any_rows(job, parts, cells.COARSE_ROWS * count)))
        job.folder.leave(scratch.COARSE, kmeans(rows, min(count, len(rows)), job.plan.metric))
    yield from (TrainingItem(part=PartWork(job, part)) for part in parts)


def assign(item: TrainingItem) -> TrainingItem:
    """Leave a part's rows sorted by their cells, and the rows in each; a cell passes.

    In the first pass a row's cell is the nearest one, and copies of a row are left out; later it is
    the cell of the nearest list, whose number then follows the row.
    """
    if item.part is not None:
        with progress.stage("index: training"):
            _sort_part(item.part)
    return item


def _sort_part(work: PartWork) -> None:
    folder = work.job.folder
    coarse = folder.take(scratch.COARSE)
    if work.turn:
        rows, numbers, cell = _assign_to_lists(work, coarse)
    else:
        rows = read_rows(folder, [(work.part.name, 0, work.part.rows)], work.job.plan.dim)
        rows = cells.remove_copies(rows)
        cell = cells.find_nearest(rows, coarse, work.job.plan.metric)[1][:, 0]
        numbers = cell
    order = np.argsort(cell, kind="stable")
    marked = np.empty((len(rows), work.job.plan.dim + 1), np.float32)
    marked[:, :-1] = rows[order]
    marked[:, -1] = numbers[order].astype(np.int32).view(np.float32)
    leave_rows(folder, scratch.sorted_part(work.turn, work.part.name), marked)
    counts = np.bincount(cell, minlength=len(coarse))
    folder.leave(scratch.counts(work.turn, work.part.name), counts)


def _assign_to_lists(
    work: PartWork, coarse: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a part's rows float32 [n, dim], the list nearest to each, and its cell."""
    folder = work.job.folder
    plan = work.job.plan
    before = work.turn - 1
    count = int(folder.take(scratch.counts(before, work.part.name)).sum())
    name = scratch.sorted_part(before, work.part.name)
    rows = np.ascontiguousarray(read_rows(folder, [(name, 0, count)], plan.dim + 1)[:, :-1])
    bounds = folder.take(scratch.BOUNDS)
    lists = read_lists_after(folder, before, plan.dim)
    numbers = cells.find_nearest_of_cells(rows, coarse, lists, bounds, plan.metric)
    return rows, numbers, np.searchsorted(bounds, numbers, side="right") - 1


def allot(assigned: list[TrainingItem]) -> Iterator[TrainingItem]:
    """Yield the cells, each with its lists; leave the places of its rows in each part's file."""
    parts = [item.part for item in assigned if item.part is not None]
    if not parts:
        yield from assigned
        return
    job = parts[0].job
    turn = parts[0].turn
    counts = np.stack(
        [job.folder.take(scratch.counts(turn, part.name)) for part in read_known_parts(job.folder)]
    )
    if not turn:
        allotted = cells.allot_lists(job.plan.nlist, counts.sum(axis=0))
        job.folder.leave(scratch.BOUNDS, np.concatenate([[0], np.cumsum(allotted)]))
    bounds = job.folder.take(scratch.BOUNDS)
    ends = np.cumsum(counts, axis=1)
    # The places of one cell are together, so that it reads no others.
    places = np.stack([ends - counts, ends]).transpose(2, 0, 1)
    job.folder.put(scratch.places(turn), places.astype("<i8").tobytes())
    for number in np.flatnonzero(np.diff(bounds)):
        cell = CellWork(job, int(number), int(bounds[number]), int(bounds[number + 1]), turn)
        yield TrainingItem(cell=cell)


def cluster(item: TrainingItem) -> TrainingItem:
    """Leave the centroids of a cell's lists.

    They are found by k-means over its rows in the first pass, later as means of the lists.
    """
    work = item.cell
    if work is None or work.found:
        return item
    lists = work.last - work.first
    with progress.stage("index: training"):
        centroids = np.resize(_find_centroids(work, lists), (lists, work.job.plan.dim))
        work.job.folder.leave(scratch.lists_of_cell(work.number, work.turn), centroids)
    return TrainingItem(cell=replace(work, found=True))


def _find_centroids(work: CellWork, lists: int) -> np.ndarray:
    """Return the centroids of a cell's lists, float32 [at most `lists`, dim]."""
    folder = work.job.folder
    plan = work.job.plan
    if work.turn is None:
        wanted = [(part.name, 0, part.rows) for part in read_known_parts(folder)]
        rows = read_rows(folder, wanted, plan.dim)
        return kmeans(rows, min(lists, len(rows)), plan.metric)
    rows, numbers = read_rows_of_cell(work, work.turn)
    if not work.turn:
        return cells.find_lists_of_cell(rows, lists, plan.metric)
    former = folder.take(scratch.lists_of_cell(work.number, work.turn - 1))
    return cells.average_lists(rows, numbers - work.first, former, plan.metric)


def read_rows_of_cell(work: CellWork, turn: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows float32 [n, dim] of a cell in all parts, and their numbers int32 [n]."""
    folder = work.job.folder
    parts = read_known_parts(work.job.folder)
    size = 2 * 8 * len(parts)
    places = folder.part(scratch.places(turn), work.number * size, (work.number + 1) * size)
    starts, ends = np.frombuffer(places, "<i8").reshape(2, -1).tolist()
    names = [scratch.sorted_part(turn, part.name) for part in parts]
    marked = read_rows(folder, list(zip(names, starts, ends, strict=True)), work.job.plan.dim + 1)
    return np.ascontiguousarray(marked[:, :-1]), np.ascontiguousarray(marked[:, -1]).view(np.int32)


def again(clustered: list[TrainingItem]) -> Iterator[TrainingItem]:
    """Yield the parts for the next pass over all rows; a cell that is the whole sample passes."""
    cells = select_cells(clustered)
    job = cells[0].job
    turn = cells[0].turn
    if turn is None:
        yield from clustered
        return
    for part in read_known_parts(job.folder):
        yield TrainingItem(part=PartWork(job, part, turn + 1))


@functools.lru_cache(maxsize=1)
def read_lists_after(folder: Folder, turn: int, dim: int) -> np.ndarray:
    """Return the centroids of all lists after a pass, kept for the next part.

    Those of a cell are read into their place, so that no list is held twice.
    """
    bounds = folder.take(scratch.BOUNDS)
    centroids = np.empty((bounds[-1], dim), np.float32)
    for cell in np.flatnonzero(np.diff(bounds)).tolist():
        centroids[bounds[cell] : bounds[cell + 1]] = folder.take(scratch.lists_of_cell(cell, turn))
    return centroids


def finish(items: list[TrainingItem]) -> Iterator[BuildWork | RunFact]:
    """Yield every group with what was trained on the sample; or the problem of sampling."""
    sampled = select_groups(items)
    problems = [group.problem for group in sampled if group.problem is not None]
    if problems:
        yield RunFact(problem=min(problems, key=lambda problem: problem.message))
        return
    try:
        with progress.stage("index: training"):
            job, trained = _train(sampled[0].job, sampled, select_cells(items))
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.from_error(error))
        return
    yield from (BuildWork(job, trained, group.group) for group in sampled)


def _train(
    job: IndexJob, sampled: list[SampledGroup], clustered: list[CellWork]
) -> tuple[IndexJob, Trained]:
    """Return the job with its chosen plan, and the trained index with the held-out rows.

    The latter are a Flat segment, written. Raises DataGateError if no index serves the request.
    """
    parts = list_parts(sampled)
    read_lists_after.cache_clear()
    vectors, locator = _gather_held_out(job, sampled)
    if job.again is not None:
        data = index_files.read(job.folder.stored(job.again.path), job.again.sha256)
    else:
        data = assemble_index(
            job.plan, _order_lists(job, clustered), read_any_rows(job, parts, CODEC_ROWS)
        )
        job, data = _choose_kind(job, data, parts)
    segment = None
    if len(vectors):
        flat = flat_segment([vectors], job.plan.dim, job.plan.metric)
        made = WrittenSegment(flat, SegmentChecks.from_data(flat))
        refine = job.make_refine_writer()
        if refine:
            refine.add(vectors)
        segment = job.folder.segment(len(sampled), "held-out", made, locator, refine)
    file = IndexFileEntry(*job.folder.write(data, "faiss"))
    return job, Trained(file, sum(part.rows for part in parts), segment)


def _order_lists(job: IndexJob, clustered: list[CellWork]) -> Iterator[np.ndarray]:
    """Yield the centroids of all lists, float32 [n, dim], near ones next to each other.

    The cells are in the order of a walk over them, and the lists of each cell too.
    """
    cells = clustered
    if len(clustered) > 1:
        order = walk(job.folder.take(scratch.COARSE)[[cell.number for cell in clustered]])
        cells = [clustered[place] for place in order.tolist()]
    for cell in cells:
        lists = job.folder.take(scratch.lists_of_cell(cell.number, cell.turn))
        yield lists[walk(lists)]


def _choose_kind(job: IndexJob, trained: bytes, parts: list[SamplePart]) -> tuple[IndexJob, bytes]:
    """Return the job with its kind of index, and the trained index of that kind."""
    queries = job.folder.take(scratch.QUERIES)
    tuning = held_out.select_tuning_half(job.folder.take(scratch.TEXTS))
    few = [np.empty((0, job.plan.dim), np.float32)]
    if kind_choice.make_budgets(job.request).choose:
        few += read_any_rows(job, parts, SAMPLE)
    return kind_choice.choose_kind(job, trained, np.concatenate(few), queries, tuning)


def _gather_held_out(job: IndexJob, sampled: list[SampledGroup]) -> tuple[np.ndarray, pa.Table]:
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
