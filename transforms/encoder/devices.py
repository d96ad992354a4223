"""A batch a device: every device of the machine works on batches of its own, taken from one line.

A thread a device hands it work on a stream of its own and stays ahead of it, so that tokens are copied while the last
batch is computed, and a faster device takes more batches.
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
from transforms.encoder.replica import Part, Replica

AHEAD = 2  # batches that a device has been given and has not finished


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
