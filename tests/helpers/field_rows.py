"""Rows of files as a run reads them: types of kept columns decided, rejected rows apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from helpers.snapshots import SPACE

from sentence_beam.transforms.corpus import Columns, list_files, read_span
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.footers import open_file
from sentence_beam.transforms.steps.plan.kept_types import choose_types
from sentence_beam.transforms.steps.plan.planned import make_planned_rows
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.recorded_plan import list_spans
from sentence_beam.transforms.store.runs.run_result import now


class Read(NamedTuple):
    """The rows of files: ids, texts, one kept column, and reasons against rejected rows by id."""

    ids: list[str]
    texts: list[str]
    kept: list[Any]
    kind: str
    rejects: dict[str | None, str]


def read_rows(paths: Path | Sequence[Path], columns: Columns) -> Read:
    """Read files as a first run does; `kept` are the values of the first kept column."""
    named = [paths] if isinstance(paths, Path) else paths
    run = Run(
        root="s", id="r1", space=SPACE, partition="file", unit_tokens=1000, globs=(), options=RememberedOptions(),
        versions={}, started=now(),
    )  # fmt: skip
    job = EmbedJob(run, columns, Recipe("m"))
    files = list_files(map(str, named), "auto")
    planned = make_planned_rows([open_file(file, job).row() for file in files])
    spans = list_spans(planned, types=choose_types(planned, job, None))
    units = [unit for span in spans for unit in read_span(span, columns, 1000)]
    tables = [unit.kept for unit in units if unit.kept is not None and unit.kept.num_rows]
    kept = pa.table({})
    if tables:
        kept = pa.concat_tables(tables)  # of one type
    return Read(
        [row for unit in units for row in unit.ids],
        [text for unit in units for text in unit.texts],
        kept.column(0).to_pylist() if kept.num_columns else [],
        str(kept.schema.types[0]) if kept.num_columns else "",
        {reject.id: reject.reason for unit in units for reject in unit.rejects},
    )
