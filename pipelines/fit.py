"""`sentence-beam fit`: a calibration from a store's vectors, or token statistics for a pooler from
a corpus.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.common import beam_flags, command, engines, options, pictures, specs
from pipelines.common.library import pipeline_function
from pipelines.common.said import Said
from pipelines.common.stdin import with_stdin
from transforms import storage
from transforms.base.errors import OptionError, SentenceBeamError
from transforms.base.extras import pip_line
from transforms.base.numbers import counted
from transforms.beam.fit import FitCalibration, FitTokenStatistics
from transforms.calibration import parse_calibration
from transforms.calibration.fit import SHOWN_ROWS
from transforms.calibration.methods import AFFINE
from transforms.calibration.spec import CALIBRATIONS, CalibrationSpec
from transforms.corpus import InputFile, match_inputs
from transforms.corpus.files import check_distinct
from transforms.space import DEFAULT_MODEL, resolve_model
from transforms.space.identity import tokenizer_digest
from transforms.space.token_table import METHODS
from transforms.steps.fit.fit import FitJob, parts_of
from transforms.steps.fit.fit_result import FitResult, check_output, read_result, write_result
from transforms.steps.fit.gather import GatherJob
from transforms.steps.fit.token_statistics import CountJob
from transforms.steps.options.index import FLOW_SAMPLE, FitOptions
from transforms.store import layout, open_store
from transforms.store.open import Store
from transforms.store.records import Problem
from transforms.store.runs.result import now
from transforms.store.runs.run_ids import new_run
from transforms.store.shards.reading import is_narrow

POOLERS = {"tfidf": ("tfidf",), "token-counts": ("remove-biases", "sif")}
PICTURE = "fit.png"


def parser() -> argparse.ArgumentParser:
    """The options of `fit`."""
    return options.command(
        "fit",
        "Fit a calibration on a store's vectors, or count the tokens of a corpus.",
        "sentence-beam fit --store store --method whitening:256 --output whitening",
        "sentence-beam fit --input 'corpus/*.parquet' --method tfidf --output idf",
        words=specs.of_methods(),
        kind=FitOptions,
    )


def _fit(asked: FitOptions, beam_options: PipelineOptions) -> Said:
    check_output(storage.absolute(asked.output))
    if asked.method in METHODS:
        _refuse(asked, "store", "sample")
        if asked.input is None:
            raise OptionError(
                f"--method {asked.method} counts the tokens of a corpus; name its files by --input"
            )
        with with_stdin(asked, engines.in_process(beam_options)) as asked:
            return _fit_tokens(asked, asked.input or (), beam_options)
    spec = _spec(asked.method)
    _refuse(asked, "model", "revision", "format", "delimiter", "text_column")
    return _fit_calibration(asked, spec, _store(asked), beam_options)


def _spec(method: str) -> CalibrationSpec:
    if method.partition(":")[0].partition("+")[0] not in CALIBRATIONS:
        of_stores = ", ".join(CALIBRATIONS)
        of_corpora = ", ".join(METHODS)
        raise OptionError(
            f"--method {method} is not known; allowed: {of_stores} (a store), {of_corpora} (a"
            " corpus)"
        )
    return parse_calibration(method)


def _refuse(asked: FitOptions, *names: str) -> None:
    """Raise OptionError for options that are given and that this method has no use for."""
    for name in names:
        if getattr(asked, name) is not None:
            raise OptionError(
                f"--{name.replace('_', '-')} has no meaning with --method {asked.method}; leave"
                " it out"
            )


def _fit_tokens(asked: FitOptions, globs: Sequence[str], beam_options: PipelineOptions) -> Said:
    model = asked.model or DEFAULT_MODEL
    tokenizer = tokenizer_digest(resolve_model(model, asked.revision))
    files = list_inputs(globs, asked.format or "auto", asked.delimiter)
    if os.path.isdir(model):
        model = os.path.abspath(model)
    else:
        model = model
    output = storage.absolute(asked.output)
    job = CountJob(
        new_run(),
        asked.method,
        model,
        asked.revision,
        tokenizer,
        asked.text_column or "text",
        output,
    )
    found = run_fit(FitTokenStatistics(job), files, job.run, output, beam_options)
    rejected = ""
    if found["rejected"]:
        rejected = f", {found['rejected']:,} rejected"
    lines = [
        f"rows        {found['documents']:,} in {counted(len(files), 'file')}{rejected}",
        f"tokens      {found['distinct']:,} of the vocabulary were seen",
        f"statistics  {output} ({found['digest'][:16]})",
        f"use         {' or '.join(f'--pooler {name}:{output}' for name in POOLERS[asked.method])}",
    ]
    return Said(lines, {"output": output, "method": asked.method, "files": len(files), **found})


def list_inputs(
    globs: Sequence[str], file_format: str, delimiter: str | None = None
) -> list[InputFile]:
    """The files that the globs name, each once. Raises OptionError if a glob names none."""
    found = {
        file.path: file
        for glob in globs
        for file in match_inputs(glob, file_format, delimiter=delimiter)
    }
    files = [found[path] for path in sorted(found)]
    check_distinct(files)
    return files


def _store(asked: FitOptions) -> Store:
    """The store that is named by `--store` or its old name `--input`. Raises OptionError for none
    and for several.
    """
    named = [path for path in (asked.store, *(asked.input or ())) if path is not None]
    if not named:
        raise OptionError(f"--method {asked.method} is fitted on a store; name it by --store")
    if len(named) > 1:
        raise OptionError(f"--method {asked.method} is fitted on one store; give one --store")
    return open_store(named[0])


def _fit_calibration(
    asked: FitOptions, spec: CalibrationSpec, store: Store, beam_options: PipelineOptions
) -> Said:
    engines.check_shared(beam_options, store=store.root, output=storage.absolute(asked.output))
    shards = store.manifest.shard_paths
    output = storage.absolute(asked.output)
    if not shards:
        raise OptionError(f"{store.root} holds no rows; a calibration cannot be fitted on it")
    job = calibration_job(store, spec, asked.sample, new_run(), output)
    parts = parts_of(shards)
    try:
        found = run_fit(FitCalibration(job), parts, job.run, output, beam_options)
    finally:
        for number, _ in parts:
            storage.storage_of(output).delete(job.gather.path(number))
    lines = [
        *figures(found),
        f"calibration {output} ({found['digest'][:16]})",
        f"picture     {_picture(found, output)}",
        f"use         --calibration {output}",
    ]
    return Said(lines, {"output": output, "store": store.root, **found})


def calibration_job(
    store: Store, spec: CalibrationSpec, sample: int | None, run: str, output: str
) -> FitJob:
    """The job for the workers; without `sample`, affine methods are fitted on all rows, a flow on
    FLOW_SAMPLE.
    """
    manifest = store.manifest
    affine = spec.name in AFFINE
    rows = manifest.rows.stored
    want = sample or (SHOWN_ROWS if affine else FLOW_SAMPLE)
    prefix = storage.join(output, f"sample-{run}")
    snapshot = storage.join(store.root, layout.snapshot(manifest.run))
    fitted_on = {
        "store": store.root,
        "run": manifest.run,
        "manifest": storage.sha256_of(snapshot)[0],
        "space": store.space.to_json(),
        "date": now(),
    }
    return FitJob(
        run,
        str(spec),
        output,
        GatherJob(prefix, want, rows, store.space.normalize, whole=affine and sample is None),
        narrow=store.space.dtype != "float32" or is_narrow(manifest.shard_paths[0]),
        fitted_on=fitted_on,
    )


def figures(found: dict[str, Any]) -> list[str]:
    """The closing lines about a fit, one fact a line."""
    cosine = found["mean_cosine"]
    flow = found.get("flow")
    lines = [
        f"method      {found['method']}",
        f"n           {found['n']:,} rows",
        f"d           {found['input_dim']} in, {found['dim']} out",
        f"k_eff       {found['k_eff']}",
        f"condition   {_number(found['condition'], ',.1f')}",
        f"variance    {found['explained_variance']:.2%} explained",
        (
            f"cosine      {_number(cosine['before'], '.4f')} before,"
            f" {_number(cosine['after'], '.4f')} after, on average over the pairs of"
            f" {cosine['rows']:,} rows"
        ),
    ]
    if flow:
        held_out = f"{flow['held_out_rows']:,} held-out rows, {flow['steps']:,} steps"
        lines.append(
            f"NLL         {flow['before']:.4f} before, {flow['after']:.4f} after, bits a component"
            f" ({held_out})"
        )
    return [*lines, *(f"warning     {warning}" for warning in found["warnings"])]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(round(value, 4) + 0.0, form)  # no -0.0000


def _picture(found: dict[str, Any], output: str) -> str:
    """Draw the fit into the calibration's folder; the picture's path, or a line that names what
    drawing needs.
    """
    if not pictures.is_installed():
        return f"none: it needs matplotlib, {pip_line('report')}"
    path = storage.join(output, PICTURE)
    storage.overwrite(path, pictures.draw_fit(found))
    return path


def run_fit(
    fit: beam.PTransform, inputs: list[Any], run: str, output: str, beam_options: PipelineOptions
) -> dict[str, Any]:
    """Run the pipeline; the figures of the fit. Raises the error that a failed run ended with."""
    if not engines.waits(beam_options):
        raise OptionError(
            "fit waits for its job; leave --no_wait_until_finish and --template_location out"
        )
    try:
        write_result(output, FitResult(run, 1, f"run {run} did not end; see the runner's log"))
    except OSError as denied:
        raise OptionError(
            f"--output {output} cannot be written ({denied.strerror}); choose another"
        ) from denied
    with engines.explained(), beam.Pipeline(options=beam_options) as pipeline:
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
