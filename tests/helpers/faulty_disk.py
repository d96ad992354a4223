"""A disk whose calls can be counted, refused, or be the last thing that a process does."""

import builtins
import contextlib
import errno
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

# The kind of each function of `os`; the first argument is the path, or the number of an open file.
FUNCTIONS = {
    "scandir": "list", "listdir": "list", "stat": "stat", "lstat": "stat", "fsync": "fsync", "link": "link",
    "rename": "rename", "replace": "rename", "unlink": "delete", "remove": "delete", "mkdir": "create", "open": "open",
}  # fmt: skip
WRITING = frozenset({"create", "write", "fsync", "link", "rename"})
# The kinds of calls that an error can come from.
ERRORS = {
    errno.ENOSPC: WRITING,
    errno.EIO: WRITING | {"list", "stat", "open", "read", "delete"},
    errno.EACCES: frozenset({"list", "stat", "open", "create", "link", "rename", "delete"}),
}
Act = Callable[[object], None]


@dataclass
class Disk:
    """The calls of this process on what is below a folder.

    Every call is noted as "kind path". The calls from the `first` on, a number or how the name of
    one begins, of which the kind is among `kinds`, are met by `act` before they are done; only the
    first of them unless `lasting`. A write is half done by then.
    """

    folder: Path
    first: int | str | None = None
    kinds: frozenset[str] = frozenset()
    act: Act = lambda path: None
    lasting: bool = False
    calls: list[str] = field(default_factory=list)
    met: int = 0
    lock: Any = field(default_factory=threading.RLock)

    def meets(self, kind: str, path: object) -> bool:
        """Note a call; whether it is one that is to be met."""
        name = self._below(path)
        if name is None:
            return False
        with self.lock:
            self.calls.append(f"{kind} {name}")
            if isinstance(self.first, str) and self.calls[-1].startswith(self.first):
                self.first = len(self.calls) - 1
            wanted = (
                isinstance(self.first, int) and len(self.calls) > self.first and kind in self.kinds
            )
            if not wanted or (self.met and not self.lasting):
                return False
            self.met += 1
        return True

    def step(self, kind: str, path: object) -> None:
        """Note a call and meet it."""
        if self.meets(kind, path):
            self.act(path)

    def _below(self, path: object) -> str | None:
        if isinstance(path, int):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{path}")
        if not isinstance(path, str | os.PathLike):
            return None
        full = os.path.abspath(os.fspath(path))
        return (
            os.path.relpath(full, self.folder)
            if full.startswith(f"{self.folder}{os.sep}")
            else None
        )

    @contextlib.contextmanager
    def used(self) -> Iterator["Disk"]:
        """Calls within the block go through this disk."""
        with contextlib.ExitStack() as stack:
            for name, kind in FUNCTIONS.items():
                stack.enter_context(
                    mock.patch.object(os, name, self._counted(getattr(os, name), kind))
                )
            opened = self._opened(builtins.open)
            stack.enter_context(mock.patch.object(builtins, "open", opened))
            stack.enter_context(mock.patch.object(io, "open", opened))
            yield self

    def _counted(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            self.step(kind, path)
            return function(path, *arguments, **options)

        return call

    def _opened(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if mode not in ("rb", "wb") or isinstance(path, int) or self._below(path) is None:
                return function(path, mode, *arguments, **options)
            self.step("open" if mode == "rb" else "create", path)
            file = _File(self, os.fspath(path), mode)
            return io.BufferedReader(file) if mode == "rb" else io.BufferedWriter(file)

        return call


class _File(io.FileIO):
    """A file of the disk: its reads and writes are calls too."""

    def __init__(self, disk: Disk, path: str, mode: str):
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data: Any) -> int:
        if self._disk.meets("write", self.name):
            super().write(memoryview(data)[: len(data) // 2])
            self._disk.act(None)
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        self._disk.step("read", self.fileno())
        return super().readinto(buffer) or 0

    def readall(self) -> bytes:
        self._disk.step("read", self.fileno())
        return super().readall()


def refuse(code: int) -> Act:
    """What a call is met with that fails; as the system does it, a call on an open file does not
    name it.
    """

    def act(path: object) -> None:
        named = (os.fspath(path),) if isinstance(path, str | os.PathLike) else ()
        raise OSError(code, os.strerror(code), *named)

    return act


def die(path: object) -> None:
    """What a call is met with that is the last one of its process."""
    os.kill(os.getpid(), signal.SIGKILL)


def freeze(path: object) -> None:
    """What a call is met with whose process stands still until it is woken."""
    os.kill(os.getpid(), signal.SIGSTOP)


def free_bytes(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let disks have so many free bytes."""
    usage = SimpleNamespace(free=number)
    patch.setattr(
        "sentence_beam.transforms.storage.bounded_cache.shutil.disk_usage", lambda path: usage
    )
