"""Counts of the work going on in this process, for whoever watches it there.

Beam's own metrics come only when a pipeline has ended; a person at a terminal wants to see it move. Worker processes
count too, but nobody looks.
"""

import threading
from dataclasses import dataclass, replace

_lock = threading.Lock()


@dataclass(frozen=True)
class Progress:
    """Rows and tokens that went through the model, and tokens that the plan expects (estimated).

    `message` is what other work than embedding says of itself.
    """

    rows: int = 0
    tokens: int = 0
    expected: int = 0
    message: str = ""


_state = Progress()


def planned(tokens: int) -> None:
    """Start from nothing, with so many tokens to come."""
    global _state
    with _lock:
        _state = Progress(expected=tokens)


def advance(rows: int, tokens: int) -> None:
    """Count a batch."""
    global _state
    with _lock:
        _state = replace(_state, rows=_state.rows + rows, tokens=_state.tokens + tokens)


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
