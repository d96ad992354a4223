"""SIGTERM ends a command as Ctrl-C does: service managers and containers send it to stop one."""

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from sentence_beam.transforms.base.errors import STOPPED, TERMINATED

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_SECONDS = 0.01  # until a lost interrupt is raised again

_received = False


@contextlib.contextmanager
def interrupting_by_sigterm() -> Iterator[None]:
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


@contextlib.contextmanager
def raising_lost_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt in the body again if Python has dropped it.

    Python drops what a finalizer or the callback of a weak reference raises, and an interrupt may
    arrive there: the end of each thread calls one. This is for a process that runs one command.
    """
    before = sys.unraisablehook
    signal.signal(signal.SIGALRM, _raise_again)
    sys.unraisablehook = _keep_interrupt
    try:
        yield
    finally:
        sys.unraisablehook = before


def end_interrupted(status: int) -> NoReturn:
    """End an interrupted process without waiting for its threads.

    A thread that an interrupt left behind may never end: Beam's sampler of a bundle, if the
    interrupt came between its start and the note of it.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(status)


def find_stopped_status() -> int:
    """Return the exit status of a command that was stopped by SIGTERM or by Ctrl-C."""
    return TERMINATED if _received else STOPPED


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _received
    _received = True
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _keep_interrupt(dropped: "UnraisableHookArgs") -> None:
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    # not here: Python would drop it again
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)


def _raise_again(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _die_of_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
