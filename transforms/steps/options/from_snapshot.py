"""Runs that read no input: their plan, and the units of the last snapshot."""

from collections.abc import Iterator
from dataclasses import replace

from sentence_beam.transforms.store.manifest import Manifest, read_resolved
from sentence_beam.transforms.store.records import UnitRecord, carried
from sentence_beam.transforms.store.runs.carried import NOTHING, Checked
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.plan import PlannedFile, file_of
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.result import now, versions


def run_like(manifest: Manifest, run_id: str, command: str) -> Run:
    """Return a run of a command with the space, options and input of a snapshot; it holds the
    store's lease.
    """
    return Run(
        root=manifest.root,
        id=run_id,
        space=manifest.space,
        partition=manifest.partition,
        unit_tokens=manifest.unit_tokens,
        globs=manifest.input.globs,
        tables={**manifest.input.tables},
        options=manifest.options,
        versions=versions(),
        started=now(),
        previous=manifest.run,
        version=manifest.version,
        previous_digest=manifest.digest,
        generation=manifest.generation,
        canary=manifest.canary,
        ranges=manifest.ranges,
        watch=manifest.watch,
        forgotten=manifest.forgotten,
        check_from=manifest.check_from,
        gates=UsedGates(max_rejects=1.0),  # these rows passed it in the run that embedded them
        leased=True,
        command=command,
    )


def record_plan(manifest: Manifest, run_id: str, checked: Checked = NOTHING) -> None:
    """Write the plan of a run that carries every unit over; `checked` is the check of shards."""
    # As in a run that reads the input, the units of a group are the first one's of its files.
    units = {
        min(file.path for file in some): manifest.units_by_group[name]
        for name, some in manifest.files_by_group.items()
    }
    units |= manifest.units_by_file
    planned = [
        PlannedFile(
            file_of(file),
            carried=tuple(map(carried, units.get(file.path, ()))),
            in_group=manifest.group_of(file),
            is_rowless=not manifest.counts(file.path),
        )
        for file in manifest.files
    ]
    planned[:1] = [replace(file, checked=checked) for file in planned[:1]]
    write_plan(manifest.root, run_id, planned, manifest.buckets)


def units_of(run_id: str, root: str) -> Iterator[UnitRecord]:
    """Yield the units of a run's snapshot on a worker: a graph that held them would grow with the
    store.
    """
    manifest = read_resolved(root, run_id, None)
    if manifest:
        yield from manifest.units


def carried_units(run_id: str, root: str) -> Iterator[UnitRecord]:
    """Yield the units of a run's snapshot as units that the next run carries over."""
    return map(carried, units_of(run_id, root))
