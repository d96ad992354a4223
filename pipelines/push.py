"""`sentence-beam push`: a table of a database brought up to a store's current snapshot."""

import argparse
import sys
from dataclasses import asdict

from pipelines.common import command, options
from pipelines.common.command_output import CommandOutput
from pipelines.common.library import function
from pipelines.common.tables import wrapped
from transforms.base.lines import line
from transforms.push import Pushed, PushRequest, open_target, redact
from transforms.push import push as push_changes
from transforms.steps.options.store import PushOptions
from transforms.store import open_store
from transforms.store.open import named_run


def parser() -> argparse.ArgumentParser:
    """The options of `push`."""
    return options.command(
        "push",
        "Bring a table of PostgreSQL (pgvector), Qdrant or LanceDB up to a store: rows that were"
        " added, changed or deleted since the last push.",
        "sentence-beam push --store store --to 'lance:tables#docs'",
        "sentence-beam push --store store --to 'lance:tables#docs' --dry-run",
        kind=PushOptions,
    )


def _push(options: PushOptions) -> CommandOutput:
    root = open_store(options.store).manifest.root
    since = None
    if options.since:
        since = named_run(root, options.since)
    how = PushRequest(since, options.full, options.dry_run, options.max_deletes, options.parallel)
    with open_target(options.to) as target:
        pushed = push_changes(lambda: open_store(options.store).manifest, target, how)
    manifest = pushed.new
    values = {
        "store": manifest.root,
        "to": redact(options.to),
        "run": manifest.run,
        "dry_run": options.dry_run,
    }
    values |= {"held": pushed.held, "rows": pushed.rows, **asdict(pushed.changes)}
    values["erased"] = pushed.erased
    return CommandOutput(wrapped(summary(pushed, redact(options.to), options.dry_run)), values)


def summary(pushed: Pushed, where: str, dry_run: bool) -> list[str]:
    """Summary lines, one fact each."""
    numbers = ", ".join(f"{number:,} {what}" for what, number in asdict(pushed.changes).items())
    things = "rows"
    if pushed.new.rows.pieces is not None:
        things = "pieces"
    holds = "holds"
    if dry_run:
        numbers = f"{numbers} (nothing was written)"
        holds = "would hold"
    since = pushed.held or "all rows: no snapshot was there"
    if pushed.removed:
        since = f"all {things} compared: vacuum removed the snapshot {', '.join(pushed.removed)}"
    elif pushed.erased:
        since = f"all {things} compared: rows were erased from the store since {pushed.held}"
    return [
        line(things, numbers),
        line("since", since),
        line("table", f"{where} {holds} {pushed.rows:,} {things} of {pushed.new.run}"),
    ]


push = function("push", PushOptions, _push)
main = command.main(parser, _push, kind=PushOptions)

if __name__ == "__main__":
    sys.exit(main())
