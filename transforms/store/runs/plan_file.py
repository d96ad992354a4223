"""The file of a run's plan: written at once, read some rows at a time."""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.measures import summed
from sentence_beam.transforms.corpus.beside import Beside
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.runs.carried import Checked
from sentence_beam.transforms.store.runs.packed_files import NO_FILES, PackedPlan
from sentence_beam.transforms.store.runs.plan import ADDED, ROWS_AT_ONCE, SCHEMA, PlannedFile
from sentence_beam.transforms.store.runs.plan_notes import (
    BAD,
    BESIDE,
    BUCKETS,
    CHECKED,
    LACKING,
    MEASURES,
    TYPES,
    UNCHANGED,
    WRITTEN,
    PlanNotes,
)
from sentence_beam.transforms.store.runs.plan_rows import table_rows
from sentence_beam.transforms.store.runs.result import now


def write_plan(
    root: str,
    run: str,
    files: Iterable[PlannedFile],
    buckets: Buckets | None = None,
    beside: Beside | None = None,
    unchanged: bool = False,
    packed: PackedPlan = NO_FILES,
) -> bool:
    """Record a run's plan in its folder, and return whether it is the run's first.

    `buckets` are given if these are the units. `unchanged`: with `--partition content`, all units
    of the last snapshot are carried over. `packed` are files beside the others.
    """
    listed = list(files)
    checked = Checked.sum([file.checked for file in listed] + [packed.checked])
    took = [file.ms for file in listed if file.ms is not None] + packed.ms
    metadata = {CHECKED: json.dumps(asdict(checked))}
    metadata |= {MEASURES: json.dumps(summed({"file_ms": ms} for ms in took)), WRITTEN: now()}
    if buckets:
        metadata |= {BUCKETS: json.dumps(asdict(buckets))}
    if beside:
        metadata |= {BESIDE: json.dumps(beside.total())}
    bad = {file.file.relative: file.bad for file in listed if file.bad}
    if bad:
        metadata |= {BAD: json.dumps(bad)}
    types = next((file.file.types for file in listed if file.file.types), packed.types)
    if types:
        metadata |= {TYPES: json.dumps(dict(types))}
    lacking = count_lacking(listed, packed)
    if lacking:
        metadata |= {LACKING: json.dumps(lacking)}
    if unchanged:
        metadata |= {UNCHANGED: "true"}
    path = storage.join(root, layout.plan(run))
    return storage.storage_of(path).put_if_absent(path, _plan_bytes(listed, packed, metadata))


def count_lacking(files: Iterable[PlannedFile], packed: PackedPlan = NO_FILES) -> dict[str, int]:
    """Return the number of opened files that lack a kept column, by its name."""
    lacking = packed.lacking
    for file in files:
        lacking.update(file.lacks)
    return dict(sorted(lacking.items()))


def _plan_bytes(files: list[PlannedFile], packed: PackedPlan, metadata: dict[bytes, str]) -> bytes:
    """Return the plan as a Parquet file, put together from some of its rows at a time."""
    sink = io.BytesIO()
    schema = SCHEMA.with_metadata(metadata)
    rows = (row for file in files for row in table_rows(file))
    with pq.ParquetWriter(sink, schema, write_page_checksum=True) as writer:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
        for table in packed.tables(ROWS_AT_ONCE):
            writer.write_table(table.cast(schema))
    return sink.getvalue()


class PlanFile:
    """The file of a run's plan on record, with its `notes`.

    Raises SentenceBeamError if it is missing or was changed.
    """

    def __init__(self, root: str, run: str):
        self._path = storage.join(root, layout.plan(run))
        found = storage.storage_of(self._path).read_versioned(self._path)
        if found is None:
            raise SentenceBeamError(f"{self._path} is missing; run again")
        with self.refuse_damage():
            self._file = pq.ParquetFile(pa.BufferReader(found[0]), page_checksum_verification=True)
            self.notes = PlanNotes.of(self._file.schema_arrow)

    def tables(self, columns: Sequence[str] = tuple(SCHEMA.names)) -> Iterator[pa.Table]:
        """Yield these columns of all rows, `ROWS_AT_ONCE` at a time; none that has no row.

        Columns that an earlier version did not write are null. Raises SentenceBeamError if they are
        not as they were written.
        """
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        with self.refuse_damage():
            names = self._file.schema_arrow.names
            there = [name for name in columns if name in names or name not in ADDED]
            for batch in self._file.iter_batches(ROWS_AT_ONCE, columns=there):
                table = pa.Table.from_batches([batch])
                for name in set(columns).difference(there):
                    nulls = pa.nulls(len(table), SCHEMA.field(name).type)
                    table = table.append_column(name, nulls)
                yield table.select(list(columns)).cast(schema)

    def refuse_damage(self) -> AbstractContextManager[None]:
        """Raise SentenceBeamError if the body cannot parse the rows of the file."""
        return refuse_damage(f"{self._path} is not the plan that was written", "run again")
