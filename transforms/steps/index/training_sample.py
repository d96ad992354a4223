"""The sample that an index is trained on, and the held-out rows: their files in the run's folder.

Each group of shards leaves its rows of the sample in parts of so many bytes; steps read a part, or
some rows of it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.index import held_out_keys, sample_keys, select
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.index_build import IndexJob, ShardGroup, TrainingGroup
from sentence_beam.transforms.steps.index.index_folder import Folder, lines_of, locate
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.shards.shard_reading import check_shard

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
    """A part, whose rows are to be sorted by cells in pass `turn` over all rows (0: first)."""

    job: IndexJob
    part: SamplePart
    turn: int = 0


@dataclass(frozen=True)
class CellWork:
    """A cell, whose lists `first` to `last` are to be `found` in pass `turn`.

    If `turn` is None, the cell is the whole sample, and one pass finds its lists.
    """

    job: IndexJob
    number: int
    first: int
    last: int
    turn: int | None = None
    found: bool = False


@dataclass(frozen=True)
class TrainingItem:
    """An element of a training; one field is set.

    It is a sampled group, a part to be sorted by cells, or a cell.
    """

    group: SampledGroup | None = None
    part: PartWork | None = None
    cell: CellWork | None = None


def select_groups(items: Iterable[TrainingItem]) -> list[SampledGroup]:
    """Return the sampled groups among the items, by their number."""
    groups = [item.group for item in items if item.group is not None]
    return sorted(groups, key=lambda sampled: sampled.group.number)


def select_cells(items: Iterable[TrainingItem]) -> list[CellWork]:
    """Return the cells among the items, in the order of their lists."""
    return sorted(
        (item.cell for item in items if item.cell is not None), key=lambda cell: cell.first
    )


def sample(work: TrainingGroup) -> TrainingItem:
    """Leave a group's share of the training sample and of the held-out rows in the run's folder.

    The problem of a group names a shard that is missing or is not what was written.
    """
    try:
        return TrainingItem(group=sample_group(work.job, work.group))
    except SentenceBeamError as error:
        problem = Problem.from_error(error)
        return TrainingItem(group=SampledGroup(work.job, work.group, problem=problem))


def sample_group(job: IndexJob, group: ShardGroup) -> SampledGroup:
    """Leave the sampled vectors of a group, its held-out vectors, and the locator of the latter."""
    for path, sha256 in zip(group.shards, group.sha256s, strict=True):
        check_shard(job.folder.stored(path), sha256)
    parts = SampleWriter(job, group.number)
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
    held_rows = np.concatenate([np.empty((0, job.plan.dim), np.float32), *queries])
    leave_rows(job.folder, scratch.held_out(group.number), held_rows)
    job.folder.put(scratch.held_out_locator(group.number), locators.to_bytes(locator.table()))
    return SampledGroup(job, group, parts.finish(), len(held_rows))


class SampleWriter:
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


def list_parts(groups: list[SampledGroup]) -> list[SamplePart]:
    """Return all parts of the sample in order; also held-out rows if every row is needed."""
    ordered = sorted(groups, key=lambda sampled: sampled.group.number)
    parts = [
        SamplePart(scratch.part(sampled.group.number, number), rows)
        for sampled in ordered
        for number, rows in enumerate(sampled.parts)
    ]
    if ordered[0].job.plan.spec.lack_of_rows(sum(part.rows for part in parts)):
        parts += [
            SamplePart(scratch.held_out(sampled.group.number), sampled.held_out)
            for sampled in ordered
        ]
    return parts


def leave_rows(folder: Folder, name: str, rows: np.ndarray) -> None:
    """Leave rows float32 [n, width] in the run's folder as their bytes alone.

    So some of them can be read.
    """
    folder.put(name, rows.astype("<f4", copy=False).tobytes())


def read_rows(folder: Folder, wanted: list[tuple[str, int, int]], width: int) -> np.ndarray:
    """Return rows float32 [n, width] of files that `leave_rows` left.

    `wanted` has name, first and end for each file. Pieces are read into the one array.
    """
    rows = np.empty((sum(last - first for _, first, last in wanted), width), np.float32)
    at = 0
    for piece in read_pieces(folder, wanted, width):
        rows[at : at + len(piece)] = piece
        at += len(piece)
    return rows


def read_pieces(
    folder: Folder, wanted: list[tuple[str, int, int]], width: int
) -> Iterator[np.ndarray]:
    """Yield the same rows, in read-only pieces of a few megabytes."""
    size = 4 * width
    most = max(1, PIECE_BYTES // size)
    for name, start, last in wanted:
        for first in range(start, last, most):
            data = folder.part(name, first * size, min(first + most, last) * size)
            yield np.frombuffer(data, "<f4").reshape(-1, width)


def read_any_rows(job: IndexJob, parts: list[SamplePart], most: int) -> Iterator[np.ndarray]:
    """Yield about `most` rows of the sample in pieces: the first of each part, which are any."""
    rows = sum(part.rows for part in parts)
    share = min(1.0, most / max(1, rows))
    return read_pieces(
        job.folder, [(part.name, 0, math.ceil(part.rows * share)) for part in parts], job.plan.dim
    )


def read_known_parts(folder: Folder) -> list[SamplePart]:
    """Return the parts of the sample, in order."""
    return folder.parsed(scratch.PARTS, _parse_parts)


def _parse_parts(data: bytes) -> list[SamplePart]:
    lines = (line.split() for line in lines_of(data))
    return [SamplePart(name, int(rows)) for name, rows in lines]
