"""`sentence-beam index`: the FAISS index of an existing store."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engines, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.index_lines import describe_answers, describe_index
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.writing import (
    describe_submitted,
    read_run_result,
    recording,
    writing,
)
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam import BuildIndex, Commit, IndexRequest, Settle, with_watch
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.steps.index.kind_choice import find_least_ram
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like, record_plan
from sentence_beam.transforms.steps.options.gate_options import set_answer_gate
from sentence_beam.transforms.steps.options.index_options import IndexOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_ids import make_run_id

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
    choose_request(options, None)  # tells a wrong one before anything begins

    def build(manifest: Manifest, run: Run) -> BuildIndex:
        request = choose_request(options, manifest.index)
        ram = find_least_ram(request, manifest.rows.written, manifest.space.dim, options.min_ram)
        hints = beam_flags.make_hints(accelerator=options.accelerator, min_ram=ram)
        kept = options.index is None and options.target_recall is None
        why = ASKED if options.retrain else ""
        return BuildIndex(run, request, remembered=kept, hints=hints, retrain=why)

    return index_store(options, beam_options, build)


def choose_request(options: IndexOptions, last: IndexEntry | None) -> IndexRequest:
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
    run_id = make_run_id(root)
    engines.check_shared(beam_options, store=root)
    with writing(root, run_id, beam_options) as writer:
        manifest = open_store(root).manifest
        run = with_metric(make_run_like(manifest, run_id, "index"))
        run = set_answer_gate(run, options)
        record_plan(manifest, run_id)
        with recording(run, writer), writer.pipeline() as pipeline:
            settled = pipeline | "Commit/Settle" >> Settle(run)
            record = settled | "Index" >> build(manifest, run)
            facts = with_watch([settled, record], run)
            _ = facts | "Commit" >> Commit(run, raises=not writer.waits)
        result = read_run_result(root, run_id, writer)
    if result is None:
        return describe_submitted(root, run_id)
    shown = describe_index(result.index, manifest.index)
    if not shown:
        shown = [format_summary_line("index", "none: the store holds no rows")]
    lines = [
        *shown,
        *describe_answers(root, result),
        format_summary_line("store", f"{root} (snapshot {run_id})"),
    ]
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
