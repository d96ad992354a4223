"""`sentence-beam verify`: a check of every file and count that a snapshot names."""

import argparse
import sys

from pipelines import command, options
from pipelines.progress import aside
from pipelines.said import Said
from transforms.errors import SentenceBeamError
from transforms.store import open_store
from transforms.store.verify import faults


def parser() -> argparse.ArgumentParser:
    """The options of `verify`."""
    p = options.command(
        "verify",
        "Check every file and count that the current snapshot names.",
        "sentence-beam verify --store store",
        "sentence-beam verify --store store --snapshot 20260314T031500_123Z-4f1d2a",
    )
    options.add_store(p)
    p.add_argument("--snapshot", metavar="RUN", help="an earlier snapshot (default: the current one)")
    return p


def _verify(args: argparse.Namespace) -> Said:
    manifest = open_store(args.store, args.snapshot).manifest
    found = list(faults(manifest))
    for fault in found:
        aside(fault)
    if found:
        raise SentenceBeamError(f"{manifest.root}: {len(found)} faults in snapshot {manifest.run}")
    index = manifest.index
    parts = f"{len(index.segments)} index segments" if index else "no index"
    rows, shards = manifest.rows.written, len(manifest.shard_paths)
    pieces = manifest.rows.pieces
    cut = "" if pieces is None else f" ({pieces:,} pieces)"
    line = f"{manifest.root}: snapshot {manifest.run} is whole: {rows:,} rows{cut} in {shards:,} shards, {parts}"
    values = {"store": manifest.root, "run": manifest.run, "rows": rows, "shards": shards}
    values |= {} if pieces is None else {"pieces": pieces}
    return Said([line], {**values, "segments": len(index.segments) if index else 0})


main = command.main(parser, _verify)

if __name__ == "__main__":
    sys.exit(main())
