"""`sentence-beam fit`: a calibration from a store, or token statistics from a corpus."""

import argparse
import sys
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engines, options, specs
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.fit_picture import draw_fit
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam.fit import FitCalibration, FitTokenStatistics
from sentence_beam.transforms.steps.fit.fit_result import (
    FitResult,
    check_output,
    read_result,
    write_result,
)
from sentence_beam.transforms.steps.fit.jobs import (
    counts_tokens,
    list_corpus_files,
    make_calibration_job,
    make_count_job,
    open_store_to_fit,
    parse_calibration_method,
)
from sentence_beam.transforms.steps.fit.store_fit import FitJob, divide_shards
from sentence_beam.transforms.steps.options.index_options import FitOptions
from sentence_beam.transforms.store.open import Store
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.run_ids import make_run_id

POOLERS = {"tfidf": ("tfidf",), "token-counts": ("remove-biases", "sif")}
PICTURE = "fit.svg"


def parser() -> argparse.ArgumentParser:
    """The options of `fit`."""
    return options.command(
        "fit",
        "Fit a calibration on a store's vectors, or count the tokens of a corpus.",
        "sentence-beam fit --store store --method whitening:256 --output whitening",
        "sentence-beam fit --input 'corpus/*.parquet' --method tfidf --output idf",
        words=specs.describe_methods(),
        kind=FitOptions,
    )


def _fit(options: FitOptions, beam_options: PipelineOptions) -> CommandOutput:
    output = storage.absolute(options.output)
    check_output(output)
    if counts_tokens(options):
        with with_stdin(options, engines.in_process(beam_options)) as options:
            return _fit_tokens(options, output, beam_options)
    return _fit_calibration(options, output, beam_options)


def _fit_tokens(options: FitOptions, output: str, beam_options: PipelineOptions) -> CommandOutput:
    files = list_corpus_files(options)
    job = make_count_job(options, files, make_run_id(), output)
    fit = run_fit(FitTokenStatistics(job), files, job.run, output, beam_options)
    rejected = f", {fit['rejected']:,} rejected" if fit["rejected"] else ""
    rows = f"{fit['documents']:,} in {format_count(len(files), 'file')}{rejected}"
    flags = " or ".join(f"--pooler {name}:{output}" for name in POOLERS[options.method])
    lines = [
        format_summary_line("rows", rows),
        format_summary_line("tokens", f"{fit['distinct']:,} of the vocabulary were seen"),
        format_summary_line("statistics", f"{output} ({fit['digest'][:16]})"),
        format_summary_line("use", flags),
    ]
    return CommandOutput(
        lines, {"output": output, "method": options.method, "files": len(files), **fit}
    )


def _fit_calibration(
    options: FitOptions, output: str, beam_options: PipelineOptions
) -> CommandOutput:
    spec = parse_calibration_method(options)
    store = open_store_to_fit(options)
    engines.check_shared(beam_options, store=store.root, output=output)
    job = make_calibration_job(store, spec, options.sample, make_run_id(), output)
    fit = fit_store(store, job, beam_options)
    lines = [
        *describe_fit(fit),
        format_summary_line("calibration", f"{output} ({fit['digest'][:16]})"),
        format_summary_line("picture", _draw_picture(fit, output)),
        format_summary_line("use", f"--calibration {output}"),
    ]
    return CommandOutput(lines, {"output": output, "store": store.root, **fit})


def fit_store(store: Store, job: FitJob, beam_options: PipelineOptions) -> dict[str, Any]:
    """Fit the calibration of a job on its store, and return the figures of the fit."""
    parts = divide_shards(store.manifest.shard_paths)
    try:
        return run_fit(FitCalibration(job), parts, job.run, job.output, beam_options)
    finally:
        for number, _ in parts:
            storage.storage_of(job.output).delete(job.gather.path(number))


def describe_fit(fit: dict[str, Any]) -> list[str]:
    """Return the closing lines about a fit, one fact a line."""
    cosine = fit["mean_cosine"]
    before = _show_number(cosine["before"], ".4f")
    after = _show_number(cosine["after"], ".4f")
    pairs = f"on average over the pairs of {cosine['rows']:,} rows"
    return [
        format_summary_line("method", fit["method"]),
        format_summary_line("n", f"{fit['n']:,} rows"),
        format_summary_line("d", f"{fit['input_dim']} in, {fit['dim']} out"),
        format_summary_line("k_eff", fit["k_eff"]),
        format_summary_line("condition", _show_number(fit["condition"], ",.1f")),
        format_summary_line("variance", f"{fit['explained_variance']:.2%} explained"),
        format_summary_line("cosine", f"{before} before, {after} after, {pairs}"),
        *_describe_flow(fit.get("flow")),
        *(format_summary_line("warning", warning) for warning in fit["warnings"]),
    ]


def _describe_flow(flow: dict[str, Any] | None) -> list[str]:
    """The line about a flow's loss; none for other methods."""
    if not flow:
        return []
    loss = f"{flow['before']:.4f} before, {flow['after']:.4f} after, bits a component"
    held_out = f"{flow['held_out_rows']:,} held-out rows, {flow['steps']:,} steps"
    return [format_summary_line("NLL", f"{loss} ({held_out})")]


def _show_number(value: float | None, form: str) -> str:
    return "-" if value is None else format(round(value, 4) + 0.0, form)  # no -0.0000


def _draw_picture(fit: dict[str, Any], output: str) -> str:
    """Draw the fit into the calibration's folder, and return the picture's path."""
    path = storage.join(output, PICTURE)
    storage.overwrite(path, draw_fit(fit).encode())
    return path


def run_fit(
    fit: beam.PTransform, inputs: list[Any], run: str, output: str, beam_options: PipelineOptions
) -> dict[str, Any]:
    """Run the pipeline and return the figures of the fit. Raises the error of a failed run."""
    engines.check_waits(beam_options, "fit")
    try:
        write_result(output, FitResult(run, 1, f"run {run} did not end; see the runner's log"))
    except OSError as denied:
        raise OptionError(
            f"{cite('output')} {output} cannot be written ({denied.strerror}); choose another"
        ) from denied
    with engines.explaining(), beam.Pipeline(options=beam_options) as pipeline:
        _ = pipeline | "Inputs" >> beam.Create(inputs) | "Fit" >> fit
    result = read_result(output)
    if result is None or result.run != run:
        raise SentenceBeamError(f"run {run} ended without a result; see the runner's log")
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    return dict(result.figures)


fit = pipeline_function("fit", FitOptions, _fit)
main = command.main(parser, _fit, beam_flags.parse, kind=FitOptions)

if __name__ == "__main__":
    sys.exit(main())
