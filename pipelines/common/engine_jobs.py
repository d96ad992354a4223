"""Jobs on engines: their names, and their states according to the engines."""

import json
import urllib.request
from collections.abc import Iterable

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)

from sentence_beam.pipelines.common import engines
from sentence_beam.transforms.store.runs.lease import JobState
from sentence_beam.transforms.store.runs.lease_file import Lease
from sentence_beam.transforms.store.runs.run_ids import parse_start
from sentence_beam.transforms.store.runs.run_result import parse_timestamp

ENDED_ON_FLINK = {"FINISHED", "FAILED", "CANCELED"}
ENDED_ON_DATAFLOW = {"DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED"}
# A template's launcher starts the run within its own job; an earlier job may have had the same
# name.
LAUNCH_SECONDS = 3600
# The JobManager of a Flink application runs the command that submits the job to it.
JOB_MANAGER = "http://localhost:8081"
LOCAL = ("localhost:", "127.0.0.1:")

Jobs = Iterable[tuple[str, float, bool]]  # name, start in seconds since 1970, whether it has ended


def name_job(options: PipelineOptions, run: str) -> str:
    """The name of a run's job on an engine: the one given, else one that says which run it is."""
    cloud = options.view_as(GoogleCloudOptions)
    if not engines.in_process(options) and not cloud.job_name:
        cloud.job_name = f"sentence-beam-{run}".lower().replace("_", "-")  # as Dataflow demands
    return cloud.job_name or run


def find_address(options: PipelineOptions) -> str:
    """Return the address at which the engine of a run lists its jobs, "" if it has none."""
    if engines.in_process(options):
        return ""
    runner = engines.find_runner(options)
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint and runner == "portablerunner" and endpoint.startswith(LOCAL):
        return JOB_MANAGER
    if endpoint:
        return ""
    cloud = options.view_as(GoogleCloudOptions)
    if runner == "flinkrunner":
        return engines.make_flink_url(options.view_as(FlinkRunnerOptions).flink_master)
    # a job of a template has another name
    if runner == "dataflowrunner" and not cloud.template_location:
        return f"{cloud.project}/{cloud.region}"
    return ""


def ask_state(lease: Lease) -> JobState:
    """Return the state of a lease's job by its engine; UNKNOWN if that does not answer."""
    if not lease.engine:
        return JobState.UNKNOWN
    try:
        jobs = _ask_flink(lease.engine) if "://" in lease.engine else _ask_dataflow(lease)
        since = parse_timestamp(parse_start(lease.run)) - LAUNCH_SECONDS
        ended = [over for name, start, over in jobs if name == lease.job and start >= since]
    except Exception:  # a missing engine looks like one that does not answer
        return JobState.UNKNOWN
    if not ended:
        return JobState.UNLISTED
    if all(ended):
        return JobState.ENDED
    return JobState.RUNNING


def _ask_flink(engine: str) -> Jobs:
    with urllib.request.urlopen(
        f"{engine}/v1/jobs/overview", timeout=engines.ANSWER_SECONDS
    ) as answer:
        jobs = json.loads(answer.read())["jobs"]
    return [(job["name"], job["start-time"] / 1000, job["state"] in ENDED_ON_FLINK) for job in jobs]


def _ask_dataflow(lease: Lease) -> Jobs:
    from google.cloud import dataflow_v1beta3

    project, _, region = lease.engine.partition("/")
    request = {"project_id": project, "location": region, "name": lease.job}
    client = dataflow_v1beta3.JobsV1Beta3Client()
    for job in client.list_jobs(request=request, timeout=engines.ANSWER_SECONDS):
        state = job.current_state.name.removeprefix("JOB_STATE_")
        yield job.name, job.create_time.timestamp(), state in ENDED_ON_DATAFLOW
