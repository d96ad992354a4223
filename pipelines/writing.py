"""A run that writes a store: its lease, kept alive until the run has ended, its pipeline, and its result."""

import contextlib
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from pipelines import engine_jobs, engines
from pipelines.progress import aside
from pipelines.said import Said
from transforms.errors import OptionError, SentenceBeamError, StoppedError
from transforms.store import lease
from transforms.store.commit import Run, failed
from transforms.store.manifest import read_manifest
from transforms.store.plan import has_plan
from transforms.store.records import Problem
from transforms.store.runs import COMMITTED, Result, read_result, record_result


class Writer:
    """A run that holds the lease, and its pipeline."""

    def __init__(self, options: PipelineOptions):
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
    """Hold the store's lease while the body runs, and longer where an engine still works for the run.

    Such a job outlives this process, and only its own end gives the lease back.
    """
    local, writer = engines.in_process(beam_options), Writer(beam_options)
    runner, job = beam_options.view_as(StandardOptions).runner, engine_jobs.name_job(beam_options, run)
    own = lease.Lease.of_this_process(run, runner, job, local, engine_jobs.address(beam_options))
    try:
        lease.acquire(root, own, engine_jobs.state_of)
    except OSError as error:
        raise OptionError(f"--store {root} cannot be written ({error.strerror or error}); choose another") from error
    try:
        with lease.kept_alive(root, run):
            yield writer
    except KeyboardInterrupt as stop:
        if not writer.is_elsewhere():
            raise
        raise StoppedError(
            f"interrupted; the job goes on without this process ({runner}) and commits by itself, unless it is "
            "cancelled on the engine"
        ) from stop
    finally:
        if not writer.is_elsewhere():
            with contextlib.suppress(Exception):  # a full disk or a lost connection must not hide what went wrong
                lease.release(root, run)


@contextlib.contextmanager
def recorded(run: Run, writer: Writer) -> Iterator[None]:
    """Record the failure of a pipeline that raises in the body, if the store can still be written.

    One that is interrupted stands in the history by its plan, as unfinished; before there is one, that is recorded.
    """
    try:
        with engines.explained():
            yield
    except Exception as error:
        _record(run, error)
        raise
    except KeyboardInterrupt:
        if not writer.is_elsewhere() and not has_plan(run.root, run.id):
            _record(run, SentenceBeamError("interrupted"))
        raise


def _record(run: Run, error: Exception) -> None:
    with contextlib.suppress(Exception):
        current = read_manifest(run.root)
        if current is None or current.run != run.id:  # else it failed after its commit
            record_result(run.root, failed(run, error))


def submitted(root: str, run: str) -> Said:
    """The line about a run that nobody waits for."""
    how = f"it commits by itself, and sentence-beam history --store {root} says how it ended"
    return Said([f"submitted   run {run}; {how}"], {"store": root, "run": run, "status": "submitted"})


def result_of(root: str, run: str, writer: Writer) -> Result | None:
    """The result of a run, None where nobody waits for it. Raises the error that a failed run ended with."""
    if writer.is_elsewhere():
        return None
    result = read_result(root, run)
    if result is None:
        raise SentenceBeamError(f"run {run} ended without a result; see the runner's log")
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    if result.message != COMMITTED:
        aside(result.message)
    return result
