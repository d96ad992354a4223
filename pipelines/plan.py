"""`sentence-beam plan` (and `embed --dry-run`): the work and the time that a run would take."""

import argparse
import functools
import random
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.common import beam_flags, command, embed_options, engines
from pipelines.common.library import pipeline_function
from pipelines.common.said import Said
from pipelines.common.stdin import with_stdin
from pipelines.common.summary import bad_lines, beside_lines
from pipelines.common.tables import wrapped
from transforms import storage
from transforms.base import progress
from transforms.base.numbers import amount
from transforms.base.option import narrowed
from transforms.base.progress import duration
from transforms.corpus import InputFile, Span, UnitRows, read_span
from transforms.corpus.beside import Beside, merged
from transforms.corpus.counting import rows_about
from transforms.corpus.groups import AnySpan, spans_of
from transforms.corpus.spans import BYTES_PER_TOKEN, TOKENS_PER_ROW, estimated_tokens
from transforms.index.choose import lack_of_rows
from transforms.index.sizes import size_of
from transforms.steps.embed.cutting import texts_of_pieces
from transforms.steps.index.choice import budgets_of, largest
from transforms.steps.options.embed import EmbedOptions, PlanOptions
from transforms.steps.options.job import EmbedJob
from transforms.steps.options.resolve import Resolved, resolve
from transforms.steps.plan import content
from transforms.steps.plan.files import FilePlanner, checked_plan, list_files
from transforms.steps.plan.footers import read_footers
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.records import Problem
from transforms.store.runs.carried import CarriedShards
from transforms.store.runs.plan import PlannedFile
from transforms.store.runs.run_ids import new_run
from transforms.store.shards.precision import vector_bytes

CALIBRATION_SECONDS = 10.0
CALIBRATION_BATCHES = 8  # embedded at a time: with fewer, some cores wait at the end
ROW_BYTES = 40  # hash, norm, counts and an id of ordinary length, beside the vector
TEXT_KEPT = 0.5  # of a text's bytes are in the store, compressed


@dataclass(frozen=True)
class Estimate:
    """The size of a run: files and units carried or to embed, rows and tokens (estimated) to embed,
    input bytes.

    `unchanged_files` are as the last snapshot has them; by content they are read all the same where
    another changed. `exact_rows` says that the rows are counted, not estimated; `pieces` are those
    of documents (estimated), None if they are not cut; `carried_rows` are those of carried
    units; `beside` are the files that lie beside those of the input and are not taken, by reason;
    `bad` are those that are left out, with the reason, by relative path.
    """

    files: int
    carried_files: int
    unchanged_files: int
    units: int
    carried_units: int
    rows: float
    exact_rows: bool
    tokens: int
    input_bytes: int
    beside: dict[str, int]
    pieces: float | None = None
    carried_rows: int = 0
    bad: dict[str, str] = field(default_factory=dict)

    @property
    def vectors(self) -> float:
        """The vectors to make: of rows, or of pieces of documents."""
        return self.rows if self.pieces is None else self.pieces


@dataclass(frozen=True)
class Pace:
    """The speed of a few seconds of embedding: seconds to load the model, seconds to embed, and
    what was embedded then.

    `expected` are the tokens that the plan estimates for those rows, `real` those that the
    tokenizer made, `pieces` how many texts they were: one a row, unless documents are cut.
    `tokenising` are the seconds of the tokenizer alone, `computing` those of the model.
    """

    loading: float
    seconds: float = 0.0
    rows: int = 0
    expected: float = 0.0
    real: int = 0
    pieces: int = 0
    tokenising: float = 0.0
    computing: float = 0.0

    def after(self, more: "Pace") -> "Pace":
        """The pace after more rows were embedded."""
        return Pace(*(sum(pair) for pair in zip(astuple(self), astuple(more), strict=True)))

    @property
    def real_share(self) -> float:
        """Real tokens over estimated tokens."""
        return self.real / self.expected

    @property
    def tokens_per_row(self) -> float:
        """Estimated tokens over rows."""
        return self.expected / self.rows

    @property
    def tokens_per_second(self) -> float:
        """Real tokens over seconds of embedding."""
        return self.real / max(self.seconds, 1e-9)

    @property
    def host_tokens_s(self) -> float:
        """Real tokens over seconds of the tokenizer."""
        return self.real / max(self.tokenising, 1e-9)

    @property
    def device_tokens_s(self) -> float:
        """Real tokens over seconds of the model."""
        return self.real / max(self.computing, 1e-9)

    def time_for(self, expected: float) -> float:
        """Seconds to embed so many estimated tokens, loading the model included."""
        return self.loading + expected * self.real_share / self.tokens_per_second


@dataclass(frozen=True)
class Prediction:
    """The size and pace of a run that is not started; `pace` is None if it would embed
    nothing.
    """

    resolved: Resolved
    plan: Estimate
    pace: Pace | None

    @property
    def seconds(self) -> float:
        """Estimated seconds of embedding on this machine."""
        if self.pace:
            return self.pace.time_for(self.plan.tokens)
        return 0.0


def parser() -> argparse.ArgumentParser:
    """The options of `plan`: those of `embed`."""
    return embed_options.parser("plan")


def told(options: EmbedOptions, beam_options: PipelineOptions, store: bool = True) -> Said:
    """The plan of a run that is not started; nothing is written. `store` says whether the store is
    named.
    """
    found = predict(options, beam_options)
    space = found.resolved.space
    root = found.resolved.job.root if store else None
    sizes = {
        "seconds": found.seconds,
        "index": index_line(found),
        "space": space.id,
        "dim": space.dim,
    }
    sizes["index_size"] = size_of_index(found)
    values = {"store": root, **asdict(found.plan), **sizes, **speeds(found.pace)}
    return Said(wrapped(lines(found, root)), values, asked=True)


def predict(options: EmbedOptions, beam_options: PipelineOptions) -> Prediction:
    """The size of the run that these options would start, with the pace of this machine."""
    root = storage.absolute(options.store)
    resolved = resolve(options, read_manifest(root), new_run(), engines.in_process(beam_options))
    job = resolved.job
    (planned, beside) = plan_files(resolved.job)
    same = None
    if job.by_content:
        same = content.unchanged(planned, job, CarriedShards(root))[0]
    unchanged = sum(item.is_unopened for item in planned)
    if job.by_content and same is None:
        planned = read_footers(planned, job)
        planned = content.checked_opened(planned, job)
    work = []
    if same is None:
        work = [span for item in planned for span in item.work]
    spans = [part for span in work for part in spans_of(span)]
    # The store has no copy yet of a calibration that is new to it.
    measured = job
    if options.calibration:
        measured = replace(job, calibration=options.calibration)
    pace = measure(measured, spans) if spans else None
    found = estimate(planned, beside, work, pace, job.chunks.cuts)
    if job.by_content:
        found = in_buckets(found, spans, same, job)
        # some of these have other names
        found = replace(found, unchanged_files=max(unchanged, found.carried_files))
    return Prediction(resolved, found, pace)


def in_buckets(
    found: Estimate, spans: list[Span], same: Manifest | None, job: EmbedJob
) -> Estimate:
    """The estimate with the units of a run by content: all of the snapshot `same`, or none if it
    is None.
    """
    if same is not None:
        rows = same.rows.stored
        return replace(
            found,
            units=0,
            carried_units=len(same.units),
            carried_files=found.files,
            carried_rows=rows,
        )
    return replace(found, units=content.buckets_for(spans, job).count)


def plan_files(job: EmbedJob) -> tuple[list[PlannedFile], Beside]:
    """The run's plan, made in this process, and what lies beside its files. Raises the first
    problem.
    """
    found = [item for glob in job.run.globs for item in list_files(glob, job)]
    raise_first(found)
    planned = FilePlanner(job).plan_all([item for item in found if isinstance(item, InputFile)])
    raise_first(planned)
    return checked_plan([item for item in planned if isinstance(item, PlannedFile)], job), merged(
        found
    )


def raise_first(found: Iterable[Any]) -> None:
    """Raise the error that the first problem among others is."""
    for item in found:
        if isinstance(item, Problem):
            raise item.error()


def estimate(
    planned: list[PlannedFile],
    beside: Beside,
    spans: list[AnySpan],
    pace: Pace | None,
    is_cut: bool = False,
) -> Estimate:
    """The sums over a plan; rows of text files are estimated by the tokens that a row has in the
    sample.
    """
    known = sum(span.rows for span in spans if span.rows is not None)
    carried = sum(1 for item in planned if not item.bad and (item.carried or item.kept is None))
    guessed = sum(span.tokens for span in spans if span.rows is None)
    return Estimate(
        files=len(planned),
        carried_files=carried,
        unchanged_files=carried,
        units=len(spans),
        carried_units=sum(len(item.carried) for item in planned),
        rows=known + (guessed / pace.tokens_per_row if pace and guessed else 0),
        exact_rows=not guessed,
        tokens=sum(span.tokens for span in spans),
        pieces=(
            sum(span.tokens for span in spans) * pace.pieces / pace.expected
            if pace and is_cut
            else None
        ),
        input_bytes=sum(item.file.size for item in planned),
        carried_rows=sum(unit.rows for item in planned for unit in item.carried),
        beside=beside.total(),
        bad={item.file.relative: item.bad for item in planned if item.bad},
    )


def measure(job: EmbedJob, spans: list[Span]) -> Pace | None:
    """The pace of embedding rows from all over the spans for a few seconds, warmed up; None without
    a good row.
    """
    from transforms.steps.embed.load_encoder import load_encoder

    began = time.monotonic()
    with progress.stage(progress.LOADING):
        encoder = load_encoder(job)
    pace = Pace(time.monotonic() - began)
    rows_of = functools.cache(rows_about)
    with progress.stage("measuring how fast this machine embeds", things="rows"):
        for span, texts in samples(job, spans, CALIBRATION_BATCHES * encoder.tokens_per_batch):
            pieces = texts_of_pieces(texts, job)
            if not pace.rows:
                encoder.encode(pieces[:32])
            began = time.monotonic()
            tokenized = encoder.tokenize(pieces)
            tokenising = time.monotonic() - began
            stats = encoder.embed(tokenized).stats
            computing = time.monotonic() - began - tokenising
            expected = planned_tokens(span, texts, rows_of(span))
            # on a CPU both take the same cores; a GPU computes beside the tokenizer
            if encoder.device.type == "cpu":
                seconds = tokenising + computing
            else:
                seconds = max(tokenising, computing)
            counts = len(texts), expected, stats.real, len(pieces)
            pace = pace.after(Pace(0.0, seconds, *counts, tokenising, computing))
            progress.step(len(texts))
            if pace.seconds > CALIBRATION_SECONDS:
                break
    return pace if pace.rows else None


def planned_tokens(span: Span, texts: list[str], rows: float | None) -> float:
    """The tokens that the plan estimates for texts of a span: their share of its tokens if its
    rows are known.
    """
    if rows:
        return span.tokens * len(texts) / rows
    return estimated_tokens(sum(len(text.encode()) for text in texts), len(texts))


def samples(job: EmbedJob, spans: list[Span], tokens: int) -> Iterator[tuple[Span, list[str]]]:
    """Lists of texts of about so many tokens, with their span, from the spans in turn, until all
    are read.

    Texts differ from file to file, and files often lie in order of what is in them.
    """
    order = random.Random(0).sample(spans, len(spans))
    left = deque(
        (span, texts_of(read_span(span, job.columns, job.run.unit_tokens), tokens))
        for span in order
    )
    while left:
        span, place = left.popleft()
        texts = next(place, None)
        if texts is not None:
            yield span, texts
            left.append((span, place))


def texts_of(units: Iterator[UnitRows], tokens: int) -> Iterator[list[str]]:
    """The texts of units, in lists of about so many tokens."""
    for unit in units:
        ends = np.cumsum([estimated_tokens(len(text.encode()), 1) for text in unit.texts])
        start = 0
        while start < len(ends):
            stop = int(
                np.searchsorted(ends, tokens + (ends[start - 1] if start else 0), side="right")
            )
            yield unit.texts[start : max(stop, start + 1)]
            start = max(stop, start + 1)


def lines(found: Prediction, store: str | None) -> list[str]:
    """The lines about a plan for a store, one fact a line; whatever is estimated follows
    "about".
    """
    resolved = found.resolved
    plan = found.plan
    pace = found.pace
    about = "" if plan.exact_rows else "about "
    # texts that the store has are not embedded again
    most = "at most " if resolved.job.reuse and plan.tokens else ""
    units = ""
    if resolved.job.by_content and plan.units:
        units = "about "
    real = plan.tokens * (pace.real_share if pace else 1.0)
    size = plan.vectors * (vector_bytes(resolved.space.precision, resolved.space.dim) + ROW_BYTES)
    if resolved.job.keep_text:
        size += TEXT_KEPT * BYTES_PER_TOKEN * max(0.0, plan.tokens - TOKENS_PER_ROW * plan.rows)
    speed = pace.tokens_per_second if pace else 0.0
    chunks = resolved.job.chunks
    return [
        f"files       {plan.files:,} ({plan.input_bytes / 1e6:,.1f} MB), {plan.unchanged_files:,}"
        " unchanged"
        + (", read like the others" if plan.unchanged_files > plan.carried_files else ""),
        *beside_lines(plan.beside),
        *bad_lines(plan.bad),
        (f"{'documents' if chunks.cuts else 'rows     '}   {most}{about}{plan.rows:,.0f} to embed"),
        *(
            ["pieces      " + f"{most}about {plan.pieces:,.0f}, by {chunks}"]
            if plan.pieces is not None
            else []
        ),
        f"tokens      {most}about {real:,.0f}",
        f"units       {units}{plan.units:,} to embed, {plan.carried_units:,} carried over",
        f"output      about {size / 1e6:,.1f} MB of shards{f' in {store}' if store else ''}",
        (
            f"time        {most}about {duration(found.seconds)} on this machine "
            f"({speed:,.0f} tokens/s measured, {resolved.space.dtype})"
        ),
        *pace_lines(pace),
        f"index       {index_line(found)}",
        *size_lines(found),
        f"space       {resolved.space.id[:16]} ({resolved.space.dim} dimensions)",
    ]


def speeds(pace: Pace | None) -> dict[str, float | None]:
    """Tokens a second, of all and of the tokenizer and the model alone; None if nothing was
    measured.
    """
    names = ("tokens_s", "host_tokens_s", "device_tokens_s")
    if pace is None:
        return dict.fromkeys(names)
    found = (pace.tokens_per_second, pace.host_tokens_s, pace.device_tokens_s)
    return {name: round(speed, 1) for name, speed in zip(names, found, strict=True)}


def pace_lines(pace: Pace | None) -> list[str]:
    """The line about what the host and the device can do in a second; none where nothing was
    measured.
    """
    if pace is None:
        return []
    host = pace.host_tokens_s
    device = pace.device_tokens_s
    limit = "tokenizer" if host < device else "model"
    return [
        f"            {host:,.0f} tokens/s by the tokenizer, {device:,.0f} by the model: the"
        f" {limit} is the limit"
    ]


def index_line(found: Prediction) -> str:
    """The index that there will be; one that the store remembers and that has too few rows gives
    way to auto.
    """
    request = found.resolved.index
    plan = found.plan
    if request is None:
        return "none"
    known = plan.exact_rows and not plan.carried_units
    lack = None
    if known:
        lack = lack_of_rows(request.index, round(plan.rows))
    return f"auto: {lack}" if lack else request.index


def size_of_index(found: Prediction) -> dict[str, Any] | None:
    """The index that all rows would get, and its size; of kinds that are to be compared the one
    that holds most.

    None if none is asked for, or there are too few rows for it.
    """
    request = found.resolved.index
    space = found.resolved.space
    plan = found.plan
    rows = round(plan.vectors) + plan.carried_rows
    if request is None or not rows or lack_of_rows(request.index, rows):
        return None
    index = largest(request, rows, space.dim)
    return {"factory": index.factory, "rows": rows, **asdict(size_of(index, rows))}


def size_lines(found: Prediction) -> list[str]:
    """The line about the size of the index; none where nothing is known of it."""
    request = found.resolved.index
    size = size_of_index(found)
    if request is None or size is None:
        return []
    most = "at most " if budgets_of(request).choose else ""
    return [
        f"            {most}about {amount(size['bytes'])} as {size['factory']},"
        f" {amount(size['memory'])} of memory to serve, {duration(3600 * size['cpu_hours'])} of a"
        " core to build"
    ]


def _plan(asked: PlanOptions, beam_options: PipelineOptions) -> Said:
    is_named = asked.store != ""
    with with_stdin(with_store(asked), engines.in_process(beam_options)) as options:
        return told(options, beam_options, store=is_named)


def with_store(asked: PlanOptions) -> EmbedOptions:
    """Return the options of the run that is planned, into a store that is not there if none is
    named.
    """
    nowhere = storage.join(tempfile.gettempdir(), f"no-store-{uuid.uuid4().hex}")
    return narrowed(EmbedOptions, asked, store=asked.store or nowhere)


plan = pipeline_function("plan", PlanOptions, _plan)
main = command.main(parser, _plan, beam_flags.parse, kind=PlanOptions)

if __name__ == "__main__":
    sys.exit(main())
