"""Flink on machines of one's own and on Kubernetes: the script with stand-ins, the application's
job on a real cluster.
"""

import http.server
import json
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.flink import MEMORY

from sentence_beam.pipelines import embed
from sentence_beam.pipelines.common import beam_flags

FLINK = Path(__file__).resolve().parents[2] / "deploy" / "flink"
IMAGES = (FLINK.parent / "docker" / "Dockerfile").read_text()
(FLINK_MINOR,) = re.findall(r"^ARG FLINK_MINOR=(\S+)$", IMAGES, re.MULTILINE)


@pytest.fixture
def jobmanager() -> Iterator[http.server.HTTPServer]:
    """A REST interface of a cluster with four slots."""

    class Overview(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                json.dumps(
                    {"taskmanagers": 2, "slots-total": 4, "slots-available": 4},
                    separators=(",", ":"),
                ).encode()
            )

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Overview) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def night(tmp_path: Path, master: str, slots: int, status: int = 0) -> tuple[int, list[str], str]:
    """Exit status, what was started in which order, and stderr; a wait for slots takes no time."""
    home, log = tmp_path / "flink", tmp_path / "log"
    script(home / "bin" / "start-cluster.sh", f"echo start >> {log}")
    script(home / "bin" / "stop-cluster.sh", f"echo stop >> {log}")
    script(tmp_path / "bin" / "sentence-beam", f'echo "$@" >> {log}; exit {status}')
    script(tmp_path / "bin" / "sleep", "exit 0")
    run = {
        "FLINK_HOME": str(home), "MASTER": master, "SLOTS": str(slots),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "no_proxy": "127.0.0.1",
    }  # fmt: skip
    ended = subprocess.run(
        [FLINK / "bare-metal.sh", "--store", "/a store"], env=run, capture_output=True, text=True
    )
    return ended.returncode, log.read_text().splitlines(), ended.stderr


def test_a_cluster_for_a_night(jobmanager: http.server.HTTPServer, tmp_path: Path) -> None:
    master = f"127.0.0.1:{jobmanager.server_port}"
    command = f"embed --runner=FlinkRunner --flink_master={master} --environment_type=PROCESS --store /a store"
    assert night(tmp_path / "well", master, 4)[:2] == (0, ["start", command, "stop"])
    assert night(tmp_path / "gate", master, 4, status=3)[:2] == (3, ["start", command, "stop"])


def test_a_cluster_that_does_not_come_up_is_stopped(
    jobmanager: http.server.HTTPServer, tmp_path: Path
) -> None:
    status, ran, said = night(tmp_path, f"127.0.0.1:{jobmanager.server_port}", 8)
    assert (status, ran) == (1, ["start", "stop"])
    assert "has 4 of 8 slots" in said


def application() -> tuple[dict[str, object], list[str]]:
    """The application's specification, and the command that it runs."""
    (found,) = yaml.safe_load_all((FLINK / "flinkdeployment.yaml").read_text())
    *_, flag, command = found["spec"]["job"]["args"]
    assert flag == "--driver-cmd"
    return found["spec"], shlex.split(command)


def test_the_applications_command_is_one_that_embed_takes() -> None:
    spec, command = application()
    assert command[:2] == ["sentence-beam", "embed"]
    args, beam = beam_flags.parse(embed.parser(), command[2:])
    told = beam.get_all_options()
    assert args.store == "gs://my-bucket/reviews-store"
    assert told["parallelism"] == spec["job"]["parallelism"]  # type: ignore[index]
    assert told["no_wait_until_finish"]
    assert command[-2:] == ["--", "--execution_mode_for_batch=BATCH_FORCED"]
    worker = spec["taskManager"]["podTemplate"]["spec"]["containers"][1]  # type: ignore[index]
    assert (worker["name"], worker["args"]) == ("worker", ["--worker_pool"])
    assert told["environment_config"] == "localhost:50000"  # where Beam's worker pool listens
    assert args.input == ["gs://my-bucket/reviews/*.parquet"]


def test_kubernetes_reads_the_pods_of_the_application() -> None:
    """The schema of a Pod; the operator's own asks that settings are texts and the version one that
    it knows.
    """
    validate = pytest.importorskip("kubernetes_validate")
    spec: Any = application()[0]
    for who in ("jobManager", "taskManager"):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": who.lower()},
            **spec[who]["podTemplate"],
        }
        validate.validate(pod, validate.latest_version(), strict=True)
    assert all(isinstance(value, str) for value in spec["flinkConfiguration"].values())
    assert spec["flinkVersion"] == f"v{FLINK_MINOR.replace('.', '_')}"
    assert spec["job"]["state"] in ("running", "suspended")
    assert spec["job"]["upgradeMode"] in ("stateless", "last-state", "savepoint")


def test_clusters_start_again_what_was_lost() -> None:
    spec: Any = application()[0]
    own = yaml.safe_load((FLINK / "config.yaml").read_text())["restart-strategy"]
    flat = {
        name.removeprefix("restart-strategy."): value
        for name, value in spec["flinkConfiguration"].items()
        if name.startswith("restart-strategy.")
    }
    kind = own["type"]
    assert kind == "exponential-delay"
    nested = {f"{kind}.{name}": str(value) for name, value in own[kind].items()}
    assert flat == {"type": kind, **nested}
    # a restart must not find the worker that Flink keeps for five seconds
    assert flat[f"{kind}.initial-backoff"] == "10 s"
    assert 0 < float(flat[f"{kind}.jitter-factor"]) < 1
    assert int(flat[f"{kind}.attempts-before-reset-backoff"]) == 10


def test_a_lost_jobmanager_of_the_application_finds_its_job() -> None:
    spec: Any = application()[0]
    flat = spec["flinkConfiguration"]
    assert flat["high-availability.type"] == "kubernetes"
    scheme = flat["high-availability.storageDir"].partition("://")[0]
    (flink,) = re.findall(r"^ARG FLINK=(\S+)$", IMAGES, re.MULTILINE)
    for who in ("jobManager", "taskManager"):
        container = spec[who]["podTemplate"]["spec"]["containers"][0]
        plugins = {item["name"]: item["value"] for item in container["env"]}
        assert plugins["ENABLE_BUILT_IN_PLUGINS"] == f"flink-{scheme}-fs-hadoop-{flink}.jar"
    assert spec["jobManager"]["podTemplate"]["spec"]["nodeSelector"]


def test_each_slot_has_network_memory_for_the_results_of_a_step_of_an_index() -> None:
    spec: Any = application()[0]
    flat, own = (
        spec["flinkConfiguration"],
        yaml.safe_load((FLINK / "config.yaml").read_text())["taskmanager"],
    )
    slots = {int(flat["taskmanager.numberOfTaskSlots"]), own["numberOfTaskSlots"]}
    memory = {flat["taskmanager.memory.network.min"], own["memory"]["network"]["min"]}
    # the cluster of the tests has 128 MB for its one slot
    assert (slots, memory) == ({2}, {"256m"})
    assert MEMORY["network.max"] == "128mb"
