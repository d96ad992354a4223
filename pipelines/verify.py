"""`sentence-beam verify`: a check of a snapshot's files and counts, in threads or a pipeline."""

import argparse
import sys
import uuid
from typing import TYPE_CHECKING

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.optional_beam import make_function, parse
from sentence_beam.pipelines.common.progress import print_aside
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.forget.trace_check import find_forgotten_traces, find_unlisted
from sentence_beam.transforms.steps.options.store import VerifyOptions
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.removed import is_removed
from sentence_beam.transforms.store.verification import Extent, faults

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def parser() -> argparse.ArgumentParser:
    """The options of `verify`."""
    return options.command(
        "verify",
        "Check every file and count that the current snapshot names.",
        "sentence-beam verify --store store",
        "sentence-beam verify --store store --sample 0.05",
        kind=VerifyOptions,
    )


def _verify(options: VerifyOptions, beam_options: "PipelineOptions | None") -> CommandOutput:
    manifest = open_store(options.store, options.snapshot).manifest
    if options.forgotten:
        return _check_erased(manifest)
    extent = Extent(options.sample)
    if beam_options is None:
        lines = faults(manifest, extent)
    else:
        lines = verify_by_workers(manifest, extent, beam_options)
    if lines and is_removed(manifest):
        raise SentenceBeamError(
            f"{manifest.root}: vacuum removed snapshot {manifest.run} meanwhile; run verify again"
        )
    for fault in lines:
        print_aside(fault)
    if lines:
        raise SentenceBeamError(f"{manifest.root}: {len(lines)} faults in snapshot {manifest.run}")
    if extent.is_whole:
        _name_unlisted(manifest.root)
    return _describe_sound(manifest, extent)


def _check_erased(manifest: Manifest) -> CommandOutput:
    """Check that no file of a store has an erased row.

    Raises SentenceBeamError if one has.
    """
    traces = find_forgotten_traces(manifest)
    for fault in traces:
        print_aside(fault)
    if traces:
        raise SentenceBeamError(
            f"{manifest.root}: {format_count(len(traces), 'trace')} of erased rows"
        )
    _name_unlisted(manifest.root)
    rows = manifest.forgotten.rows if manifest.forgotten else 0
    text = f"{manifest.root}: no file has anything of the {format_count(rows, 'erased row')}"
    return CommandOutput([text], {"store": manifest.root, "run": manifest.run, "forgotten": rows})


def _name_unlisted(root: str) -> None:
    """Name files that no command wrote, which nothing checks."""
    for path in find_unlisted(root):
        print_aside(f"{path} is none of a store's files, and was not checked")


def _describe_sound(manifest: Manifest, extent: Extent) -> CommandOutput:
    """Return the line about a snapshot without faults."""
    index = manifest.index
    segments = len(index.segments) if index else 0
    parts = f"{segments} index segments" if index else "no index"
    read = manifest.units.rows
    whole = "whole"
    if not extent.is_whole:
        units = manifest.read_units("unit")
        read = int(extent.reads(manifest, units).sum())
        whole = "sound as far as was read"
        parts = f"{format_count(read, 'unit')} read, the others by size, the index not at all"
    rows = manifest.rows.written
    shards = len(manifest.shards)
    values = {
        "store": manifest.root,
        "run": manifest.run,
        "rows": rows,
        "shards": shards,
        "read": read,
    }
    held = format_count(rows, "row")
    if manifest.rows.pieces is not None:
        held = f"{held} ({format_count(manifest.rows.pieces, 'piece')})"
        values["pieces"] = manifest.rows.pieces
    held = f"{held} in {format_count(shards, 'shard')}"
    line = f"{manifest.root}: snapshot {manifest.run} is {whole}: {held}, {parts}"
    return CommandOutput([line], {**values, "segments": segments})


def verify_by_workers(
    manifest: Manifest, extent: Extent, beam_options: "PipelineOptions"
) -> list[str]:
    """Return the same lines by a pipeline. Raises SentenceBeamError if the job leaves none."""
    import apache_beam as beam

    from sentence_beam.pipelines.common import engines
    from sentence_beam.transforms.beam.verify import Verify
    from sentence_beam.transforms.steps.commit.verify_job import VerifyJob, read_lines

    engines.check_waits(beam_options, "verify")
    engines.check_shared(beam_options, store=manifest.root)
    output = storage.join(
        manifest.root, layout.scratch(manifest.run, f"verify-{uuid.uuid4().hex}.json")
    )
    job = VerifyJob(manifest.root, manifest.run, manifest.digest, output, extent.sample)
    with engines.explaining(), beam.Pipeline(options=beam_options) as pipeline:
        _ = pipeline | "Snapshot" >> beam.Create([manifest.run]) | "Verify" >> Verify(job)
    lines = read_lines(output)
    if lines is None:
        raise SentenceBeamError("the job ended without a result; see the runner's log")
    return lines


verify = function("verify", VerifyOptions, make_function(_verify))
main = command.main(parser, _verify, parse, kind=VerifyOptions)

if __name__ == "__main__":
    sys.exit(main())
