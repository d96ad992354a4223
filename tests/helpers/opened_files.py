"""The files that a piece of code opens, also from Rust and C: inotify tells of those in a folder,
Python's audit events of those elsewhere.
"""

import contextlib
import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_IN_OPEN = 0x20
_IN_ISDIR = 0x40000000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MODELS = (".json", ".safetensors", ".txt", ".model", ".jinja", ".bin", ".spm")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class OpenedFiles:
    """Files below the folder, and files elsewhere that could be a model's."""

    inside: set[Path] = field(default_factory=set)
    outside: set[Path] = field(default_factory=set)


_recording: list[OpenedFiles] = []
_hooked: list[bool] = []


@contextlib.contextmanager
def opened_files(folder: Path) -> Iterator[OpenedFiles]:
    """Record the files that the body opens; complete once the body has ended."""
    found = OpenedFiles()
    if not _hooked:  # a hook cannot be taken away again
        sys.addaudithook(_note)
        _hooked.append(True)
    queue = _libc.inotify_init1(os.O_NONBLOCK)
    try:
        watches = _watch(queue, folder)
        _recording.append(found)
        try:
            yield found
        finally:
            _recording.remove(found)
        found.inside = set(_events(queue, watches))
        found.outside = {path for path in found.outside if not path.is_relative_to(folder)}
    finally:
        os.close(queue)


def _watch(queue: int, folder: Path) -> dict[int, Path]:
    watches = {}
    for root, _, _ in os.walk(folder):
        number = _libc.inotify_add_watch(queue, os.fsencode(root), _IN_OPEN)
        assert number >= 0, os.strerror(ctypes.get_errno())
        watches[number] = Path(root)
    return watches


def _events(queue: int, watches: dict[int, Path]) -> Iterator[Path]:
    with contextlib.suppress(BlockingIOError):
        while data := os.read(queue, 1 << 16):
            place = 0
            while place < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size
                name = data[place : place + length].rstrip(b"\0")
                place += length
                if name and not mask & _IN_ISDIR:
                    yield watches[number] / os.fsdecode(name)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _recording or not isinstance(arguments[0], str | bytes):
        return
    path = Path(os.path.abspath(os.fsdecode(arguments[0])))
    if path.suffix in _MODELS and not _is_installed(path):
        _recording[-1].outside.add(path)


def _is_installed(path: Path) -> bool:
    """Whether a file belongs to Python's packages: the imports that a load does."""
    return any(path.is_relative_to(sysconfig.get_path(key)) for key in ("stdlib", "purelib"))
