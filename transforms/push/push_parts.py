"""A push whose rows are written by workers, in parts.

Each part is a file in the store's run folder, which names shards and rows of them. A part that is
written again has the same effect.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.push.push_snapshot import RowsToWrite
from sentence_beam.transforms.push.pushed_rows import read_chosen
from sentence_beam.transforms.push.target import RowWriter
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import read_shared
from sentence_beam.transforms.store.records import Problem

PART_ROWS = 250_000
_PART = pa.schema([("shard", pa.int32()), ("row", pa.int32())])


@dataclass(frozen=True)
class PushJob:
    """The rows of the snapshot of `run` (`digest`) to write, in files of the store.

    `columns` are those of the rows, `token` is in the names of the job's files.
    """

    root: str
    run: str
    digest: str
    columns: pa.Schema
    token: str
    parts: int
    writer: RowWriter

    def path(self, name: str) -> str:
        """The path of a file of the job."""
        return storage.join(self.root, layout.push_scratch(self.run, f"{self.token}-{name}"))

    def part(self, number: int) -> str:
        """The path of the file of a part."""
        return self.path(f"{number:06d}.arrow")

    @property
    def result(self) -> str:
        """The path of the file that the job leaves at its end."""
        return self.path("result.json")


@dataclass(frozen=True)
class WrittenRows:
    """The number of rows of a part, or the problem that ended it."""

    rows: int = 0
    problem: Problem | None = None


def plan_parts(wanted: RowsToWrite, writer: RowWriter) -> PushJob:
    """Write the files of the parts; return the job."""
    new = wanted.new
    token = uuid.uuid4().hex
    parts = list(_split(wanted))
    job = PushJob(new.root, new.run, new.digest, wanted.columns, token, len(parts), writer)
    for number, part in enumerate(parts):
        storage.overwrite(job.part(number), _pack(part))
    return job


def _split(wanted: RowsToWrite) -> Iterator[pa.Table]:
    """Yield the rows to write in tables, of PART_ROWS unless a shard has more."""
    tables: list[pa.Table] = []
    for number in sorted(wanted.rows):
        rows = np.asarray(wanted.rows[number], np.int32)
        shards = np.full(len(rows), number, np.int32)
        if tables and sum(map(len, tables)) + len(rows) > PART_ROWS:
            yield pa.concat_tables(tables)
            tables = []
        tables.append(pa.table([shards, rows], schema=_PART))
    if tables:
        yield pa.concat_tables(tables)


def _pack(part: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, part.schema, options=options) as stream:
        stream.write_table(part)
    return sink.getvalue().to_pybytes()


def number_parts(job: PushJob) -> range:
    """Return the numbers of the parts."""
    return range(job.parts)


def write_part(number: int, job: PushJob) -> WrittenRows:
    """Write the rows of a part, and its file again, from whose age `vacuum` sees a live push."""
    path = job.part(number)
    try:
        data = _read_part(path)
        part = pa.ipc.open_stream(data).read_all()
        job.writer.write(_read_rows(part, job))
    except SentenceBeamError as error:
        return WrittenRows(problem=Problem.from_error(error))
    storage.overwrite(path, data)
    return WrittenRows(len(part))


def _read_part(path: str) -> bytes:
    try:
        return storage.read_bytes(path)
    except FileNotFoundError as error:
        raise SentenceBeamError(
            f"{path} was removed while the push ran, of which it is a part; push again"
        ) from error


def _read_rows(part: pa.Table, job: PushJob) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part, in batches."""
    manifest = read_shared(job.root, job.run, job.digest)
    assert manifest is not None, "a run that is named is read or raises"
    shards = part.column("shard").to_numpy()
    rows = part.column("row").to_numpy()
    for number in np.unique(shards).tolist():
        yield from read_chosen(manifest, number, job.columns, rows[shards == number])


def conclude(written: Sequence[WrittenRows], job: PushJob) -> None:
    """Write the result of the job: the number of rows, or the first problem."""
    problem = next((part.problem for part in written if part.problem is not None), None)
    conclusion = WrittenRows(sum(part.rows for part in written), problem)
    storage.overwrite(job.result, json.dumps(asdict(conclusion)).encode())


def check_concluded(job: PushJob) -> None:
    """Raise the problem that ended the job, and SentenceBeamError if it left no result."""
    stored = storage.storage_of(job.result).read_versioned(job.result)
    if stored is None:
        raise SentenceBeamError("the job ended without a result; see the runner's log")
    with refuse_damage(f"{job.result} is not what the job wrote", "push again"):
        result: WrittenRows = read_dataclass(WrittenRows, json.loads(stored[0]))
    if result.problem is not None:
        raise result.problem.error()


def delete_files(job: PushJob) -> None:
    """Delete the files of the job."""
    paths = [job.part(number) for number in range(job.parts)]
    storage.storage_of(job.result).delete(*paths, job.result)
