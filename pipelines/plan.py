"""`sentence-beam plan`, which is `embed --dry-run`: what a run would do and how long it should take."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import engines, options
from pipelines.progress import duration
from pipelines.resolve import Resolved, new_run, resolve
from transforms.beam import content
from transforms.beam.job import EmbedJob
from transforms.beam.plan import PlanFileFn, checked_plan, list_files
from transforms.calibration.precision import vector_bytes
from transforms.store import storage
from transforms.store.corpus import Span, read_span
from transforms.store.corpus.spans import estimated_tokens
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.plan import PlannedFile
from transforms.store.records import Problem

CALIBRATION_SECONDS = 4.0
CALIBRATION_ROWS = 512
ROW_BYTES = 40  # hash, norm, counts and an id of ordinary length, beside the vector


@dataclass(frozen=True)
class Estimate:
    """What a run comes to: files and units carried or to embed, rows and tokens (estimated) to embed, input bytes."""

    files: int
    carried_files: int
    units: int
    carried_units: int
    rows: float
    exact_rows: bool
    tokens: int
    input_bytes: int


@dataclass(frozen=True)
class Pace:
    """Speed seen in a few seconds of embedding: estimated tokens a second, and real tokens for each estimated one."""

    tokens_per_second: float
    real_share: float
    tokens_per_row: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return options.run_command("plan", _plan, argv)


def _plan(argv: list[str]) -> int:
    from pipelines.embed import parser

    return show(*options.parse(parser("plan"), argv))


def show(args: argparse.Namespace, beam_options: PipelineOptions) -> int:
    """Print the plan of a run that is not started; nothing is written."""
    root = storage.absolute(args.output)
    resolved = resolve(args, read_manifest(root), new_run(), engines.in_process(beam_options))
    job, planned = resolved.job, plan_files(resolved.job)
    standing = content.unchanged(planned, job) if job.by_content else None
    if job.by_content and standing is None:
        planned = content.to_read(planned, job)
    spans = [span for item in planned for span in item.spans] if standing is None else []
    # The store has no copy yet of a calibration that is new to it.
    pace = measure(replace(job, calibration=args.calibration) if args.calibration else job, spans) if spans else None
    found = estimate(planned, spans, pace)
    print("\n".join(lines(resolved, in_buckets(found, spans, standing, job) if job.by_content else found, pace)))
    return 0


def in_buckets(found: Estimate, spans: list[Span], standing: Manifest | None, job: EmbedJob) -> Estimate:
    """The estimate with units as a run by content has them: all taken over, or none."""
    if standing is not None:
        return replace(found, units=0, carried_units=len(standing.units), carried_files=found.files)
    return replace(found, units=content.buckets_for(spans, job).count)


def plan_files(job: EmbedJob) -> list[PlannedFile]:
    """The run's plan, made in this process. Raises the first problem."""
    planner = PlanFileFn(job)
    planner.setup()
    listed = [item for glob in job.snapshot.globs for item in list_files(glob, job.input_format)]
    found = [item for file in listed for item in planner.process(file)]
    for item in found:
        if isinstance(item, Problem):
            raise item.error()
    return checked_plan([item for item in found if isinstance(item, PlannedFile)], job)


def estimate(planned: list[PlannedFile], spans: list[Span], pace: Pace | None) -> Estimate:
    """Sums over the plan; rows of text files from the tokens a row had in the sample."""
    known = sum(span.rows for span in spans if span.rows is not None)
    guessed = sum(span.tokens for span in spans if span.rows is None)
    return Estimate(
        files=len(planned),
        carried_files=sum(1 for item in planned if item.carried),
        units=len(spans),
        carried_units=sum(len(item.carried) for item in planned),
        rows=known + (guessed / pace.tokens_per_row if pace and guessed else 0),
        exact_rows=not guessed,
        tokens=sum(span.tokens for span in spans),
        input_bytes=sum(item.file.size for item in planned),
    )


def measure(job: EmbedJob, spans: list[Span]) -> Pace | None:
    """Embed rows of the first spans for a few seconds, after a first batch that warms up; None without a good row."""
    from transforms.beam.embed import load_encoder

    encoder, rows, expected, real, seconds = load_encoder(job), 0, 0, 0, 0.0
    for unit in (unit for span in spans for unit in read_span(span, job.columns, job.snapshot.unit_tokens)):
        for start in range(0, len(unit.texts), CALIBRATION_ROWS):
            texts = unit.texts[start : start + CALIBRATION_ROWS]
            if not rows:
                encoder.encode(texts[:32])
            began = time.monotonic()
            stats = encoder.embed(encoder.tokenize(texts)).stats
            seconds += time.monotonic() - began
            rows, real = rows + len(texts), real + stats.real
            expected += estimated_tokens(sum(len(text.encode()) for text in texts), len(texts))
            if seconds > CALIBRATION_SECONDS:
                return Pace(expected / seconds, real / expected, expected / rows)
    return Pace(expected / max(seconds, 1e-9), real / expected, expected / rows) if rows else None


def lines(resolved: Resolved, plan: Estimate, pace: Pace | None) -> list[str]:
    """The plan as a person reads it; "about" stands before everything estimated."""
    about = "" if plan.exact_rows else "about "
    most = "at most " if resolved.job.reuse and plan.tokens else ""  # texts that the store has are not embedded again
    units = "about " if resolved.job.by_content and plan.units else ""
    real = plan.tokens * (pace.real_share if pace else 1.0)
    size = plan.rows * (vector_bytes(resolved.space.precision, resolved.space.dim) + ROW_BYTES)
    took = plan.tokens / pace.tokens_per_second if pace else 0.0
    speed = pace.tokens_per_second * pace.real_share if pace else 0.0
    return [
        f"files       {plan.files:,} ({plan.input_bytes / 1e6:,.1f} MB), {plan.carried_files:,} unchanged",
        f"rows        {most}{about}{plan.rows:,.0f} to embed",
        f"tokens      {most}about {real:,.0f}",
        f"units       {units}{plan.units:,} to embed, {plan.carried_units:,} carried over",
        f"output      about {size / 1e6:,.1f} MB of shards in {resolved.job.root}",
        f"time        {most}about {duration(took)} on this machine "
        f"({speed:,.0f} tokens/s measured, {resolved.space.dtype})",
        f"index       {resolved.index.index if resolved.index else 'none'}",
        f"space       {resolved.space.id[:16]} ({resolved.space.dim} dimensions)",
    ]


if __name__ == "__main__":
    sys.exit(main())
