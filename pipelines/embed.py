"""`sentence-beam embed`: Plan -> Embed -> (Index) -> Commit, into one store."""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Unpack, overload

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import command, engines
from sentence_beam.pipelines.common.beam_flags import make_hints, parse, parse_list
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.embed_options import parser
from sentence_beam.pipelines.common.progress import watching
from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.pipelines.common.summary import summarise
from sentence_beam.pipelines.common.tables import wrapped
from sentence_beam.pipelines.common.writing import (
    Writer,
    describe_submitted,
    read_run_result,
    recording,
    writing,
)
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.base.keyword_options import make_options
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.beam import Embed, Plan
from sentence_beam.transforms.beam.finish import finish_run
from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.in_memory import (
    Files,
    check_batch_name,
    read_input,
    write_batch,
)
from sentence_beam.transforms.corpus.row_columns import Rows
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.chosen_options import find_used_columns
from sentence_beam.transforms.steps.options.input_columns import fill_columns_of_rows
from sentence_beam.transforms.steps.options.keywords import RowsKeywords
from sentence_beam.transforms.steps.options.resolve import (
    Resolved,
    estimate_index_ram,
    hold_lease,
    put_on_workers,
    resolve_run,
)
from sentence_beam.transforms.steps.options.stored import find_stored
from sentence_beam.transforms.steps.plan.quantised_model import prepare_int8_model
from sentence_beam.transforms.store import Store, open_store
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.runs.run_result import Result

# the batch of a call without append, so that the next rows replace these
ROWS = "rows"


@overload
def embed(input: Rows | Files | None = None, **options: Unpack[RowsKeywords]) -> Store: ...


@overload
def embed(
    input: Rows | Files | None = None, *, beam_flags: Sequence[str], **options: Unpack[RowsKeywords]
) -> Store | None: ...


@overload
def embed(input: EmbedOptions) -> Store: ...


@overload
def embed(input: EmbedOptions, *, beam_flags: Sequence[str]) -> Store | None: ...


def embed(
    input: Rows | Files | EmbedOptions | None = None,
    *,
    batch: str | None = None,
    beam_flags: Sequence[str] = (),
    **options: Any,
) -> Store | None:
    """Embed a collection into a store, or bring the store up to date, and return the new snapshot.

    `input`: a pattern of files, or one or several `pathlib.Path`s; or the rows themselves: a pandas
    or Polars data frame, an Arrow table, a dict of columns, dicts, texts; None is the input of the
    store's last run. `options` are those of `sentence-beam embed`, `store=` among them; or all of
    it is one EmbedOptions.

    Rows take the place of all that the store has. With `append=True` they are added; those that
    were added under the same name `batch` are replaced. Without a name the same rows again add
    nothing. Rows are embedded in this process. `beam_flags` go to Beam: `["--runner=FlinkRunner",
    ...]`. Returns None if nobody waits for the job. Raises the errors with which the command ends;
    `exit_code` is its exit status.
    """
    with keep_root_logger():
        if isinstance(input, EmbedOptions):
            if options or batch is not None:
                raise TypeError(
                    f"embed() got EmbedOptions and {next(iter(options), 'batch')!r}; give one of"
                    " them"
                )
            return _execute(input, beam_flags)
        source: tuple[str, ...] | pa.Table = ()
        if input is not None:
            source = read_input(input, functools.partial(_choose_columns, options))
        if isinstance(source, tuple):
            if batch is not None:
                raise OptionError(
                    "batch: it names rows in memory, and files have names of their own; leave"
                    " it out"
                )
            return _execute(
                make_options(EmbedOptions, "embed", {"input": source, **options}), beam_flags
            )
        given_options = make_options(EmbedOptions, "embed", {"input": (), **options})
        name = _name_batch(batch, given_options.append)
        return _embed_rows(source, name, given_options, beam_flags)


def _choose_columns(options: dict[str, Any], rows: Any) -> Columns:
    """Return the columns of rows that a run with these options uses, by the store's options too.

    Those that are found in the rows are added to the options.
    """
    requested = make_options(EmbedOptions, "embed", {"input": (), **options})
    previous = read_manifest(storage.absolute(requested.store))
    chosen = fill_columns_of_rows(requested, find_stored(requested, previous).source, rows)
    for name in ("text_column", "id_column"):
        if getattr(chosen, name) != getattr(requested, name):
            options[name] = getattr(chosen, name)
    return find_used_columns(chosen, previous)


def _name_batch(name: str | None, append: bool) -> str | None:
    """The name of a batch of rows; None for a batch that is named by its content."""
    if name is not None and not append:
        raise OptionError(
            "batch: it names rows that are appended; say append=True too, or leave batch out"
        )
    if name is not None:
        return check_batch_name(name)
    return None if append else ROWS


def _embed_rows(
    rows: pa.Table, batch: str | None, options: EmbedOptions, flags: Sequence[str]
) -> Store | None:
    with storage.folder_of_rows() as folder:
        file = storage.ROWS + write_batch(rows, folder, batch)
        with _naming_rows(file):
            return _execute(replace(options, input=(file,)), flags, in_memory=True)


@contextlib.contextmanager
def _naming_rows(file: str) -> Iterator[None]:
    """Call the file of rows in memory "the rows" in errors."""
    try:
        yield
    except SentenceBeamError as error:
        message = error.message
        for one, many in (("has", "have"), ("is", "are")):
            message = message.replace(f"{file} {one} ", f"the rows {many} ")
        error.args = (message.replace(file, "the rows"),)
        raise


def _execute(options: EmbedOptions, flags: Sequence[str], in_memory: bool = False) -> Store | None:
    beam_options = parse_list(flags, options.accelerator)
    if in_memory and not engines.in_process(beam_options):
        raise OptionError(
            "rows in memory are embedded in this process; write them to files for another runner"
        )
    with watching(sys.stderr):
        _, result = run(options, beam_options)
    return None if result is None else open_store(options.store, result.run)


def run(options: EmbedOptions, beam_options: PipelineOptions) -> tuple[Resolved, Result | None]:
    """Run these options; returns the resolved run, and its result, None if nobody waits for it."""
    root = storage.absolute(options.store)
    run_id = make_run_id(root)
    local = engines.in_process(beam_options)
    # a mistake should not touch the store
    resolved = resolve_run(options, read_manifest(root), run_id, local=local)
    engines.check_shared(beam_options, input=resolved.job.run.globs[0], store=root)
    with writing(root, run_id, beam_options) as writer:
        current = writer.manifest
        version = current.version if current else None
        if version != resolved.job.run.version:
            resolved = resolve_run(options, current, run_id, local=local)
        with recording(resolved.job.run, writer):
            resolved = prepare_int8_model(resolved)
        resolved = put_on_workers(resolved, options.accelerator)
        return resolved, run_embed(hold_lease(resolved), options, writer)


def run_embed(resolved: Resolved, options: EmbedOptions, writer: Writer) -> Result | None:
    """Run the pipeline and return the result, None if nobody waits for it. Raises the error of a
    failed run.
    """
    run = resolved.job.run
    resolved.keep_calibration()
    with recording(run, writer), writer.pipeline() as pipeline:
        embedding = make_hints(accelerator=options.accelerator, min_ram=options.min_ram)
        indexing = make_hints(
            accelerator=options.accelerator, min_ram=estimate_index_ram(resolved, options.min_ram)
        )
        build(pipeline, resolved, embedding, indexing, raises=not writer.waits)
    return read_run_result(run.root, run.id, writer)


def build(
    pipeline: beam.Pipeline,
    resolved: Resolved,
    embedding: dict[str, str] | None = None,
    indexing: dict[str, str] | None = None,
    raises: bool = False,
) -> beam.PCollection:
    """Return the whole graph, up to the PCollection of the one Result.

    `raises` makes a failed run a failed job. `embedding` are Beam's hints for the embedding step,
    `indexing` for the steps that find the lists of an index.
    """
    job = resolved.job
    globs = pipeline | "Inputs" >> beam.Create(list(job.run.globs))
    planned = globs | "Plan" >> Plan(job)
    embedded = planned.spans | "Embed" >> Embed(job, embedding)
    settled_parts = (embedded.units, embedded.problems, planned.problems)
    return finish_run(settled_parts, embedded.ranges, resolved, indexing, raises)


def _embed(given_options: EmbedOptions, beam_options: PipelineOptions) -> CommandOutput:
    with with_stdin(given_options, engines.in_process(beam_options)) as options:
        resolved, result = run(options, beam_options)
    root = resolved.job.root
    if result is None:
        return describe_submitted(root, resolved.job.run.id)
    likeness = resolved.likeness.to_json() if resolved.likeness is not None else None
    values = {"store": root, **asdict(result), "like": likeness}
    return CommandOutput(wrapped(summarise(resolved, result)), values)


main = command.main(parser, _embed, parse, kind=EmbedOptions)

if __name__ == "__main__":
    sys.exit(main())
