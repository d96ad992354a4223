"""`sentence-beam embed`: Plan -> Embed -> (Index) -> Commit, into one store."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import command, engines
from pipelines.beam_flags import hints, memory, parse, pipeline_options
from pipelines.embed_options import parser
from pipelines.progress import watched
from pipelines.said import Said
from pipelines.stdin import with_stdin
from pipelines.summary import summary
from pipelines.tables import wrapped
from pipelines.writing import Writer, recorded, result_of, submitted, writing
from transforms import storage
from transforms.beam import BuildIndex, Commit, Embed, Plan, Settle
from transforms.corpus.in_memory import table_of
from transforms.errors import OptionError
from transforms.steps.options import EmbedOptions
from transforms.steps.resolve import Resolved, holding_lease, resolve
from transforms.store import Store, open_store
from transforms.store.calibrations import keep_calibration
from transforms.store.manifest import read_manifest
from transforms.store.run_ids import new_run
from transforms.store.runs import Result

ROWS = "rows.parquet"
ROWS_IN_A_GROUP = 10_000


def embed(source: Any, *, beam_flags: Sequence[str] = (), **options: Any) -> Store | None:
    """Embed a collection into a store, or bring it up to date; its new snapshot, None where nobody waits for the job.

    `source`: a pattern of files, or the rows themselves: a pandas or Polars data frame, an Arrow table, texts, dicts.
    `options` are those of `sentence-beam embed`, `store=` among them; or all of it is one EmbedOptions. `beam_flags` go
    to Beam: `["--runner=FlinkRunner", ...]`; rows in memory are embedded in this process.
    Raises the errors with which the command ends; `exit_code` is its exit status.
    """
    if isinstance(source, EmbedOptions):
        return _embedded(source, beam_flags)
    if isinstance(source, str | Path):
        return _embedded(EmbedOptions(input=(str(source),), **options), beam_flags)
    with tempfile.TemporaryDirectory(prefix="sentence-beam-") as folder:
        path = os.path.join(folder, ROWS)  # of one name, so that the next rows take the place of these
        asked = EmbedOptions(input=(path,), **options)
        pq.write_table(table_of(source), path, row_group_size=ROWS_IN_A_GROUP)
        return _embedded(asked, beam_flags, in_memory=True)


def _embedded(asked: EmbedOptions, flags: Sequence[str], in_memory: bool = False) -> Store | None:
    if asked.dry_run:
        raise OptionError("argument --dry-run: it prints; say sentence-beam plan")
    if asked.min_ram is not None:
        memory(asked.min_ram)
    beam_options = pipeline_options(flags, accelerator=asked.accelerator, index_accelerator=asked.index_accelerator)
    if in_memory and not engines.in_process(beam_options):
        raise OptionError("rows in memory are embedded in this process; write them to files for another runner")
    with watched(sys.stderr):
        _, result = run(asked, beam_options)
    return open_store(asked.store, result.run) if result is not None else None


def run(options: EmbedOptions, beam_options: PipelineOptions) -> tuple[Resolved, Result | None]:
    """The run of these options as it was resolved, and its result, None where nobody waits for it."""
    root = storage.absolute(options.store)
    run_id = new_run(root)
    engines.check_shared(beam_options, input=options.input[0], store=root)
    local = engines.in_process(beam_options)
    resolved = resolve(options, read_manifest(root), run_id, local)  # a mistake should not touch the store
    with writing(root, run_id, beam_options) as writer:
        current = read_manifest(root)
        if (current.version if current else None) != resolved.job.run.version:
            resolved = resolve(options, current, run_id, local)
        return resolved, run_embed(holding_lease(resolved), options, writer)


def run_embed(resolved: Resolved, options: EmbedOptions, writer: Writer) -> Result | None:
    """Run the pipeline; the result, None where nobody waits for it. Raises the error that a failed run ended with."""
    run = resolved.job.run
    if resolved.calibration is not None:
        keep_calibration(run.root, resolved.calibration)
    with recorded(run, writer), writer.pipeline() as pipeline:
        embedding = hints(accelerator=options.accelerator, min_ram=options.min_ram)
        indexing = hints(accelerator=options.index_accelerator)
        build(pipeline, resolved, embedding, indexing, raises=not writer.waits)
    return result_of(run.root, run.id, writer)


def build(
    pipeline: beam.Pipeline,
    resolved: Resolved,
    embedding: dict[str, str] | None = None,
    indexing: dict[str, str] | None = None,
    raises: bool = False,
) -> beam.PCollection:
    """The whole graph, up to the PCollection of the one Result. `raises` makes a failed run a failed job.

    `embedding` are Beam's hints for the step that embeds, `indexing` for those that find the lists of an index.
    """
    job = resolved.job
    globs = pipeline | "Inputs" >> beam.Create(list(job.run.globs))
    planned = globs | "Plan" >> Plan(job)
    embedded = planned.spans | "Embed" >> Embed(job, embedding)
    known = (embedded.units, planned.carried, embedded.problems, planned.problems)
    settled = known | "Commit/Settle" >> Settle(job.run)
    found = [settled, *([embedded.ranges] if embedded.ranges else [])]
    if resolved.index is not None:
        index = BuildIndex(job.run, resolved.index, remembered=job.index_asked is None, hints=indexing)
        found.append(settled | "Index" >> index)
    return tuple(found) | "Commit" >> Commit(job.run, raises, ids=job.columns.id is not None)


def _embed(args: argparse.Namespace, beam_options: PipelineOptions) -> Said:
    with with_stdin(EmbedOptions(**vars(args)), engines.in_process(beam_options)) as options:
        if options.dry_run:
            from pipelines.plan import told

            return told(options, beam_options)
        resolved, result = run(options, beam_options)
    root = resolved.job.root
    if result is None:
        return submitted(root, resolved.job.run.id)
    return Said(wrapped(summary(resolved, result)), {"store": root, **asdict(result)})


main = command.main(parser, _embed, parse)

if __name__ == "__main__":
    sys.exit(main())
