"""The file beside the neighbours: the request and how it ended, for a second run into a folder."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.base.json_entries import record
from sentence_beam.transforms.steps.joins.nearest_rows import WORK, BlockRecord
from sentence_beam.transforms.store.records import Problem

ROWS_AT_ONCE = 10_000
RESULT = "_neighbours.json"  # readers of folders of Parquet leave out what begins so


@dataclass(frozen=True)
class Ended:
    """The records of some blocks, and the first problem of others."""

    blocks: tuple[BlockRecord, ...] = ()
    problem: Problem | None = None

    @classmethod
    def from_made(cls, made: BlockRecord | Problem) -> "Ended":
        """Return the result of one block."""
        return cls(problem=made) if isinstance(made, Problem) else cls((made,))

    def merge(self, other: "Ended") -> "Ended":
        """Return the results of both; of two problems the one whose message sorts first."""
        problems = [each.problem for each in (self, other) if each.problem is not None]
        problem = min(problems, key=lambda each: each.message, default=None)
        return Ended(self.blocks + other.blocks, problem)


def begin(output: str, options: dict[str, Any]) -> None:
    """Prepare the folder for a job, or continue in a folder of the same job.

    Raises OptionError for a folder that holds something else, or the neighbours of another job.
    """
    path = storage.join(output, RESULT)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        _check_empty(output)
        _write(output, {"asked": options})
        return
    try:
        before = _read_options(path, stored[0])
        other = next((name for name in options if before.get(name) != options[name]), None)
    except SentenceBeamError:
        other = RESULT
    if other is not None:
        raise OptionError(
            f"{cite('output')} {output} holds the neighbours of another job ({other} differs); name"
            " a new folder, or remove it"
        )


def _check_empty(output: str) -> None:
    place = storage.storage_of(output)
    if storage.is_local(output) and place.stat(output) is not None:
        raise OptionError(f"{cite('output')} {output} is a file; name a folder")
    there = storage.names_below(output)
    if there:
        raise OptionError(
            f"{cite('output')} {output} holds {there[0]} and was not made by neighbours; name a new"
            " folder"
        )


def conclude(ended: Ended, output: str, run: str) -> dict[str, Any]:
    """Write how the run ended, and return it; remove the files of the work if it is done."""
    path = storage.join(output, RESULT)
    options = _read_options(path, storage.read_bytes(path))
    problem = ended.problem
    if problem is None and not sum(block.queries for block in ended.blocks):
        problem = Problem.from_error(
            OptionError(
                f"{cite('queries')} holds no query with text; check it and {cite('text_column')}"
            )
        )
    result: dict[str, Any] = {"run": run, "exit_code": 0, "message": "", **_count(ended.blocks)}
    if problem is None:
        storage.delete_below(storage.join(output, WORK))
    else:
        result |= {"exit_code": problem.exit_code, "message": problem.message}
    _write(output, {"asked": options, **result})
    return result


def _count(ended: Sequence[BlockRecord]) -> dict[str, Any]:
    """Return the sums over blocks, and their files."""
    blocks = sorted(ended, key=lambda block: block.path)
    files = []
    for block in blocks:
        name = block.path.rpartition("/")[2]
        files.append({"path": name, "queries": block.queries, "rows": block.rows})
    return {
        "queries": sum(block.queries for block in blocks),
        "rejected": sum(block.rejected for block in blocks),
        "rows": sum(block.rows for block in blocks),
        "files": files,
    }


def ended(output: str, run: str) -> dict[str, Any] | None:
    """Return what `conclude` wrote of a run; None if the run did not get that far.

    Raises SentenceBeamError for a damaged file.
    """
    path = storage.join(output, RESULT)
    data = storage.read_bytes(path)
    with _refuse_damage(path):
        result = record(json.loads(data), "it")
        return result if result.get("run") == run else None


def _read_options(path: str, data: bytes) -> dict[str, Any]:
    """Return the request of a job from its file. Raises SentenceBeamError if it is damaged."""
    with _refuse_damage(path):
        return record(record(json.loads(data), "it").get("asked"), "asked")


def _refuse_damage(path: str) -> AbstractContextManager[None]:
    return refuse_damage(f"{path} is not what the job wrote", "name a new folder")


def read_schema(folder: str, files: list[dict[str, Any]]) -> pa.Schema:
    """Return the columns of the files of a folder."""
    path = storage.join(folder, files[0]["path"])
    with storage.storage_of(path).open(path) as raw, _refuse_damage(path):
        parquet = pq.ParquetFile(pa.PythonFile(raw))
        return parquet.schema_arrow.remove_metadata()


def read_tables(folder: str, files: list[dict[str, Any]]) -> Iterator[pa.Table]:
    """Yield the neighbours in the files of a folder, in order, some rows at a time."""
    for file in files:
        path = storage.join(folder, file["path"])
        with storage.storage_of(path).open(path) as raw, _refuse_damage(path):
            parquet = pq.ParquetFile(pa.PythonFile(raw))
            for batch in parquet.iter_batches(ROWS_AT_ONCE, use_threads=False):
                yield pa.Table.from_batches([batch]).replace_schema_metadata()


def remove(folder: str) -> None:
    """Remove the folder of a job on this machine, whose result is in a file now.

    The record of the job is removed last, since the same job can go on in a folder with it.
    """
    record_path = storage.join(folder, RESULT)
    place = storage.storage_of(folder)
    place.delete(*(entry.path for entry in place.below(folder) if entry.path != record_path))
    storage.delete_below(folder)


def _write(output: str, content: dict[str, Any]) -> None:
    storage.overwrite(
        storage.join(output, RESULT),
        (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode(),
    )
