"""`sentence-beam verify`: a check of every file and count that a snapshot names."""

import argparse
import sys

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


def _verify(args: argparse.Namespace) -> None:
    manifest = open_store(args.store, args.snapshot).manifest
    found = list(faults(manifest))
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        raise SentenceBeamError(f"{manifest.root}: {len(found)} faults in snapshot {manifest.run}")
    index = manifest.index
    parts = f"{len(index.segments)} index segments" if index else "no index"
    print(f"{manifest.root}: snapshot {manifest.run} is whole: {manifest.rows.written:,} rows in "
          f"{len(manifest.shard_paths):,} shards, {parts}")  # fmt: skip


main = command.main(parser, _verify)

if __name__ == "__main__":
    sys.exit(main())
