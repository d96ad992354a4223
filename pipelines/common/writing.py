"""A run that writes a store: its lease, its pipeline, and its result."""

import contextlib
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from sentence_beam.pipelines.common import engine_jobs, engines
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.progress import print_aside
from sentence_beam.transforms.base.errors import (
    OptionError,
    SentenceBeamError,
    StoppedError,
    cite,
    first_line,
)
from sentence_beam.transforms.base.memory import release_memory
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.steps.forget.erasure_end import finish_erasure
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.lease_file import Lease
from sentence_beam.transforms.store.runs.recorded_plan import has_plan
from sentence_beam.transforms.store.runs.run_end import make_failed_result
from sentence_beam.transforms.store.runs.run_result import (
    COMMITTED,
    Result,
    find_result_here,
    make_snapshot_result,
    read_result,
    record_result,
)


class Writer:
    """A run that holds the lease, and its pipeline.

    `manifest` is the store's current snapshot since the run has the lease, None for a new store.
    """

    def __init__(self, options: PipelineOptions):
        self.manifest: Manifest | None = None
        self._options = options
        self._pipeline: beam.Pipeline | None = None

    @property
    def waits(self) -> bool:
        """Whether this process stays until the job has ended."""
        return engines.waits(self._options)

    def pipeline(self) -> beam.Pipeline:
        """The run's pipeline, empty; leaving its `with` block runs it."""
        self._pipeline = beam.Pipeline(options=self._options)
        return self._pipeline

    def is_elsewhere(self) -> bool:
        """Whether an engine has the job and is not known to have ended it."""
        result = getattr(self._pipeline, "result", None)  # there once the job was submitted
        if result is None or engines.in_process(self._options):
            return False
        if not self.waits:
            return True
        try:
            return not PipelineState.is_terminal(result.state)
        except Exception:  # the engine cannot be asked any more
            return True


@contextlib.contextmanager
def writing(root: str, run: str, beam_options: PipelineOptions) -> Iterator[Writer]:
    """Hold the store's lease as `holding` does, once the last erasure of rows has ended.

    If that was interrupted after its commit, it is brought to its end.
    """
    with holding(root, run, beam_options) as writer:
        writer.manifest = read_manifest(root)
        finished = finish_erasure(writer.manifest) if writer.manifest else None
        if finished is not None:
            print_aside(
                f"{root}: finished the erasure of run {finished}: earlier snapshots are removed"
            )
            writer.manifest = read_manifest(root)
        yield writer


@contextlib.contextmanager
def holding(root: str, run: str, beam_options: PipelineOptions) -> Iterator[Writer]:
    """Hold the store's lease while the body runs, and longer if an engine still works for the
    run.

    Such a job outlives this process, and only its end releases the lease.
    """
    local = engines.in_process(beam_options)
    writer = Writer(beam_options)
    runner = beam_options.view_as(StandardOptions).runner
    job = engine_jobs.name_job(beam_options, run)
    own = Lease.from_this_process(run, runner, job, local, engine_jobs.find_address(beam_options))
    try:
        lease.acquire(root, own, engine_jobs.ask_state)
    except OSError as error:
        raise OptionError(
            f"{cite('store')} {root} cannot be written ({error.strerror or error}); choose another"
        ) from error
    try:
        with lease.kept_alive(root, run), _explaining(root, run):
            yield writer
    except KeyboardInterrupt as stop:
        if not writer.is_elsewhere():
            raise
        raise StoppedError(
            f"interrupted; the job goes on without this process ({runner}) and commits by itself,"
            " unless it is cancelled on the engine"
        ) from stop
    finally:
        if not writer.is_elsewhere():
            # a full disk or a lost connection must not hide what went wrong
            with contextlib.suppress(Exception):
                lease.release(root, run)
        release_memory()


@contextlib.contextmanager
def recording(run: Run, writer: Writer) -> Iterator[None]:
    """Record the failure of a pipeline that raises in the body, if the store can still be written.

    Once a plan exists, `history` lists an interrupted run as unfinished. Before that, the failure
    is recorded here. A failure after the last step does not change the result.
    """
    try:
        with _explaining(run.root, run.id), engines.explaining():
            yield
    except Exception as error:
        if find_result_here(run.root, run.id) is not None:
            return
        if _has_committed(run.root, run.id):
            print_aside(f"{COMMITTED}; the job failed afterwards ({first_line(error)})")
            return
        with contextlib.suppress(Exception):
            record_result(run.root, make_failed_result(run, error))
        raise
    except KeyboardInterrupt:
        if not writer.is_elsewhere() and not has_plan(run.root, run.id):
            with contextlib.suppress(Exception):
                record_result(run.root, make_failed_result(run, SentenceBeamError("interrupted")))
        raise


@contextlib.contextmanager
def _explaining(root: str, run: str) -> Iterator[None]:
    """Raise a system error as the loss of the lease if it was taken: files may be gone then."""
    try:
        yield
    except SentenceBeamError:
        raise
    except Exception as error:
        if _has_lost_lease(root, run):
            raise lease.lost(root) from error
        raise


def _has_lost_lease(root: str, run: str) -> bool:
    """Whether another took a run's lease before it committed, as far as the store can be read."""
    with contextlib.suppress(Exception):
        return not lease.holds(root, run) and not _has_committed(root, run)
    return False


def _has_committed(root: str, run: str) -> bool:
    """Whether the current snapshot is the run's, as far as the store can be read."""
    with contextlib.suppress(Exception):
        current = read_manifest(root)
        return current is not None and current.run == run
    return False


def describe_submitted(root: str, run: str) -> CommandOutput:
    """The line about a run that nobody waits for."""
    how = f"it commits by itself, and sentence-beam history --store {root} says how it ended"
    return CommandOutput(
        [format_summary_line("submitted", f"run {run}; {how}")],
        {"store": root, "run": run, "status": "submitted"},
    )


def _read_recorded(root: str, run: str) -> Result:
    """Return the result of a run on record; a committed run without a record is a success.

    Raises SentenceBeamError if the run left neither a record nor a snapshot.
    """
    note = "the record of it is missing or damaged"
    try:
        result = read_result(root, run)
    except OSError as error:
        result = None
        note = f"the record of it cannot be read ({first_line(error)})"
    if result is not None:
        return result
    current = read_manifest(root)
    if current is None or current.run != run:
        raise SentenceBeamError(f"run {run} ended without a result; see the runner's log")
    return make_snapshot_result(current, note)


def read_run_result(root: str, run: str, writer: Writer) -> Result | None:
    """Return the result of a run, None if nobody waits for it. Raises the error of a failed
    run.
    """
    if writer.is_elsewhere():
        return None
    result = find_result_here(root, run) or _read_recorded(root, run)
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    if result.message != COMMITTED:
        print_aside(result.message)
    return result
