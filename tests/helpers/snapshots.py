"""Nights without any model: snapshots of a file's rows, committed one after the other."""

from dataclasses import replace
from typing import Any

import numpy as np
from helpers.settled import finish
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.report import report
from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.result import Result, now
from sentence_beam.transforms.store.shards.units import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.writing import unit_digest

SPACE = Space(
    weights="w", tokenizer="t", architecture="bert:x", max_tokens=16, prompt="", pooler={"name": "mean"},
    calibration=None, normalize=True, truncate_dim=None, precision="float32", dtype="float32", dim=4,
)  # fmt: skip
BYTES = 100  # of each unit


def run_name(number: int) -> str:
    """The run of a night, named as `embed` names runs."""
    return f"20260101T{number:06d}Z-00000{number % 10}"


def write_unit(root: str, place: int, rows: list[tuple[str, str]], run: str = "") -> UnitRecord:
    """The unit at a place of the file, in the store; it is found there if it was written before."""
    texts = [text for _, text in rows]
    start = place * BYTES
    unit = make_unit(SPACE, texts, name=f"{_file(0).key}-{start:012d}")
    whole = replace(
        unit.rows, ids=[row_id for row_id, _ in rows], kept=None, start=start, stop=start + BYTES
    )
    hashes = row_hashes(texts)
    unit = PreparedUnit(whole, hashes, unit_digest(SPACE, whole, hashes))
    store = UnitStore(root, SPACE, run=run)
    counts = UnitCounts(
        embedded=len(rows), reused=0, duplicates=0, real=5 * len(rows), padded=5 * len(rows)
    )
    return store.finished(unit) or store.write(unit, make_vectors(len(rows)), [], counts)


def _file(units: int) -> InputFile:
    return InputFile("/in/a.txt", "a.txt", "text", "", units * BYTES, "sum", "v")


def begin(root: str, number: int, units: int, **values: Any) -> Run:
    """A run over a file of so many units, planned and on top of the current snapshot; `values` are
    fields of the run or of the options that the store remembers.
    """
    file = _file(units)
    spans = tuple(
        Span(file, place * BYTES, place * BYTES, (place + 1) * BYTES) for place in range(units)
    )
    write_plan(root, run_name(number), [PlannedFile(file, spans)])
    previous = read_manifest(root)
    of_run = {name: values.pop(name) for name in [*values] if name in Run.__dataclass_fields__}
    return Run(
        root, run_name(number), SPACE, "file", BYTES, ("/in/*.txt",), RememberedOptions(model="m", **values), {}, now(),
        previous=previous.run if previous else None, version=previous.version if previous else None, **of_run,
    )  # fmt: skip


def night(
    root: str, number: int, *units: dict[str, str] | list[tuple[str, str]], **values: Any
) -> Result:
    """A run that commits these units, each by the texts of its ids."""
    run = begin(root, number, len(units), **values)
    rows = [list(unit.items()) if isinstance(unit, dict) else unit for unit in units]
    result = finish(
        run, [write_unit(root, place, unit, run.id) for place, unit in enumerate(rows)], []
    )
    report.bring_up_to_date(root)
    return result


def numbered(start: int, stop: int, text: str = "text") -> dict[str, str]:
    """Rows r<start> to r<stop - 1>, each with a text of its own."""
    return {f"r{i}": f"{text} {i}" for i in np.arange(start, stop)}
