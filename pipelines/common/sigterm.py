"""SIGTERM ends a command as Ctrl-C does: service managers and containers send it to stop one."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from sentence_beam.transforms.base.errors import STOPPED, TERMINATED

_received = False


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt in the body at the first SIGTERM.

    This is for a process that runs one command. Without a handler the kernel drops the signal if
    the process is the first one of a container. Later signals are ignored, so that they do not
    interrupt the clean-up. Forked children die of the signal. If the process was started with
    SIGTERM ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    os.register_at_fork(after_in_child=_die_of_sigterm)
    try:
        yield
    finally:
        if not _received:
            _die_of_sigterm()


def stopped_status() -> int:
    """Return the exit status of a command that was stopped by SIGTERM or by Ctrl-C."""
    if _received:
        return TERMINATED
    return STOPPED


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _received
    _received = True
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _die_of_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
