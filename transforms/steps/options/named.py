"""Runs with a name (`--job`): a restart goes on with the unfinished run of its name."""

from dataclasses import fields, replace

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import Resolved
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.lease_file import Lease
from sentence_beam.transforms.store.runs.named import UNNAMED, Naming, check_options
from sentence_beam.transforms.store.runs.run_ids import new_run, start_of

STDIN = "-"
SPACE = "the model and its recipe"


def check_name(options: EmbedOptions) -> None:
    """Raise OptionError if a run has a name, and input that a restart cannot read again."""
    if not options.job:
        return
    if any(name == STDIN or name.startswith(storage.ROWS) for name in options.input):
        raise OptionError(
            f"--job {options.job}: a restart cannot read standard input or rows in memory again;"
            " write a file and name it, or leave --job out"
        )


def begun_run(options: EmbedOptions, root: str) -> Lease | None:
    """Return the lease of the unfinished run that these options go on with, None for a new run."""
    check_name(options)
    if not options.job:
        return None
    return lease.begun(root, options.job)


def run_id_of(begun: Lease | None, root: str) -> str:
    """Return the id of the run to go on with, else a new one."""
    if begun is None:
        return new_run(root)
    return begun.run


def naming_of(options: EmbedOptions, resolved: Resolved) -> Naming:
    """Return the name of a run, and what a restart takes over."""
    if not options.job:
        return UNNAMED
    given = {
        f"--{item.name.replace('_', '-')}": str(getattr(options, item.name))
        for item in fields(options)
        if item.name != "job" and getattr(options, item.name) != item.default
    }
    run = resolved.job.run
    return Naming(options.job, given | {SPACE: run.space.id}, run.tables)


def go_on(options: EmbedOptions, resolved: Resolved, begun: Lease | None) -> Resolved:
    """Return a run with its name, as it was begun if it goes on.

    Raises OptionError if its options differ from those that it was begun with.
    """
    run = replace(resolved.job.run, name=options.job or "")
    if begun is not None:
        check_options(naming_of(options, resolved), begun.options, begun.run)
        run = replace(run, started=start_of(begun.run), tables=dict(begun.tables))
    return replace(resolved, job=replace(resolved.job, run=run))
