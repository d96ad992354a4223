"""The plan of a run whose input is a PCollection: one file without a place, with all its rows.

Rows have been summed when the plan is made. Only then does the run take the store's lease.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import (
    DataGateError,
    OptionError,
    SentenceBeamError,
    cite,
)
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.arrow_types import make_code
from sentence_beam.transforms.corpus.blocks import PackedRows, Packer
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.steps.embed.cutting import cut_into_pieces
from sentence_beam.transforms.steps.embed.erased import drop_erased
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.content_plan import (
    choose_buckets,
    find_unchanged,
    record_unchanged,
)
from sentence_beam.transforms.steps.plan.footers import list_templates
from sentence_beam.transforms.steps.plan.kept_types import Types, find_stored_types, join_codes
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows
from sentence_beam.transforms.steps.plan.row_batches import RowBatch, make_text_error, unpack_batch
from sentence_beam.transforms.steps.plan.row_checks import check_rows
from sentence_beam.transforms.steps.plan.row_summary import RowsSummary
from sentence_beam.transforms.steps.plan.whole_plan import make_notes, write_rows
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.carried_check import STATES, check_all
from sentence_beam.transforms.store.runs.commit import Run, read_last_snapshot
from sentence_beam.transforms.store.runs.lease_file import Lease
from sentence_beam.transforms.store.runs.recorded_plan import has_plan, read_plan
from sentence_beam.transforms.store.runs.run_result import read_result

AGAIN = "build the pipeline again, which makes a new run"


@dataclass(frozen=True)
class ToPack:
    """The buckets into which all rows go, and the types of their kept columns."""

    buckets: Buckets
    types: Types


@dataclass(frozen=True)
class Engine:
    """The engine that runs the pipeline: its runner, and the job's name.

    `in_process` says that the work ends with this process.
    """

    runner: str
    job: str
    in_process: bool


def begin_collection(
    summary: RowsSummary, job: EmbedJob, engine: Engine
) -> Iterator[ToPack | Problem]:
    """Take the lease, write the plan and yield the buckets to pack rows into, or a problem.

    Nothing is packed if the rows are those of the last snapshot.
    """
    if summary.problem is not None:
        yield summary.problem
        return
    try:
        take_store(job.run, engine)
        with lease.kept_alive(*job.run.key):
            yield from _begin_packing(summary, job)
    except SentenceBeamError as error:
        yield Problem.from_error(error)


def take_store(run: Run, engine: Engine) -> None:
    """Take the store's lease for a run, unless an earlier attempt has it or has committed.

    Raises SentenceBeamError if another run has the lease or has committed since the pipeline was
    built, and if the run has ended: a pipeline makes one snapshot.
    """
    result = read_result(run.root, run.id)
    current = read_manifest(run.root)
    if current is not None and current.run == run.id:
        return  # an engine does a job again that has committed: it finds the same snapshot
    if result is not None:
        raise SentenceBeamError(
            f"{run.root}: run {run.id} of this pipeline was executed before ({result.message});"
            f" {AGAIN}"
        )
    if not lease.holds(*run.key):
        lease.acquire(
            run.root,
            Lease.from_this_process(run.id, engine.runner, engine.job, engine.in_process),
        )
    current = read_manifest(run.root)
    if current is not None and current.version != run.version:
        raise SentenceBeamError(
            f"{run.root}: run {current.run} committed after this pipeline was built; {AGAIN}"
        )


def _begin_packing(summary: RowsSummary, job: EmbedJob) -> Iterator[ToPack]:
    last = read_last_snapshot(job.run) if job.run.previous is not None else None
    types = find_kept_types(summary, job, last)
    if not has_plan(job.root, job.run.id):
        check_collection(summary, job, last)
        _write_plan(summary, job, types, last)
        progress.planned(summary.tokens)
    plan = read_plan(job.root, job.run.id)
    if plan.files.column("checksum").to_pylist() != [summary.checksum]:
        raise SentenceBeamError(
            f"{job.root}: run {job.run.id} of this pipeline was executed before, with other rows;"
            f" {AGAIN}"
        )
    if plan.notes.buckets is not None and not plan.notes.replaces:
        yield ToPack(plan.notes.buckets, types)


def _write_plan(summary: RowsSummary, job: EmbedJob, types: Types, last: Manifest | None) -> None:
    """Write the plan of all rows, or of carrying all units over."""
    states = STATES.empty_table()
    if last is not None:
        states = check_all(job.root, last.units, job.run.make_shard_check())
    span = Span(summary.file, 0, 0, summary.rows, rows=summary.rows, tokens=summary.tokens)
    spans = (span,) if summary.rows else ()
    files = make_planned_rows([OpenedFile(summary.file, spans).row()])
    same = find_unchanged(files, states, job)
    if same is not None:
        record_unchanged(files, same, job, states)
        return
    write_rows(job, files, make_notes(files, types, choose_buckets([span], job)), states)


def check_collection(summary: RowsSummary, job: EmbedJob, last: Manifest | None) -> None:
    """Raise DataGateError if there are no rows, or too few after the last snapshot.

    Raises OptionError for a field that no row has, for too few rows for the requested index and for
    more text than this process may group in memory.
    """
    if last is not None and last.rows.written and not summary.rows:
        raise DataGateError(
            f"the PCollection is empty, and {job.root} has"
            f" {format_count(last.rows.written, 'row')}, which would all be deleted; see"
            " whether its source was read"
        )
    if summary.rows:
        check_named(summary.seen, summary.names, job)
    check_rows(job, summary.rows)
    if job.text_limit is not None and summary.size > job.text_limit:
        raise make_text_error(summary.size)


def check_named(seen: Collection[str], names: Iterable[str], job: EmbedJob) -> None:
    """Raise OptionError for a field that an option names and is not in `seen`.

    `names` are fields for the message.
    """
    for name, option in list_named_fields(job):
        if name not in seen:
            listed = ", ".join(sorted(names)) or "none"
            raise OptionError(f"rows have no field {name!r} ({option}), but {listed}")


def list_named_fields(job: EmbedJob) -> list[tuple[str, str]]:
    """Return the fields that options name, each with its option."""
    columns = job.columns
    named = [(name, cite("keep_columns")) for name in columns.keep]
    for names, option in list_templates(job):
        named += [(name, option) for name in names]
    if columns.of_text is None:
        named.insert(0, (columns.text, "text"))
    if columns.id is not None:
        named.insert(0, (columns.id, "id"))
    return named


def find_kept_types(summary: RowsSummary, job: EmbedJob, last: Manifest | None) -> Types:
    """Return the types of kept columns that have been given none: the store's, else those of rows.

    Types of Arrow tables and of other values are joined as those of files.
    """
    types = []
    for name, stored in find_stored_types(job, last).items():
        kinds = [make_code(kind) for column, kind in summary.types if column == name]
        words = [word for column, word in summary.words if column == name]
        code = join_codes([*kinds, *words]) if stored is None else make_code(stored)
        types.append((name, code))
    return tuple(types)


class CollectionPacker:
    """Packs the batches of a bundle into blocks, each for one group of buckets."""

    def __init__(self, work: ToPack, job: EmbedJob):
        self._work = work
        self._job = job
        self._packer = Packer(work.buckets)

    def add(self, packed: RowBatch) -> Iterator[tuple[int, PackedRows]]:
        """Take a batch; yield (group of buckets, block) once enough rows are held."""
        if packed.data:
            rows = unpack_batch(packed, self._job.columns, self._work.types)
            self._packer.add(cut_into_pieces(drop_erased(rows, self._job), self._job))
            progress.step(rows.read)
            yield from self._packer.relieve()

    def finish(self) -> Iterator[tuple[int, PackedRows]]:
        """Yield the blocks of the rows that are still held."""
        yield from self._packer.flush()
