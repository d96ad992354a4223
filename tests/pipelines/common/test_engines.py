"""What the commands set for an engine, refuse, and make of its complaints; no engine is needed
here.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from helpers.commands import Run
from helpers.corpora import sentences, write_lines

from sentence_beam.pipelines.common import engines
from sentence_beam.transforms.base.errors import OptionError


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


@pytest.fixture
def glob(inputs: Path) -> Path:
    """A file of ten rows."""
    return write_lines(inputs / "a.txt", sentences(10))


@pytest.fixture
def flink() -> Iterator[str]:
    """The address of what answers as a cluster of six slots does."""

    class Overview(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"slots-total": 6}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Overview)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def prepared(*flags: str, accelerator: str | None = None, embeds: bool = True) -> PipelineOptions:
    options = PipelineOptions(list(flags))
    engines.prepare(options, flags, accelerator, embeds)
    return options


def test_flink_needs_its_address_and_the_environment_alone(flink: str) -> None:
    options = prepared(
        "--runner=FlinkRunner", f"--flink_master={flink}", "--environment_type=PROCESS"
    )
    portable, cluster = options.view_as(PortableOptions), options.view_as(FlinkRunnerOptions)
    config = json.loads(portable.environment_config)
    assert Path(config["command"]).name == "sentence-beam-worker"
    assert config["env"] == {"SENTENCE_BEAM_APACHE_BEAM": beam.__version__}
    assert portable.environment_cache_millis == 5000
    assert int(portable.sdk_worker_parallelism) == 1
    assert (cluster.parallelism, cluster.flink_submit_uber_jar) == (6, True)
    assert options.view_as(SetupOptions).save_main_session is False


def test_what_is_given_stays(flink: str) -> None:
    options = prepared(
        "--runner=FlinkRunner", f"--flink_master=http://{flink}", "--environment_type=PROCESS", "--parallelism=3",
        "--environment_cache_millis=5", '--environment_config={"command": "/w", "env": {"A": "1"}}', "--save_main_session",
    )  # fmt: skip
    portable = options.view_as(PortableOptions)
    config = json.loads(portable.environment_config)
    assert config["command"] == "/w"
    assert config["env"]["A"] == "1"
    assert int(portable.environment_cache_millis) == 5
    assert options.view_as(FlinkRunnerOptions).parallelism == 3
    assert options.view_as(SetupOptions).save_main_session is True


def test_a_wrong_address(embed: Run, glob: Path, store: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{s.getsockname()[1]}"
    for address in (closed, "no-such-host:8081", "a b"):
        flags = ("--runner=FlinkRunner", f"--flink_master={address}", "--dtype", "float32")
        embed(glob, *flags).failed(2, f"--flink_master {address} does not answer", "8081")
    assert not store.exists()


def test_a_jar_that_is_not_there(flink: str) -> None:
    with pytest.raises(OptionError, match="--flink_job_server_jar no.jar is not there"):
        prepared("--runner=FlinkRunner", f"--flink_master={flink}", "--flink_job_server_jar=no.jar")


@pytest.mark.parametrize("config", ["/path/to/launcher", '{"cmd": "x"}', "[]"])
def test_a_configuration_that_names_no_launcher(flink: str, config: str) -> None:
    with pytest.raises(OptionError, match="is not what PROCESS needs"):
        prepared(
            "--runner=FlinkRunner", f"--flink_master={flink}", "--environment_type=PROCESS",
            f"--environment_config={config}",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "here"),
    [
        ((), True),
        (("--runner=DirectRunner",), True),
        (("--runner=PrismRunner",), True),
        (("--runner=FlinkRunner",), True),
        (("--runner=flinkrunner", "--flink_master=h:1"), False),
        (("--runner=FlinkRunner", "--flink_master=h:1", "--environment_type=LOOPBACK"), True),
        (("--runner=PrismRunner", "--environment_type=DOCKER"), False),
        (("--runner=DataflowRunner",), False),
        (("--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",), True),
    ],
)
def test_where_the_work_is_done(flags: tuple[str, ...], here: bool) -> None:
    assert engines.in_process(PipelineOptions(list(flags))) == here


def test_local_folders_and_workers_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    there = PipelineOptions(["--runner=DataflowRunner"])
    engines.check_shared(there, input="/in", output="gs://b/store")
    assert capsys.readouterr().err.startswith(
        "warning: --input /in: every worker must see the same folder"
    )
    engines.check_shared(there, input="gs://b/in", output="s3://b/store")
    engines.check_shared(PipelineOptions([]), input="/in", output="/out")
    assert capsys.readouterr().err == ""


GPU = "type:nvidia-l4;count:1;install-nvidia-driver"


def test_dataflow_with_a_gpu_runs_one_process_a_worker() -> None:
    options = prepared("--runner=DataflowRunner", "--sdk_container_image=i", accelerator=GPU)
    debug = options.view_as(DebugOptions)
    assert debug.experiments == ["no_use_multiple_sdk_containers"]
    assert debug.number_of_worker_harness_threads == 2
    assert options.view_as(SetupOptions).sdk_location == "container"
    plain = prepared("--runner=DataflowRunner", "--sdk_container_image=i").view_as(DebugOptions)
    assert (plain.experiments, plain.number_of_worker_harness_threads) == (None, None)
    mine = prepared(
        "--runner=DataflowRunner", "--sdk_container_image=i", "--experiments=use_multiple_sdk_containers",
        "--number_of_worker_harness_threads=5", accelerator=GPU,
    ).view_as(DebugOptions)  # fmt: skip
    assert (mine.experiments, mine.number_of_worker_harness_threads) == (
        ["use_multiple_sdk_containers"],
        5,
    )


def test_dataflow_needs_an_image_and_one_way_to_gpus() -> None:
    with pytest.raises(OptionError, match="--sdk_container_image"):
        prepared("--runner=DataflowRunner")
    services = "--dataflow_service_options=worker_accelerator=type:nvidia-l4;count:1"
    with pytest.raises(OptionError, match="leave one of them out"):
        prepared("--runner=DataflowRunner", "--sdk_container_image=i", services, accelerator=GPU)
    plain = prepared(
        "--runner=DataflowRunner", "--sdk_container_image=i", accelerator=GPU, embeds=False
    )
    # no model for each process
    assert plain.view_as(DebugOptions).number_of_worker_harness_threads is None


COMPLAINTS = {
    'java.io.IOException: Cannot run program "/x/sentence-beam-worker": error=2': (
        "/x/sentence-beam-worker",
        "install",
    ),
    "\n  ModuleNotFoundError: No module named 'sentence_beam'\n": (
        "no module sentence_beam:",
        "install sentence-beam",
    ),
    "Process died with exit code 78": ("no module sentence_beam:", "install sentence-beam"),
    "\n  ModuleNotFoundError: No module named 'sentence_beam.transforms'\n": (
        "another version of sentence-beam",
        "has no sentence_beam.transforms)",
        "build their image with this version",
    ),
    "AttributeError: Can't get attribute 'CountRows' on <module 'sentence_beam.transforms.beam.commit' from '/x.py'>": (
        "another version of sentence-beam",
        "has no CountRows)",
    ),
    "ImportError: cannot import name 'Run' from 'sentence_beam.transforms.store' (/x.py)": (
        "another version of sentence-beam",
        "has no Run)",
    ),
    "Pipeline job-1 failed in state FAILED: java.lang.RuntimeException: No client connected within timeout": (
        "another version of sentence-beam",
        "build their image with this version",
    ),
    "No module named 'torch'": ("no module torch", "constraints.txt"),
    "versions used at pipeline construction time. Submission environment: beam:version:sdk_base:apache/"
    "beam_python3.11_sdk:2.77.0. Runtime environment: beam:version:sdk_base:apache/beam_python3.12_sdk:2.99.0.": (
        "a worker has apache-beam python3.12_sdk:2.99.0,",
        "install one version",
    ),
    "Pipeline job-1 failed in state CANCELLED: unknown error": ("cancelled", "run again"),
    "Pipeline job-1 failed in state FAILED: java.io.IOException: Insufficient number of network buffers: required 512, but "
    "only 476 available.": ("taskmanager.memory.network.min", "128 MB"),
    "Unable to fetch remote prism binary at http://x: <urlopen error>": ("--prism_location",),
    "Process died with exit code 79": (
        "another apache-beam",
        beam.__version__,
        "install one version",
    ),
    "Process died with exit code 137": ("died more often", "run again"),
}


@pytest.mark.parametrize("text", COMPLAINTS)
def test_what_an_engine_complains_of(text: str) -> None:
    line = engines.explain_error(text)
    assert line is not None
    assert "\n" not in line
    assert all(word in line for word in COMPLAINTS[text]), line


def test_a_complaint_that_nobody_foresaw_stays_as_it_is() -> None:
    assert engines.explain_error("something else") is None
    with pytest.raises(RuntimeError, match="something else"), engines.explaining():
        raise RuntimeError("something else")


def test_options_that_beam_finds_wrong_when_it_submits() -> None:
    error = ValueError(
        "Pipeline has validations errors: \nInvalid GCS path (x), given for temp_location."
    )
    with (
        pytest.raises(OptionError, match=r"^Invalid GCS path \(x\), given for temp_location.$"),
        engines.explaining(),
    ):
        raise error


def test_an_engines_chatter_stays_out_of_the_terminal() -> None:
    code = (
        "import logging; from sentence_beam.pipelines.common.command import quiet_logs; quiet_logs(); "
        "prism = logging.getLogger('PrismJobServer'); prism.setLevel(logging.INFO); prism.info('chatter'); "
        "prism.error('a reason')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "ERROR: a reason\n"
