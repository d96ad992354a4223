"""Counts of the work going on in this process, for whoever watches it there.

Beam's own metrics come only when a pipeline has ended; a person at a terminal wants to see it move.
Worker processes count too, but nobody looks.
"""

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

LOADING = "loading the model"
_lock = threading.Lock()
Item = TypeVar("Item")


@dataclass(frozen=True)
class Progress:
    """Rows and tokens that went through the model, and tokens that the plan expects (estimated).

    `stage` is other work than embedding, which began at `since` (monotonic seconds), with `done` of
    `total` (0: not known) `things`; `message` is what it says of itself.
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
_ended = Progress()  # the state in which the last stage ended


def clear() -> None:
    """Start from nothing, with nothing expected."""
    _begin(Progress(since=time.monotonic()))


def planned(tokens: int) -> None:
    """Start from nothing, with so many tokens to come."""
    _begin(Progress(expected=tokens, since=time.monotonic()))


def advance(rows: int, tokens: int) -> None:
    """Count the rows and tokens of a batch that went through the model."""
    global _state
    with _lock:
        _state = replace(_state, rows=_state.rows + rows, tokens=_state.tokens + tokens)


@contextlib.contextmanager
def stage(what: str, total: int = 0, things: str = "") -> Iterator[None]:
    """Say what is under way inside, with so many things to do (0: not known); afterwards the work
    around it goes on.

    One that follows another of the same name and total goes on where that ended: a pipeline does
    its work in pieces.
    """
    global _state, _ended
    before = _state
    with _lock:
        same = (_ended.stage, _ended.total) == (what, total)
        since, done = (_ended.since, _ended.done) if same else (time.monotonic(), 0)
        _state = replace(
            _state, stage=what, since=since, done=done, total=total, things=things, message=""
        )
    try:
        yield
    finally:
        with _lock:
            _ended = _state
            _state = replace(
                before, rows=_state.rows, tokens=_state.tokens, expected=_state.expected
            )


def over(items: Collection[Item], what: str, things: str) -> Iterator[Item]:
    """The items, each counted when the next one is asked for, as a stage."""
    with stage(what, len(items), things):
        for item in items:
            yield item
            step()


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


def _begin(state: Progress) -> None:
    global _state, _ended
    with _lock:
        _state, _ended = state, Progress()
