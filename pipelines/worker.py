"""`sentence-beam-worker`: starts Beam's Python worker as a plain process of an engine.

An engine calls it with the addresses of its services; it asks for the job's options and goes on as
the worker, in the same process: the one that the engine knows, and that has imported Beam already.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import apache_beam as beam
import grpc
from apache_beam.portability.api import beam_provision_api_pb2 as provision_api
from apache_beam.portability.api import beam_provision_api_pb2_grpc as provision_service
from apache_beam.runners.job.utils import struct_to_dict
from apache_beam.runners.worker import sdk_worker_main

SECONDS = 60.0  # for an answer on the same machine
# An engine passes on only the exit status of a worker that cannot start.
NO_PACKAGE = 78
OTHER_BEAM = 79
BEAM_WANTED = "SENTENCE_BEAM_APACHE_BEAM"  # the version on the submitting machine


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options that engines give."""
    p = argparse.ArgumentParser(
        prog="sentence-beam-worker",
        description=(
            "Start a Beam worker. Engines call it (Flink with --environment_type=PROCESS), people"
            " do not."
        ),
        allow_abbrev=False,
    )
    p.add_argument("--id", required=True, help="the worker's name")
    p.add_argument(
        "--provision_endpoint", required=True, metavar="HOST:PORT", help="who says what the job is"
    )
    for service in ("control", "logging"):
        p.add_argument(
            f"--{service}_endpoint", default="", metavar="HOST:PORT", help="default: as it says"
        )
    p.add_argument(
        "--artifact_endpoint", metavar="HOST:PORT", help="not asked: the package is installed here"
    )
    return p


def ask_provision(endpoint: str, worker: str) -> provision_api.ProvisionInfo:
    """Return the engine's description of the job. Raises grpc.RpcError if nobody answers."""
    with grpc.insecure_channel(endpoint) as channel:
        service = provision_service.ProvisionServiceStub(channel)
        request = provision_api.GetProvisionInfoRequest()
        # The call's metadata tells the engine which worker calls.
        return service.GetProvisionInfo(
            request, timeout=SECONDS, metadata=[("worker_id", worker)]
        ).info


def make_environment(args: argparse.Namespace, info: provision_api.ProvisionInfo) -> dict[str, str]:
    """The environment variables by which Beam's worker knows its job and the engine's services."""
    return {
        "WORKER_ID": args.id,
        "PIPELINE_OPTIONS": json.dumps(struct_to_dict(info.pipeline_options)),
        "CONTROL_API_SERVICE_DESCRIPTOR": (
            f'url: "{args.control_endpoint or info.control_endpoint.url}"'
        ),
        "LOGGING_API_SERVICE_DESCRIPTOR": (
            f'url: "{args.logging_endpoint or info.logging_endpoint.url}"'
        ),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the worker until the engine no longer needs it; return the exit status.

    1: the engine does not answer. `NO_PACKAGE`, `OTHER_BEAM`: the worker would find no
    sentence-beam, or has another Beam than the job wants, and its engine would wait long either
    way.
    """
    args = parser().parse_args(argv)
    if subprocess.run(
        [sys.executable, "-c", "import sentence_beam.pipelines, sentence_beam.transforms"]
    ).returncode:
        print(
            f"sentence-beam-worker: {sys.executable} has no sentence-beam; install it there",
            file=sys.stderr,
        )
        return NO_PACKAGE
    wanted = os.environ.get(BEAM_WANTED, beam.__version__)
    if wanted != beam.__version__:
        print(
            f"sentence-beam-worker: the job wants apache-beam {wanted}, here is {beam.__version__}",
            file=sys.stderr,
        )
        return OTHER_BEAM
    try:
        info = ask_provision(args.provision_endpoint, args.id)
    except grpc.RpcError as error:
        print(
            f"sentence-beam-worker: {args.provision_endpoint} does not answer ({error})",
            file=sys.stderr,
        )
        return 1
    os.environ.update(make_environment(args, info))
    sdk_worker_main.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main())
