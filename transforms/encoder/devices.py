"""Run batches in parallel on the devices of the machine, each batch on one device.

Devices take batches from one queue, in which units follow each other, so that a faster device takes
more. Each device has a thread that queues work on its own CUDA stream, a few batches ahead; tokens
and vectors are copied on other streams while the next batch is computed.
"""

import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.base import nvidia
from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.encoder.batches import BatchStats
from sentence_beam.transforms.encoder.claims import open_machine_claims
from sentence_beam.transforms.encoder.replica import PooledBatch, Replica
from sentence_beam.transforms.pooling.states import Status
from sentence_beam.transforms.pooling.transfer import to_host

_GROWING = "expandable_segments:True"
_NOT_GROWING = "expandable_segments:False"
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
AHEAD = 4  # unfinished batches in a device's queue
OWN_GPU = "cuda:own"
# A thread that launches work needs the interpreter after every call; Python's 5 ms are as long as
# a batch takes.
SWITCH_SECONDS = 0.0002


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


def pool_unit(passing: Passing, dim: int) -> PooledUnit:
    """Wait for all batches of a unit; return its vectors [B, `dim`].

    A text without a token has the zero vector.
    """
    parts: list[PooledBatch] = []
    seconds = 0.0
    for batch in passing.passed:
        seconds += batch.wait()
        parts += batch.parts
    stats = sum((part.stats for part in parts), BatchStats())
    vectors, status = _put_in_order(parts, passing.rows, dim)
    return PooledUnit(vectors, status, stats, seconds / passing.lanes, perf_counter())


def _put_in_order(parts: Sequence[PooledBatch], rows: int, dim: int) -> tuple[Tensor, Tensor]:
    """Return vectors [rows, dim] and status [rows] of the parts, by their rows, in one step."""
    places = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
    order = np.full(rows, len(places))  # a last part for the texts that are in no batch
    order[places] = np.arange(len(places))
    none = torch.zeros(1, dim)
    zero = torch.tensor([int(Status.ZERO)], dtype=torch.uint8)
    index = torch.from_numpy(order)
    vectors = torch.cat([*(part.vectors for part in parts), none]).index_select(0, index)
    status = torch.cat([*(part.status for part in parts), zero]).index_select(0, index)
    return vectors, status


class Devices:
    """The replicas of a model, one a device, and a thread for each."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        free: SimpleQueue[Replica] = SimpleQueue()
        for replica in replicas:
            free.put(replica)
        self._own = _OwnLane()
        has_gpu = any(replica.device.type == "cuda" for replica in replicas)
        if has_gpu and sys.getswitchinterval() > SWITCH_SECONDS:
            sys.setswitchinterval(SWITCH_SECONDS)
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

    `auto`: every GPU, else the CPU; `cuda`: every GPU; `cuda:1`: that one; `cuda:own`: one that
    this process claims, so that processes spread over the GPUs; `cpu`. Raises `OptionError` for a
    device that this machine does not have.
    """
    gpus = _find_gpus()
    if device == "cpu" or (device == "auto" and not gpus):
        return [torch.device("cpu")]
    named = _select_gpus(gpus, device)
    if not named:
        raise OptionError(_describe_missing(device))
    set_environment()
    for gpu in named:
        try_growing(gpu)
    return named


def _find_gpus() -> list[torch.device]:
    if not torch.cuda.is_available():
        return []
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]


def _select_gpus(gpus: list[torch.device], device: str) -> list[torch.device]:
    """Return those of the GPUs that an option names, none if they are missing."""
    if device in ("auto", "cuda"):
        return gpus
    if device == OWN_GPU and gpus:
        return [_claim_gpu(gpus)]
    return [gpu for gpu in gpus if str(gpu) == device]


def _describe_missing(device: str) -> str:
    """Return the message about a device that is missing, with the reason if there is a driver."""
    allowed = "auto, cpu"
    if torch.cuda.is_available():
        allowed += ", cuda"
    reason = explain_unseen_gpu()
    if reason is None:
        return f"device {device!r} is not there; allowed here: {allowed}"
    return f"device {device!r} is not there: {reason}; or say {cite('device')} cpu"


def explain_unseen_gpu() -> str | None:
    """Return why torch does not see the GPU of this machine's driver, and what mends it.

    None if torch sees a GPU, if there is no driver, or if the environment hides all GPUs.
    """
    if torch.cuda.is_available() or nvidia.hides_gpus():
        return None
    driver = nvidia.find_driver()
    if driver is None:
        return None
    return nvidia.explain_unseen(driver, torch.__version__, torch.version.cuda)


def refuse_unseen_gpu() -> None:
    """Raise `OptionError` if this machine has a driver, but torch sees no GPU."""
    reason = explain_unseen_gpu()
    if reason is not None:
        raise OptionError(f"device auto would be the CPU: {reason}; or say {cite('device')} cpu")


def name_devices(devices: Sequence[torch.device]) -> str:
    """Return the names of devices: `cpu`, `NVIDIA L4`, `8 x NVIDIA H100 80GB HBM3`."""
    names = Counter(_name_device(device) for device in devices)
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items())


def _name_device(device: torch.device) -> str:
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return device.type


def _claim_gpu(gpus: Sequence[torch.device]) -> torch.device:
    """Return the GPU that this process claims. Raises `OptionError` without a place for claims."""
    gpus_by_uuid = {str(torch.cuda.get_device_properties(gpu).uuid): gpu for gpu in gpus}
    try:
        return gpus_by_uuid[open_machine_claims().claim(list(gpus_by_uuid))]
    except OSError as error:
        raise OptionError(
            f"device {OWN_GPU!r}: GPUs cannot be claimed ({first_line(error)}); let TMPDIR name a"
            f" folder that this machine's processes can write to, or say {cite('device')} cuda"
        ) from None


def set_environment() -> None:
    """Set what torch and cuBLAS read when they first use a GPU, unless the user has set it.

    Memory in segments that grow, because batches have all sizes; products that do not depend on
    other streams of the process; cuDNN's attention after torch's own. Convolutions and LSTMs in
    float32 are rounded as float32, which is not cuDNN's default; the setting is for all threads.
    """
    if not any(name in os.environ for name in ALLOCATOR):
        os.environ[ALLOCATOR[torch.__version__ < "2.9"]] = _GROWING
        _configure_allocator(_GROWING)  # if torch has read the environment already
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # on Hopper torch would prefer it, and it plans each new shape, which most padded batches have
    os.environ.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    cudnn: Any = torch.backends.cudnn
    cudnn.allow_tf32 = False
    # torch's newer words for it; if a process has used them, the older ones alone change nothing
    for part in ("conv", "rnn"):
        if hasattr(getattr(cudnn, part, None), "fp32_precision"):
            getattr(cudnn, part).fp32_precision = "ieee"


def _configure_allocator(settings: str) -> bool:
    """Tell torch's allocator its settings; return whether this torch can be told."""
    configure = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if configure is None:
        return False
    configure(settings)
    return True


def try_growing(gpu: torch.device) -> None:
    """Allocate a first byte; without segments that grow if the driver does not support them.

    Drivers of some virtual GPUs do not.
    """
    name = next((name for name in ALLOCATOR if os.environ.get(name) == _GROWING), None)
    if name is None:
        return
    try:
        torch.empty(1, device=gpu)
    except RuntimeError as error:
        if "not supported" not in str(error).lower() or not _configure_allocator(_NOT_GROWING):
            raise
        os.environ[name] = _NOT_GROWING
