"""`sentence-beam neighbours`: the nearest rows of many queries at once, as a file or a folder of
files.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, Unpack

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags as flags
from sentence_beam.pipelines.common import command, engines, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.output import TABLES, check_output, write_tables
from sentence_beam.pipelines.common.progress import muting, print_aside
from sentence_beam.pipelines.search import show_hits
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, first_line
from sentence_beam.transforms.base.keyword_options import make_options
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.beam.neighbours import Conclude, Neighbours
from sentence_beam.transforms.corpus import Columns, InputFile, Span
from sentence_beam.transforms.corpus.collection_rows import plan_reading
from sentence_beam.transforms.corpus.query_rows import QueryFiles
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.options.common import NEIGHBOURS
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.steps.joins.nearest_rows import (
    NeighboursJob,
    StoredBlock,
    query_blocks,
)
from sentence_beam.transforms.steps.joins.neighbours_result import (
    RESULT,
    begin,
    ended,
    read_schema,
    read_tables,
    remove,
)
from sentence_beam.transforms.steps.options.joins import NeighboursOptions
from sentence_beam.transforms.steps.options.keywords import NeighboursKeywords
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.open import Store
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.run_ids import make_run_id

PARTS = ".parts"  # the folder beside a file in which an interrupted job resumes
SHOWN = 3  # queries, and rows of each, that are printed of a file


def parser() -> argparse.ArgumentParser:
    """The options of `neighbours`."""
    return options.command(
        "neighbours",
        "Find the nearest rows of many queries, or of every row of a store.",
        "sentence-beam neighbours --store store --of store -k 5 --output neighbours",
        "sentence-beam neighbours --store store --queries questions.txt -k 10 --output answers.csv",
        kind=NeighboursOptions,
    )


def neighbours(
    store: StrPath | None = None,
    *,
    output: StrPath,
    k: int = NEIGHBOURS,
    beam_flags: Sequence[str] = (),
    **options: Unpack[NeighboursKeywords],
) -> dict[str, Any]:
    """Write the k rows of a store nearest to each query into a file or folder; counts of queries,
    rows and files.

    `options` are those of `sentence-beam neighbours`: `of=` a store, or `queries=` a pattern of
    files, ... `beam_flags` go to Beam. Raises the errors with which the command ends.
    """
    with keep_root_logger(), muting():
        given_options = make_options(
            NeighboursOptions, "neighbours", {"store": store, "output": output, "k": k, **options}
        )
        return run(given_options, flags.parse_list(beam_flags))


def run(options: NeighboursOptions, beam_options: PipelineOptions) -> dict[str, Any]:
    """Run a job and return its counts; only `output` and `run` if nobody waits for the job."""
    if options.output.endswith(TABLES):
        return run_into_file(options, beam_options)[0]
    return run_into(options, storage.absolute(options.output), beam_options)


def run_into_file(
    options: NeighboursOptions, beam_options: PipelineOptions
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a job whose rows are put into one file; return its counts, and the first of these rows.

    The job works in a folder beside the file, and resumes there if it was interrupted.
    """
    if not storage.is_local(storage.absolute(options.output)):
        raise OptionError(
            f"{cite('output')} {options.output}: a file is written on this machine alone; name a"
            " folder"
        )
    if not engines.waits(beam_options):
        raise OptionError(
            f"{cite('output')} {options.output}: nobody waits for this job to write a file; name a"
            " folder"
        )
    check_output(options.output)
    folder = storage.absolute(options.output) + PARTS
    result = run_into(options, folder, beam_options)
    first: list[dict[str, Any]] = []

    def tables() -> Iterator[pa.Table]:
        for table in read_tables(folder, result["files"]):
            first.extend(table.slice(0, SHOWN * options.k - len(first)).to_pylist())
            yield table

    write_tables(options.output, read_schema(folder, result["files"]), tables())
    _remove_work(folder)
    file = {"path": options.output, "queries": result["queries"], "rows": result["rows"]}
    return {**result, "output": options.output, "files": [file]}, first


def _remove_work(folder: str) -> None:
    """Remove the folder of a job whose file is written; a line on stderr says if it stays."""
    try:
        remove(folder)
    except (OSError, SentenceBeamError) as error:
        print_aside(f"done, but {folder} cannot be removed ({first_line(error)}); remove it")


def run_into(
    options: NeighboursOptions, output: str, beam_options: PipelineOptions
) -> dict[str, Any]:
    """Run a job that writes its files into a folder; return its counts."""
    store = open_store(options.store, options.snapshot)
    engines.check_shared(beam_options, store=store.root, output=output)
    job = _make_job(options, store, output)
    sources: Sequence[StoredBlock | Span]
    if options.of is not None:
        other = open_store(options.of)
        if other.root == store.root:
            other = store
        sources, what = _find_blocks(store, other)
        text = other.manifest.options.kept_text if job.texts else None
        job = replace(job, itself=other.manifest.digest == store.manifest.digest, query_text=text)
    else:
        queries = _make_query_files(options)
        files = queries.list()
        job = replace(job, columns=queries.find_columns_in(files))
        sources, what = _plan_spans(options, files, job)
        _print_prompt_note(options, store)
    _begin(job, what)
    run_id = make_run_id()
    with engines.explaining(), beam.Pipeline(options=beam_options) as pipeline:
        records = pipeline | "Queries" >> beam.Create(sources) | "Neighbours" >> Neighbours(job)
        _ = records | "Conclude" >> Conclude(output, run_id)
    if not engines.waits(beam_options):
        return {"output": output, "run": run_id}
    result = ended(output, run_id)
    if result is None:
        raise SentenceBeamError(
            "the job ended without a result; see the runner's log, and run again to go on"
        )
    if result["exit_code"]:
        raise Problem(result["message"], result["exit_code"]).error()
    return {
        "output": output,
        **{name: result[name] for name in ("run", "queries", "rejected", "rows", "files")},
    }


def _make_job(options: NeighboursOptions, store: Store, output: str) -> NeighboursJob:
    manifest = store.manifest
    if not manifest.rows.stored:
        raise OptionError(f"{store.root} holds no rows; nothing can be found in it")
    if options.min_score is not None and manifest.metric == "l2":
        raise OptionError(
            f"{cite('min_score')} is for scores, and {store.root} is compared by distances (l2);"
            " leave it out"
        )
    Searcher(manifest).check_filter(options.where)
    return NeighboursJob(
        store.root, manifest.run, manifest.digest, output, options.k, options.min_score,
        columns=Columns(), model=options.model, query_prompt=options.query_prompt,
        texts=options.output.endswith(TABLES), where=options.where,
    )  # fmt: skip


def _make_query_files(options: NeighboursOptions) -> QueryFiles:
    """The files of queries, and how they are read."""
    return QueryFiles(
        tuple(options.queries or ()),
        options.format,
        Syntax.from_options(options),
        options.text_column,
        options.id_column or None,
    )


def _find_blocks(store: Store, other: Store) -> tuple[list[StoredBlock], dict[str, Any]]:
    """The rows of the other store in blocks, and what identifies them."""
    what = f"{cite('of')} {other.root} has vectors of another space than {store.root}"
    store.space.check(other.space, what, "embed both alike", ignoring=("prompt", "precision"))
    blocks = query_blocks(other.manifest)
    if not blocks:
        raise OptionError(f"{cite('of')} {other.root} holds no rows")
    return blocks, {"queries": other.manifest.digest}


def _print_prompt_note(options: NeighboursOptions, store: Store) -> None:
    if note := Searcher(store.manifest, options.model, options.query_prompt).queries.prompt_note:
        print_aside(f"note: {note}")


def _plan_spans(
    options: NeighboursOptions, files: Sequence[InputFile], job: NeighboursJob
) -> tuple[list[Span], dict[str, Any]]:
    """The files of queries in spans, and what identifies them."""
    spans = [span for file in files for span in plan_reading(file, job.columns)]
    if not spans:
        pattern = options.queries[0] if options.queries else ""
        raise OptionError(f"{cite('queries')} {pattern} holds no query")
    names = [[file.relative, file.size, file.checksum or file.version] for file in files]
    return spans, {"queries": names, "columns": [job.columns.text, options.id_column]}


def _begin(job: NeighboursJob, what: dict[str, Any]) -> None:
    """Make the output this job's. Raises OptionError if it is another's or cannot be written."""
    settings = {
        "snapshot": job.digest,
        "k": job.k,
        "min_score": job.min_score,
        "query_prompt": job.query_prompt,
        **what,
    }
    if job.texts:
        settings["texts"] = True
    if job.where is not None:
        settings["where"] = job.where
    try:
        begin(job.output, settings)
    except OSError as error:
        raise OptionError(
            f"{cite('output')} {job.output} cannot be written ({error.strerror or error}); choose"
            " another"
        ) from error


def _run_neighbours(options: NeighboursOptions, beam_options: PipelineOptions) -> CommandOutput:
    first: list[dict[str, Any]] = []
    if options.output.endswith(TABLES):
        result, first = run_into_file(options, beam_options)
    else:
        result = run_into(options, storage.absolute(options.output), beam_options)
    if "files" not in result:
        return CommandOutput(
            [format_summary_line("submitted", f"{result['output']}/{RESULT} says how it ended")],
            result,
        )
    rejected = f", {result['rejected']:,} rejected" if result["rejected"] else ""
    lines = [
        *show_neighbours(first),
        format_summary_line("queries", f"{result['queries']:,}{rejected}"),
        format_summary_line(
            "rows", f"{result['rows']:,} in {format_count(len(result['files']), 'file')}"
        ),
        format_summary_line("output", result["output"]),
    ]
    return CommandOutput(lines, result)


def show_neighbours(rows: list[dict[str, Any]]) -> list[str]:
    """The neighbours of the first queries as text, with an empty line after each query's."""
    queries = groupby(
        rows, key=lambda row: (row["query"], row.get("query_piece"), row.get("query_text"))
    )
    lines = []
    for (name, _, text), hits_of_query in islice(queries, SHOWN):
        query = name if text is None else f"{name}: {text}"
        lines += [*show_hits(query, list(islice(hits_of_query, SHOWN))).splitlines(), ""]
    return lines


main = command.main(parser, _run_neighbours, flags.parse, kind=NeighboursOptions)

if __name__ == "__main__":
    sys.exit(main())
