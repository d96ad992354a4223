"""`sentence-beam forget`: erases rows from a store for good, and writes a receipt."""

import argparse
import sys
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engine_jobs, engines, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.index_lines import describe_answers, describe_index
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.writing import (
    describe_submitted,
    holding,
    read_run_result,
    recording,
    writing,
)
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam import BuildIndex, Commit, Settle, with_watch
from sentence_beam.transforms.beam.rewrite import RewriteUnits
from sentence_beam.transforms.steps.forget.erasure import Erasure, begin_erasure, find_rows
from sentence_beam.transforms.steps.forget.erasure_end import finish_erasure
from sentence_beam.transforms.steps.forget.receipt import read_receipt
from sentence_beam.transforms.steps.forget.unit_eraser import UnitEraser, read_units_of_run
from sentence_beam.transforms.steps.options.store import ForgetOptions
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.runs.run_result import Result


def parser() -> argparse.ArgumentParser:
    """The options of `forget`."""
    return options.command(
        "forget",
        "Erase rows from a store, with all earlier snapshots, and write a receipt.",
        "sentence-beam forget --store store --id user-17 --reason 'request 4711'",
        "sentence-beam forget --store store --where \"user = 'u-17'\" --dry-run",
        kind=ForgetOptions,
    )


def _forget(options: ForgetOptions, beam_options: PipelineOptions) -> CommandOutput:
    root = open_store(options.store).root
    options = _read_ids(options)
    engines.check_shared(beam_options, store=root)
    if options.dry_run:
        lease.check(root, engine_jobs.ask_state)
        return _list_found(find_rows(open_store(root).manifest, options))
    run_id = make_run_id(root)
    with writing(root, run_id, beam_options) as writer:
        erasure = find_rows(open_store(root).manifest, options)
        if erasure.is_empty:
            text = "nothing of these rows is left; they were erased before"
            return CommandOutput(
                [format_summary_line("rows", text)], {"store": root, "rows": 0, "erased": False}
            )
        run = begin_erasure(erasure, run_id)
        with recording(run, writer), writer.pipeline() as pipeline:
            build(pipeline, erasure, run, raises=not writer.waits)
        result = read_run_result(root, run_id, writer)
    if result is None:
        return describe_submitted(root, run_id)
    with holding(root, make_run_id(root), beam_options):
        finish_erasure(open_store(root).manifest)
    return _report(root, erasure, result, read_receipt(root, run_id))


def build(
    pipeline: beam.Pipeline, erasure: Erasure, run: Run, raises: bool = False
) -> beam.PCollection:
    """Return the whole graph, up to the PCollection of the one Result."""
    manifest = erasure.manifest
    units = (
        pipeline
        | "Parts" >> beam.Create(list(manifest.units.parts))
        | "Units" >> beam.FlatMap(read_units_of_run, run.key)
    )
    number = len(erasure.selected.units(manifest))
    made = units | "Forget" >> RewriteUnits(run, partial(UnitEraser, run, number))
    settled = (made.units, made.problems) | "Commit/Settle" >> Settle(run)
    facts_of_run = [settled]
    if manifest.index:
        request = manifest.index.request
        index = BuildIndex(run, request, remembered=True, erased=erasure.index)
        facts_of_run.append(settled | "Index" >> index)
    facts = with_watch(facts_of_run, run)
    has_ids = run.options.id_column is not None
    # a list of the changed rows would name the erased ones
    return facts | "Commit" >> Commit(run, raises, ids=has_ids, changes=False)


def _read_ids(options: ForgetOptions) -> ForgetOptions:
    """Return the options with the ids of the file, each once."""
    ids = list(options.id)
    if options.ids is not None:
        text = storage.read_text(options.ids, cite("ids"))
        ids = [name for name in storage.lines_of(text) if name]
        if not ids:
            raise OptionError(f"{cite('ids')} {options.ids}: it has no id; write one a line")
    return replace(options, id=tuple(dict.fromkeys(ids)), ids=None)


def _list_found(erasure: Erasure) -> CommandOutput:
    """Return the message of `--dry-run`."""
    root = erasure.manifest.root
    rows = erasure.selected.rows
    units = len(erasure.selected.units(erasure.manifest))
    lines = [
        format_summary_line(
            "rows", f"{format_count(rows, 'row')} of the current snapshot would be erased"
        ),
        *_describe_partly(erasure),
        format_summary_line("units", f"{format_count(units, 'unit')} would be written again"),
        format_summary_line("snapshots", "all earlier ones would be removed"),
    ]
    return CommandOutput(lines, {"store": root, "rows": rows, "units": units, "erased": False})


def _describe_partly(erasure: Erasure) -> list[str]:
    """Return the line about documents that are erased whole though some pieces do not match."""
    number = erasure.selected.partly
    if not number:
        return []
    documents = format_count(number, "document")
    return [format_summary_line("documents", f"{documents} whole, of which only some pieces match")]


def _report(root: str, erasure: Erasure, result: Result, receipt: dict[str, Any]) -> CommandOutput:
    """Return the message about an erasure; traces of the rows are an error behind it."""
    files = sum(receipt["removed"].values())
    lines = [
        format_summary_line("rows", f"{receipt['rows']:,} erased"),
        *_describe_partly(erasure),
        format_summary_line(
            "units", f"{receipt['units']:,} written again, {files:,} files removed"
        ),
        format_summary_line(
            "snapshots", f"{len(receipt['snapshots']):,} removed; history begins again"
        ),
        *describe_index(result.index, None),
        *describe_answers(root, result),
    ]
    if receipt["queries"]:
        queries = format_count(receipt["queries"], "watched query", "watched queries")
        lines.append(format_summary_line("watch", f"{queries} removed"))
    lines += [format_summary_line("remains", text) for text in receipt["fitted"]]
    lines += [format_summary_line("check", text) for text in receipt["check"]]
    lines.append(format_summary_line("receipt", storage.join(root, layout.receipt(receipt["run"]))))
    lines.append(format_summary_line("store", f"{root} (snapshot {receipt['run']})"))
    error = None
    if not receipt["clean"]:
        traces = format_count(len(receipt["check"]), "trace")
        error = SentenceBeamError(
            f"{root}: {traces} of erased rows; see verify {cite('forgotten=True')}"
        )
    values = {"store": root, "erased": True, **asdict(result), **receipt}
    return CommandOutput(lines, values, error=error)


forget = pipeline_function("forget", ForgetOptions, _forget)
main = command.main(parser, _forget, beam_flags.parse, kind=ForgetOptions)

if __name__ == "__main__":
    sys.exit(main())
