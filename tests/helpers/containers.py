"""Processes that are the first of a namespace of process ids, as the first one of a container is."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def has_namespaces() -> bool:
    """Return whether this machine and user may make such a namespace."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not has_namespaces(), reason="no right to a namespace of process ids"
)


def terminated(process: "subprocess.Popen[bytes]") -> int:
    """Send SIGTERM to the first process of the namespace that a process made; return its status.

    Raises subprocess.TimeoutExpired if it goes on.
    """
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children), signal.SIGTERM)
    try:
        return process.wait(60)
    finally:
        process.kill()
