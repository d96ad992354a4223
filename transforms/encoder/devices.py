"""Batches side by side: every device of the machine works on whole batches of its own.

Devices take their batches from one queue: the thread of each hands it work on a CUDA stream of its own and stays ahead
of it, so that tokens are copied while the last batch is computed, and a faster device takes more batches.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

import torch

from transforms.encoder.batches import Batch
from transforms.encoder.forward import PooledBatch, Replica
from transforms.errors import OptionError

AHEAD = 2  # batches that a device has been given and has not finished


class Devices:
    """The replicas of a model, one a device, and a thread for each."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = list(replicas)
        self._executor: ThreadPoolExecutor | None = None
        self._own = threading.local()

    def map(self, batches: Iterable[Batch]) -> Iterator[PooledBatch]:
        """The pooled batches in the batches' order, each when its vectors are in main memory."""
        if self._executor is None:
            free: SimpleQueue[Replica] = SimpleQueue()
            for replica in self._replicas:
                free.put(replica)
            self._executor = ThreadPoolExecutor(len(self._replicas), "device", self._start, (free,))
        for pooled, wait in self._executor.map(self._work, batches):
            wait()
            yield pooled

    def _start(self, free: "SimpleQueue[Replica]") -> None:
        self._own.lane = _Lane(free.get())

    def _work(self, batch: Batch) -> Any:
        return self._own.lane.work(batch)


class _Lane:
    """A replica with its CUDA stream (None on a CPU), and the batches that it has not finished."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._stream = torch.cuda.Stream(replica.device) if replica.device.type == "cuda" else None
        self._running: deque[Any] = deque()

    def work(self, batch: Batch) -> tuple[PooledBatch, Any]:
        """The pooled batch and a function that waits for it; returns when at most `AHEAD` batches are unfinished."""
        with torch.inference_mode(), torch.cuda.stream(self._stream) if self._stream else nullcontext():
            pooled = self._replica(batch)
        if self._stream is None:
            return pooled, _nothing
        self._running.append(self._stream.record_event())
        if len(self._running) > AHEAD:
            self._running.popleft().synchronize()
        return pooled, self._running[-1].synchronize


def _nothing() -> None:
    """The wait for vectors that are in main memory already."""


def resolve_device(device: str) -> torch.device:
    """The first of the devices that `device` means (see `resolve_devices`)."""
    return resolve_devices(device)[0]


def resolve_devices(device: str) -> list[torch.device]:
    """The devices that an option means: `auto` every GPU, else the CPU; `cuda` every GPU; `cuda:1` that one; `cpu`.

    Raises `OptionError` for a device that this machine does not have.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.device("cuda", number) for number in range(count)]
    if device == "cpu" or (device == "auto" and not gpus):
        return [torch.device("cpu")]
    found = gpus if device in ("auto", "cuda") else [gpu for gpu in gpus if str(gpu) == device]
    if not found:
        raise OptionError(f"device {device!r} is not there; allowed here: auto, cpu" + _cuda_word())
    return found


def _cuda_word() -> str:
    return ", cuda" if torch.cuda.is_available() else ""
