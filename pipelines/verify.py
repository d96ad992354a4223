"""`sentence-beam verify`: everything a snapshot names, re-hashed and re-counted."""

import argparse
import sys
from collections.abc import Sequence

from pipelines import command, options
from transforms.errors import SentenceBeamError
from transforms.store import open_store
from transforms.store.verify import faults


def parser() -> argparse.ArgumentParser:
    """The options of `verify`."""
    p = options.command("verify", "Check every file and count that the current snapshot names.")
    options.add_store(p)
    p.add_argument("--snapshot", metavar="RUN", help="an earlier snapshot (default: the current one)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return command.run_command("verify", _verify, argv)


def _verify(argv: list[str]) -> int:
    args = command.parse(parser(), argv)
    manifest = open_store(args.store, args.snapshot).manifest
    found = list(faults(manifest))
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        raise SentenceBeamError(f"{manifest.root}: {len(found)} faults in snapshot {manifest.run}")
    index = manifest.data["index"]
    parts = f"{len(index['segments'])} index segments" if index else "no index"
    print(f"{manifest.root}: snapshot {manifest.run} is whole: {manifest.data['rows']['written']:,} rows in "
          f"{len(manifest.shard_paths):,} shards, {parts}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
