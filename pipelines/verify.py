"""`sentence-beam verify`: a check of every file and count that a snapshot names, by threads or as a
pipeline.
"""

import argparse
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.common import command, options
from pipelines.common.library import function
from pipelines.common.progress import aside
from pipelines.common.said import Said
from transforms import storage
from transforms.base.errors import OptionError, SentenceBeamError
from transforms.base.numbers import counted
from transforms.steps.options.store import VerifyOptions
from transforms.store import layout, open_store
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.verify import Extent, faults

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def parser() -> argparse.ArgumentParser:
    """The options of `verify`."""
    return options.command(
        "verify",
        "Check every file and count that the current snapshot names.",
        "sentence-beam verify --store store",
        "sentence-beam verify --store store --since 20260314T031500_123Z-4f1d2a --sample 0.05",
        kind=VerifyOptions,
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[Any, ...]:
    """Our options, and Beam's if a runner is named: without one nothing of Beam is loaded."""
    if not any(word.split("=")[0] == "--runner" for word in argv):
        return (*command.own_flags(parser, argv), None)
    from pipelines.common import beam_flags

    return beam_flags.parse(parser, argv)


def _verify(asked: VerifyOptions, beam_options: "PipelineOptions | None") -> Said:
    manifest = open_store(asked.store, asked.snapshot).manifest
    since = None
    if asked.since:
        since = open_store(asked.store, asked.since).manifest
    extent = Extent(asked.sample if asked.sample is not None else float(since is None), since)
    if beam_options is None:
        found = faults(manifest, extent)
    else:
        found = by_workers(manifest, extent, beam_options)
    gone = [one.run for one in (manifest, since) if found and one is not None and is_removed(one)]
    if gone:
        raise SentenceBeamError(
            f"{manifest.root}: vacuum removed snapshot {gone[0]} meanwhile; run verify again"
        )
    for fault in found:
        aside(fault)
    if found:
        raise SentenceBeamError(f"{manifest.root}: {len(found)} faults in snapshot {manifest.run}")
    index = manifest.index
    parts = "no index"
    if index:
        parts = f"{len(index.segments)} index segments"
    read = len(extent.read(manifest))
    if not extent.is_whole:
        parts = (
            f"{read:,} unit{'' if read == 1 else 's'} read, the others by size, the index not"
            " at all"
        )
    rows = manifest.rows.written
    shards = len(manifest.shard_paths)
    pieces = manifest.rows.pieces
    cut = "" if pieces is None else f" ({counted(pieces, 'piece')})"
    whole = "sound as far as was read"
    if extent.is_whole:
        whole = "whole"
    held = f"{counted(rows, 'row')}{cut} in {counted(shards, 'shard')}"
    line = f"{manifest.root}: snapshot {manifest.run} is {whole}: {held}, {parts}"
    values = {
        "store": manifest.root,
        "run": manifest.run,
        "rows": rows,
        "shards": shards,
        "read": read,
    }
    if pieces is None:
        values |= {}
    else:
        values |= {"pieces": pieces}
    return Said([line], {**values, "segments": len(index.segments) if index else 0})


def _called(asked: VerifyOptions) -> Said:
    """Verify as a function of Python: without flags for Beam nothing of it is loaded."""
    if not asked.beam_flags:
        return _verify(asked, None)
    from pipelines.common.beam_flags import options_of_list

    return _verify(asked, options_of_list(asked.beam_flags))


def is_removed(manifest: Manifest) -> bool:
    """Whether a snapshot that was there is no more: `vacuum` removes the manifest before any file
    that it names.
    """
    try:
        current = read_manifest(manifest.root)
        others = current is not None and current.run != manifest.run
        return others and read_manifest(manifest.root, manifest.run) is None
    except SentenceBeamError:  # a damaged one is a fault among those found
        return False


def by_workers(manifest: Manifest, extent: Extent, beam_options: "PipelineOptions") -> list[str]:
    """The same lines, by the workers of a pipeline. Raises SentenceBeamError if the job ends
    without them.
    """
    import apache_beam as beam

    from pipelines.common import engines
    from transforms.beam.verify import Verify
    from transforms.steps.commit.verify import VerifyJob, read_lines

    if not engines.waits(beam_options):
        raise OptionError(
            "verify waits for its job; leave --no_wait_until_finish and --template_location out"
        )
    engines.check_shared(beam_options, store=manifest.root)
    output = storage.join(
        manifest.root, layout.scratch(manifest.run, f"verify-{uuid.uuid4().hex}.json")
    )
    since: tuple[str | None, str | None] = (None, None)
    if extent.since:
        since = (extent.since.run, extent.since.digest)
    job = VerifyJob(manifest.root, manifest.run, manifest.digest, output, extent.sample, *since)
    with engines.explained(), beam.Pipeline(options=beam_options) as pipeline:
        _ = pipeline | "Snapshot" >> beam.Create([manifest.run]) | "Verify" >> Verify(job)
    lines = read_lines(output)
    if lines is None:
        raise SentenceBeamError("the job ended without a result; see the runner's log")
    return lines


verify = function("verify", VerifyOptions, _called)
main = command.main(parser, _verify, parse, kind=VerifyOptions)

if __name__ == "__main__":
    sys.exit(main())
