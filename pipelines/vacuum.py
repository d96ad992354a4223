"""`sentence-beam vacuum`: the removal of old snapshots, and of files that no kept snapshot names."""

import argparse
import sys
import time
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import beam_flags, command, engine_jobs, options
from pipelines.said import Said
from pipelines.writing import writing
from transforms.numbers import amount, counted
from transforms.store import lease, open_store
from transforms.store.run_ids import new_run
from transforms.store.vacuum import Rubbish, find_rubbish, remove

OLDER_THAN = 7 * 86_400.0
NAMED = 5


def parser() -> argparse.ArgumentParser:
    """The options of `vacuum`."""
    p = options.command(
        "vacuum",
        "Remove old snapshots, and the files that no kept snapshot names.",
        "sentence-beam vacuum --store store --dry-run",
        "sentence-beam vacuum --store store --keep 7 --older-than 14d",
    )
    options.add_store(p)
    p.add_argument(
        "--keep", type=options.positive, metavar="N", help="keep the newest N snapshots (default: the current one)"
    )
    p.add_argument(
        "--older-than",
        type=options.duration,
        metavar="D",
        help="keep what is younger, as in 7d or 12h (default: 7d where --keep is not given)",
    )
    p.add_argument("--dry-run", action="store_true", help="only say what would be removed (default: no)")
    return p


def _vacuum(args: argparse.Namespace, beam_options: PipelineOptions) -> Said:
    root = open_store(args.store).root
    older_than = OLDER_THAN if args.older_than is None and args.keep is None else args.older_than
    if args.dry_run:
        lease.check(root, engine_jobs.state_of)
        return told(root, find_rubbish(root, args.keep or 1, older_than, time.time()), "would be removed")
    with writing(root, new_run(), beam_options):
        rubbish = find_rubbish(root, args.keep or 1, older_than, time.time())
        remove(rubbish)
    return told(root, rubbish, "removed")


def told(root: str, rubbish: Rubbish, what: str) -> Said:
    """What is said of what goes."""
    sizes = {"files": len(rubbish.files), "bytes": sum(entry.size for entry in rubbish.files)}
    names = {"snapshots": list(rubbish.snapshots), "kept": list(rubbish.kept)}
    return Said(lines(rubbish, what), {"store": root, "removed": what == "removed", **names, **sizes})


def lines(rubbish: Rubbish, what: str) -> list[str]:
    """The lines about what goes: snapshots by name, files by kind, and the sum."""
    found = [f"{'snapshots':<11} {len(rubbish.snapshots):,} {what}{_named(rubbish.snapshots)}, "
             f"{len(rubbish.kept):,} kept"]  # fmt: skip
    found += [f"{kind:<11} {_files(*sums)}" for kind, sums in sorted(rubbish.by_kind.items()) if kind != "snapshots"]
    number, size = len(rubbish.files), sum(entry.size for entry in rubbish.files)
    return [*found, f"{'all':<11} {_files(number, size)} {what}"]


def _named(runs: Sequence[str]) -> str:
    more = ", ..." if len(runs) > NAMED else ""
    return f" ({', '.join(runs[:NAMED])}{more})" if runs else ""


def _files(number: int, size: int) -> str:
    return f"{counted(number, 'file')}, {amount(size)}"


main = command.main(parser, _vacuum, beam_flags.parse)

if __name__ == "__main__":
    sys.exit(main())
