"""Run batches in parallel on the devices of the machine, each batch on one device.

Devices take batches from one queue, in which units follow each other, so that a faster device takes
more. Each device has a thread that queues work on its own CUDA stream, a few batches ahead; tokens
and vectors are copied on other streams while the next batch is computed.
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
AHEAD = 2  # unfinished batches in a device's queue


@dataclass(frozen=True)
class PassedBatch:
    """The results of a batch: its `parts`, in main memory once `wait` has returned the seconds."""

    parts: list[PooledBatch]
    wait: Callable[[], float]


Item = TypeVar("Item")
Work = Callable[[Replica, Item], list[PooledBatch]]


def pass_through(work: Callable[[Item], list[PooledBatch]], item: Item) -> PassedBatch:
    """Run a batch, or other work, on a CPU."""
    began = perf_counter()
    parts = work(item)
    seconds = perf_counter() - began
    return PassedBatch(parts, lambda: seconds)


@dataclass(frozen=True)
class Passing:
    """Batches that are queued or running; `passed` yields them in order as they finish.

    `lanes` work in parallel; `started` is the time (perf_counter) at which they were queued.
    """

    rows: int
    passed: Iterator[PassedBatch]
    lanes: int
    started: float


@dataclass(frozen=True)
class PooledUnit:
    """The pooled vectors [B, P] float32 of a unit's texts in input order, status [B] uint8, counts.

    `seconds` that the devices computed, `ended` the time (perf_counter) at which the last finished.
    """

    vectors: Tensor
    status: Tensor
    stats: BatchStats
    seconds: float
    ended: float


def pooled_unit(passing: Passing, dim: int) -> PooledUnit:
    """Wait for all batches of a unit; return its vectors [B, `dim`].

    A text without a token has the zero vector.
    """
    vectors = torch.zeros((passing.rows, dim), dtype=torch.float32)
    status = torch.full((passing.rows,), int(Status.ZERO), dtype=torch.uint8)
    stats = BatchStats()
    seconds = 0.0
    for batch in passing.passed:
        seconds += batch.wait()
        for part in batch.parts:
            places = torch.from_numpy(part.rows)
            vectors[places] = part.vectors
            status[places] = part.status
            stats += part.stats
    return PooledUnit(vectors, status, stats, seconds / passing.lanes, perf_counter())


class Devices:
    """The replicas of a model, one a device, and a thread for each."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        free: SimpleQueue[Replica] = SimpleQueue()
        for replica in replicas:
            free.put(replica)
        self._own = _OwnLane()
        # neither the threads nor their work refer to this object: they end when it is dropped
        self._executor = ThreadPoolExecutor(len(replicas), "device", _start, (self._own, free))

    def map(
        self,
        work: Work[Item],
        items: Iterable[Item],
        report: Callable[[Item], None] = lambda item: None,
    ) -> Iterator[PassedBatch]:
        """Queue all items; yield their results in order.

        `report` is called with each item that has been given to its device.
        """
        return self._executor.map(partial(_work, self._own, work, report), items)


class _OwnLane(threading.local):
    """The lane of a thread."""

    lane: "_Lane"


def _start(own: _OwnLane, free: "SimpleQueue[Replica]") -> None:
    own.lane = _Lane(free.get())


def _work(
    own: _OwnLane, work: Work[Item], report: Callable[[Item], None], item: Item
) -> PassedBatch:
    passed = own.lane.run(work, item)
    report(item)
    return passed


class _Lane:
    """A replica with its CUDA stream (None on a CPU), and its unfinished batches."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._stream: torch.cuda.Stream | None = None
        if replica.device.type == "cuda":
            self._stream = torch.cuda.Stream(replica.device)
            # wait for what loading has queued there; a new stream waits for no other
            self._stream.wait_stream(torch.cuda.default_stream(replica.device))
        self._running: deque[PassedBatch] = deque()

    def run(self, work: Work[Item], item: Item) -> PassedBatch:
        """Start an item; return when at most `AHEAD` items are unfinished."""
        own_work = partial(work, self._replica)
        with torch.inference_mode():
            if self._stream is None:
                return pass_through(own_work, item)
            with torch.cuda.stream(self._stream):
                self._running.append(_start_on_gpu(own_work, item, self._stream))
        if len(self._running) > AHEAD:
            self._running.popleft().wait()
        return self._running[-1]


def _start_on_gpu(
    work: Callable[[Item], list[PooledBatch]], item: Item, stream: Any
) -> PassedBatch:
    """Queue a batch, or other work, on a GPU, and the copy of its vectors to main memory."""
    began = torch.cuda.Event(enable_timing=True)
    ended = torch.cuda.Event(enable_timing=True)
    began.record(stream)
    parts = work(item)
    ended.record(stream)
    copies, copied = to_host([part.vectors for part in parts] + [part.status for part in parts])
    triples = zip(parts, copies[: len(parts)], copies[len(parts) :], strict=True)
    on_host = [replace(part, vectors=vectors, status=status) for part, vectors, status in triples]

    def wait() -> float:
        copied.synchronize()
        return began.elapsed_time(ended) / 1000

    return PassedBatch(on_host, wait)


def resolve_device(device: str) -> torch.device:
    """Return the first of the devices that `device` names (see `resolve_devices`)."""
    return resolve_devices(device)[0]


def resolve_devices(device: str) -> list[torch.device]:
    """Return the devices that an option names.

    `auto`: every GPU, else the CPU; `cuda`: every GPU; `cuda:1`: that one; `cpu`. Raises
    `OptionError` for a device that this machine does not have.
    """
    count = 0
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
    gpus = [torch.device("cuda", number) for number in range(count)]
    if device == "cpu" or (device == "auto" and not gpus):
        return [torch.device("cpu")]
    named = gpus
    if device not in ("auto", "cuda"):
        named = [gpu for gpu in gpus if str(gpu) == device]
    if not named:
        allowed = "auto, cpu"
        if torch.cuda.is_available():
            allowed += ", cuda"
        raise OptionError(f"device {device!r} is not there; allowed here: {allowed}")
    _set_environment()
    return named


def _set_environment() -> None:
    """Set what torch and cuBLAS read when they first use a GPU, unless the user has set it.

    Memory in segments that grow, because batches have all sizes; products that do not depend on
    other streams of the process; cuDNN's attention after torch's own. Convolutions and LSTMs in
    float32 are rounded as float32, which is not cuDNN's default; the setting is for all threads.
    """
    allocator = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    if not any(name in os.environ for name in allocator):
        os.environ[allocator[torch.__version__ < "2.9"]] = _GROWING
        configure = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        if configure is not None:
            configure(_GROWING)  # if torch has read the environment already
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # on Hopper torch would prefer it, and it plans each new shape, which most padded batches have
    os.environ.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    torch.backends.cudnn.allow_tf32 = False
