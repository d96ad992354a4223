"""Runs that read no input: their plan, and the units of the last snapshot."""

from collections.abc import Iterator

from sentence_beam.transforms.store.entries import TablePart
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.carried_check import NOTHING, Checked
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.recorded_plan import (
    SOME,
    PlanNotes,
    carry_all,
    write_plan,
)
from sentence_beam.transforms.store.runs.run_result import now, versions
from sentence_beam.transforms.store.tables.table_columns import UNITS, make_records
from sentence_beam.transforms.store.tables.table_parts import read_part


def make_run_like(manifest: Manifest, run_id: str, command: str) -> Run:
    """Return a run of a command with the space, options and input of a snapshot; it holds the
    store's lease.
    """
    own = {"previous": manifest.run, "versions": versions(), "started": now(), "changes": None}
    return Run(
        **(manifest.begun_fields() | own),
        root=manifest.root,
        id=run_id,
        globs=manifest.input.globs,
        tables={**manifest.input.tables},
        version=manifest.version,
        previous_digest=manifest.digest,
        gates=UsedGates(max_rejects=1.0),  # these rows passed it in the run that embedded them
        leased=True,
        command=command,
    )


def record_plan(
    manifest: Manifest, run_id: str, replaces: str = SOME, checked: Checked = NOTHING
) -> None:
    """Write the plan of a run whose units replace some or all of those of a snapshot.

    `checked` is the check of its shards.
    """
    notes = PlanNotes(
        buckets=manifest.buckets,
        replaces=replaces,
        snapshot=manifest.run,
        checked=checked,
        written=now(),
        group_bits=manifest.group_bits,
    )
    write_plan(manifest.root, run_id, carry_all(manifest.read_files()), notes)


def read_units_of_part(part: TablePart, root: str) -> Iterator[UnitRecord]:
    """Yield the units of a part of a snapshot's table."""
    yield from make_records(read_part(root, part, UNITS.names))
