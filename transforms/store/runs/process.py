"""Processes of this machine, told apart from those of other containers, other boots and from later
ones of equal id.
"""

import os
import sys
from pathlib import Path

PROC = Path("/proc")
DEAD = {"Z", "X"}  # states of a process that has ended and only waits to be counted


def boot_id() -> str:
    """The id of the machine's present boot, empty if Linux does not tell it."""
    if _is_linux():
        return _read(PROC / "sys/kernel/random/boot_id").strip()
    return sys.platform


def pid_namespace() -> str:
    """What the process ids seen here belong to, a container's or the machine's; empty if Linux
    does not tell it.
    """
    if not _is_linux():
        return sys.platform
    try:
        return os.readlink(PROC / "self/ns/pid")
    except OSError:
        return ""


def start_of(pid: int) -> int | None:
    """The start of a process in clock ticks since the boot, 0 if that cannot be known; None
    if there is none.
    """
    if pid < 1:  # to the system: a group of processes
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # another user's
    # the name before may hold anything
    fields = _read(PROC / str(pid) / "stat").rpartition(")")[2].split()
    if not fields:
        return 0
    return None if fields[0] in DEAD else int(fields[19])


def _is_linux() -> bool:
    return sys.platform == "linux"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
