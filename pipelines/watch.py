"""`sentence-beam watch`: queries whose answers each run is compared by, before it commits."""

import argparse
import sys
from dataclasses import replace

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engines, options
from sentence_beam.pipelines.common.answers_of_stores import compare_with_other
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.output import check_file, write_text
from sentence_beam.pipelines.common.writing import (
    describe_submitted,
    read_run_result,
    recording,
    writing,
)
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam import Commit, Settle
from sentence_beam.transforms.report.answers_page import render_answers
from sentence_beam.transforms.report.run_history import read_known_summaries, read_summaries
from sentence_beam.transforms.search.query_vectors import QueryEncoder
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like, record_plan
from sentence_beam.transforms.steps.options.store import WatchOptions
from sentence_beam.transforms.steps.watch.ask import Asked
from sentence_beam.transforms.steps.watch.draw import draw_queries
from sentence_beam.transforms.steps.watch.query_files import QueryList, read_query_file
from sentence_beam.transforms.steps.watch.snapshots import compare_snapshots, show_queries
from sentence_beam.transforms.steps.watch.watch_run import begin_watch
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.entries import WatchEntry
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.run_facts import IndexRecord, RunFact
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.watched import WatchedQueries

EASIER = (
    "drawn queries are easier than people's, because they have the words of their rows; name"
    " --queries of people if there are any"
)


def parser() -> argparse.ArgumentParser:
    """The options of `watch`."""
    return options.command(
        "watch",
        "Keep queries in a store, whose answers each run is compared by before it commits.",
        "sentence-beam watch --store store --draw 300",
        "sentence-beam watch --store store --queries questions.tsv",
        "sentence-beam watch --store new --like store --report answers.html",
        kind=WatchOptions,
    )


def _watch(options: WatchOptions, beam_options: PipelineOptions) -> CommandOutput:
    if options.report is not None:
        check_file(options.report, cite("report"))
    store = open_store(options.store)
    if options.like is not None:
        other = open_store(options.like).manifest
        return compare_with_other(store.manifest, other, options.model, options.report)
    output = _describe(store.manifest)
    if options.changes:
        output = _change(options, store.root, beam_options)
    if options.report is not None:
        output = _add_page(output, options, options.report)
    return output


def _change(options: WatchOptions, root: str, beam_options: PipelineOptions) -> CommandOutput:
    """Commit a snapshot with other watched queries, or without any."""
    queries = read_query_file(options.queries) if options.queries is not None else None
    if options.remove and open_store(root).manifest.watch is None:
        return CommandOutput(
            [f"nothing to do: {root} watches no queries"], {"store": root, "run": None}
        )
    run_id = make_run_id(root)
    engines.check_shared(beam_options, store=root)
    with writing(root, run_id, beam_options) as writer:
        manifest = open_store(root).manifest
        entry = None
        lines = [format_summary_line("watch", "no queries any more")]
        if options.draw is not None:
            queries = _draw(manifest, options.draw)
        if queries is not None:
            entry, lines = _begin(options, manifest, queries)
        run = replace(make_run_like(manifest, run_id, "watch"), watch=entry)
        record_plan(manifest, run_id)
        with recording(run, writer), writer.pipeline() as pipeline:
            facts_of_run = [pipeline | "Commit/Settle" >> Settle(run)]
            if manifest.index:
                facts = [RunFact(index=IndexRecord(manifest.index))]
                facts_of_run.append(pipeline | "Index" >> beam.Create(facts))
            _ = tuple(facts_of_run) | "Commit" >> Commit(run, raises=not writer.waits)
        result = read_run_result(root, run_id, writer)
    if result is None:
        return describe_submitted(root, run_id)
    lines.append(format_summary_line("store", f"{root} (snapshot {run_id})"))
    return CommandOutput(lines, {"store": root, "run": run_id, **_list_values(entry)})


def _draw(manifest: Manifest, number: int) -> QueryList:
    drawn = draw_queries(manifest, number)
    if not drawn.ids:
        raise OptionError(
            f"{cite('draw')}: no text of {manifest.root} has a sentence of four words; name"
            f" {cite('queries')} FILE"
        )
    notes = [EASIER]
    if len(drawn.ids) < number:
        notes.append(f"{manifest.root} has texts for {len(drawn.ids):,} of {number:,} queries")
    return QueryList(drawn.ids, drawn.texts, tuple(notes))


def _begin(
    options: WatchOptions, manifest: Manifest, queries: QueryList
) -> tuple[WatchEntry, list[str]]:
    """Embed and ask new queries; return the manifest's entry, and lines about them."""
    encoder = QueryEncoder(manifest, options.model, None, alone=True)
    pooled, cut = encoder.pooled(list(queries.texts))
    watched = WatchedQueries(
        queries.ids,
        queries.texts,
        pooled,
        manifest.space.pooled_id,
        manifest.options.query_prompt,
    )
    entry, answered = begin_watch(manifest, watched, options.k)
    notes = list(queries.notes)
    if cut:
        limit = manifest.space.max_tokens
        many = format_count(cut, "query is", "queries are")
        notes.append(f"{many} longer than the model takes, and cut at {limit} tokens")
    answers = sum(len(answers) for answers in answered.answers)
    found = format_count(answers, "answer")
    text = f"{format_count(entry.count, 'query', 'queries')}, {found} {_explain_search(answered)}"
    return entry, [
        format_summary_line("watch", text),
        *(format_summary_line("note", note) for note in notes),
    ]


def _explain_search(answered: Asked) -> str:
    if answered.indexed:
        return "by the index"
    if answered.rows < 1:
        return f"by exact search over {100 * answered.rows:g} % of the units"
    return "by exact search over all rows"


def _describe(manifest: Manifest) -> CommandOutput:
    """Return what a store watches."""
    entry = manifest.watch
    values = {"store": manifest.root, "run": manifest.run, **_list_values(entry)}
    if entry is None:
        text = "no queries; say --queries FILE or --draw N"
    else:
        text = f"{format_count(entry.count, 'query', 'queries')}, {entry.k} answers each"
    return CommandOutput([format_summary_line("watch", text)], values, always=True)


def _list_values(entry: WatchEntry | None) -> dict[str, object]:
    return {"queries": 0, "k": None} if entry is None else {"queries": entry.count, "k": entry.k}


def _add_page(output: CommandOutput, options: WatchOptions, path: str) -> CommandOutput:
    """Write the page of the answers that changed most between the last two snapshots."""
    new = open_store(options.store).manifest
    old = read_manifest(new.root, new.previous) if new.previous is not None else None
    if old is None:
        raise OptionError(
            f"{cite('report')}: {new.root} has no snapshot before the current one; run embed again"
            " first"
        )
    compared = compare_snapshots(old, new, options.model)
    nights = read_summaries(new.root, read_known_summaries(new.root))
    sides = (f"snapshot {old.run}", f"snapshot {new.run}")
    shown = show_queries(compared, old, new)
    html = render_answers(new.root, sides, compared.figures, shown, nights)
    write_text(path, html)
    lines = [*output.lines, format_summary_line("report", path)]
    return CommandOutput(lines, {**output.values, "report": path}, always=output.always)


watch = pipeline_function("watch", WatchOptions, _watch)
main = command.main(parser, _watch, beam_flags.parse, kind=WatchOptions)

if __name__ == "__main__":
    sys.exit(main())
