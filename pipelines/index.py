"""`sentence-beam index`: the FAISS index of an existing store."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engines, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.index_lines import answer_lines, index_lines
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.writing import recorded, result_of, submitted, writing
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.summary_lines import line
from sentence_beam.transforms.beam import BuildIndex, Commit, IndexRequest, Settle, with_watch
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.steps.index.kind_choice import least_ram
from sentence_beam.transforms.steps.options.from_snapshot import record_plan, run_like
from sentence_beam.transforms.steps.options.gate_options import with_answer_gate
from sentence_beam.transforms.steps.options.index_options import IndexOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_ids import new_run

ASKED = "asked for"


def parser() -> argparse.ArgumentParser:
    """The options of `index`."""
    return options.command(
        "index",
        "Build the FAISS index of a store, measure its recall, and commit both.",
        "sentence-beam index --store store",
        "sentence-beam index --store store --index compact --target-recall 0.98 --retrain",
        "sentence-beam index --store store --target-recall 0.97 --max-bytes-per-row 150"
        " --max-latency-ms 2",
        kind=IndexOptions,
    )


def _index(options: IndexOptions, beam_options: PipelineOptions) -> CommandOutput:
    requested(options, None)  # tells a wrong one before anything begins

    def build(manifest: Manifest, run: Run) -> BuildIndex:
        request = requested(options, manifest.index)
        ram = least_ram(request, manifest.rows.written, manifest.space.dim, options.min_ram)
        hints = beam_flags.hints(accelerator=options.accelerator, min_ram=ram)
        kept = options.index is None and options.target_recall is None
        why = ASKED if options.retrain else ""
        return BuildIndex(run, request, remembered=kept, hints=hints, retrain=why)

    return index_store(options, beam_options, build)


def requested(options: IndexOptions, last: IndexEntry | None) -> IndexRequest:
    """Return the request of a command, which keeps what the `last` index was asked to be.

    A named index begins with the defaults. Raises OptionError for an unknown one.
    """
    values: dict[str, Any] = {
        "metric": options.metric,
        "target_recall": options.target_recall,
        "max_bytes_per_row": options.max_bytes_per_row,
        "max_latency_ms": options.max_latency_ms,
        "range_bytes": options.range_bytes,
    }
    if options.index is not None:
        request = IndexRequest(options.index)
    elif last is not None:
        request = last.request
    else:
        request = IndexRequest()
    return replace(request, **{name: value for name, value in values.items() if value is not None})


def index_store(
    options: IndexOptions,
    beam_options: PipelineOptions,
    build: Callable[[Manifest, Run], BuildIndex],
) -> CommandOutput:
    """Commit the store's snapshot with the index that `build` returns the transform of."""
    root = open_store(options.store).root
    run_id = new_run(root)
    engines.check_shared(beam_options, store=root)
    with writing(root, run_id, beam_options) as writer:
        manifest = open_store(root).manifest
        run = with_metric(run_like(manifest, run_id, "index"))
        run = with_answer_gate(run, options)
        record_plan(manifest, run_id)
        with recorded(run, writer), writer.pipeline() as pipeline:
            settled = pipeline | "Commit/Settle" >> Settle(run)
            record = settled | "Index" >> build(manifest, run)
            facts = with_watch([settled, record], run)
            _ = facts | "Commit" >> Commit(run, raises=not writer.waits)
        result = result_of(root, run_id, writer)
    if result is None:
        return submitted(root, run_id)
    shown = index_lines(result.index, manifest.index)
    if not shown:
        shown = [line("index", "none: the store holds no rows")]
    lines = [*shown, *answer_lines(root, result), line("store", f"{root} (snapshot {run_id})")]
    return CommandOutput(lines, {"store": root, **asdict(result)})


def with_metric(run: Run) -> Run:
    """Return the run with its model's metric if the store remembers none."""
    if run.options.metric is not None:
        return run
    try:
        metric = resolve_model(run.options.model, run.options.revision).modules.metric
    except OptionError:  # the model is elsewhere by now
        metric = "cosine"
    return replace(run, options=replace(run.options, metric=metric))


index = pipeline_function("index", IndexOptions, _index)
main = command.main(parser, _index, beam_flags.parse, kind=IndexOptions)

if __name__ == "__main__":
    sys.exit(main())
