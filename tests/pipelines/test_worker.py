"""The worker launcher: what it asks an engine, and what it becomes."""

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
import pytest
from apache_beam.portability.api import beam_provision_api_pb2 as api
from apache_beam.portability.api import beam_provision_api_pb2_grpc as service
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import text_format

from sentence_beam.pipelines import worker


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


class Provision(service.ProvisionServiceServicer):
    """An engine that knows one worker."""

    def GetProvisionInfo(
        self, request: Any, context: grpc.ServicerContext
    ) -> api.GetProvisionInfoResponse:
        if ("worker_id", "1-1") not in [
            (item.key, item.value) for item in context.invocation_metadata()
        ]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "who asks?")
        info = api.ProvisionInfo(runner_capabilities=["beam:protocol:x:v1", "beam:protocol:y:v1"])
        info.pipeline_options.update(
            {"beam:option:job_name:v1": "nightly", "beam:option:number:v1": "2"}
        )
        return api.GetProvisionInfoResponse(info=info)


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    service.add_ProvisionServiceServicer_to_server(Provision(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def arguments(endpoint: str) -> list[str]:
    return [
        "--id=1-1", f"--provision_endpoint={endpoint}", "--control_endpoint=localhost:1",
        "--logging_endpoint=localhost:2", "--artifact_endpoint=localhost:3",
    ]  # fmt: skip


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, str]]]:
    """What Beam's worker finds around it, each time that one would have begun here."""
    found: list[dict[str, str]] = []
    monkeypatch.setattr(sdk_worker_main, "main", lambda _: found.append(dict(os.environ)))
    with patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        yield found


def test_it_becomes_beams_worker_with_the_jobs_options(
    endpoint: str, became: list[dict[str, str]]
) -> None:
    assert worker.main(arguments(endpoint)) == 0
    (env,) = became
    assert env["WORKER_ID"] == "1-1"
    assert env["RUNNER_CAPABILITIES"].split() == ["beam:protocol:x:v1", "beam:protocol:y:v1"]
    assert env["OMP_NUM_THREADS"] == "1", "it keeps what it was started in"
    assert sdk_worker_main._load_pipeline_options(env["PIPELINE_OPTIONS"]) == {
        "job_name": "nightly",
        "number": "2",
    }
    assert json.loads(env["PIPELINE_OPTIONS"])
    for name, port in (("CONTROL", 1), ("LOGGING", 2)):
        descriptor = sdk_worker_main.endpoints_pb2.ApiServiceDescriptor()
        text_format.Merge(env[f"{name}_API_SERVICE_DESCRIPTOR"], descriptor)
        assert descriptor.url == f"localhost:{port}"


def test_an_engine_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert worker.main(arguments("127.0.0.1:1")) == 1
    assert "sentence-beam-worker: 127.0.0.1:1 does not answer" in capsys.readouterr().err


def test_another_beam_than_the_job_wants(
    endpoint: str,
    became: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SENTENCE_BEAM_APACHE_BEAM", "2.1.0")
    assert worker.main(arguments(endpoint)) == worker.OTHER_BEAM
    assert "the job wants apache-beam 2.1.0" in capsys.readouterr().err
    assert not became


def test_a_python_without_the_package_is_told_before_anything_waits_for_it(
    endpoint: str,
    became: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "sentence_beam.py").write_text("raise ModuleNotFoundError(name='sentence_beam')")
    monkeypatch.chdir(tmp_path)
    assert worker.main(arguments(endpoint)) == worker.NO_PACKAGE
    assert not became
    assert f"{sys.executable} has no sentence-beam" in capfd.readouterr().err
