"""Work side by side on the cores of a processor, each piece on one core.

Cores that share every matrix product wait for each other after each one; with pieces of their own
they wait once at the end, and what a piece gives does not depend on how many of them there are.
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
    """A pool of threads with one core each, as many as torch may use; they start with the first
    work.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results of `work`, run in inference mode, in the items' order, each once those before
        it are done.
        """
        import torch  # where calibrations are only read, it is not needed

        if self._executor is None:
            with _STARTING:
                self._executor = self._executor or _one_core_threads(torch.get_num_threads())
        return self._executor.map(torch.inference_mode()(work), items)


def _one_core_threads(count: int) -> ThreadPoolExecutor:
    """A pool of started threads in which torch uses one core each; the calling thread keeps its
    number of cores.
    """
    import torch

    executor, together = ThreadPoolExecutor(count, "core"), threading.Barrier(count + 1)

    def start() -> None:
        # a thread's first use of torch sets its share, over what was set before
        torch.get_num_threads()
        torch.set_num_threads(1)
        together.wait()

    for _ in range(count):
        executor.submit(start)
    together.wait()
    # what a thread sets is what threads that are new to torch begin with
    torch.set_num_threads(count)
    return executor


@contextmanager
def one_core() -> Iterator[None]:
    """One core for what torch does inside: for so little work that several would mostly wait for
    each other.

    For processes with one thread: another that uses torch for the first time meanwhile gets one
    core too, for good.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
