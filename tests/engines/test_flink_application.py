"""The way a Flink application takes: a JobManager runs the command, which submits its job to it and
ends.
"""

import json
import os
import shlex
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.corpora import check_ledger, manifest_of
from helpers.engines import OPTIONS, ROOT, Flink, sidecars, start, the_same, workers
from helpers.flink import wait

from sentence_beam.transforms.store.runs import lease

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

APPLICATION = ROOT / "deploy" / "flink" / "flinkdeployment.yaml"
BOUNDARY = "jar-jar-jar"
IN_FLIGHT = 8  # units that two workers may have in hand, read, encoded or being written


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


def submit(on_flink: Flink, corpus: str, store: Path, model: Path, *options: object) -> None:
    """Have the JobManager run the application's command."""
    (found,) = yaml.safe_load_all(APPLICATION.read_text())
    job = found["spec"]["job"]
    words = shlex.split(command_of(job["args"]))
    assert words[:2] == ["sentence-beam", "embed"]
    kept = words[words.index("--runner") : words.index("--environment_type")]
    own = ["--input", f"'{corpus}'", "--store", store, "--model", model, *OPTIONS, *options]
    # processes of the TaskManagers' own stand in for containers beside them
    launcher = Path(sys.executable).with_name("sentence-beam-worker")
    engine = [*kept, "--parallelism", 2, "--no_wait_until_finish", "--environment_type", "PROCESS"]
    engine += ["--environment_config", f'\'{{"command":"{launcher}"}}\'']
    command = f"{sys.executable} -m sentence_beam embed {' '.join(map(str, [*own, *engine]))}"

    address = on_flink.cluster.address
    jar = upload(address, os.environ["SENTENCE_BEAM_FLINK_JAR"])
    arguments = [command if word == command_of(job["args"]) else word for word in job["args"]]
    asked = {"entryClass": job["entryClass"], "programArgsList": arguments, "parallelism": 2}
    post(address, f"jars/{jar}/run", json.dumps(asked).encode(), "application/json")


@pytest.fixture(scope="module")
def calm(corpus: str, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of an undisturbed run in process."""
    store = tmp_path_factory.mktemp("calm") / "store"
    argv = ["embed", "--input", corpus, "--store", store, "--model", model, *OPTIONS]
    start(argv).ended().ok()
    return store


def test_the_application_of_the_kubernetes_operator(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    submit(on_flink, corpus, there, model)
    wait(lambda: bool(on_flink.cluster.jobs()) and not on_flink.cluster.running(), "the job to end")
    assert the_same(there) == the_same(calm)
    assert len(workers(there)) == 2
    check_ledger(there, 360, embedded=360)


def test_the_next_run_takes_over_what_a_killed_job_manager_lost(
    on_flink: Flink, corpus: str, model: Path, calm: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    half = sidecars(calm) // 2
    on_flink.pace(0.3)
    submit(on_flink, corpus, store, model)
    wait(lambda: sidecars(store) >= half, "half of the units")
    on_flink.pace(10.0)  # TaskManagers work until they miss the heartbeat
    on_flink.cluster.kill("jm")
    run = lease.writer(str(store))
    on_flink.cluster.start_job_manager()
    on_flink.cluster.wait_for_slots(2)
    done = sidecars(store)
    assert done < sidecars(calm)
    argv = ["embed", "--input", corpus, "--store", store, "--model", model, *OPTIONS]
    start(argv).ended().failed(1, f"is being written by run {run}")
    past = time.time() - lease.ENGINE_STALE_SECONDS - 60  # nobody answers at the engine's address
    os.utime(store / "lease.json", (past, past))
    submit(on_flink, corpus, store, model)
    on_flink.pace(0.0)
    wait(lambda: manifest_of(store) is not None and not on_flink.cluster.running(), "the commit")
    assert the_same(store) == the_same(calm)
    assert manifest_of(store)["run"] != run
    check_ledger(store, 360, embedded=360)
    again = len(on_flink.seen("forwards")) - sidecars(calm) - len(on_flink.seen("loads"))
    assert again <= IN_FLIGHT
