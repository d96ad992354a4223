"""`sentence-beam plan`: the work and the time that a run would take."""

import argparse
import sys
import uuid
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, embed_options, engines
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.input_lines import (
    describe_bad,
    describe_beside,
    describe_columns,
    describe_lacking,
    describe_syntax,
)
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.origin_lines import describe_origin
from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.pipelines.common.summary import describe_prompts_of_run
from sentence_beam.pipelines.common.tables import wrapped
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.numbers import format_amount, format_count
from sentence_beam.transforms.base.option import narrowed
from sentence_beam.transforms.base.progress import format_duration
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam.plan import LookAt
from sentence_beam.transforms.report.costs import compute_price
from sentence_beam.transforms.report.snapshot_section import describe_pending
from sentence_beam.transforms.steps.index.kind_choice import make_budgets
from sentence_beam.transforms.steps.options.embed import EmbedOptions, PlanOptions
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.steps.plan.estimate import Prediction, predict
from sentence_beam.transforms.steps.plan.look import Looked, look, read_looked
from sentence_beam.transforms.steps.plan.pace import Pace
from sentence_beam.transforms.steps.plan.size_estimate import (
    estimate_index_size,
    estimate_shard_bytes,
    name_index,
)
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs.run_ids import make_run_id


def parser() -> argparse.ArgumentParser:
    """The options of `plan`: those of `embed`."""
    return embed_options.parser("plan")


def run_plan(
    options: EmbedOptions, beam_options: PipelineOptions, price: float | None = None
) -> CommandOutput:
    """Return the plan of a run that is not started; nothing is written.

    `price` is that of an hour of the machine.
    """
    previous = read_manifest(storage.absolute(options.store))
    local = engines.in_process(beam_options)
    resolved = resolve_run(options, previous, make_run_id(), local=local)
    look_by = partial(look_by_workers, beam_options=beam_options) if not local else look
    prediction = predict(resolved, look_by)
    root = resolved.job.root
    values = {
        "store": root,
        **prediction.plan.to_json(),
        "seconds": prediction.seconds,
        "index": name_index(prediction),
        "space": resolved.space.id,
        "dim": resolved.space.dim,
        "index_size": estimate_index_size(prediction),
        "cost": None if price is None else compute_price(prediction.seconds, price),
        "budget": list_budget(prediction, price),
        **list_speeds(prediction.pace),
        "like": resolved.likeness.to_json() if resolved.likeness is not None else None,
    }
    return CommandOutput(wrapped(lines(prediction, root, price)), values, always=True)


def look_by_workers(job: EmbedJob, beam_options: PipelineOptions) -> Looked:
    """Count the work by a pipeline, which leaves its answer in the store for a moment.

    Raises OptionError if nobody waits for the job, and the job's problem.
    """
    engines.check_waits(beam_options, "plan")
    engines.check_shared(beam_options, store=job.root)
    output = storage.join(job.root, layout.scratch(job.run.id, f"plan-{uuid.uuid4().hex}.json"))
    with engines.explaining(), beam.Pipeline(options=beam_options) as pipeline:
        _ = pipeline | "Globs" >> beam.Create([*job.run.globs]) | "Look" >> LookAt(job, output)
    return read_looked(output, job.root)


def lines(prediction: Prediction, store: str, price: float | None = None) -> list[str]:
    """Return the lines about a plan, one fact a line; estimates follow "about"."""
    space = prediction.resolved.space
    return [
        *describe_origin(prediction.resolved),
        _describe_files(prediction.plan.counts),
        *describe_beside(prediction.plan.counts.beside),
        *describe_columns(prediction.resolved.found_columns),
        *describe_lacking(prediction.plan.counts.lacking),
        *describe_syntax(prediction.files),
        *describe_bad(prediction.plan.counts.bad),
        *_describe_work(prediction),
        format_summary_line(
            "output", f"about {estimate_shard_bytes(prediction) / 1e6:,.1f} MB of shards in {store}"
        ),
        _describe_time(prediction),
        *_describe_cost(prediction, price),
        *_describe_pace(prediction.pace),
        *_describe_budget(prediction, price),
        format_summary_line("index", name_index(prediction)),
        *_describe_index_size(prediction),
        format_summary_line("space", f"{space.id[:16]} ({space.dim} dimensions)"),
        *_describe_prompts(prediction),
    ]


def _describe_prompts(prediction: Prediction) -> list[str]:
    note = describe_prompts_of_run(prediction.resolved)
    return [] if note is None else [format_summary_line("prompts", note)]


def _describe_files(plan: Looked) -> str:
    read = ", read like the others" if plan.unchanged_files > plan.carried_files else ""
    size = f"{plan.input_bytes / 1e6:,.1f} MB"
    return format_summary_line(
        "files", f"{plan.files:,} ({size}), {plan.unchanged_files:,} unchanged{read}"
    )


def _find_bound(prediction: Prediction) -> str:
    """Return "at most " if some texts may not be embedded, because the store has their vectors."""
    is_bound = prediction.resolved.job.reuse and prediction.plan.counts.tokens
    return "at most " if is_bound else ""


def _describe_work(prediction: Prediction) -> list[str]:
    plan = prediction.plan
    job = prediction.resolved.job
    most = _find_bound(prediction)
    things = "documents" if job.chunks.cuts else "rows"
    about = "" if plan.exact_rows else "about "
    lines = [format_summary_line(things, f"{most}{about}{plan.rows:,.0f} to embed")]
    if plan.pieces is not None:
        lines.append(
            format_summary_line("pieces", f"{most}about {plan.pieces:,.0f}, by {job.chunks}")
        )
    lines.append(format_summary_line("tokens", f"{most}about {prediction.real_tokens:,.0f}"))
    units = f"{plan.counts.units:,} to embed, {plan.counts.carried_units:,} carried over"
    if job.by_content and plan.counts.units:
        units = f"about {units}"
    return [*lines, format_summary_line("units", units)]


def _describe_time(prediction: Prediction) -> str:
    speed = prediction.pace.tokens_per_second if prediction.pace else 0.0
    measured = f"{speed:,.0f} tokens/s measured, {prediction.resolved.space.dtype}"
    time = f"{_find_bound(prediction)}about {format_duration(prediction.seconds)}"
    return format_summary_line("time", f"{time} on this machine ({measured})")


def _describe_cost(prediction: Prediction, price: float | None) -> list[str]:
    """Return the line about what the time costs, if the price of an hour is given."""
    if price is None:
        return []
    cost = compute_price(prediction.seconds, price)
    return [
        format_summary_line(
            "cost", f"{_find_bound(prediction)}about {cost:,.2f}, at {price:g} an hour"
        )
    ]


def list_budget(prediction: Prediction, price: float | None) -> dict[str, Any] | None:
    """Return the budget, and the runs that the input takes with their time and cost; None without
    one.
    """
    budget = prediction.resolved.job.budget
    if budget is None:
        return None
    seconds = prediction.seconds_of_all
    return {
        "tokens": budget,
        "runs": prediction.runs,
        "seconds": seconds,
        "cost": None if price is None else compute_price(seconds, price),
    }


def _describe_budget(prediction: Prediction, price: float | None) -> list[str]:
    """Return the lines about the runs that a budget takes, and the files that this one leaves."""
    budget = list_budget(prediction, price)
    if budget is None:
        return []
    text = f"{budget['tokens']:,} tokens a run: {format_count(budget['runs'], 'run')}"
    text += f", {_find_bound(prediction)}about {format_duration(budget['seconds'])} in all"
    if budget["cost"] is not None:
        text += f" and {budget['cost']:,.2f}"
    lines = [format_summary_line("budget", text)]
    pending = describe_pending(prediction.plan.counts.pending)
    if pending:
        lines.append(format_summary_line("pending", pending))
    return lines


def list_speeds(pace: Pace | None) -> dict[str, float | None]:
    """Tokens a second: of all, of the tokenizer alone and of the model alone; None each if nothing
    was measured.
    """
    names = ("tokens_s", "host_tokens_s", "device_tokens_s")
    if pace is None:
        return dict.fromkeys(names)
    rates = (pace.tokens_per_second, pace.host_tokens_s, pace.device_tokens_s)
    return {name: round(speed, 1) for name, speed in zip(names, rates, strict=True)}


def _describe_pace(pace: Pace | None) -> list[str]:
    """The line about what the host and the device can do in a second, if it was measured."""
    if pace is None:
        return []
    host = f"{pace.host_tokens_s:,.0f} tokens/s by the tokenizer"
    device = f"{pace.device_tokens_s:,.0f} by the model"
    return [format_summary_line("", f"{host}, {device}: the {pace.slower} is the limit")]


def _describe_index_size(prediction: Prediction) -> list[str]:
    """The line about the size of the index, if it is known."""
    request = prediction.resolved.index
    size = estimate_index_size(prediction)
    if request is None or size is None:
        return []
    most = "at most " if make_budgets(request).choose else ""
    files = f"{most}about {format_amount(size['bytes'])} as {size['factory']}"
    memory = f"{format_amount(size['memory'])} of memory to serve"
    hours = f"{format_duration(3600 * size['cpu_hours'])} of a core to build"
    return [format_summary_line("", f"{files}, {memory}, {hours}")]


def _plan(given_options: PlanOptions, beam_options: PipelineOptions) -> CommandOutput:
    with with_stdin(given_options, engines.in_process(beam_options)) as options:
        return run_plan(narrowed(EmbedOptions, options), beam_options, given_options.price_per_hour)


plan = pipeline_function("plan", PlanOptions, _plan)
main = command.main(parser, _plan, beam_flags.parse, kind=PlanOptions)

if __name__ == "__main__":
    sys.exit(main())
