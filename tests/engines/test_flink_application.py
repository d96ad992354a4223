"""The way a Flink application takes: a JobManager runs the command, which submits its job to it and
ends.
"""

import json
import os
import shlex
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.corpora import check_ledger
from helpers.engines import OPTIONS, ROOT, Flink, start, the_same, workers
from helpers.flink import wait

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

APPLICATION = ROOT / "deploy" / "flink" / "flinkdeployment.yaml"
BOUNDARY = "jar-jar-jar"


def post(address: str, path: str, body: bytes, kind: str) -> Any:
    request = urllib.request.Request(
        f"http://{address}/{path}", body, {"Content-Type": kind}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def upload(address: str, jar: str) -> str:
    """Give a jar to the cluster; returns its id."""
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="jarfile"; filename="beam.jar"\r\n'
    )
    head += "Content-Type: application/x-java-archive\r\n\r\n"
    body = head.encode() + Path(jar).read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode()
    found = post(address, "jars/upload", body, f"multipart/form-data; boundary={BOUNDARY}")
    return str(found["filename"]).rpartition("/")[2]


def command_of(arguments: list[str]) -> str:
    """What the JobManager is told to run."""
    return arguments[arguments.index("--driver-cmd") + 1]


def test_the_application_of_the_kubernetes_operator(
    on_flink: Flink, corpus: str, model: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    start(["embed", "--input", corpus, "--store", here, "--model", model, *OPTIONS]).ended().ok()
    (found,) = yaml.safe_load_all(APPLICATION.read_text())
    job = found["spec"]["job"]
    words = shlex.split(command_of(job["args"]))
    assert words[:2] == ["sentence-beam", "embed"]
    kept = words[words.index("--runner") : words.index("--environment_type")]
    own = ["--input", f"'{corpus}'", "--store", there, "--model", model, *OPTIONS]
    # processes of the TaskManagers' own stand in for containers beside them
    launcher = Path(sys.executable).with_name("sentence-beam-worker")
    engine = [*kept, "--parallelism", 2, "--no_wait_until_finish", "--environment_type", "PROCESS"]
    engine += ["--environment_config", f'\'{{"command":"{launcher}"}}\'']
    command = f"{sys.executable} -m pipelines.cli embed {' '.join(map(str, [*own, *engine]))}"

    address = on_flink.cluster.address
    jar = upload(address, os.environ["SENTENCE_BEAM_FLINK_JAR"])
    arguments = [command if word == command_of(job["args"]) else word for word in job["args"]]
    asked = {"entryClass": job["entryClass"], "programArgsList": arguments, "parallelism": 2}
    post(address, f"jars/{jar}/run", json.dumps(asked).encode(), "application/json")
    wait(lambda: bool(on_flink.cluster.jobs()) and not on_flink.cluster.running(), "the job to end")
    assert the_same(there) == the_same(here)
    assert len(workers(there)) == 2
    check_ledger(there, 360, embedded=360)
