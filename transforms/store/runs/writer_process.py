"""Processes of this machine, told apart from other containers, boots and later equal ids."""

import hashlib
import os
import re
import sys
from pathlib import Path

PROC = Path("/proc")
MACHINE_ID = Path("/etc/machine-id")
NETWORK = Path("/sys/class/net")
# the process ids of the machine itself; a container has others (Linux: PROC_PID_INIT_INO)
WHOLE_MACHINE = "pid:[4026531836]"
DEAD = {"Z", "X"}  # states of a process that has ended and only waits to be counted


def read_boot_id() -> str:
    """Return the id of the machine's present boot, empty if Linux does not tell it."""
    return _read(PROC / "sys/kernel/random/boot_id").strip() if _is_linux() else sys.platform


def machine() -> str:
    """Return a hash by which this machine is known in its next boot, empty in case of doubt.

    It covers the id of the installation, which cloned disks share, and the addresses of network
    cards, by which clones differ. A container has neither for certain: its id may be its image's.
    """
    own = _read(MACHINE_ID).strip()
    if pid_namespace() != WHOLE_MACHINE or not re.fullmatch("[0-9a-f]{32}", own):
        return ""
    cards = (card for card in NETWORK.glob("*") if (card / "device").exists())
    addresses = sorted(_read(card / "address").strip() for card in cards)
    return hashlib.sha256("\n".join([own, *addresses]).encode()).hexdigest()[:32]


def pid_namespace() -> str:
    """Return the namespace of the process ids seen here, a container's or the machine's.

    It is empty if Linux does not tell it.
    """
    if not _is_linux():
        return sys.platform
    try:
        return os.readlink(PROC / "self/ns/pid")
    except OSError:
        return ""


def read_start(pid: int) -> int | None:
    """Return the start of a process in clock ticks since the boot.

    Returns 0 if the start is unknown, None if the process does not exist.
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
