"""Batches side by side: every core, or every device of the machine, works on whole batches of its own.

Cores that share every matrix product wait for each other after each; with batches of their own they wait once a unit,
and a vector does not depend on how many of them there are. Devices take their batches from one queue: the thread of
each hands it work on a CUDA stream of its own and stays ahead of it, so that tokens are copied while the last batch is
computed, and a faster device takes more batches.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from transforms.encoder.batches import Batch
from transforms.encoder.forward import Part, Replica
from transforms.errors import OptionError

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2  # batches that a device has been given and has not finished
_STARTING = threading.Lock()


class Cores:
    """As many threads as torch may use cores; they start with the first work."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the items' order, each as soon as it and those before it are there; inference mode is on."""
        if self._executor is None:
            with _STARTING:
                self._executor = _one_core_threads(torch.get_num_threads())
        return self._executor.map(torch.inference_mode()(work), items)


def _one_core_threads(count: int) -> ThreadPoolExecutor:
    """Started threads whose own share of torch is one core each; the calling thread keeps what it had."""
    executor, together = ThreadPoolExecutor(count, "encoder"), threading.Barrier(count + 1)

    def start() -> None:
        torch.get_num_threads()  # a thread's first use of torch sets its share, over what was set before
        torch.set_num_threads(1)
        together.wait()

    for _ in range(count):
        executor.submit(start)
    together.wait()
    torch.set_num_threads(count)  # what a thread sets is what threads that are new to torch begin with
    return executor


class Devices:
    """One replica a device, and a thread for each."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = list(replicas)
        self._executor: ThreadPoolExecutor | None = None
        self._own = threading.local()

    def map(self, batches: Iterable[Batch]) -> Iterator[Part]:
        """The parts in the batches' order, each when it is there."""
        if self._executor is None:
            free: SimpleQueue[Replica] = SimpleQueue()
            for replica in self._replicas:
                free.put(replica)
            self._executor = ThreadPoolExecutor(len(self._replicas), "device", self._start, (free,))
        for part, done in self._executor.map(self._work, batches):
            done()
            yield part

    def _start(self, free: "SimpleQueue[Replica]") -> None:
        self._own.lane = _Lane(free.get())

    def _work(self, batch: Batch) -> Any:
        return self._own.lane.work(batch)


class _Lane:
    """A replica with its stream, and the batches that it is at."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._stream = torch.cuda.Stream(replica.device) if replica.device.type == "cuda" else None
        self._running: deque[Any] = deque()

    def work(self, batch: Batch) -> tuple[Part, Any]:
        """The part and what waits for it; returns when at most `AHEAD` batches are unfinished."""
        with torch.inference_mode(), torch.cuda.stream(self._stream) if self._stream else nullcontext():
            part = self._replica(batch)
        if self._stream is None:
            return part, _nothing
        self._running.append(self._stream.record_event())
        if len(self._running) > AHEAD:
            self._running.popleft().synchronize()
        return part, self._running[-1].synchronize


def _nothing() -> None:
    """What is in main memory already needs no waiting for."""


def resolve_device(device: str) -> torch.device:
    """The first of `resolve_devices`."""
    return resolve_devices(device)[0]


def resolve_devices(device: str) -> list[torch.device]:
    """`auto`: every GPU, else the CPU; `cuda` every GPU, `cuda:1` that one; `OptionError` for what is not there."""
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
