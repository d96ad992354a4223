"""`sentence-beam embed`: Plan -> Embed -> (Index) -> Commit, into one store."""

import argparse
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import beam_flags, command, engines
from pipelines.embed_options import parser
from pipelines.progress import watched
from pipelines.resolve import Resolved, holding_lease, resolve
from pipelines.summary import summary
from pipelines.writing import Writer, recorded, result_of, writing
from transforms import storage
from transforms.beam import BuildIndex, Commit, Embed, Plan
from transforms.beam.changes import CountDuplicateIds
from transforms.store.calibrations import keep_calibration
from transforms.store.manifest import read_manifest
from transforms.store.run_ids import new_run
from transforms.store.runs import Result


def _embed(args: argparse.Namespace, beam_options: PipelineOptions) -> None:
    if args.dry_run:
        from pipelines.plan import show

        show(args, beam_options)
        return
    root = storage.absolute(args.store)
    run_id = new_run(root)
    engines.check_shared(beam_options, input=args.input[0], store=root)
    local = engines.in_process(beam_options)
    resolved = resolve(args, read_manifest(root), run_id, local)  # a mistake should not touch the store
    with writing(root, run_id, beam_options) as writer:
        current = read_manifest(root)
        if (current.version if current else None) != resolved.job.run.version:
            resolved = resolve(args, current, run_id, local)
        result = run_embed(holding_lease(resolved), args, writer)
    if result is not None:
        print("\n".join(summary(resolved, result)))


def run_embed(resolved: Resolved, args: argparse.Namespace, writer: Writer) -> Result | None:
    """Run the pipeline; the result, None where nobody waits for it. Raises the error that a failed run ended with."""
    run = resolved.job.run
    hints = {"accelerator": args.accelerator, "min_ram": args.min_ram}
    if resolved.calibration is not None:
        keep_calibration(run.root, resolved.calibration)
    with watched(sys.stderr), recorded(run):
        with writer.pipeline() as pipeline:
            build(pipeline, resolved, {name: hint for name, hint in hints.items() if hint}, raises=not writer.waits)
    return result_of(run.root, run.id, writer)


def build(
    pipeline: beam.Pipeline, resolved: Resolved, hints: dict[str, str] | None = None, raises: bool = False
) -> beam.PCollection:
    """The whole graph, up to the PCollection of the one Result. `raises` makes a failed run a failed job."""
    job = resolved.job
    globs = pipeline | "Inputs" >> beam.Create(list(job.run.globs))
    planned = globs | "Plan" >> Plan(job)
    embedded = planned.spans | "Embed" >> Embed(job, hints)
    units = (embedded.units, planned.carried) | "Units" >> beam.Flatten()
    problems = (embedded.problems, planned.problems) | "Problems" >> beam.Flatten()
    known = [units, problems, *([embedded.ranges] if embedded.ranges else [])]
    if resolved.index is not None:
        known.append((units, problems) | "Index" >> BuildIndex(job.run, resolved.index))
    if job.columns.id is not None:
        known.append(units | "DuplicateIds" >> CountDuplicateIds(job.run))
    return tuple(known) | "Commit" >> Commit(job.run, raises)


main = command.main(parser, _embed, beam_flags.parse)

if __name__ == "__main__":
    sys.exit(main())
