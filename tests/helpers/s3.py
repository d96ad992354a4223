"""s3:// on this machine: moto's server in a process of its own."""

import contextlib
import os
import sys
from collections.abc import Iterator

from helpers.gcs import Faults, Gcs, environment, free_port, process, proxy

BUCKET = "corpus"
# One request at a time: what it does for a write on condition, a look and a write, is not one step.
SERVER = """
import moto.server as server
run = server.run_simple
server.run_simple = lambda *arguments, **options: run(*arguments, **{**options, "threaded": False})
server.main()
"""


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The service with one empty bucket, and the environment in which clients find it; gives its
    address.
    """
    import boto3

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            process([sys.executable, "-c", SERVER, "-H", "127.0.0.1", "-p", str(port)], port)
        )
        stack.enter_context(
            environment(
                AWS_ENDPOINT_URL=address,
                AWS_ACCESS_KEY_ID="key",
                AWS_SECRET_ACCESS_KEY="secret",
                AWS_DEFAULT_REGION="us-east-1",
            )
        )
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield address


@contextlib.contextmanager
def disturbed(**faults: float) -> Iterator[Gcs]:
    """Requests of the block go through a proxy in which things go wrong; gives its counts."""
    from sentence_beam.transforms.storage import s3

    service = Gcs(0, faults=Faults(**faults))  # type: ignore[arg-type]
    behind = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    with (
        proxy(service, behind) as port,
        environment(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_MAX_ATTEMPTS="6",
            AWS_RETRY_MODE="standard",
        ),
    ):
        s3.make_shared_client.cache_clear()
        try:
            yield service
        finally:
            s3.make_shared_client.cache_clear()
