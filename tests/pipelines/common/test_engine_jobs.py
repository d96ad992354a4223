"""What an engine says of a job decides whether its store may be written again."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from helpers.gcs import serving

from sentence_beam.pipelines.common import engine_jobs
from sentence_beam.pipelines.common.writing import writing
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.runs.lease import JobState, Lease
from sentence_beam.transforms.store.runs.run_ids import make_run_id

NAME = "sentence-beam-20261122t153748-123z-fff87f"
RUN = "20261122T153748_123Z-fff87f"
BEGUN = datetime(2026, 11, 22, 15, 38, tzinfo=UTC)


@pytest.fixture
def flink() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a Flink's REST interface, and the jobs that it lists."""
    jobs: list[dict[str, Any]] = []

    class Overview(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = json.dumps(
                {"jobs": jobs} if self.path == "/v1/jobs/overview" else {"slots-total": 2}
            ).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Overview)) as port:
        yield f"http://127.0.0.1:{port}", jobs


def lease_of(engine: str, runner: str = "FlinkRunner") -> Lease:
    """The lease of a job that an engine has."""
    return Lease(RUN, "host", None, runner, NAME, 0.0, engine=engine)


def on_flink(state: str, begun: datetime = BEGUN, name: str = NAME) -> dict[str, Any]:
    """A job as Flink lists it."""
    return {"jid": "0", "name": name, "state": state, "start-time": begun.timestamp() * 1000}


def test_flink_is_asked_for_the_job_by_its_name(flink: tuple[str, list[dict[str, Any]]]) -> None:
    address, jobs = flink
    assert engine_jobs.ask_state(lease_of(address)) is JobState.UNLISTED
    jobs += [on_flink("RUNNING", name="another"), on_flink("FAILED", BEGUN - timedelta(days=1))]
    assert engine_jobs.ask_state(lease_of(address)) is JobState.UNLISTED, (
        "yesterday's job may have had this name"
    )
    for state in ("CREATED", "RUNNING", "RESTARTING", "SUSPENDED", "CANCELLING"):
        jobs[:] = [on_flink(state), on_flink("FAILED")]
        assert engine_jobs.ask_state(lease_of(address)) is JobState.RUNNING, state
    for state in ("FINISHED", "FAILED", "CANCELED"):
        jobs[:] = [on_flink(state)]
        assert engine_jobs.ask_state(lease_of(address)) is JobState.ENDED, state
    assert engine_jobs.ask_state(lease_of("http://127.0.0.1:1")) is JobState.UNKNOWN
    assert engine_jobs.ask_state(lease_of("")) is JobState.UNKNOWN


@pytest.mark.parametrize(
    ("flags", "address"),
    [
        (["--runner=PortableRunner", "--job_endpoint=localhost:41234"], "http://localhost:8081"),
        (["--runner=PortableRunner", "--job_endpoint=jobs.example:8099"], ""),
        (["--runner=FlinkRunner", "--flink_master=jm:8081"], "http://jm:8081"),
        (["--runner=FnApiRunner"], ""),
    ],
)
def test_a_flink_application_is_asked_where_its_command_runs(
    flags: list[str], address: str
) -> None:
    assert engine_jobs.find_address(PipelineOptions(flags)) == address


def test_dataflow_is_asked_for_the_job_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.cloud import dataflow_v1beta3 as dataflow

    jobs: list[dataflow.Job] = []
    asked = []

    class Client:
        def list_jobs(self, request: dict[str, str], timeout: float) -> list[dataflow.Job]:
            asked.append(request)
            return jobs

    monkeypatch.setattr(dataflow, "JobsV1Beta3Client", Client)
    lease = lease_of("project/region", "DataflowRunner")
    assert engine_jobs.ask_state(lease) is JobState.UNLISTED
    assert asked == [{"project_id": "project", "location": "region", "name": NAME}]
    for state, expected in {
        "QUEUED": "RUNNING",
        "RUNNING": "RUNNING",
        "FAILED": "ENDED",
        "CANCELLED": "ENDED",
    }.items():
        jobs[:] = [dataflow.Job(name=NAME, create_time=BEGUN, current_state=f"JOB_STATE_{state}")]
        assert engine_jobs.ask_state(lease) is JobState[expected], state


def test_a_store_is_free_as_soon_as_the_engine_says_that_its_job_ended(
    tmp_path: Path, flink: tuple[str, list[dict[str, Any]]]
) -> None:
    address, jobs = flink
    flags = [
        "--runner=FlinkRunner",
        f"--flink_master={address}",
        "--no_wait_until_finish",
        "--environment_type=PROCESS",
        "--environment_options=process_command=/bin/true",
    ]
    first = make_run_id()
    options = PipelineOptions(flags)
    with writing(str(tmp_path), first, options) as writer:
        name = options.view_as(GoogleCloudOptions).job_name
        writer.pipeline().result = object()  # the job was submitted
    jobs += [on_flink("RUNNING", datetime.now(UTC), name)]
    here = PipelineOptions(["--runner=FnApiRunner"])
    with (
        pytest.raises(SentenceBeamError, match=f"{first} .job {name}"),
        writing(str(tmp_path), make_run_id(), here),
    ):
        pass
    jobs[:] = [on_flink("CANCELED", datetime.now(UTC), name)]
    with writing(str(tmp_path), make_run_id(), here):
        pass
