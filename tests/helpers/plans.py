"""Runs over real files as `embed` plans and commits them, whose vectors are made up, so that no
model is needed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from helpers.settled import finish
from helpers.snapshots import SPACE, run_name

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.space import Recipe, row_hashes
from sentence_beam.transforms.steps.embed.cutting import read_units
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.options.resolve import read_again
from sentence_beam.transforms.steps.plan.look import look_at_all
from sentence_beam.transforms.steps.plan.whole_plan import put_together, record
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.counts import NO_ESTIMATE
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files
from sentence_beam.transforms.store.runs.run_result import Result, now
from sentence_beam.transforms.store.shards.shard_bytes import add_text, compute_unit_digest
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

UNIT_TOKENS = 2000


def job_of(
    root: Path | str, *globs: object, number: int = 0, reembed: bool = False, **values: Any
) -> EmbedJob:
    """A run over files; `values` are fields of the job, of its run, of its gates or of the options
    that the store remembers.
    """
    previous = read_manifest(str(root))
    fields = [set(kind.__dataclass_fields__) for kind in (EmbedJob, Run, UsedGates)]
    fields[0].remove("keep_text")
    of_job, of_run, of_gates = (
        {name: values.pop(name) for name in [*values] if name in names} for names in fields
    )
    options = RememberedOptions(**{"id_column": "id", "keep_text": False, **values})
    run = Run(
        **{
            "root": str(root), "id": run_name(number), "space": SPACE, "partition": "file",
            "unit_tokens": UNIT_TOKENS, "globs": tuple(map(str, globs)), "options": options, "versions": {},
            "started": now(), "previous": previous.run if previous else None,
            "version": previous.version if previous else None, "previous_digest": previous.digest if previous else None,
            "generation": (previous.generation if previous else 0) + reembed,
            "estimate": previous.estimate if previous else NO_ESTIMATE,
            "previous_rows": previous.rows.written if previous else 0, "gates": UsedGates(**of_gates), **of_run,
        }
    )  # fmt: skip
    reuse = previous is not None and not reembed
    columns = Columns(options.text_column, options.id_column, options.keep_columns)
    differing = read_again(run, previous, reembed) if previous is not None else ()
    known: dict[str, Any] = {"keep_text": options.keep_text, "reuse": reuse}
    known |= {"read_again": differing, "syntax": Syntax.from_options(options)}
    known["carry"] = previous is not None and not differing
    return EmbedJob(run, columns, Recipe("m"), **{**known, **of_job})


def handed_out(job: EmbedJob) -> list[Any]:
    """What the plan of a run hands out: lists of spans to embed, and problems."""
    return list(record(looked_at(job), job, 1))


def looked_at(job: EmbedJob) -> list[Any]:
    """What comes to the process that puts the plan together, out of order."""
    return look_at_all(job)[::-1]


def planned(job: EmbedJob) -> list[dict[str, Any]]:
    """The files of a plan as it is checked, each with its spans."""
    whole = put_together(look_at_all(job), job)
    return rows_of(whole.files, whole.types)


def rows_of(files: pa.Table, types: Any = ()) -> list[dict[str, Any]]:
    """Rows of a plan as dicts, each with its `file` (InputFile), and `names` of its spans."""
    found = []
    for row, file in zip(
        files.to_pylist(), list_input_files(files, types=tuple(types)), strict=True
    ):
        spans = row["spans"] or []
        found.append(
            {**row, "file": file, "names": [f"{file.key}-{s['number']:012d}" for s in spans]}
        )
    return found


def night(root: Path | str, *globs: object, number: int = 0, **values: Any) -> Result:
    """A whole run, as `job_of`."""
    job = job_of(root, *globs, number=number, **values)
    found = handed_out(job)
    units = [unit for item in found if isinstance(item, list) for unit in _written(item, job)]
    return finish(job.run, units, [item for item in found if isinstance(item, Problem)])


def _written(spans: list[Any], job: EmbedJob) -> Iterator[UnitRecord]:
    store = UnitStore(job.root, job.run.space, run=job.run.id, form=job.run.form)
    for rows in read_units(spans, job):
        rows = add_text(rows) if job.keep_text else rows
        hashes = row_hashes(rows.texts)
        unit = PreparedUnit(
            rows, hashes, compute_unit_digest(store.space, rows, hashes, job.run.generation)
        )
        counts = UnitCounts(embedded=len(rows.ids), reused=0, duplicates=0)
        yield store.finished(unit) or store.write(
            unit, _vectors(len(rows.ids), store.space.dim), [], counts
        )


def _vectors(rows: int, dim: int) -> Vectors:
    tokens, ones = np.full(rows, 3, np.int32), np.ones(rows, np.float32)
    embedding = np.eye(dim, dtype=np.float32)[np.zeros(rows, int)]
    return Vectors(embedding, ones, tokens, np.zeros(rows, bool), np.zeros(rows, np.int32))


def ids_in(root: Path | str) -> list[str]:
    """The ids of all rows of the store, sorted."""
    return sorted(open_store(str(root)).dataset().to_table(columns=["id"])["id"].to_pylist())
