"""`sentence-beam embed`: Plan -> Embed -> (Index) -> Commit, into one store."""

import argparse
import sys
from collections.abc import Sequence

import apache_beam as beam

from pipelines import beam_flags, engines, options
from pipelines.progress import watched
from pipelines.resolve import Resolved, holding_lease, new_run, resolve
from pipelines.summary import print_summary
from pipelines.vector_options import add_vector_options
from pipelines.writing import Writer, recorded, result_of, writing
from transforms.beam import BuildIndex, Commit, Embed, Plan
from transforms.beam.commit import CountDuplicateIds
from transforms.calibration.precision import PRECISIONS
from transforms.store import storage
from transforms.store.calibrations import keep_calibration
from transforms.store.manifest import read_manifest
from transforms.store.results import Result

WHAT = {
    "embed": "Embed a collection of sentences into a store, or bring the store up to date.",
    "plan": "Say what embed would do with the same options, and how long it should take; nothing is written.",
}


def parser(name: str = "embed") -> argparse.ArgumentParser:
    """The options of `embed` (and of `plan`). None stands for "not given": the store's value, or the default."""
    p = options.command(name, WHAT[name])
    what = p.add_argument_group("input")
    what.add_argument("--input", action="append", required=True, metavar="GLOB", help="files to embed; repeat for more")
    what.add_argument("--format", choices=["auto", "parquet", "text", "jsonl"], help="default: by file name")
    what.add_argument("--text-column", metavar="NAME", help="column with the text (default: text)")
    what.add_argument("--id-column", metavar="NAME", help="column with the id (default: path and row or byte)")
    what.add_argument("--keep-columns", type=options.names, metavar="A,B", help="columns to carry into the store")
    what.add_argument("--limit", type=options.positive, metavar="N", help="only the first N rows")
    vectors = p.add_argument_group("vectors (a store remembers them)")
    add_vector_options(vectors)
    vectors.add_argument("--precision", choices=PRECISIONS, help="type of the stored vectors (default: float32)")
    out = p.add_argument_group("store")
    out.add_argument("--output", required=True, type=options.filled, metavar="STORE", help="folder or URL of the store")
    out.add_argument("--partition", choices=["file", "content"], help="how rows are cut into units (default: file)")
    out.add_argument(
        "--unit-tokens", type=options.size, metavar="N", help="tokens in a unit, one shard each (default: 256k)"
    )
    out.add_argument(
        "--index", metavar="none|auto|FACTORY", help="FAISS index to build (default: as the store has it, else none)"
    )
    out.add_argument(
        "--max-rejects", type=options.fraction, metavar="FRACTION", help="rejected rows allowed (default: 0.01)"
    )
    out.add_argument(
        "--max-drift",
        type=options.distance,
        metavar="X",
        help="cosine distance by which the model may have moved since the store was begun (default: by dtype)",
    )
    out.add_argument("--require-space", metavar="ID", help="end with exit status 2 unless this is the run's space")
    out.add_argument("--reembed", action="store_true", help="embed everything anew, in a new space if need be")
    out.add_argument(
        "--price-per-hour",
        type=options.price,
        metavar="P",
        help="what the machines cost; the report says what was saved",
    )
    out.add_argument("--dry-run", action="store_true", help="print what would be done, with an estimate of the time")
    _add_machine_options(p.add_argument_group("machine"))
    return p


def _add_machine_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    group.add_argument("--tokens-per-batch", type=options.size, metavar="N", help="padded tokens in one forward pass")
    group.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        help="a text's vector is the same to the bit whatever its neighbours and the number of threads",
    )
    group.add_argument("--accelerator", metavar="HINT", help="Beam accelerator hint for the embedding step alone")
    group.add_argument("--min-ram", type=beam_flags.memory, metavar="SIZE", help="Beam memory hint, likewise")
    group.add_argument(
        "--worker-model", metavar="PATH", help="where workers keep the model, if not where this machine does"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return options.run_command("embed", _embed, argv)


def _embed(argv: list[str]) -> int:
    args, beam_options = beam_flags.parse(parser(), argv)
    if args.dry_run:
        from pipelines.plan import show

        return show(args, beam_options)
    root, run = storage.absolute(args.output), new_run()
    engines.check_shared(beam_options, input=args.input[0], output=root)
    local = engines.in_process(beam_options)
    resolved = resolve(args, read_manifest(root), run, local)  # a mistake should not touch the store
    with writing(root, run, beam_options, "--output") as writer:
        standing = read_manifest(root)
        if (standing.version if standing else None) != resolved.job.snapshot.version:
            resolved = resolve(args, standing, run, local)
        result = run_embed(holding_lease(resolved), args, writer)
    if result is not None:
        print_summary(resolved, result)
    return 0


def run_embed(resolved: Resolved, args: argparse.Namespace, writer: Writer) -> Result | None:
    """Run the pipeline and read how it ended, if it is waited for; raises the error that a failed run's result is."""
    snapshot = resolved.job.snapshot
    hints = {"accelerator": args.accelerator, "min_ram": args.min_ram}
    if resolved.calibration is not None:
        keep_calibration(snapshot.root, resolved.calibration)
    with watched(sys.stderr), recorded(snapshot):
        with writer.pipeline() as pipeline:
            build(pipeline, resolved, {name: hint for name, hint in hints.items() if hint}, raises=not writer.waits)
    return result_of(snapshot.root, snapshot.run, writer)


def build(
    pipeline: beam.Pipeline, resolved: Resolved, hints: dict[str, str] | None = None, raises: bool = False
) -> beam.PCollection:
    """The whole graph; gives the one Result. `raises`: a failed run is to be a failed job."""
    job = resolved.job
    globs = pipeline | "Inputs" >> beam.Create(list(job.snapshot.globs))
    planned = globs | "Plan" >> Plan(job)
    embedded = planned.spans | "Embed" >> Embed(job, hints)
    units = (embedded.units, planned.carried) | "Units" >> beam.Flatten()
    problems = (embedded.problems, planned.problems) | "Problems" >> beam.Flatten()
    known = [units, problems, *([embedded.ranges] if embedded.ranges else [])]
    if resolved.index is not None:
        known.append((units, problems) | "Index" >> BuildIndex(job.snapshot, resolved.index))
    if job.columns.id is not None:
        known.append(units | "DuplicateIds" >> CountDuplicateIds(job.snapshot))
    return tuple(known) | "Commit" >> Commit(job.snapshot, raises)


if __name__ == "__main__":
    sys.exit(main())
