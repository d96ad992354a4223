"""Nights without any model: snapshots of a file's rows, committed one after the other. And the one
place that knows in which form a snapshot lists its units and files.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.settled import finish
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan, name_group
from sentence_beam.transforms.report import store_report
from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import RememberedOptions, TableEntry
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import recorded_plan
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.recorded_plan import PLAN, PlanNotes, list_input_files
from sentence_beam.transforms.store.runs.run_result import Result, now
from sentence_beam.transforms.store.runs.settled_tables import Settled
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes
from sentence_beam.transforms.store.shards.shard_bytes import compute_unit_digest
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.tables import table_columns as columns
from sentence_beam.transforms.store.tables import table_parts
from sentence_beam.transforms.store.tables.table_columns import FILES, MADE, UNITS, list_values

SPACE = Space(
    weights="w", tokenizer="t", architecture="bert:x", max_tokens=16, prompt="", pooler={"name": "mean"},
    calibration=None, normalize=True, truncate_dim=None, precision="float32", dtype="float32", dim=4,
)  # fmt: skip
BYTES = 100  # of each unit
Entry = dict[str, Any]
Store = Path | str
Change = Callable[[list[Entry]], list[Entry]]
UNIT_COLUMNS = (
    "unit", "file", "start", "stop", "rows", "read", "rejected", "blank", "forgotten", "tokens", "truncated",
    "lost", "documents", "pieces_sum", "documents_sum", "path", "rejects", "checksum", "form", "bytes", "sha256",
    "rejects_sha256",
)  # fmt: skip
DIGESTS = ("sha256", "rejects_sha256")
SUMS = ("pieces_sum", "documents_sum")


def run_name(number: int) -> str:
    """The run of a night, named as `embed` names runs."""
    return f"20260101T{number:06d}_000Z-00000{number % 10}"


def write_unit(root: str, place: int, rows: list[tuple[str, str]], run: str = "") -> UnitRecord:
    """The unit at a place of the file, in the store; it is found there if it was written before."""
    texts = [text for _, text in rows]
    start = place * BYTES
    unit = make_unit(SPACE, texts, name=f"{_file(0).key}-{start:012d}")
    whole = replace(
        unit.rows, ids=[row_id for row_id, _ in rows], kept=None, start=start, stop=start + BYTES
    )
    hashes = row_hashes(texts)
    unit = PreparedUnit(whole, hashes, compute_unit_digest(SPACE, whole, hashes))
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
        root=root, id=run_name(number), space=SPACE, partition="file", unit_tokens=BYTES, globs=("/in/*.txt",),
        options=RememberedOptions(model="m", **values), started=now(),
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
    store_report.bring_up_to_date(root)
    return result


def numbered(start: int, stop: int, text: str = "text") -> dict[str, str]:
    """Rows r<start> to r<stop - 1>, each with a text of its own."""
    return {f"r{i}": f"{text} {i}" for i in np.arange(start, stop)}


def units_of(store: Store, manifest: Mapping[str, Any] | None = None) -> list[Entry]:
    """The units of a snapshot by name, each with every column of `units`; of the current one,
    unless the JSON of another manifest is given. Digests and sums are in hex.
    """
    return _unit_rows(_table(store, manifest, "units"))


def files_of(store: Store, manifest: Mapping[str, Any] | None = None) -> list[Entry]:
    """The input files of a snapshot by path, each with every column of `files`; `source` is the
    full path.
    """
    return _file_rows(_table(store, manifest, "files"))


def records_of(store: Store, manifest: Mapping[str, Any] | None = None) -> list[UnitRecord]:
    """The units of a snapshot as the records that a function under test takes."""
    found = read_manifest(str(store), manifest["run"] if manifest else None)
    assert found is not None
    return columns.make_records(found.read_units())


def row_of(unit: UnitRecord) -> Entry:
    """A unit as `units_of` gives it, from its record."""
    values = dict(zip(MADE.names, list_values(unit), strict=True))
    return _unit_row({name: values[name] for name in UNITS.names})


def group_name(relative: str, bits: int) -> str:
    """The name of the group of a small file."""
    return name_group(int(make_key(relative), 16), bits)


def planned_files(files: pa.Table) -> list[Entry]:
    """The files of a plan as `files_of` gives them."""
    return _file_rows(files.select(FILES.names))


def units_settled(made: Settled, store: Store) -> list[Entry]:
    """The units of a run that was settled, by name."""
    return _unit_rows(table_parts.read_table(str(store), "units", made.units))


def edit_units(store: Store, change: Change, run: str | None = None) -> None:
    """Write a snapshot with other units than the run made: those that `change` makes of the units
    as `units_of` gives them. The digest of the manifest fits; its counts stay.
    """
    data = _manifest(store, run)
    rows = [_packed(unit) for unit in change(units_of(store, data))]
    _rewrite(store, data, "units", pa.Table.from_pylist(rows, UNITS))


def edit_files(store: Store, change: Change, run: str | None = None) -> None:
    """Write a snapshot with other input files, as `edit_units` does with other units."""
    data = _manifest(store, run)
    rows = [{**file, "folder": None} for file in change(files_of(store, data))]
    _rewrite(store, data, "files", pa.Table.from_pylist(rows, FILES))


def changed(number: int, **values: Any) -> Change:
    """A change of some values of one unit or file, for `edit_units` and `edit_files`."""

    def change(entries: list[Entry]) -> list[Entry]:
        return [*entries[:number], {**entries[number], **values}, *entries[number + 1 :]]

    return change


def small_parts(patch: pytest.MonkeyPatch, rows: int = 2) -> None:
    """Let parts of tables have so many rows on average, and turns three times as many."""
    patch.setattr(table_parts, "ROWS_IN_A_PART", rows)
    patch.setattr(table_parts, "ROWS_IN_A_TURN", 3 * rows)


def parts_of(
    store: Store, manifest: Mapping[str, Any] | None = None, kind: str = "units"
) -> list[Entry]:
    """The parts of a table of a snapshot: path, sha256, rows, first and last key."""
    data = _manifest(store) if manifest is None else manifest
    found: list[Entry] = data[kind]["parts"]
    return found


def watch_parts(patch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the parts that are read from now on, as often as they are."""
    read: list[str] = []
    call = table_parts.read_part
    patch.setattr(
        table_parts,
        "read_part",
        lambda root, part, columns=None: (read.append(part.path), call(root, part, columns))[1],
    )
    return read


@dataclass(frozen=True)
class PlannedFile:
    """A file of a plan: its spans, or the units that are carried over.

    Of a group the first file has `group`, and all have `in_group`. A file that has nothing is
    carried over without units, unless `is_rowless` says that it was opened and has no row.
    """

    file: InputFile
    spans: tuple[Span, ...] = ()
    carried: tuple[UnitRecord, ...] = ()
    group: GroupSpan | None = None
    in_group: str = ""
    was: str | None = None
    bad: str = ""
    is_rowless: bool = False

    @property
    def work(self) -> list[AnySpan]:
        """The spans to embed."""
        return [*self.spans, *([self.group] if self.group else [])]


def plan_rows(files: Sequence[PlannedFile]) -> pa.Table:
    """The rows of a plan of these files."""
    of_group = {
        span.file.relative: (item.group.name, span)
        for item in files
        for span in (item.group.spans if item.group else ())
    }
    rows = [_plan_row(item, *of_group.get(item.file.relative, ("", None))) for item in files]
    return make_planned_rows(rows).select(PLAN.names).sort_by("path").combine_chunks()


def _plan_row(item: PlannedFile, group: str, span: Span | None) -> dict[str, Any]:
    spans = item.spans if span is None else (*item.spans, span)
    row = OpenedFile(item.file, spans).row()
    row |= {"group": item.in_group or group or None, "was": item.was, "bad": item.bad or None}
    if not (spans or item.is_rowless or item.bad) or item.carried:
        row |= {"carried": True, "spans": None, "units": len(item.carried)}
        row |= {name: sum(getattr(u, name) for u in item.carried) for name in ("rows", "read")}
        row |= {"written": sum(unit.written for unit in item.carried)}
    return row


def write_plan(
    root: str, run: str, files: Sequence[PlannedFile], buckets: Buckets | None = None
) -> bool:
    """Put a plan of these files on record."""
    types = next((item.file.types for item in files if item.file.types), ())
    notes = PlanNotes(buckets=buckets, types=dict(types), written=now())
    return recorded_plan.write_plan(root, run, plan_rows(files), notes)


def _manifest(store: Store, run: str | None = None) -> Entry:
    name = layout.snapshot(run) if run else layout.MANIFEST
    found: Entry = json.loads(storage.read_bytes(storage.join(str(store), name)))
    return found


def _table(store: Store, manifest: Mapping[str, Any] | None, kind: str) -> pa.Table:
    data = _manifest(store) if manifest is None else manifest
    return table_parts.read_table(str(store), kind, TableEntry.from_json(data[kind]))


def _unit_rows(units: pa.Table) -> list[Entry]:
    return [_unit_row(row) for row in units.to_pylist()]


def _file_rows(files: pa.Table) -> list[Entry]:
    paths = [file.path for file in list_input_files(files)]
    return [{**row, "source": path} for row, path in zip(files.to_pylist(), paths, strict=True)]


def _unit_row(row: Entry) -> Entry:
    digests = {name: row[name] and row[name].hex() for name in DIGESTS}
    sums = {name: None if row[name] is None else f"{row[name]:016x}" for name in SUMS}
    return {**row, **digests, **sums}


def _packed(row: Entry) -> Entry:
    digests = {name: row[name] and bytes.fromhex(row[name]) for name in DIGESTS}
    sums = {name: None if row[name] is None else int(row[name], 16) for name in SUMS}
    return {**row, **digests, **sums}


def _rewrite(store: Store, data: Entry, kind: str, rows: pa.Table) -> None:
    """Write a snapshot with another table."""
    entry = table_parts.write_table(str(store), kind, rows, TableEntry())
    data = {**data, kind: entry.to_json()}
    places = [layout.snapshot(data["run"])]
    if _manifest(store)["run"] == data["run"]:
        places.append(layout.MANIFEST)
    for place in places:
        storage.overwrite(storage.join(str(store), place), to_bytes(sealed(data)))
