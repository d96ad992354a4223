"""`sentence-beam recalibrate`: another calibration of a store, without its model and input."""

import argparse
import sys
from dataclasses import asdict

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engines, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.index_lines import describe_answers, describe_index
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.summary import count_vectors, describe_moved
from sentence_beam.pipelines.common.writing import (
    describe_submitted,
    read_run_result,
    recording,
    writing,
)
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam import BuildIndex, Commit, Settle, with_watch
from sentence_beam.transforms.beam.recalibrate import Recalibrate
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.options.common import NO_CALIBRATION
from sentence_beam.transforms.steps.fit.recalibration import (
    RecalibrateJob,
    check_fits,
    make_recalibrating_run,
)
from sentence_beam.transforms.steps.options.from_snapshot import read_units_of_part, record_plan
from sentence_beam.transforms.steps.options.gate_options import set_answer_gate
from sentence_beam.transforms.steps.options.index_options import RecalibrateOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.calibrations import keep_calibration, read_calibration
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.recorded_plan import ALL
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.runs.run_result import Result


def parser() -> argparse.ArgumentParser:
    """The options of `recalibrate`."""
    return options.command(
        "recalibrate",
        "Apply a calibration to the vectors of a store, from their pooled vectors, or take it off.",
        "sentence-beam recalibrate --store store --calibration whitening",
        "sentence-beam recalibrate --store store --calibration none",
        kind=RecalibrateOptions,
    )


def recalibrate_store(options: RecalibrateOptions, beam_options: PipelineOptions) -> CommandOutput:
    """Commit the store's snapshot under another calibration, or without one."""
    store = open_store(options.store)
    root = store.root
    run_id = make_run_id(store.root)
    engines.check_shared(beam_options, store=root)
    name = options.calibration
    calibration = None if name == NO_CALIBRATION else read_calibration(name)
    check_fits(calibration, store.manifest, name)
    if calibration is None and store.space.calibration is None:
        return CommandOutput(
            [f"nothing to do: the vectors of {root} have no calibration"],
            {"store": root, "run": None},
        )
    with writing(root, run_id, beam_options) as writer:
        manifest = open_store(root).manifest
        check_fits(calibration, manifest, name)
        run = set_answer_gate(make_recalibrating_run(manifest, run_id, calibration), options)
        if calibration is not None:
            keep_calibration(root, calibration)
        record_plan(manifest, run_id, ALL)
        with recording(run, writer), writer.pipeline() as pipeline:
            build(pipeline, manifest, run, raises=not writer.waits)
        result = read_run_result(root, run_id, writer)
    if result is None:
        return describe_submitted(root, run_id)
    return CommandOutput(summarise(result, calibration, root), {"store": root, **asdict(result)})


def build(
    pipeline: beam.Pipeline, manifest: Manifest, run: Run, raises: bool = False
) -> beam.PCollection:
    """Return the whole graph, up to the PCollection of the one Result; the index is built again."""
    units = (
        pipeline
        | "Parts" >> beam.Create(list(manifest.units.parts))
        | "Units" >> beam.FlatMap(read_units_of_part, manifest.root)
    )
    made = units | "Recalibrate" >> Recalibrate(
        RecalibrateJob(run, manifest.space, manifest.units.rows)
    )
    settled = (made.units, made.problems) | "Commit/Settle" >> Settle(run)
    facts = [settled]
    if made.ranges:
        facts.append(made.ranges)
    if manifest.index:
        facts.append(settled | "Index" >> BuildIndex(run, manifest.index.request, remembered=True))
    return with_watch(facts, run) | "Commit" >> Commit(run, raises)


def summarise(result: Result, calibration: Calibration | None, root: str) -> list[str]:
    """The closing lines about a run, one fact a line."""
    how = "none"
    if calibration is not None:
        digest = calibration.digest[:16]
        how = f"{calibration.info['method']} ({digest}), {calibration.dim} dimensions"
    return [
        format_summary_line("rows", f"{count_vectors(result.ledger)} with other vectors"),
        format_summary_line("calibration", how),
        *describe_moved(result),
        *describe_index(result.index, None),
        *describe_answers(root, result),
        format_summary_line("store", f"{root} (snapshot {result.run})"),
    ]


recalibrate = pipeline_function("recalibrate", RecalibrateOptions, recalibrate_store)
main = command.main(parser, recalibrate_store, beam_flags.parse, kind=RecalibrateOptions)

if __name__ == "__main__":
    sys.exit(main())
