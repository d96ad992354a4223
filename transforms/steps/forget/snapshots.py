"""Manifests of the kept snapshots without the erased rows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.forget.index import IndexRewriter, MovedShard
from sentence_beam.transforms.steps.forget.units import RewrittenUnit, UnitRewriter, less
from sentence_beam.transforms.steps.forget.watched import RewrittenWatch, rewritten_watch
from sentence_beam.transforms.store.counts import RowCounts, TokenCounts, WorkCounts
from sentence_beam.transforms.store.entries import ForgottenEntry
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots
from sentence_beam.transforms.store.runs.result import now
from sentence_beam.transforms.store.sealed_json import sealed
from sentence_beam.transforms.store.tables.columns import records_of, units_table
from sentence_beam.transforms.store.tables.files import count_units, with_counts
from sentence_beam.transforms.store.tables.names import Owners
from sentence_beam.transforms.store.tables.parts import write_table

ORIGINS = ("carried", "reused", "duplicates", "embedded")


@dataclass(frozen=True)
class RewrittenSnapshot:
    """A snapshot without the erased rows, and the counts of what left it."""

    manifest: Manifest
    rows: int = 0
    watch: RewrittenWatch | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The JSON of its manifest, with its digest."""
        return sealed(self.manifest.to_json())


def kept_snapshots(current: Manifest, only_current: bool) -> list[Manifest]:
    """Return the current snapshot and all others with a manifest, newest first.

    Raises SentenceBeamError if one of them cannot be read.
    """
    if only_current:
        return [current]
    found = [current]
    for run in snapshots(current.root):
        if run == current.run:
            continue
        try:
            manifest = read_manifest(current.root, run)
        except SentenceBeamError as error:
            raise SentenceBeamError(
                f"{error}; or say --drop-history, which removes earlier snapshots"
            ) from error
        if manifest is not None:
            found.append(manifest)
    return found


def moved_shards(manifests: list[Manifest], units: UnitRewriter) -> dict[str, MovedShard]:
    """Write all units again that have erased rows; return the shards that are replaced."""
    moved = {}
    for manifest in manifests:
        for unit in records_of(manifest.read_units()):
            made = units.rewritten(unit, manifest)
            removed = units.selection.removed(unit.path)
            if made is not None and unit.path and removed is not None:
                moved[unit.path] = MovedShard(made.record.path or "", removed)
            elif made is not None and unit.path and made.record.path != unit.path:
                moved[unit.path] = MovedShard(made.record.path or "", np.zeros(unit.rows, bool))
    return moved


def rewritten_snapshot(
    manifest: Manifest, units: UnitRewriter, index: IndexRewriter
) -> RewrittenSnapshot | None:
    """Return a snapshot without the erased rows; None if it has nothing of them."""
    made = [
        found
        for unit in records_of(manifest.read_units())
        if (found := units.rewritten(unit, manifest)) is not None
    ]
    entry = index.rewritten(manifest) if manifest.index else None
    watch = None
    if manifest.watch:
        watch = rewritten_watch(manifest.root, manifest.watch, units.selection, index.moved)
    if not made and entry is None and watch is None and manifest.changes is None:
        return None
    changed = _with_units(manifest, units)
    rows = sum(one.rows for one in made)
    changed = replace(
        changed,
        rows=_rows(manifest.rows, made),
        work=_work(manifest, rows),
        changes=None,  # they list rows by id, also those that left before
    )
    if entry is not None:
        changed = replace(changed, index=entry)
    if watch is not None:
        changed = replace(changed, watch=watch.entry)
    return RewrittenSnapshot(changed, rows, watch)


def _with_units(manifest: Manifest, units: UnitRewriter) -> Manifest:
    """Return a snapshot with the units that were written again, and the counts of its files."""
    listed = []
    for unit in records_of(manifest.read_units()):
        made = units.rewritten(unit, manifest)
        listed.append(unit if made is None else made.record)
    table = units_table(listed)
    files = manifest.read_files()
    owners = Owners(files.column("path"), files.column("group"))
    if manifest.buckets is None:
        files = with_counts(files, count_units(owners, len(files), table))
    return replace(
        manifest,
        files=write_table(manifest.root, "files", files, manifest.files),
        units=write_table(manifest.root, "units", table, manifest.units),
    )


def _rows(rows: RowCounts, made: list[RewrittenUnit]) -> RowCounts:
    documents = sum(one.documents for one in made)
    pieces = rows.pieces
    if pieces is not None:
        pieces -= sum(one.rows for one in made)
    return RowCounts(rows.read, rows.written - documents, rows.rejected + documents, pieces)


def _work(manifest: Manifest, rows: int) -> WorkCounts:
    counts = less({name: getattr(manifest.work, name) for name in ORIGINS}, rows)
    return WorkCounts(counts["embedded"], counts["reused"], counts["duplicates"], counts["carried"])


def coming_snapshot(
    found: Manifest, run: str, started: str, forgotten: ForgottenEntry
) -> RewrittenSnapshot:
    """Return the snapshot that the erasure commits: the current one's rows, all carried over."""
    manifest = replace(
        found,
        run=run,
        previous=found.run,
        work=WorkCounts(0, 0, 0, found.rows.stored),
        tokens=TokenCounts(0, 0, 0, 0, 0),
        started=started,
        finished=now(),
        forgotten=forgotten,
        changes=None,
    )
    return RewrittenSnapshot(manifest)
