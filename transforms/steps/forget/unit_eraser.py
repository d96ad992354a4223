"""Units of a snapshot without their erased rows, from their shards alone: no transformer runs."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.corpus import Rejected
from sentence_beam.transforms.space import row_hash
from sentence_beam.transforms.steps.embed.erased import compare_reject, make_erased_row
from sentence_beam.transforms.steps.forget.erasure_record import read_record
from sentence_beam.transforms.steps.options.from_snapshot import read_units_of_part
from sentence_beam.transforms.store.entries import TablePart
from sentence_beam.transforms.store.forgetting.hashes import Returning, returning
from sentence_beam.transforms.store.records import UnitRecord, reused
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.shards.precision import read_kept_ranges
from sentence_beam.transforms.store.shards.reject_files import read_rejects
from sentence_beam.transforms.store.shards.shard_columns import PIECE_COLUMNS
from sentence_beam.transforms.store.shards.shard_reading import read_checked
from sentence_beam.transforms.store.shards.unit_store import UnitStore, prepare_unit


def read_units_of_run(part: TablePart, run: tuple[str, str]) -> Iterator[UnitRecord]:
    """Yield the units of a part of the last snapshot that a run writes again; `run` is its key."""
    names = _read_names(run)
    for unit in read_units_of_part(part, run[0]):
        if unit.unit in names:
            yield unit


@functools.lru_cache(2)
def _read_names(run: tuple[str, str]) -> frozenset[str]:
    """Return the names of the units that a run writes again; a process reads them once."""
    record = read_record(*run)
    assert record is not None
    return frozenset(record.units)


@dataclass(frozen=True)
class UnitEraser:
    """Writes units again without the rows that the run's list of erased rows has.

    `units` is the number of all that are written.
    """

    run: Run
    units: int

    @cached_property
    def _store(self) -> UnitStore:
        ranges = read_kept_ranges(self.run.root, self.run.ranges) if self.run.ranges else None
        return UnitStore(self.run.root, self.run.space, ranges, self.run.id, self.run.form)

    @cached_property
    def _known(self) -> Returning:
        assert self.run.forgotten is not None
        return returning(self.run.root, self.run.forgotten)

    def write(self, unit: UnitRecord) -> UnitRecord:
        """Write a unit without its erased rows; these are rejected, as keyed hashes alone.

        Raises SentenceBeamError if its shard or its file of rejected rows cannot be read.
        """
        with progress.stage("leaving rows out", self.units, "units"):
            made = self._write_rest(unit)
            progress.step()
        return made

    def _write_rest(self, unit: UnitRecord) -> UnitRecord:
        table = self._read_table(unit)
        names = self._find_erased(table)
        mask = np.array([name is not None for name in names], bool)
        gone = table.filter(pa.array(mask))
        left = table.filter(pa.array(~mask))
        first = np.ones(len(gone), bool)
        if "piece" in gone.column_names:
            first = gone.column("piece").to_numpy() == 0
        erased = np.array(names, object)[mask][first].tolist()
        rejects = [*self._read_rejects(unit), *map(make_erased_row, erased)]
        prepared = prepare_unit(unit, left, rejects, self._store, self.run.generation)
        finished = self._store.finished(prepared)
        if finished is not None:
            return reused(finished)
        lost = unit.lost if len(left) and left.column("truncated").to_numpy().any() else 0
        return self._store.rewrite(prepared, left, lost)

    def _read_table(self, unit: UnitRecord) -> pa.Table:
        """Return all columns of a unit's shard; those that name a unit if it has none."""
        if unit.path is not None:
            path = storage.join(self.run.root, unit.path)
            return read_checked(path, unit.sha256).combine_chunks()
        columns = {"id": pa.string(), "row_hash": pa.binary(16)}
        if unit.documents is not None:
            columns |= dict.fromkeys(PIECE_COLUMNS, pa.int32())
            columns["doc_hash"] = pa.binary(16)
        return pa.schema(list(columns.items())).empty_table()

    def _find_erased(self, table: pa.Table) -> list[str | None]:
        """Return for each row the keyed hash by which it was erased, None for one that stays."""
        texts = "doc_hash" if "doc_hash" in table.column_names else "row_hash"
        columns = (table.column(name).to_pylist() for name in ("id", texts))
        return [self._known.find(*row) for row in zip(*columns, strict=True)]

    def _read_rejects(self, unit: UnitRecord) -> list[Rejected]:
        """Return the rejected rows of a unit, of the erased ones the keyed hash alone."""
        if unit.rejects is None:
            return []
        path = storage.join(self.run.root, unit.rejects)
        rejects = read_rejects(path, unit.rejects_sha256)
        hashed = [replace(row, text=row_hash(row.excerpt)) for row in rejects]
        return [compare_reject(row, self._known) for row in hashed]
