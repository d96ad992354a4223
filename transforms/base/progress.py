"""Count the work that is going on in this process, for the progress line of a terminal.

Beam's own metrics come only when a pipeline has ended. Worker processes count too, but nobody
looks at their counts.
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
    """Rows and tokens that went through the model, and the plan's estimate of all tokens.

    `stage` is other work than embedding, which began at `since` (monotonic seconds), with `done` of
    `total` (0: unknown) `things`; `message` is its own text.
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
_ended = Progress()  # the state when the last stage ended


def clear() -> None:
    """Reset all counts; no tokens are expected."""
    planned(0)


def planned(tokens: int) -> None:
    """Reset all counts; expect some tokens."""
    global _state, _ended
    with _lock:
        _state = Progress(expected=tokens, since=time.monotonic())
        _ended = Progress()


def advance(rows: int, tokens: int) -> None:
    """Count the rows and tokens of a batch that went through the model."""
    global _state
    with _lock:
        _state = replace(_state, rows=_state.rows + rows, tokens=_state.tokens + tokens)


@contextlib.contextmanager
def stage(what: str, total: int = 0, things: str = "") -> Iterator[None]:
    """Show the body's work as a stage of `total` things (0: unknown); then show the work around it.

    A stage that follows one of the same name and total continues its counts, because a pipeline
    works in pieces.
    """
    global _state, _ended
    before = _state
    with _lock:
        continues = (_ended.stage, _ended.total) == (what, total)
        since = _ended.since if continues else time.monotonic()
        done = _ended.done if continues else 0
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


def count_over(items: Collection[Item], what: str, things: str) -> Iterator[Item]:
    """Yield the items as a stage; each is counted when the next one is requested."""
    with stage(what, len(items), things):
        for item in items:
            yield item
            step()


def step(done: int = 1) -> None:
    """Count things of the current stage."""
    global _state
    with _lock:
        _state = replace(_state, done=_state.done + done)


def tell(text: str) -> None:
    """Set the message of the current stage."""
    global _state
    with _lock:
        _state = replace(_state, message=text)


def current() -> Progress:
    """Return the counts so far."""
    return _state


def format_duration(seconds: float) -> str:
    """Return seconds in short: 45s, 12m30s, 3h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
