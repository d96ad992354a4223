"""Counts of the work going on in this process, for whoever watches it there.

Beam's own metrics come only when a pipeline has ended; a person at a terminal wants to see it move. Worker processes
count too, but nobody looks.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

_lock = threading.Lock()


@dataclass(frozen=True)
class Progress:
    """Rows and tokens that went through the model, and tokens that the plan expects (estimated).

    `stage` is other work than embedding, which began at `since` (monotonic seconds), with `done` of `total` (0: not
    known) `things`; `message` is what it says of itself.
    """

    rows: int = 0
    tokens: int = 0
    expected: int = 0
    stage: str = ""
    since: float = 0.0
    done: int = 0
    total: int = 0
    things: str = ""
    message: str = ""


_state = Progress()


def clear() -> None:
    """Start from nothing."""
    _set(Progress(since=time.monotonic()))


def planned(tokens: int) -> None:
    """Start from nothing, with so many tokens to come."""
    _set(Progress(expected=tokens, since=time.monotonic()))


def advance(rows: int, tokens: int) -> None:
    """Count a batch."""
    global _state
    with _lock:
        _state = replace(_state, rows=_state.rows + rows, tokens=_state.tokens + tokens)


@contextlib.contextmanager
def stage(what: str, total: int = 0, things: str = "") -> Iterator[None]:
    """Say what is under way inside, with so many things to do (0: not known); afterwards the work around it goes on."""
    global _state
    before = _state
    with _lock:
        _state = replace(_state, stage=what, since=time.monotonic(), done=0, total=total, things=things, message="")
    try:
        yield
    finally:
        with _lock:
            _state = replace(before, rows=_state.rows, tokens=_state.tokens, expected=_state.expected)


def step(done: int = 1) -> None:
    """Count so many things of the stage under way."""
    global _state
    with _lock:
        _state = replace(_state, done=_state.done + done)


def tell(text: str) -> None:
    """Say how far other work is."""
    global _state
    with _lock:
        _state = replace(_state, message=text)


def current() -> Progress:
    """The counts so far."""
    return _state


def duration(seconds: float) -> str:
    """Seconds in short: 45s, 12m30s, 3h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _set(state: Progress) -> None:
    global _state
    with _lock:
        _state = state
