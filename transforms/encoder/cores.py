"""One batch a core: threads that each run whole batches on a core of their own.

Cores that share every matrix product wait for each other after each; with batches of their own they wait once a unit,
and a vector does not depend on how many of them there are.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

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
