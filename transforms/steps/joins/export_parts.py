"""The rows of a snapshot as files of numpy or tables of LanceDB, each of some shards.

They are written side by side, to any storage.

The file `vectors.json` is written last and names the others. Their names have a token of the
export, so that an earlier export in the folder is whole until it is replaced.
"""

import json
import re
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_index_array
from sentence_beam.transforms.base.columns import sum_column
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.steps.joins.export_vectors import (
    ABOUT,
    TABLE,
    describe_vectors,
    write_lance,
    write_npy,
)
from sentence_beam.transforms.store.manifest import Manifest, read_shared
from sentence_beam.transforms.store.records import Problem

PART_BYTES = 256_000_000  # of vectors in a file at most, unless one shard has more
# names of files that an export of vectors writes
PART_NAME = r"-[0-9a-f]+-[0-9]+"
EXPORTED = re.compile(rf"(?:vectors|ids)(?:{PART_NAME})?\.(?:npy|parquet)|index\.faiss")
EXPORTED_TABLE = re.compile(rf"{TABLE}(?:{PART_NAME}-[0-9a-f]+)?\.lance")
WRITERS = {"npy": write_npy, "lance": write_lance}
TABLE_FOLDERS = ("data", "_transactions", "_versions")


@dataclass(frozen=True)
class ExportJob:
    """An export of the snapshot of `run` (`digest`) into the folder `output`.

    `kind` is npy or lance, `where` a filter of the rows, `token` a part of the files' names.
    """

    root: str
    run: str
    digest: str
    output: str
    token: str
    kind: str = "npy"
    where: str | None = None


@dataclass(frozen=True)
class ExportPart:
    """Shards that one worker exports: their units' places among all."""

    number: int
    units: tuple[int, ...]


@dataclass(frozen=True)
class WrittenPart:
    """The files of a part, and their rows."""

    number: int
    rows: int
    files: tuple[str, ...] = ()
    problem: Problem | None = None


def cut_parts(job: ExportJob) -> Iterator[ExportPart]:
    """Yield the parts of an export, at least one; their rows are in the manifest's order."""
    manifest = _read_manifest(job)
    most = max(1, PART_BYTES // (4 * manifest.space.dim))
    number = 0
    rows = 0
    units: list[int] = []
    for place, of_shard in enumerate(manifest.shards.column("rows").to_pylist()):
        if units and rows + of_shard > most:
            yield ExportPart(number, tuple(units))
            number += 1
            rows = 0
            units = []
        units.append(place)
        rows += of_shard
    if units or not number:
        yield ExportPart(number, tuple(units))


def _read_manifest(job: ExportJob) -> Manifest:
    manifest = read_shared(job.root, job.run, job.digest)
    assert manifest is not None, "a run that is named is read or raises"
    return manifest


def write_part(part: ExportPart, job: ExportJob) -> WrittenPart:
    """Write the files of a part; a retry writes the same ones again."""
    try:
        return _write(part, job)
    except SentenceBeamError as error:
        return WrittenPart(part.number, 0, problem=Problem.from_error(error))


def _write(part: ExportPart, job: ExportJob) -> WrittenPart:
    selection = Selection.from_manifest(_select_shards(_read_manifest(job), part.units), job.where)
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[job.kind](selection, Path(folder))
        files = []
        token = f"{job.token}-{part.number:05d}"
        attempt = uuid.uuid4().hex[:8]
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                files.append(_name_file(path.relative_to(folder).as_posix(), token, attempt))
                _put(storage.join(job.output, files[-1]), path.read_bytes())
    return WrittenPart(part.number, len(selection), tuple(files))


def _put(path: str, data: bytes) -> None:
    """Write a file. A retry finds those of numpy, and replaces them by the same bytes."""
    if not storage.storage_of(path).put_if_absent(path, data):
        storage.overwrite(path, data)


def _name_file(name: str, part: str, attempt: str) -> str:
    """Return the name in the export of a part's file.

    A table has the attempt in its name, because LanceDB names files of a table at random.
    """
    top, slash, rest = name.partition("/")
    stem, _, ending = top.partition(".")
    if slash:
        part = f"{part}-{attempt}"
    return f"{stem}-{part}.{ending}{slash}{rest}"


def _select_shards(manifest: Manifest, shards: Sequence[int]) -> Manifest:
    """Return the snapshot with these shards alone, by their numbers."""
    some = manifest.shards.take(make_index_array(np.array(shards, np.int64)))
    rows = sum_column(some, "rows")
    pieces = rows if manifest.rows.pieces is not None else None
    counts = replace(manifest.rows, written=rows, pieces=pieces)
    return replace(manifest.select_shards(some), rows=counts)


def _describe(part: WrittenPart, kind: str) -> dict[str, Any]:
    """Return what `vectors.json` says of a part."""
    if kind == "npy":
        ids, vectors = sorted(part.files)
        return {"vectors": vectors, "ids": ids, "rows": part.rows}
    table = part.files[0].partition(".")[0]
    return {"table": table, "rows": part.rows}


def conclude(written: Sequence[WrittenPart], job: ExportJob) -> None:
    """Write `vectors.json` and remove the files of an earlier export; or write the problem."""
    parts = sorted(written, key=lambda part: part.number)
    problem = next((part.problem for part in parts if part.problem is not None), None)
    if problem is not None:
        storage.overwrite(_name_problem(job), json.dumps(asdict(problem)).encode())
        return
    about = describe_vectors(_read_manifest(job), job.kind, sum(part.rows for part in parts))
    about["files"] = [name for part in parts for name in part.files]
    about["parts"] = [_describe(part, job.kind) for part in parts]
    earlier = _read_about(job.output) or {}
    path = storage.join(job.output, ABOUT)
    storage.overwrite(path, (json.dumps(about, indent=1) + "\n").encode())
    # those of the export before it, and of attempts that were repeated
    there = storage.storage_of(path).below(job.output)
    names = {entry.path.removeprefix(job.output.rstrip("/") + "/") for entry in there}
    ours = {name for name in names if job.token in name}
    _delete_others(job, {*earlier.get("files", ()), *ours}, set(about["files"]))


def _delete_others(job: ExportJob, names: set[str], kept: set[str]) -> None:
    """Delete files and tables of the output that are no longer part of an export."""
    paths = [storage.join(job.output, name) for name in names - kept if EXPORTED.fullmatch(name)]
    storage.storage_of(job.output).delete(*paths)
    for table in _list_tops(names) - _list_tops(kept):
        if EXPORTED_TABLE.fullmatch(table):
            folder = storage.join(job.output, table)
            for inner in TABLE_FOLDERS:
                storage.delete_below(storage.join(folder, inner))
            storage.delete_below(folder)


def _list_tops(names: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def _name_problem(job: ExportJob) -> str:
    return storage.join(job.output, f"problem-{job.token}.json")


def _read_about(output: str) -> dict[str, Any] | None:
    """Return what the export in a folder says of itself; None without an export."""
    path = storage.join(output, ABOUT)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return None
    with refuse_damage(f"{path} is not what an export wrote", f"name another {cite('output')}"):
        about: dict[str, Any] = json.loads(stored[0])
        return about


def check_folder(output: str) -> None:
    """Raise OptionError for a folder with other files than those of an earlier export."""
    if _read_about(output) is None and storage.storage_of(output).below(output):
        raise OptionError(
            f"{cite('output')} {output} is there and is no export; name another folder"
        )


def read_concluded(job: ExportJob) -> dict[str, Any]:
    """Return the content of `vectors.json`.

    Raises the problem that ended the export, and SentenceBeamError if it left no result.
    """
    path = _name_problem(job)
    place = storage.storage_of(path)
    stored = place.read_versioned(path)
    if stored is not None:
        place.delete(path)
        with refuse_damage(f"{path} is not what the job wrote", "run again"):
            problem: Problem = read_dataclass(Problem, json.loads(stored[0]))
        raise problem.error()
    about = _read_about(job.output)
    if about is None or not all(job.token in name for name in about["files"]):
        raise SentenceBeamError("the job ended without a result; see the runner's log")
    return about
