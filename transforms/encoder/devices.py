"""Batches side by side: every device of the machine works on whole batches of its own.

Devices take their batches from one queue, in which units follow each other. The thread of each
hands it work on a CUDA stream of its own and stays ahead of it, so that a faster device takes more
batches; tokens and vectors are copied on streams beside it, while the next batch is computed.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import Tensor

from transforms.base.errors import OptionError
from transforms.encoder.batches import BatchStats
from transforms.encoder.replica import PooledBatch, Replica
from transforms.pooling.states import Status
from transforms.pooling.transfer import to_host

_GROWING = "expandable_segments:True"
AHEAD = 2  # batches that a device has been given and has not finished


@dataclass(frozen=True)
class PassedBatch:
    """What a device makes of a batch: its `parts`, in main memory once `wait` has given the seconds
    that it took.
    """

    parts: list[PooledBatch]
    wait: Callable[[], float]


Item = TypeVar("Item")
Work = Callable[[Replica, Item], list[PooledBatch]]


def passed(work: Callable[[Item], list[PooledBatch]], item: Item) -> PassedBatch:
    """What becomes of a batch, or another piece of work, on a CPU."""
    began = perf_counter()
    parts = work(item)
    took = perf_counter() - began
    return PassedBatch(parts, lambda: took)


@dataclass(frozen=True)
class Passing:
    """Batches that the devices have, or will take; `passed` gives them in order, each once it is
    through.

    `lanes` work side by side; `started` is when (perf_counter) the batches were handed over.
    """

    rows: int
    passed: Iterator[PassedBatch]
    lanes: int
    started: float


@dataclass(frozen=True)
class PooledUnit:
    """The pooled vectors [B, P] float32 of a unit's texts in input order, their status [B] uint8
    and counts.

    `seconds` is how long the devices computed, `ended` when (perf_counter) the last of them was
    through.
    """

    vectors: Tensor
    status: Tensor
    stats: BatchStats
    seconds: float
    ended: float


def pooled_unit(passing: Passing, dim: int) -> PooledUnit:
    """The vectors [B, `dim`] of a unit, when all of its batches are through; a text without a token
    is zero.
    """
    vectors = torch.zeros((passing.rows, dim), dtype=torch.float32)
    status = torch.full((passing.rows,), int(Status.ZERO), dtype=torch.uint8)
    stats, seconds = BatchStats(), 0.0
    for passed in passing.passed:
        seconds += passed.wait()
        for part in passed.parts:
            places = torch.from_numpy(part.rows)
            vectors[places], status[places] = part.vectors, part.status
            stats += part.stats
    return PooledUnit(vectors, status, stats, seconds / passing.lanes, perf_counter())


class Devices:
    """The replicas of a model, one a device, and a thread for each."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        free: SimpleQueue[Replica] = SimpleQueue()
        for replica in replicas:
            free.put(replica)
        self._own = _OwnLane()
        # neither the threads nor what they are given know this object: they end where it is dropped
        self._executor = ThreadPoolExecutor(len(replicas), "device", _start, (self._own, free))

    def map(
        self, work: Work[Item], items: Iterable[Item], told: Callable[[Item], None]
    ) -> Iterator[PassedBatch]:
        """The items, batches or others that `work` knows, as they pass, in order; all are in the
        queue on return.

        `told` is given each item that has been handed to its device.
        """
        return self._executor.map(partial(_work, self._own, work, told), items)


class _OwnLane(threading.local):
    """What a thread has for itself."""

    lane: "_Lane"


def _start(own: _OwnLane, free: "SimpleQueue[Replica]") -> None:
    own.lane = _Lane(free.get())


def _work(own: _OwnLane, work: Work[Item], told: Callable[[Item], None], item: Item) -> PassedBatch:
    found = own.lane.pass_on(work, item)
    told(item)
    return found


class _Lane:
    """A replica with its CUDA stream (None on a CPU), and the batches that it has not finished."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._stream = torch.cuda.Stream(replica.device) if replica.device.type == "cuda" else None
        # what loading has left there; a stream of its own waits for no other
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.default_stream(replica.device))
        self._running: deque[PassedBatch] = deque()

    def pass_on(self, work: Work[Item], item: Item) -> PassedBatch:
        """The item as it passes; returns when at most `AHEAD` items are unfinished."""
        with torch.inference_mode():
            if self._stream is None:
                return passed(partial(work, self._replica), item)
            with torch.cuda.stream(self._stream):
                self._running.append(_handed_over(partial(work, self._replica), item, self._stream))
        if len(self._running) > AHEAD:
            self._running.popleft().wait()
        return self._running[-1]


def _handed_over(work: Callable[[Item], list[PooledBatch]], item: Item, stream: Any) -> PassedBatch:
    """A batch, or another piece of work, on its way through a GPU, and its vectors back to main
    memory.
    """
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record(stream)
    parts = work(item)
    ended.record(stream)
    copies, copied = to_host([part.vectors for part in parts] + [part.status for part in parts])
    pairs = zip(parts, copies[: len(parts)], copies[len(parts) :], strict=True)

    def wait() -> float:
        copied.synchronize()
        return began.elapsed_time(ended) / 1000

    return PassedBatch(
        [replace(part, vectors=vectors, status=status) for part, vectors, status in pairs], wait
    )


def resolve_device(device: str) -> torch.device:
    """The first of the devices that `device` means (see `resolve_devices`)."""
    return resolve_devices(device)[0]


def resolve_devices(device: str) -> list[torch.device]:
    """The devices that an option means: `auto` every GPU, else the CPU; `cuda` every GPU; `cuda:1`
    that one; `cpu`.

    Raises `OptionError` for a device that this machine does not have.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.device("cuda", number) for number in range(count)]
    if device == "cpu" or (device == "auto" and not gpus):
        return [torch.device("cpu")]
    found = gpus if device in ("auto", "cuda") else [gpu for gpu in gpus if str(gpu) == device]
    if not found:
        raise OptionError(f"device {device!r} is not there; allowed here: auto, cpu" + _cuda_word())
    _set_environment()
    return found


def _set_environment() -> None:
    """Say what torch and cuBLAS read when they first use a GPU, where nobody has said it.

    Memory in segments that grow, since batches are of all sizes; products that do not depend on
    what other streams of the process compute; cuDNN's attention after torch's own. Convolutions and
    LSTMs in float32 are rounded as float32, which cuDNN does not do by itself; said here once,
    since it is for all threads.
    """
    allocator = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    if not any(name in os.environ for name in allocator):
        os.environ[allocator[torch.__version__ < "2.9"]] = _GROWING
        if tell := getattr(torch._C, "_accelerator_setAllocatorSettings", None):
            tell(_GROWING)  # also where the environment was read when torch was imported
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # on Hopper torch would take it first, and it plans each new shape anew; padded batches are
    # nearly all of new ones
    os.environ.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    torch.backends.cudnn.allow_tf32 = False


def _cuda_word() -> str:
    return ", cuda" if torch.cuda.is_available() else ""
