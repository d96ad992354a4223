"""Work in parallel on the cores of a processor, each piece on one core.

Cores that share every matrix product wait for each other after each one. With pieces of their own
they wait once, at the end, and a piece's result does not depend on the number of cores.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_STARTING = threading.Lock()


class Cores:
    """A pool of threads with one core each, as many as torch may use; the first `map` starts it."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Run `work` on each item in inference mode; yield the results in the items' order."""
        import torch  # late: reading a calibration does not need it

        return self._start_threads().map(torch.inference_mode()(work), items)

    def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` on one core; return its result."""
        return self._start_threads().submit(work).result()

    def _start_threads(self) -> ThreadPoolExecutor:
        import torch

        if self._executor is None:
            with _STARTING:
                self._executor = self._executor or _start_one_core_threads(torch.get_num_threads())
        return self._executor


def _start_one_core_threads(count: int) -> ThreadPoolExecutor:
    """Start a pool of threads in which torch uses one core each.

    The calling thread keeps its number of cores.
    """
    import torch

    executor = ThreadPoolExecutor(count, "core")
    started = threading.Barrier(count + 1)

    def start() -> None:
        # a thread's first use of torch sets its number of cores, over an earlier setting
        torch.get_num_threads()
        torch.set_num_threads(1)
        started.wait()

    for _ in range(count):
        executor.submit(start)
    started.wait()
    # the last setting of any thread is the default of threads that are new to torch
    torch.set_num_threads(count)
    return executor


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch use one core in the body, for work so small that several would mostly wait.

    Use it in processes with one thread: another thread that first uses torch meanwhile gets one
    core too, for good.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
