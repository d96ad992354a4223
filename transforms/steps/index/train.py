"""The training of an index: its sample, the lists, the codec.

1. `sample.sample`: each group of shards leaves its rows of the sample, in parts of so many bytes.
2. `find_lists.divide`: few lists are one cell; if they are many, coarse cells are found.
3. `find_lists.assign`: each part's rows are sorted by their cells.
4. `find_lists.allot`: each cell gets lists in proportion to its rows.
5. `find_lists.cluster`: the lists of a cell are found by its rows alone.
6. Passes over all rows, if there are several cells: `find_lists.again`, `assign` by the nearest
   list, `allot`, `cluster`.
7. `finish`: all lists and the codec make the trained index, the held-out rows a Flat segment.

Only `sample` reads shards, and no step holds more than the sample once: if there are several
cells, a part or a cell of it. Rows and lists are in an order that depends on the groups alone.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow import as_hashes, as_keys
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.index import SegmentChecks, WrittenSegment, flat_segment
from sentence_beam.transforms.index.budgets import SAMPLE
from sentence_beam.transforms.index.train import CODEC_ROWS, assembled
from sentence_beam.transforms.index.walk import walk
from sentence_beam.transforms.steps.index import choice as index_choice
from sentence_beam.transforms.steps.index import held_out, kept_lists, scratch
from sentence_beam.transforms.steps.index.build import BuildWork, IndexJob, Trained
from sentence_beam.transforms.steps.index.find_lists import lists_after
from sentence_beam.transforms.steps.index.sample import any_rows, parts_of, read_rows
from sentence_beam.transforms.steps.index.training_items import (
    CellWork,
    SampledGroup,
    SamplePart,
    TrainingItem,
    cells_of,
    groups_of,
)
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.facts import RunFact


def finish(items: list[TrainingItem]) -> Iterator[BuildWork | RunFact]:
    """Yield every group with what was trained on the sample; or the problem of sampling."""
    sampled = groups_of(items)
    problems = [group.problem for group in sampled if group.problem is not None]
    if problems:
        yield RunFact(problem=min(problems, key=lambda problem: problem.message))
        return
    try:
        with progress.stage("index: training"):
            job, trained = _trained(sampled[0].job, sampled, cells_of(items))
    except SentenceBeamError as error:
        yield RunFact(problem=Problem.of(error))
        return
    yield from (BuildWork(job, trained, group.group) for group in sampled)


def _trained(
    job: IndexJob, sampled: list[SampledGroup], clustered: list[CellWork]
) -> tuple[IndexJob, Trained]:
    """Return the job with its chosen plan, and the trained index with the held-out rows.

    The latter are a Flat segment, written. Raises DataGateError if no index serves the request.
    """
    parts = parts_of(sampled)
    lists_after.cache_clear()
    data = kept_lists.take(job, sampled)
    if data is None:
        data = assembled(job.plan, _in_order(job, clustered), any_rows(job, parts, CODEC_ROWS))
        kept_lists.keep(job, sampled, data)
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


def _in_order(job: IndexJob, clustered: list[CellWork]) -> Iterator[np.ndarray]:
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
