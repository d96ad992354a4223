"""`sentence-beam neighbours`: the nearest rows of many queries at once, as files."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import beam_flags as flags
from pipelines import command, engines, options
from pipelines.progress import aside
from pipelines.said import Said
from transforms import storage
from transforms.beam.neighbours import Conclude, Neighbours
from transforms.corpus import Columns, InputFile, Span
from transforms.corpus.columns import kept_types
from transforms.corpus.files import PLAIN
from transforms.corpus.reading import list_files
from transforms.corpus.spans import UNIT_TOKENS, plan_file
from transforms.errors import OptionError, SentenceBeamError
from transforms.search import NO_QUERY_PROMPT, Searcher
from transforms.steps.neighbours import NeighboursJob, StoredBlock, blocks_of
from transforms.steps.neighbours_result import RESULT, begin, ended
from transforms.steps.options import NeighboursOptions
from transforms.store import open_store
from transforms.store.open import Store
from transforms.store.records import Problem
from transforms.store.run_ids import new_run


def parser() -> argparse.ArgumentParser:
    """The options of `neighbours`."""
    p = options.command(
        "neighbours",
        "Find the nearest rows of many queries, or of every row of a store, and write them as Parquet files.",
        "sentence-beam neighbours --store store --of store -k 5 --output neighbours",
        "sentence-beam neighbours --store store --queries questions.txt -k 10 --output answers",
    )
    options.add_store(p, help="folder or URL of the store whose rows are found")
    asked = p.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--queries", action="extend", nargs="+", metavar="GLOB", help="files of queries, as embed reads (default: none)"
    )
    asked.add_argument(
        "--of",
        type=options.filled,
        metavar="STORE",
        help="a store whose rows are the queries; where it is the same, no row is found for itself (default: none)",
    )
    p.add_argument("-k", type=options.positive, required=True, metavar="K", help="rows for each query")
    p.add_argument(
        "--min-score", type=options.score, metavar="X", help="leave out rows with a lower score (default: none)"
    )
    p.add_argument(
        "--output",
        type=options.filled,
        required=True,
        metavar="DIR",
        help="folder or URL for the files: a new or empty one, or that of the same job, which goes on",
    )
    files = p.add_argument_group("files of queries")
    options.add_text_files(files)
    files.add_argument(
        "--id-column", metavar="NAME", help="column with what names a query in the result (default: its text)"
    )
    files.add_argument(
        "--query-prompt", metavar="STR", help="text put before every query (default: the store's, else the model's own)"
    )
    files.add_argument(
        "--model",
        type=options.filled,
        metavar="PATH",
        help="the store's model where the work is done, checked by digest (default: where it was)",
    )
    return p


def neighbours(store: str, *, output: str, k: int, beam_flags: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Write the k rows of a store nearest to each query into a folder; what came out, as the file beside it says.

    `options` are those of `sentence-beam neighbours`: `of=` a store, or `queries=` a pattern of files, ...
    `beam_flags` go to Beam. Raises the errors with which the command ends.
    """
    return run(NeighboursOptions(store, output, k, **options), flags.pipeline_options(beam_flags))


def run(asked: NeighboursOptions, beam_options: PipelineOptions) -> dict[str, Any]:
    """What a job says of itself when it has ended; of one that nobody waits for, its `output` and `run` alone."""
    output, store = storage.absolute(asked.output), open_store(asked.store)
    engines.check_shared(beam_options, store=store.root, output=output)
    job = _job(asked, store, output)
    sources, what = _stored(asked, store) if asked.of is not None else _files(asked, store)
    if isinstance(sources[0], StoredBlock):
        job = replace(job, itself=what["queries"] == store.manifest.digest)
    _begin(job, what)
    run_id = new_run()
    with engines.explained(), beam.Pipeline(options=beam_options) as pipeline:
        records = pipeline | "Queries" >> beam.Create(sources) | "Neighbours" >> Neighbours(job)
        _ = records | "Conclude" >> Conclude(output, run_id)
    if not engines.waits(beam_options):
        return {"output": output, "run": run_id}
    found = ended(output, run_id)
    if found is None:
        raise SentenceBeamError("the job ended without a result; see the runner's log, and run again to go on")
    if found["exit_code"]:
        raise Problem(found["message"], found["exit_code"]).error()
    return {"output": output, **{name: found[name] for name in ("run", "queries", "rejected", "rows", "files")}}


def _job(asked: NeighboursOptions, store: Store, output: str) -> NeighboursJob:
    manifest = store.manifest
    if not manifest.rows.stored:
        raise OptionError(f"{store.root} holds no rows; nothing can be found in it")
    if asked.min_score is not None and manifest.metric == "l2":
        raise OptionError(f"--min-score is for scores, and {store.root} is compared by distances (l2); leave it out")
    columns = Columns(asked.text_column or "text", asked.id_column or None)
    return NeighboursJob(
        store.root, manifest.run, manifest.digest, output, asked.k, asked.min_score,
        columns=columns, model=asked.model, query_prompt=asked.query_prompt,
    )  # fmt: skip


def _stored(asked: NeighboursOptions, store: Store) -> tuple[list[StoredBlock], dict[str, Any]]:
    """The rows of the other store in blocks, and what says which these are."""
    other = open_store(str(asked.of))
    what = f"--of {other.root} has vectors of another space than {store.root}"
    store.space.check(other.space, what, "embed both alike", ignoring=("prompt", "precision"))
    blocks = blocks_of(other.manifest)
    if not blocks:
        raise OptionError(f"--of {other.root} holds no rows")
    return blocks, {"queries": other.manifest.digest}


def _files(asked: NeighboursOptions, store: Store) -> tuple[list[Span], dict[str, Any]]:
    """The files of queries in spans, and what says which these are."""
    try:
        files = list_files(asked.queries or (), asked.format or "auto", asked.delimiter)
    except OptionError as error:
        raise OptionError(str(error).replace("--input", "--queries")) from error
    if Searcher(store.manifest, asked.model, asked.query_prompt).queries.lacks_prompt:
        aside(f"note: {NO_QUERY_PROMPT}")
    spans = [span for file in files for span in _spans(file, asked)]
    if not spans:
        raise OptionError(f"--queries {asked.queries[0] if asked.queries else ''} holds no query")
    names = [[file.relative, file.size, file.checksum or file.version] for file in files]
    return spans, {"queries": names, "columns": [asked.text_column or "text", asked.id_column]}


def _spans(file: InputFile, asked: NeighboursOptions) -> list[Span]:
    text = asked.text_column or "text"
    if file.format not in PLAIN:
        kept_types(file, text, asked.id_column or None, ())
    return plan_file(file, text, UNIT_TOKENS)


def _begin(job: NeighboursJob, what: dict[str, Any]) -> None:
    """Make the output this job's. Raises OptionError where it is another's or cannot be written."""
    asked = {"snapshot": job.digest, "k": job.k, "min_score": job.min_score, "query_prompt": job.query_prompt, **what}
    try:
        begin(job.output, asked)
    except OSError as error:
        raise OptionError(
            f"--output {job.output} cannot be written ({error.strerror or error}); choose another"
        ) from error


def _neighbours(args: argparse.Namespace, beam_options: PipelineOptions) -> Said:
    found = run(NeighboursOptions(**vars(args)), beam_options)
    if "files" not in found:
        return Said([f"submitted   {found['output']}/{RESULT} says how it ended"], found)
    rejected = f", {found['rejected']:,} rejected" if found["rejected"] else ""
    files = len(found["files"])
    lines = [
        f"queries     {found['queries']:,}{rejected}",
        f"rows        {found['rows']:,} in {files:,} file{'s' if files > 1 else ''}",
        f"output      {found['output']}",
    ]
    return Said(lines, found)


main = command.main(parser, _neighbours, flags.parse)

if __name__ == "__main__":
    sys.exit(main())
