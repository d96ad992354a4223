"""`sentence-beam fit`: learn from a corpus what a pooler needs to know of it."""

import argparse
import os
import sys
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import options
from pipelines.resolve import new_run
from transforms.beam.token_statistics import CountJob, FitResult, FitTokenStatistics, read_result, write_result
from transforms.errors import OptionError, SentenceBeamError
from transforms.space import DEFAULT_MODEL, resolve_model
from transforms.space.identity import tokenizer_digest
from transforms.space.token_table import METHODS
from transforms.store import storage
from transforms.store.corpus import InputFile, match_inputs
from transforms.store.corpus.files import check_distinct
from transforms.store.records import Problem

POOLERS = {"tfidf": "tfidf", "token-counts": "remove-biases"}


def parser() -> argparse.ArgumentParser:
    """The options of `fit`."""
    p = options.command("fit", "Count in how many rows of a corpus each token stands, or how often it stands there.")
    p.add_argument("--input", action="append", required=True, metavar="GLOB", help="repeat for more")
    p.add_argument("--method", required=True, choices=METHODS, help="tfidf: rows that hold a token; token-counts: all")
    p.add_argument("--output", required=True, metavar="DIR", help="folder for the statistics; those there are replaced")
    p.add_argument("--model", default=DEFAULT_MODEL, metavar="MODEL", help="whose tokenizer counts (default: minilm)")
    p.add_argument("--revision", metavar="R", help="revision of a hub model")
    p.add_argument("--format", choices=["auto", "parquet", "text", "jsonl"], default="auto")
    p.add_argument("--text-column", default="text", metavar="COLUMN", help="default: text")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return options.run_command("fit", _fit, argv)


def _fit(argv: list[str]) -> int:
    args, beam_options = options.parse(parser(), argv)
    tokenizer = tokenizer_digest(resolve_model(args.model, args.revision))
    files = list_inputs(args.input, args.format)
    model = os.path.abspath(args.model) if os.path.isdir(args.model) else args.model
    output = storage.absolute(args.output)
    job = CountJob(new_run(), args.method, model, args.revision, tokenizer, args.text_column, output)
    result = run_fit(job, files, beam_options)
    rejected = f", {result.rejected:,} rejected" if result.rejected else ""
    print(f"rows        {result.documents:,} in {len(files):,} files{rejected}")
    print(f"tokens      {result.distinct:,} of the vocabulary were seen")
    print(f"statistics  {output} ({result.digest[:16]})")
    print(f"use         --pooler {POOLERS[args.method]}:{output}")
    return 0


def list_inputs(globs: list[str], file_format: str) -> list[InputFile]:
    """Files that any of the globs names, each once. Raises OptionError where one names none."""
    found = {file.path: file for glob in globs for file in match_inputs(glob, file_format)}
    files = [found[path] for path in sorted(found)]
    check_distinct(files)
    return files


def run_fit(job: CountJob, files: list[InputFile], beam_options: PipelineOptions) -> FitResult:
    """Run the pipeline and read how it ended; raises the error that a failed run's result is."""
    try:
        write_result(job.output, FitResult(job.run, 1, f"run {job.run} did not end; see the runner's log"))
    except OSError as denied:
        raise OptionError(f"--output {job.output} cannot be written ({denied.strerror}); choose another") from denied
    with beam.Pipeline(options=beam_options) as pipeline:
        _ = pipeline | "Files" >> beam.Create(files) | "Fit" >> FitTokenStatistics(job)
    result = read_result(job.output)
    if result is None or result.run != job.run:
        raise SentenceBeamError(f"run {job.run} ended without a result; see the runner's log")
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    return result


if __name__ == "__main__":
    sys.exit(main())
