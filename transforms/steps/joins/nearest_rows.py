"""The rows of a store nearest to many queries, by blocks of queries and groups of rows.

A block's queries, and each group's candidates for them, are files in the folder `_work` of the
output, so that only descriptions travel. A block's result is one file, named by the block and
written once; an existing one is not made again.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import read_parquet_bytes, write_parquet_bytes
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus import Columns, Span, UnitRows, read_span
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.index.index_parts import Coarse
from sentence_beam.transforms.index.metric_vectors import prepare_vectors
from sentence_beam.transforms.search import Hits, Searcher
from sentence_beam.transforms.steps.joins.compared_rows import ComparedRows, Group, open_rows
from sentence_beam.transforms.steps.joins.join_queries import (
    Queries,
    StoredRows,
    read_stored_queries,
)
from sentence_beam.transforms.steps.joins.work_files import (
    find_best,
    refuse_damaged_work,
    take_arrays,
    write_arrays,
)
from sentence_beam.transforms.store.manifest import Manifest, read_resolved
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.shards.shard_files import take_numbered

BLOCK_ROWS = 32_768
BLOCK_BYTES = 128 << 20
WORK = "_work"
COUNTS = b"counts"


@dataclass(frozen=True)
class NeighboursJob:
    """The request: `k` rows of a snapshot for each query, scored `min_score` or more.

    `digest` is the snapshot's. `itself` says that the queries are the snapshot's own rows, none of
    which is a neighbour of its own. `columns` are those of files of queries; `model` and
    `query_prompt` embed these, if not as the store remembers. With `texts` a block's file has the
    texts of rows and queries too, as far as they are known; `query_text` is the column with those
    of queries that are a store's rows. `where` is a filter of the rows that may be found.
    """

    store: str
    snapshot: str
    digest: str
    output: str
    k: int
    min_score: float | None = None
    itself: bool = False
    columns: Columns = field(default_factory=Columns)
    model: str | None = None
    query_prompt: str | None = None
    texts: bool = False
    query_text: str | None = None
    where: str | None = None

    def path(self, block: str) -> str:
        """Return the file with the neighbours of a block's queries."""
        return storage.join(self.output, f"neighbours-{block}.parquet")

    def work(self, name: str) -> str:
        """Return a file that one step leaves for another."""
        return storage.join(self.output, WORK, name)


@dataclass(frozen=True)
class StoredBlock:
    """Rows of a store that are queries, as parts of shards.

    A part is number and path of the shard, and the rows from `start` up to `stop`.
    """

    name: str
    parts: tuple[tuple[int, str, int, int], ...]

    @property
    def rows(self) -> list[StoredRows]:
        """The rows, shard by shard."""
        return [(number, path, range(start, stop)) for number, path, start, stop in self.parts]


@dataclass(frozen=True)
class Comparison:
    """A block of queries, left in a file, and the groups of rows that it is to be compared with.

    Some groups are compared with `parts` of the block, which have files of their own.
    """

    block: str
    groups: tuple[Group, ...]
    rejected: int = 0
    parts: tuple[Group, ...] = ()


@dataclass(frozen=True)
class PreparedBlock:
    """A block whose queries were read; one field is set.

    It is to be compared, or has its file already, or cannot be compared.
    """

    comparison: Comparison | None = None
    record: "BlockRecord | None" = None
    problem: Problem | None = None


@dataclass(frozen=True)
class BlockRecord:
    """The file of a block: its queries, its rows, and the rejected queries."""

    path: str
    queries: int
    rows: int
    rejected: int


def query_blocks(manifest: Manifest) -> list[StoredBlock]:
    """Return the rows of a snapshot as queries, in blocks of even length, all shards in order."""
    most = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (4 * manifest.space.dim)))
    parts: list[list[tuple[int, str, int, int]]] = [[]]
    room = most
    rows_of_shards = manifest.shards.column("rows").to_pylist()
    for number, (rows, path) in enumerate(zip(rows_of_shards, manifest.shard_paths, strict=True)):
        start = 0
        while start < rows:
            if not room:
                parts.append([])
                room = most
            stop = min(rows, start + room)
            parts[-1].append((number, path, start, stop))
            room -= stop - start
            start = stop
    return [
        StoredBlock(f"{number:06d}", tuple(block)) for number, block in enumerate(parts) if block
    ]


class NeighbourSearch:
    """The steps of a job in a worker; snapshot, model and index are opened on demand."""

    def __init__(self, job: NeighboursJob):
        self._job = job

    @cached_property
    def _opened(self) -> tuple[Manifest, Searcher, ComparedRows]:
        job = self._job
        manifest = read_resolved(job.store, job.snapshot, job.digest)
        if manifest is None:
            raise SentenceBeamError(
                f"{job.store}: the snapshot {job.snapshot} is missing; see verify"
            )
        searcher = Searcher(manifest, job.model, job.query_prompt)
        return manifest, searcher, open_rows(manifest, searcher, job.k, int(job.itself), job.where)

    def prepare(self, source: StoredBlock | Span) -> Iterator[PreparedBlock]:
        """Yield the blocks of a source of queries; the queries of each are left in a file."""
        try:
            if isinstance(source, StoredBlock):
                yield self._prepare_rows(source)
            else:
                yield from self._prepare_texts(source)
        except SentenceBeamError as error:
            yield PreparedBlock(problem=Problem.from_error(_mend(error)))

    def _prepare_rows(self, source: StoredBlock) -> PreparedBlock:
        record = self._find_record(source.name)
        if record is not None:
            return PreparedBlock(record=record)
        queries = read_stored_queries(source.rows, self._job.query_text)
        return self._prepare(source.name, queries)

    def _prepare_texts(self, span: Span) -> Iterator[PreparedBlock]:
        for unit in read_span(span, self._job.columns, UNIT_TOKENS):
            record = self._find_record(unit.name)
            if record is not None:
                yield PreparedBlock(record=record)
            else:
                yield self._prepare(unit.name, self._embed_unit(unit), len(unit.rejects))

    def _find_record(self, block: str) -> BlockRecord | None:
        """Return the record of a block whose file is whole; None if it must be made."""
        path = self._job.path(block)
        stored = storage.storage_of(path).read_versioned(path)
        if stored is None:
            return None
        try:
            with refuse_damage(f"{path} is not what was written"):
                table = read_parquet_bytes(stored[0])
                counts = json.loads(table.schema.metadata[COUNTS])
                return BlockRecord(path, counts["queries"], len(table), counts["rejected"])
        except SentenceBeamError:
            return None

    def _embed_unit(self, unit: UnitRows) -> Queries:
        names = unit.ids if self._job.columns.id else unit.texts
        _, searcher, _ = self._opened
        vectors = searcher.queries.vectors(unit.texts) if names else np.empty((0, 1), np.float32)
        none = np.full(len(names), -1)
        texts = list[str | None](unit.texts) if self._job.texts and self._job.columns.id else None
        return Queries(names, vectors, none, none, texts=texts)

    def _prepare(self, block: str, queries: Queries, rejected: int = 0) -> PreparedBlock:
        manifest, _, rows = self._opened
        if not queries.names:
            return PreparedBlock(record=self.finish_block(Comparison(block, (), rejected)))
        vectors = prepare_vectors(np.asarray(queries.vectors, np.float32), manifest.metric)
        with progress.stage("choosing lists"):
            coarse = rows.coarse(vectors)
        every = np.arange(len(vectors))
        places = {group: rows.asked(group, every, coarse) for group in rows.groups}
        groups = tuple(group for group in rows.groups if len(places[group])) or (rows.groups[0],)
        parts = tuple(group for group in groups if len(places[group]) < len(every))
        for group in parts:
            which = places[group]
            part = {"which": which, "vectors": vectors[which], **_pack_lists(coarse, which)}
            write_arrays(self._name_part(block, group), **part)
        names = np.frombuffer(json.dumps(queries.names).encode(), np.uint8)
        own = {"names": names, "vectors": vectors, "shard": queries.shard, "row": queries.row}
        if queries.piece is not None:
            own["piece"] = queries.piece
        if queries.texts is not None:
            own["texts"] = np.frombuffer(json.dumps(queries.texts).encode(), np.uint8)
        write_arrays(self._job.work(f"{block}.npz"), **own, **_pack_lists(coarse, every))
        return PreparedBlock(comparison=Comparison(block, groups, rejected, parts))

    def compare(self, work: Comparison, group: Group) -> Problem | None:
        """Leave the best candidates that a group of rows has for the queries that look into it."""
        try:
            path = self._job.work(f"{work.block}.npz")
            if group in work.parts:
                path = self._name_part(work.block, group)
            arrays = take_arrays(path)
            with refuse_damaged_work(path):
                vectors = arrays["vectors"]
                which = arrays.get("which", np.arange(len(vectors)))
                coarse = None
                if "lists" in arrays:
                    lists = np.ascontiguousarray(arrays["lists"], np.int64)
                    coarse = Coarse(arrays["scores"], lists)
            with progress.stage("comparing", len(vectors), "queries"):
                gains, positions = self._opened[2].scan(group, vectors, coarse)
            candidates = {"which": which, "gains": gains, "positions": positions}
            write_arrays(self._name_candidates(work.block, group), **candidates)
        except SentenceBeamError as error:
            return Problem.from_error(_mend(error))
        return None

    def _name_part(self, block: str, group: Group) -> str:
        return self._job.work(f"{block}-{group[0]}-{group[1]}-queries.npz")

    def _name_candidates(self, block: str, group: Group) -> str:
        return self._job.work(f"{block}-{group[0]}-{group[1]}.npz")

    def _read_queries(self, block: str) -> Queries:
        path = self._job.work(f"{block}.npz")
        arrays = take_arrays(path)
        with refuse_damaged_work(path):
            names = json.loads(arrays["names"].tobytes())
            texts = json.loads(arrays["texts"].tobytes()) if "texts" in arrays else None
            return Queries(
                names, arrays["vectors"], arrays["shard"], arrays["row"], arrays.get("piece"), texts
            )

    def finish(self, work: Comparison) -> BlockRecord | Problem:
        """Write the file of a block that was compared with all groups; remove its work."""
        try:
            record = self._find_record(work.block)  # of an engine that does this again
            return record or self.finish_block(work)
        except SentenceBeamError as error:
            return Problem.from_error(_mend(error))

    def finish_block(self, work: Comparison) -> BlockRecord:
        """Write the file of a block; raise `SentenceBeamError` for damaged shards."""
        manifest, _, rows = self._opened
        none = np.empty(0, np.int64)
        queries = Queries([], none, none, none)
        hits = Hits(np.empty((0, 1), np.float32), *(none.reshape(0, 1),) * 2)
        if work.groups:
            queries = self._read_queries(work.block)
            paths = (self._name_candidates(work.block, group) for group in work.groups)
            with progress.stage("scoring again", len(queries.names), "queries"):
                hits = rows.hits(queries.vectors, find_best(len(queries.names), paths))
            if self._job.itself:
                hits = _remove_itself(hits, queries)
        table = _make_table(queries, hits, self._job, manifest)
        counts = {"queries": len(queries.names), "rejected": work.rejected}
        counted = table.replace_schema_metadata({COUNTS: json.dumps(counts)})
        path = self._job.path(work.block)
        storage.ensure(
            path, write_parquet_bytes(counted, compression="zstd", write_page_checksum=True)
        )
        left = [self._name_candidates(work.block, group) for group in work.groups]
        left += [self._name_part(work.block, group) for group in work.parts]
        if left:
            storage.storage_of(path).delete(*left, self._job.work(f"{work.block}.npz"))
        return BlockRecord(path, len(queries.names), len(table), work.rejected)


def _mend(error: SentenceBeamError) -> SentenceBeamError:
    """Return the error, with its mend if the index is damaged."""
    if isinstance(error, DamagedIndexError):
        return DamagedIndexError(f"{error.message}; `sentence-beam index` builds it again")
    return error


def _pack_lists(coarse: Coarse | None, which: np.ndarray) -> dict[str, np.ndarray]:
    """Return the lists of some queries as arrays of a file; none without lists."""
    if coarse is None:
        return {}
    some = coarse.of(which)
    return {"lists": some.lists.astype(np.int32), "scores": some.scores}


def _remove_itself(hits: Hits, queries: Queries) -> Hits:
    """Return the hits with none in place of each query's own row."""
    own = (hits.shard == queries.shard[:, None]) & (hits.row == queries.row[:, None])
    return Hits(hits.scores, np.where(own, -1, hits.shard), hits.row)


def _make_table(queries: Queries, hits: Hits, job: NeighboursJob, manifest: Manifest) -> pa.Table:
    """Return the rows of a file, query by query, best first.

    `query_piece` and `piece` are there if these are pieces, `query_text` and `text` if the job
    wants and knows them.
    """
    there = hits.shard >= 0
    if job.min_score is not None:
        there &= hits.scores >= job.min_score
    rank = np.cumsum(there, axis=1)
    there &= rank <= job.k
    query, place = np.nonzero(there)
    columns = {"query": pa.array(queries.names, pa.string()).take(pa.array(query))}
    if queries.texts is not None:
        columns["query_text"] = pa.array(queries.texts, pa.large_string()).take(pa.array(query))
    if queries.piece is not None:
        columns["query_piece"] = pa.array(queries.piece[query], pa.int32())
    columns["rank"] = pa.array(rank[query, place].astype(np.int32))
    kinds = {"id": pa.string()}
    if manifest.rows.pieces is not None:
        kinds["piece"] = pa.int32()
    text = manifest.options.kept_text if job.texts else None
    if text is not None:
        kinds[text] = pa.large_string()
    values = _read_columns(hits.shard[there], hits.row[there], manifest, kinds)
    columns |= {name: values.column(name) for name in values.column_names if name != text}
    columns["score"] = pa.array(hits.scores[there], pa.float32())
    if text is not None:
        columns["text"] = values.column(text)
    return pa.table(columns)


def _read_columns(
    shard: np.ndarray, row: np.ndarray, manifest: Manifest, kinds: dict[str, pa.DataType]
) -> pa.Table:
    """Return some columns of rows, in these types, read shard by shard."""
    schema = pa.schema(kinds.items())
    tables = [schema.empty_table()]
    order = np.lexsort((row, shard))
    for number in np.unique(shard).tolist():
        rows, place = np.unique(row[shard == number], return_inverse=True)
        table = take_numbered(manifest, number, rows, list(kinds)).select(list(kinds))
        tables.append(
            table.replace_schema_metadata(None).cast(schema).take(pa.array(np.sort(place)))
        )
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_tables(tables).take(pa.array(back))
