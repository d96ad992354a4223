"""Embed: lists of spans -> written units."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.content import ReadRowsFn
from sentence_beam.transforms.beam.graph import (
    PROBLEMS,
    JobFn,
    JobsObject,
    Merge,
    check_worker,
    count_slots,
    set_types,
)
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.beam.quantize import Made, quantize_made
from sentence_beam.transforms.corpus import Span, UnitRows
from sentence_beam.transforms.corpus.blocks import PackedRows
from sentence_beam.transforms.corpus.groups import AnySpan, list_spans
from sentence_beam.transforms.corpus.unit_files import UnitFile, is_long
from sentence_beam.transforms.steps.embed.crash_guard import mark_work
from sentence_beam.transforms.steps.embed.cutting import read_units
from sentence_beam.transforms.steps.embed.load_encoder import load_checked_encoder
from sentence_beam.transforms.steps.embed.long_spans import cut_long, read_unit_files
from sentence_beam.transforms.steps.embed.unit_embedder import UnitEmbedder
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.content_plan import Group, Key, make_piece_unit
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.lease import kept_alive

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import Encoder

Units = Callable[[], Iterator[UnitRows]]  # reads an element's units, as often as it is called
PIECES = "pieces"
LONG = "long"
COUNTED = (
    "rows", "rejected", "tokens", "truncated", "lost", "embedded", "reused", "duplicates",
    "real", "padded", "fallbacks", "oom_splits",
)  # fmt: skip


class Embed(beam.PTransform):
    """Plan's `spans` -> `units`, a UnitRecord for each once written, and `problems`.

    Problems end the run. If ranges are fitted, `ranges` has the RunFact for the commit; otherwise
    it is None. `hints` are Beam resource hints (`accelerator`, `min_ram`) for this step alone.
    """

    def __init__(self, job: EmbedJob, hints: dict[str, str] | None = None):
        super().__init__()
        self._job = job
        self._hints = hints or {}
        # one for all steps of a process, so that it loads one model
        self._shared = JobsObject(job.run.space.id)

    def expand(self, spans: beam.PCollection) -> Any:
        # Without it a runner may fuse planning and embedding, and one worker would do everything.
        spread = spans | "Spread" >> beam.Reshuffle()
        if self._job.by_content:
            read = beam.ParDo(ReadRowsFn(self._job)).with_outputs(PROBLEMS, main="blocks")
            made = self._embed_groups(spread | "ReadRows" >> read)
        else:
            made = self._embed_files(spread)
        return set_types(quantize_made(made, self._job.run), units=UnitRecord, problems=Problem)

    def _embed_files(self, spans: beam.PCollection) -> Any:
        if count_slots(spans.pipeline) == 1:
            step = self._make_step(EmbedSpansFn)
            return spans | "EmbedUnits" >> step.with_outputs(PROBLEMS, main="units")
        step = self._make_step(EmbedShortSpansFn)
        short = spans | "EmbedUnits" >> step.with_outputs(PROBLEMS, LONG, main="units")
        # One worker reads what cannot be cut, and the others embed it meanwhile.
        read = (
            short.long
            | "SpreadLong" >> beam.Reshuffle()
            | "CutLong" >> beam.ParDo(CutLongFn(self._job)).with_outputs(PROBLEMS, main="files")
        )
        step = self._make_step(EmbedUnitFilesFn)
        long = (
            read.files
            | "SpreadUnitFiles" >> beam.Reshuffle()
            | "EmbedUnitFiles" >> step.with_outputs(PROBLEMS, main="units")
        )
        set_types(short, units=UnitRecord)
        set_types(long, units=UnitRecord)
        units = (short.units, long.units) | "Units" >> Merge()
        problems = (short.problems, read.problems, long.problems) | "Problems" >> Merge()
        return Made(units, problems)

    def _embed_groups(self, read: Any) -> Made:
        """Return the units made of `read.blocks`; `read.problems` are among their problems."""
        buckets = self._make_step(EmbedBucketsFn).with_outputs(PROBLEMS, PIECES, main="units")
        light = read.blocks | "Group" >> beam.GroupByKey() | "EmbedUnits" >> buckets
        # Only what a bucket has too much of travels again, to be shared among workers.
        pieces = self._make_step(EmbedPieceFn).with_outputs(PROBLEMS, main="units")
        heavy = light.pieces | "GroupPieces" >> beam.GroupByKey() | "EmbedUnitsOfPieces" >> pieces
        set_types(light, units=UnitRecord)
        set_types(heavy, units=UnitRecord)
        units = (light.units, heavy.units) | "Units" >> beam.Flatten()
        problems = (read.problems, light.problems, heavy.problems) | "Problems" >> beam.Flatten()
        return Made(units, problems)

    def _make_step(self, fn: "type[EmbedFn]") -> Any:
        return beam.ParDo(fn(self._job, self._shared)).with_resource_hints(**self._hints)


class EmbedBlocks(Embed):
    """(group of buckets, PackedRows), as `blocks`, and `problems` -> the same as `Embed`."""

    def expand(self, read: Any) -> Any:
        made = quantize_made(self._embed_groups(PackedBlocks(*read)), self._job.run)
        return set_types(made, units=UnitRecord, problems=Problem)


class PackedBlocks(NamedTuple):
    """Rows packed by groups of buckets, and problems."""

    blocks: beam.PCollection
    problems: beam.PCollection


class EmbedFn(JobFn):
    """Encodes and writes units; one model a process, loaded once there is work."""

    def __init__(self, job: EmbedJob, shared: JobsObject):
        super().__init__(job)
        self._shared = shared
        self._metrics = StageMetrics("embed", ("units", *COUNTED))

    def setup(self) -> None:
        super().setup()
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None
        self._problem: Problem | None = None
        self._embedder = UnitEmbedder.from_job(self._job, self._load, progress.advance)

    def embed(
        self, name: str, units: Units, read_ms: float = 0.0, reading: str = "the next unit"
    ) -> Iterator[Any]:
        """Yield an element's records as its units are written, or the problem that ends the run.

        `read_ms` is the time in which their rows were read before. `reading` says what is read.
        """
        # the run is lost already; a rerun keeps the finished units
        if self._problem is not None:
            # again: the outputs of a retried bundle are lost
            yield TaggedOutput(PROBLEMS, self._problem)
            return
        try:
            # A unit may take longer than ten minutes.
            guard = self._mark(name, units, reading)
            with kept_alive(self._job.root, self._job.run.id), guard:
                for record in self._embedder.embed(units(), read_ms):
                    self._renew()
                    self._count(record)
                    yield record
        except SentenceBeamError as error:
            self._problem = Problem.from_error(error)
            yield TaggedOutput(PROBLEMS, self._problem)

    def embed_spans(self, spans: list[AnySpan]) -> Iterator[Any]:
        """Yield the records of the units of spans, as `embed`."""
        paths = dict.fromkeys(part.file.path for span in spans for part in list_spans(span))
        reading = f"reading {', '.join(paths)}"
        units = partial(read_units, spans, self._job)
        yield from self.embed(spans[0].name, units, reading=reading)

    def embed_one_by_one(self, units: Units, reading: str, tell: Callable[[str], None]) -> None:
        """Write the units one at a time, and report each before it is read, and is embedded."""
        tell(reading)
        for rows in units():
            place = f" ({rows.relative}, {rows.start} to {rows.stop})" if rows.file else ""
            tell(f"unit {rows.name}{place}")
            for _ in self._embedder.embed(iter([rows])):
                self._renew()
            tell(reading)

    def _mark(self, name: str, units: Units, reading: str) -> AbstractContextManager[None]:
        if not self._job.retried:
            return nullcontext()
        work = partial(embed_in_own_process, self._job, units, reading)
        return mark_work(self._job.root, self._job.run.id, name, work)

    def _load(self) -> "Encoder":
        # Held on self too: Shared keeps only the last model acquired.
        with self._lock:
            if self._encoder is None:
                self._encoder = self._shared.acquire(self._load_checked)
            return self._encoder

    def _load_checked(self) -> "Encoder":
        check_worker(self._job.run)
        return load_checked_encoder(self._job)

    def _count(self, record: UnitRecord) -> None:
        self._metrics.count({"units": 1} | {name: getattr(record, name) for name in COUNTED})
        self._metrics.update(record.figures)


class EmbedSpansFn(EmbedFn):
    """A list of spans -> their units."""

    def process(self, spans: list[AnySpan]) -> Iterator[Any]:
        yield from self.embed_spans(spans)


class EmbedShortSpansFn(EmbedFn):
    """A list of spans -> their units, and `long` spans, which several workers should embed."""

    def process(self, spans: list[AnySpan]) -> Iterator[Any]:
        yield from (TaggedOutput(LONG, span) for span in spans if is_long(span))
        short = [span for span in spans if not is_long(span)]
        if short:
            yield from self.embed_spans(short)


class CutLongFn(beam.DoFn):
    """A long span -> lists of files, each with the rows of a unit."""

    def __init__(self, job: EmbedJob):
        self._job = job

    def process(self, span: Span) -> Iterator[Any]:
        try:
            with kept_alive(self._job.root, self._job.run.id):
                yield from cut_long(span, self._job)
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.from_error(error))


class EmbedUnitFilesFn(EmbedFn):
    """A list of files with the rows of units -> these units."""

    def process(self, files: list[UnitFile]) -> Iterator[Any]:
        yield from self.embed(files[0].name, partial(read_unit_files, files, self._job))


class EmbedBucketsFn(EmbedFn):
    """(group of buckets, its blocks) -> units, and `pieces` of the heavy buckets."""

    def process(self, grouped: tuple[Key, Iterable[PackedRows]]) -> Iterator[Any]:
        key, blocks = grouped
        group = Group.from_key(key, blocks)
        with kept_alive(self._job.root, self._job.run.id):  # one text may be in very many rows
            yield from (TaggedOutput(PIECES, piece) for piece in group.pieces(blocks))
        name = f"group-{group.number:x}"
        yield from self.embed(name, partial(group.units, group.light(blocks)), group.read_ms)


class EmbedPieceFn(EmbedFn):
    """(piece of a heavy bucket, its blocks) -> its unit."""

    def process(self, grouped: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Any]:
        (name, _), blocks = grouped
        yield from self.embed(name, partial(make_piece_unit, grouped[0], list(blocks)))


def embed_in_own_process(
    job: EmbedJob, units: Units, reading: str, tell: Callable[[str], None]
) -> None:
    """Write an element's units as a process that has nothing else to do."""
    fn = EmbedFn(job, JobsObject(job.run.space.id))
    fn.setup()
    fn.embed_one_by_one(units, reading, tell)
