"""Processes that share out the GPUs of a machine, on GPUs that are none."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.stub_device import see_gpus, stub_gpu
from helpers.tiny_models import TEXTS, save_tiny_model

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder, claims, devices, replica
from sentence_beam.transforms.encoder.batch_memory import count_fitting_tokens
from sentence_beam.transforms.encoder.claims import Claims

GPUS = [f"GPU-{number}" for number in range(8)]
FORK = get_context("fork")


class Processes:
    """Processes that each claim a GPU, and keep it until they are ended."""

    def __init__(self, claim: Callable[[], str]) -> None:
        self._claim = claim
        self._running: list[Any] = []

    def start(self) -> str:
        """Start one more; return the GPU that it claimed."""
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=self._hold, args=(theirs,), daemon=True)
        process.start()
        self._running.append(process)
        assert ours.poll(60)
        return ours.recv()

    def kill(self, number: int) -> None:
        """End a process at once, as the system does if memory runs out."""
        os.kill(self._running[number].pid, signal.SIGKILL)
        self._running[number].join()

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.join()

    def _hold(self, connection: Any) -> None:
        connection.send(self._claim())
        signal.pause()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    folder = Claims(tmp_path / "claims")
    running = Processes(lambda: folder.claim(GPUS))
    yield running
    running.end()


def test_eight_processes_have_eight_gpus_and_that_of_a_killed_one_is_claimed_again(
    processes: Processes,
) -> None:
    assert [processes.start() for _ in GPUS] == GPUS
    processes.kill(5)
    assert processes.start() == GPUS[5]
    assert processes.start() == GPUS[0], "the first of those with the fewest claims"


def test_more_processes_than_gpus_are_spread_evenly(processes: Processes) -> None:
    assert Counter(processes.start() for _ in range(20)) == Counter([*GPUS, *GPUS, *GPUS[:4]])


def test_a_process_claims_once_and_a_child_of_it_claims_its_own(tmp_path: Path) -> None:
    folder = Claims(tmp_path / "claims")
    assert folder.claim(GPUS) == folder.claim(GPUS) == GPUS[0]
    child = Processes(lambda: folder.claim(GPUS))
    try:
        assert child.start() == GPUS[1]
    finally:
        child.end()


@pytest.fixture
def eight_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(monkeypatch, 8, lambda gpu: SimpleNamespace(uuid=f"uuid-{gpu.index}"))
    monkeypatch.setattr(devices, "set_environment", lambda: None)
    monkeypatch.setattr(devices, "try_growing", lambda _: None)
    monkeypatch.setattr(claims.tempfile, "gettempdir", lambda: str(tmp_path))
    claims.open_machine_claims.cache_clear()
    yield
    claims.open_machine_claims.cache_clear()


@pytest.mark.usefixtures("eight_gpus")
def test_the_device_is_the_gpu_that_the_process_claims() -> None:
    running = Processes(lambda: str(devices.resolve_devices("cuda:own")))
    try:
        found = [running.start() for _ in range(3)]
    finally:
        running.end()
    assert found == [f"[device(type='cuda', index={number})]" for number in range(3)]
    (own,) = devices.resolve_devices("cuda:own")
    assert own == torch.device("cuda", 0), "the claims of ended processes are gone"
    assert devices.resolve_device("cuda:own") == own
    assert len(devices.resolve_devices("cuda")) == 8


@pytest.mark.usefixtures("eight_gpus")
def test_an_encoder_has_one_lane_and_one_model_on_the_gpu_that_nobody_else_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(save_tiny_model("bert", tmp_path / "bert"))
    expected = Encoder.load(model, dtype="float32", device="cpu").encode(TEXTS)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (6, 1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: f"GPU {gpu.index}")
    free = {1: 10**9, 0: 10**12}
    monkeypatch.setattr(replica, "measure_free_memory", lambda gpu: free[gpu.index])
    other = Processes(lambda: str(devices.resolve_devices("cuda:own")[0]))
    try:
        assert other.start() == "cuda:0"
        with stub_gpu(monkeypatch), torch.no_grad():
            encoder = Encoder.load(model, dtype="float32", device="cuda:own")
            found = encoder.encode(TEXTS)
            assert encoder.device_names == "GPU 1"
    finally:
        other.end()
    assert [each.device for each in encoder.replicas] == [torch.device("cuda", 1)]
    fitting = count_fitting_tokens(free[1], encoder.replicas[0].forward.token_bytes, 65536)
    assert encoder.tokens_per_batch == fitting, "the memory of its own GPU decides"
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.usefixtures("eight_gpus")
def test_a_folder_that_belongs_to_somebody_else_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / f"sentence-beam-gpus-{os.getuid()}").touch()
    with pytest.raises(OptionError, match="GPUs cannot be claimed .* TMPDIR"):
        devices.resolve_devices("cuda:own")


def test_without_a_gpu_there_is_none_to_claim() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(OptionError, match="'cuda:own' is not there"):
        devices.resolve_devices("cuda:own")
