"""The index steps over a store's shards: sample, train, build one segment, evaluate. No Beam here.

Steps leave arrays for each other in the run's folder; only descriptors travel between them.
"""

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.beam.job import IndexRequest
from transforms.index import (
    IndexPlan,
    SegmentedIndex,
    SegmentFile,
    build_segment,
    flat_segment,
    held_out_keys,
    sample_keys,
    sample_threshold,
    select,
    train,
)
from transforms.index.recall import Candidates, ExactNeighbours, measure_recall, nprobe_grid
from transforms.store import layout, locators, storage
from transforms.store.records import UnitRecord
from transforms.store.shards import as_hashes, as_matrix, read_shard

HELD_OUT = 1000
HELD_OUT_SHARE = 10  # at most one row in ten is held out
COPIES_HELD_OUT = 20  # a text with more copies stays in the index: the held-out segment is scanned for every query
K = 10
SEGMENT_ROWS = 250_000
SEGMENTS = 64


@dataclass(frozen=True)
class IndexJob:
    """One index build: where, what, and the thresholds under which a row is sampled or held out."""

    root: str
    run: str
    plan: IndexPlan
    rows: int
    request: IndexRequest

    @property
    def held_out_below(self) -> int:
        """Threshold on `held_out_keys`."""
        return sample_threshold(min(HELD_OUT, self.rows // HELD_OUT_SHARE), self.rows)

    @property
    def sample_below(self) -> int:
        """Threshold on `sample_keys`; a little more than asked for, since held-out rows are left out of it."""
        wanted = self.plan.train_rows
        return sample_threshold(wanted + wanted // 5 + 1, self.rows) if wanted else 0

    def scratch(self, name: str) -> str:
        """Path of a file that one step leaves for another."""
        return storage.join(self.root, layout.scratch(self.run, name))


@dataclass(frozen=True)
class Group:
    """Shards that make one segment; paths relative to the store."""

    number: int
    shards: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Rows of one shard: vectors float32 [n, d], hashes uint8 [n, 16], and the columns as Arrow has them."""

    shard: str
    start: int
    vectors: np.ndarray
    hashes: np.ndarray
    ids: pa.Array
    hash_column: pa.Array


@dataclass(frozen=True)
class Segment:
    """A written segment and its locator, as the manifest lists them; `number` orders them."""

    number: int
    kind: str
    rows: int
    path: str
    sha256: str
    bytes: int
    locator: str
    locator_sha256: str


@dataclass(frozen=True)
class Trained:
    """The trained quantizer and the held-out segment (None where nothing is held out)."""

    path: str
    sha256: str
    rows: int
    held_out: Segment | None


def groups(job: IndexJob, units: list[UnitRecord]) -> list[Group]:
    """Shards in the units' order, cut into segments of even size: enough to build in parallel, few enough to search."""
    most = min(job.plan.segment_rows, max(SEGMENT_ROWS, -(-job.rows // SEGMENTS)))
    most = job.rows if job.request.merge else most
    found: list[list[str]] = [[]]
    rows = 0
    for unit in units:
        if unit.path is None:
            continue
        if found[-1] and rows + unit.rows > most:
            found.append([])
            rows = 0
        found[-1].append(unit.path)
        rows += unit.rows
    return [Group(number, tuple(paths)) for number, paths in enumerate(found) if paths]


def blocks(job: IndexJob, group: Group) -> Iterator[Block]:
    """The group's rows, block by block."""
    for shard in group.shards:
        start = 0
        for batch in read_shard(storage.join(job.root, shard), ["id", "row_hash", "embedding"]):
            ids, hashes, vectors = batch.columns
            yield Block(shard, start, as_matrix(vectors), as_hashes(hashes), ids, hashes)
            start += batch.num_rows


def sample_group(job: IndexJob, group: Group) -> Group:
    """Leave the group's share of the training sample and of the held-out rows in the run's folder."""
    sample, queries, locator = [], [], locators.LocatorBuilder()
    for block in blocks(job, group):
        held = select(held_out_keys(block.hashes), job.held_out_below)
        chosen = select(sample_keys(block.hashes, block.ids.to_pylist()), job.sample_below) & ~held
        sample.append(block.vectors[chosen])
        queries.append(block.vectors[held])
        _locate(locator, block, np.flatnonzero(held))
    _leave(job.scratch(f"sample-{group.number}.npy"), _stack(sample, job.plan.dim))
    _leave(job.scratch(f"held-out-{group.number}.npy"), _stack(queries, job.plan.dim))
    _put(job.scratch(f"held-out-{group.number}.parquet"), locators.to_bytes(locator.table()))
    return group


def _locate(locator: locators.LocatorBuilder, block: Block, rows: np.ndarray) -> None:
    if len(rows):
        locator.add(block.shard, block.start + rows, block.ids.take(rows), block.hash_column.take(rows))


def _stack(arrays: list[np.ndarray], dim: int) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty((0, dim), np.float32)


def train_all(job: IndexJob, found: list[Group]) -> Trained:
    """Train once on everybody's sample, in the groups' order, and write the held-out rows as a Flat segment."""
    ordered = sorted(found, key=lambda group: group.number)
    sample = _stack([_take(job.scratch(f"sample-{g.number}.npy")) for g in ordered], job.plan.dim)
    path, sha256 = _write_index_file(job, train(job.plan, sample), "faiss")
    queries, locator = _held_out(job, ordered)
    held_out = None
    if len(queries):
        data = flat_segment([queries], job.plan.dim, job.plan.metric)
        held_out = _segment(job, len(ordered), "held-out", data, locator)
    return Trained(path, sha256, len(sample), held_out)


def _held_out(job: IndexJob, ordered: list[Group]) -> tuple[np.ndarray, pa.Table]:
    """Vectors and locator of the held-out rows; left behind: the vectors as queries, and the texts' hashes."""
    queries = _stack([_take(job.scratch(f"held-out-{g.number}.npy")) for g in ordered], job.plan.dim)
    tables = [locators.from_bytes(_read(job.scratch(f"held-out-{g.number}.parquet"))) for g in ordered]
    locator = locators.concat(tables)
    hashes = as_keys(as_hashes(locator.column("row_hash").combine_chunks()))
    texts, place, copies = np.unique(hashes, return_inverse=True, return_counts=True)
    few = np.flatnonzero(copies[place] <= COPIES_HELD_OUT)
    _leave(job.scratch("queries.npy"), queries[few])
    _leave(job.scratch("held-out.npy"), texts[copies <= COPIES_HELD_OUT].view(np.uint8))
    return queries[few], locator.take(few)


def as_keys(hashes: np.ndarray) -> np.ndarray:
    """uint8 [n, 16] as n comparable items."""
    return np.ascontiguousarray(hashes).view("S16").reshape(-1)


def build_group(job: IndexJob, trained: Trained, group: Group) -> Segment | None:
    """Build and write the group's segment, and leave what it says of the held-out queries; None if no row is left."""
    queries, base = _take(job.scratch("queries.npy")), group.number << 32
    held_out = _take(job.scratch("held-out.npy")).view("S16")
    exact, locator = ExactNeighbours(queries, K, job.plan.metric), locators.LocatorBuilder()

    def rest() -> Iterator[np.ndarray]:
        added = 0
        for block in blocks(job, group):
            rows = np.flatnonzero(~np.isin(as_keys(block.hashes), held_out))
            vectors = np.ascontiguousarray(block.vectors[rows])
            exact.add(vectors, base + added)
            _locate(locator, block, rows)
            added += len(rows)
            yield vectors

    data = build_segment(_read(storage.join(job.root, trained.path)), rest())
    table = locator.table()
    if not len(table):
        return None
    _put(job.scratch(f"exact-{group.number}.npz"), exact.to_bytes())
    _put(job.scratch(f"found-{group.number}.npz"), _candidates(job, data, queries, group).to_bytes())
    return _segment(job, group.number, "base", data, table)


def _candidates(job: IndexJob, data: bytes, queries: np.ndarray, group: Group) -> Candidates:
    """What the segment alone returns for the held-out queries at every nprobe."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "segment.faiss")
        with open(path, "wb") as f:
            f.write(data)
        index = SegmentedIndex.open([SegmentFile(path)])
        depth = job.plan.rerank or K
        return Candidates.search(index, queries, depth, nprobe_grid(job.plan.nlist), segment=group.number)


def evaluate(job: IndexJob, trained: Trained, segments: list[Segment]) -> dict[str, Any]:
    """The manifest's `index` entry, with recall measured over all segments."""
    segments = sorted(segments, key=lambda segment: segment.number)
    queries = _take(job.scratch("queries.npy"))
    exact, found = ExactNeighbours(queries, K, job.plan.metric), None
    for segment in segments:
        exact = exact.merge(ExactNeighbours.from_bytes(_read(job.scratch(f"exact-{segment.number}.npz")), queries))
        part = Candidates.from_bytes(_read(job.scratch(f"found-{segment.number}.npz")))
        found = part if found is None else found.merge(part)
    recall = measure_recall(exact, found, target=job.request.target_recall) if found is not None else None
    listed = [*segments, *([trained.held_out] if trained.held_out else [])]
    return {
        "request": asdict(job.request),
        "factory": job.plan.factory,
        "metric": job.plan.metric,
        "nprobe": recall["nprobe"] if recall else job.plan.nprobe,
        "rerank": job.plan.rerank,
        "rows": sum(segment.rows for segment in listed),
        "segments": [_entry(segment) for segment in listed],
        "trained": {"path": trained.path, "sha256": trained.sha256, "rows": trained.rows},
        "recall": recall,
    }


def _entry(segment: Segment) -> dict[str, Any]:
    return {name: value for name, value in asdict(segment).items() if name != "number"}


def _segment(job: IndexJob, number: int, kind: str, data: bytes, locator: pa.Table) -> Segment:
    path, sha256 = _write_index_file(job, data, "faiss")
    locator_path, locator_sha256 = _write_index_file(job, locators.to_bytes(locator), "parquet")
    return Segment(number, kind, len(locator), path, sha256, len(data), locator_path, locator_sha256)


def _write_index_file(job: IndexJob, data: bytes, suffix: str) -> tuple[str, str]:
    sha256 = hashlib.sha256(data).hexdigest()
    path = layout.index_file(sha256, suffix)
    _put(storage.join(job.root, path), data)
    return path, sha256


def _put(path: str, data: bytes) -> None:
    storage.storage_of(path).put_if_absent(path, data)


def _leave(path: str, array: np.ndarray) -> None:
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    _put(path, sink.getvalue())


def _take(path: str) -> np.ndarray:
    return np.load(io.BytesIO(_read(path)), allow_pickle=False)


def _read(path: str) -> bytes:
    return storage.read_bytes(path)


def scratch_files(job: IndexJob, found: list[Group]) -> list[str]:
    """What the steps left for each other, to be removed when none of them can be tried again."""
    names = ["queries.npy", "held-out.npy"]
    for group in found:
        names += [f"{stem}-{group.number}.npy" for stem in ("sample", "held-out")]
        names += [f"held-out-{group.number}.parquet", f"exact-{group.number}.npz", f"found-{group.number}.npz"]
    return [job.scratch(name) for name in names]
