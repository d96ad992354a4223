"""Engines: settings that a runner needs, and one line for each of its failures."""

import contextlib
import json
import os
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
    WorkerOptions,
)

from sentence_beam.pipelines.common.options import RUNNER
from sentence_beam.pipelines.worker import BEAM_WANTED, NO_PACKAGE, OTHER_BEAM
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.beam.runners import works_in_process

WORKER = "sentence-beam-worker"
# How long an idle worker is kept: longer than the gap between two stages, but shorter than an
# engine's pause before a retry, because until then the engine calls a worker that died.
CACHE_MILLIS = 5000
ANSWER_SECONDS = 15
ONE_PROCESS = "no_use_multiple_sdk_containers"
# one element overlaps reading, encoding and writing; a second one fills its beginning and end
GPU_THREADS = 2

REFUSED = "Pipeline has validations errors:"

# A pattern of an engine's messages -> what it means and what mends it. The line may name a group of
# the pattern.
MEANINGS = (
    (
        rf"Process died with exit code {NO_PACKAGE}\b|No module named 'sentence_beam'",
        (
            "the workers' Python has no module sentence_beam: install sentence-beam for the"
            " interpreter that runs them"
        ),
    ),
    (
        (
            r"No module named '(sentence_beam\.[^']+)'"
            r"|Can't get attribute '([^']+)' on <module 'sentence_beam\b"
            r"|cannot import name '([^']+)' from 'sentence_beam\b"
        ),
        (
            "workers have another version of sentence-beam than the machine that submitted the job"
            " (theirs has no {0}); build their image with this version, or install it on both"
        ),
    ),
    (
        # what Flink makes of a worker that cannot read its first step
        r"No client connected within timeout",
        (
            "workers did not begin their work in time, and their log says why; if they have another"
            " version of sentence-beam, build their image with this version"
        ),
    ),
    (
        r'Cannot run program "([^"]+)"|Process died.*?command[^\n]*?(/\S+)',
        "a worker could not be started by {0}: install sentence-beam on every TaskManager, or name"
        " the launcher there "
        """by --environment_config='{{"command": "/path/to/sentence-beam-worker"}}'""",
    ),
    (
        r"No module named '([^']+)'",
        (
            "the workers' Python has no module {0}: install there what is installed here (pip"
            " install -c constraints.txt)"
        ),
    ),
    (
        rf"Process died with exit code {OTHER_BEAM}\b",
        (
            "a worker has another apache-beam than the machine that submitted the job"
            f" ({beam.__version__}); install one version on both"
        ),
    ),
    (
        r"Runtime environment: \S*?(python[\d.]+_sdk:[\w.]*\w)",
        (
            "a worker has apache-beam {0}, the machine that submitted the job another, or another"
            " Python; install one version on both (workers: in their image or environment)"
        ),
    ),
    (
        r"in state CANCELLED",
        "the job was cancelled on the engine; what it finished stands, run again for the rest",
    ),
    (
        r"NoResourceAvailableException",
        (
            "the engine has fewer free slots than --parallelism wants: add TaskManagers, or wait"
            " for other jobs"
        ),
    ),
    (
        r"Insufficient number of network buffers",
        (
            "Flink has too little network memory: give TaskManagers taskmanager.memory.network.min"
            " of 128 MB for each slot"
        ),
    ),
    (
        r"(?:Unable to fetch remote prism binary|Unable to parse binary URL)[^\n]*",
        (
            "Prism could not be fetched or started: name a binary by --prism_location, or leave"
            " --runner out"
        ),
    ),
    (
        (
            r"Process died with exit code (\d+)|Task manager failed|TaskManager with id|heartbeat"
            r" of TaskManager"
        ),
        (
            "workers or TaskManagers died more often than the engine's restart strategy allows;"
            " finished work is kept, run again to go on, with more memory for workers if that"
            " is why"
        ),
    ),
)


def in_process(options: PipelineOptions) -> bool:
    """Whether the pipeline runs inside the submitting process (or in workers that die with it)."""
    return works_in_process(find_runner(options), options)


def waits(options: PipelineOptions) -> bool:
    """Whether the submitting process stays until the job has ended."""
    template = options.view_as(GoogleCloudOptions).template_location
    return not template and not options.view_as(StandardOptions).no_wait_until_finish


def check_waits(options: PipelineOptions, command: str) -> None:
    """Raise OptionError if a command that reads its job's result would not wait for the job."""
    if not waits(options):
        raise OptionError(
            f"{command} waits for its job; leave --no_wait_until_finish and --template_location out"
        )


def prepare(
    options: PipelineOptions,
    flags: Sequence[str],
    accelerator: str | None = None,
    embeds: bool = True,
) -> None:
    """Set what the runner needs and the command line left open.

    `flags` are Beam's flags as they were typed, `accelerator` is the hint of `--accelerator`.
    `embeds` says that the job's workers load a model. Raises OptionError if options do not fit each
    other, or the engine does not answer.
    """
    if not _is_given(flags, "save_main_session", "no_save_main_session"):
        options.view_as(SetupOptions).save_main_session = False  # all code is in installed packages
    if in_process(options):
        return
    portable = options.view_as(PortableOptions)
    if not _is_given(flags, "environment_cache_millis"):
        # or the model is loaded again for every stage
        portable.environment_cache_millis = CACHE_MILLIS
    if portable.environment_type == "PROCESS":
        _check_process(portable)
    if find_runner(options) == "flinkrunner" and not portable.job_endpoint:
        _prepare_flink(options, flags)
    if find_runner(options) == "dataflowrunner":
        _prepare_dataflow(options, flags)
        _prepare_gpus(options, flags, accelerator, embeds)


def _prepare_dataflow(options: PipelineOptions, flags: Sequence[str]) -> None:
    setup = options.view_as(SetupOptions)
    image = options.view_as(WorkerOptions).sdk_container_image
    if not (
        image or setup.setup_file or setup.extra_packages or setup.prebuild_sdk_container_engine
    ):
        raise OptionError(
            "--runner DataflowRunner: workers need an image that holds sentence-beam and this Beam;"
            " name it by --sdk_container_image (deploy/dataflow/README.md)"
        )
    if image and not _is_given(flags, "sdk_location"):
        setup.sdk_location = "container"


def _prepare_gpus(
    options: PipelineOptions,
    flags: Sequence[str],
    accelerator: str | None,
    embeds: bool,
) -> None:
    if not accelerator:
        return
    services = options.view_as(GoogleCloudOptions).dataflow_service_options or []
    if any(service.startswith("worker_accelerator") for service in services):
        raise OptionError(
            f"{cite('accelerator')} gives a GPU to the steps that use one,"
            " --dataflow_service_options=worker_accelerator to all workers; leave one of them out"
        )
    if not embeds:
        return
    debug = options.view_as(DebugOptions)
    if debug.lookup_experiment("use_multiple_sdk_containers", None) is None:
        debug.add_experiment(ONE_PROCESS)  # else a process, and a model, for each core
    if not _is_given(flags, "number_of_worker_harness_threads"):
        debug.number_of_worker_harness_threads = GPU_THREADS


def _prepare_flink(options: PipelineOptions, flags: Sequence[str]) -> None:
    flink = options.view_as(FlinkRunnerOptions)
    slots = _count_slots(flink.flink_master)
    if not _is_given(flags, "parallelism") and slots:
        flink.parallelism = slots
    flink.flink_submit_uber_jar = True  # the job must not end with the process that submitted it
    jar = flink.flink_job_server_jar
    if jar and "://" not in jar and not os.path.isfile(jar):
        raise OptionError(f"--flink_job_server_jar {jar} is not there; correct the path")


def make_flink_url(master: str) -> str:
    """Return the URL of a Flink's REST interface."""
    return master if "://" in master else f"http://{master}"


def _count_slots(master: str) -> int:
    """Return the cluster's number of slots. Raises OptionError if no Flink answers."""
    try:
        with urllib.request.urlopen(
            f"{make_flink_url(master)}/v1/overview", timeout=ANSWER_SECONDS
        ) as answer:
            return int(json.loads(answer.read())["slots-total"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", None) or error
        raise OptionError(
            f"--flink_master {master} does not answer as Flink's REST interface does ({reason}); "
            "give host:port of the JobManager (8081 unless rest.port says otherwise)"
        ) from error


def _check_process(portable: PortableOptions) -> None:
    """Set our worker launcher unless another is named. Raises OptionError if the config is not
    JSON.
    """
    if not portable.environment_config and not portable.environment_options:
        portable.environment_config = json.dumps({"command": _find_launcher()})
    if portable.environment_config:
        try:
            config = json.loads(portable.environment_config)
            needed = {
                "command": config["command"],
                "env": {BEAM_WANTED: beam.__version__, **config.get("env", {})},
            }
            portable.environment_config = json.dumps({**config, **needed})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                f"--environment_config {portable.environment_config} is not what PROCESS needs; "
                """write '{"command": "/path/to/sentence-beam-worker"}'"""
            ) from error


def _find_launcher() -> str:
    """The path of the launcher on this machine, which is expected to be its path on workers too."""
    ours = Path(sys.executable).with_name(WORKER)
    return str(ours) if ours.is_file() else shutil.which(WORKER) or WORKER


def check_shared(options: PipelineOptions, **paths: str) -> None:
    """Print a warning if other machines would use local folders; `paths` are by option."""
    local = [f"--{name} {path}" for name, path in paths.items() if storage.is_local(path)]
    if local and not in_process(options):
        print(
            f"warning: {', '.join(local)}: every worker must see the same folder at this path (a"
            " shared disk); a store on gs:// or s3:// needs none",
            file=sys.stderr,
        )


@contextlib.contextmanager
def explaining() -> Iterator[None]:
    """Raise known errors of an engine as one line, and others unchanged."""
    try:
        yield
    except SentenceBeamError:
        raise
    except Exception as error:
        if str(error).startswith(REFUSED):
            raise OptionError(" ".join(str(error).removeprefix(REFUSED).split())) from error
        line = explain_error(str(error))
        if line is None:
            raise
        raise SentenceBeamError(line) from error


def explain_error(text: str) -> str | None:
    """The meaning of an engine's message and what mends it; None for an unknown message.

    >>> explain_error("ModuleNotFoundError: No module named 'sentence_beam.transforms.beam'")[:46]
    'workers have another version of sentence-beam '
    """
    for pattern, line in MEANINGS:
        match = re.search(pattern, text, flags=re.DOTALL)
        if match:
            return line.format(next((group for group in match.groups() if group), ""))
    return None


def find_runner(options: PipelineOptions) -> str:
    """The runner's name, lower case, without its module."""
    name: Any = options.view_as(StandardOptions).runner
    return str(name or RUNNER).rpartition(".")[2].lower()


def _is_given(flags: Sequence[str], *names: str) -> bool:
    return any(word.split("=")[0] in {f"--{name}" for name in names} for word in flags)
