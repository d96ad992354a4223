"""Claim one GPU of a machine for this process, so that processes spread over its GPUs.

A claim is a locked file, which the system unlocks when its process ends, however it ends.
"""

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path


@dataclass
class Claims:
    """The claims of all processes of a user on GPUs, in a folder that they share.

    `own` is the GPU that this process has claimed, by process id: a forked child claims its own.
    """

    folder: Path
    own: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _files: list[int] = field(default_factory=list)  # open, and locked, until the process ends

    def claim(self, gpus: Sequence[str]) -> str:
        """Return the GPU that this process claims: one with the fewest claims, the first of them.

        Returns the same GPU again if this process has claimed one of `gpus` before.
        """
        with self._lock:
            claimed = self.own.get(os.getpid())
            if claimed is not None and claimed in gpus:
                return claimed
            self.folder.mkdir(mode=0o700, exist_ok=True)
            with _holding(self.folder / "claiming"):
                chosen = min(gpus, key=self._count_claims)
                self._files.append(self._take(chosen))
            self.own[os.getpid()] = chosen
            return chosen

    def _count_claims(self, gpu: str) -> int:
        """Return the number of processes that have claimed a GPU."""
        return sum(not _is_free(path) for path in self.folder.glob(f"{gpu}.*"))

    def _take(self, gpu: str) -> int:
        """Lock the first free file of a GPU; return its descriptor."""
        for number in count():
            descriptor = os.open(self.folder / f"{gpu}.{number}", os.O_RDWR | os.O_CREAT, 0o600)
            if _lock(descriptor):
                return descriptor
            os.close(descriptor)
        raise AssertionError("a file without end")


@cache
def open_machine_claims() -> Claims:
    """Return the claims of this machine's processes of this user."""
    return Claims(Path(tempfile.gettempdir()) / f"sentence-beam-gpus-{os.getuid()}")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _holding(path: Path) -> Iterator[None]:
    """Hold a lock for which others wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
