"""`sentence-beam push`: a table of a database brought up to a store's current snapshot."""

import argparse
import sys
from dataclasses import asdict

from pipelines import command, options
from pipelines.said import Said
from pipelines.tables import wrapped
from transforms.push import MAX_DELETES, Pushed, PushOptions, open_target, push, shown
from transforms.store import open_store
from transforms.store.open import named_run


def parser() -> argparse.ArgumentParser:
    """The options of `push`."""
    p = options.command(
        "push",
        "Bring a table of PostgreSQL (pgvector), Qdrant or LanceDB up to a store: rows that were added, changed or "
        "deleted since the last push.",
        "sentence-beam push --store store --to 'lance:tables#docs'",
        "sentence-beam push --store store --to 'lance:tables#docs' --dry-run",
    )
    options.add_store(p)
    p.add_argument(
        "--to",
        required=True,
        type=options.filled,
        metavar="TARGET",
        help="postgresql://USER@HOST/DATABASE#TABLE, qdrant:URL#COLLECTION, qdrant:FOLDER#COLLECTION or "
        "lance:FOLDER#TABLE; made if it is not there",
    )
    what = p.add_mutually_exclusive_group()
    what.add_argument(
        "--since",
        metavar="RUN",
        help="write what changed since this snapshot too, whatever the table says that it holds (default: since the "
        "snapshot that it holds)",
    )
    what.add_argument(
        "--full",
        action="store_true",
        help="write every row, and delete what the store has not (default: no)",
    )
    p.add_argument(
        "--max-deletes",
        type=options.fraction,
        default=MAX_DELETES,
        metavar="FRACTION",
        help="rows of the table that may be deleted; 1 allows all (default: 0.5)",
    )
    p.add_argument("--dry-run", action="store_true", help="only count what would be written (default: no)")
    return p


def _push(args: argparse.Namespace) -> Said:
    root = open_store(args.store).manifest.root
    since = named_run(root, args.since) if args.since else None
    how = PushOptions(since, args.full, args.dry_run, args.max_deletes)
    with open_target(args.to) as target:
        pushed = push(lambda: open_store(args.store).manifest, target, how)
    manifest = pushed.new
    values = {"store": manifest.root, "to": shown(args.to), "run": manifest.run, "dry_run": args.dry_run}
    values |= {"held": pushed.held, "rows": pushed.rows, **asdict(pushed.changes)}
    return Said(wrapped(summary(pushed, shown(args.to), args.dry_run)), values)


def summary(pushed: Pushed, where: str, dry_run: bool) -> list[str]:
    """Summary lines, one fact each."""
    numbers = ", ".join(f"{number:,} {what}" for what, number in asdict(pushed.changes).items())
    things = "pieces" if pushed.new.rows.pieces is not None else "rows"
    holds = f"{'would hold' if dry_run else 'holds'} {pushed.rows:,} {things}"
    return [
        f"{things:<11} {numbers}{' (nothing was written)' if dry_run else ''}",
        f"since       {pushed.held or 'all rows: no snapshot was there'}",
        f"table       {where} {holds} of {pushed.new.run}",
    ]


main = command.main(parser, _push)

if __name__ == "__main__":
    sys.exit(main())
