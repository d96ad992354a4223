"""`sentence-beam verify`: a check of every file and count that a snapshot names."""

import argparse
import sys

from pipelines import command, options
from pipelines.progress import aside
from pipelines.said import Said
from transforms.errors import SentenceBeamError
from transforms.store import open_store
from transforms.store.verify import Extent, faults


def parser() -> argparse.ArgumentParser:
    """The options of `verify`."""
    p = options.command(
        "verify",
        "Check every file and count that the current snapshot names.",
        "sentence-beam verify --store store",
        "sentence-beam verify --store store --since 20260314T031500_123Z-4f1d2a --sample 0.05",
        "sentence-beam verify --store store --snapshot 20260314T031500_123Z-4f1d2a",
    )
    options.add_store(p)
    options.add_snapshot(p)
    p.add_argument(
        "--sample",
        type=options.fraction,
        metavar="FRACTION",
        help="read this part of the shards, other ones for each snapshot, and look for the rest in a listing; below 1 "
        "the index is left out (default: 1; 0 with --since)",
    )
    p.add_argument("--since", metavar="RUN", help="read the shards that this snapshot does not have (default: all)")
    return p


def _verify(args: argparse.Namespace) -> Said:
    manifest = open_store(args.store, args.snapshot).manifest
    since = open_store(args.store, args.since).manifest if args.since else None
    extent = Extent(args.sample if args.sample is not None else float(since is None), since)
    found = list(faults(manifest, extent))
    for fault in found:
        aside(fault)
    if found:
        raise SentenceBeamError(f"{manifest.root}: {len(found)} faults in snapshot {manifest.run}")
    index = manifest.index
    parts = f"{len(index.segments)} index segments" if index else "no index"
    read = len(extent.read(manifest))
    if not extent.is_whole:
        parts = f"{read:,} units read, the others by size, the index not at all"
    rows, shards = manifest.rows.written, len(manifest.shard_paths)
    pieces = manifest.rows.pieces
    cut = "" if pieces is None else f" ({pieces:,} pieces)"
    whole = "whole" if extent.is_whole else "sound as far as was read"
    line = f"{manifest.root}: snapshot {manifest.run} is {whole}: {rows:,} rows{cut} in {shards:,} shards, {parts}"
    values = {"store": manifest.root, "run": manifest.run, "rows": rows, "shards": shards, "read": read}
    values |= {} if pieces is None else {"pieces": pieces}
    return Said([line], {**values, "segments": len(index.segments) if index else 0})


main = command.main(parser, _verify)

if __name__ == "__main__":
    sys.exit(main())
