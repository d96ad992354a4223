"""How far a run is: a line that moves on a terminal, and a line a minute where the output is none."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from transforms import progress
from transforms.progress import duration

SECONDS = 0.5
SECONDS_APART = 60.0  # where the output is no terminal
_ERASE = "\r\033[K"


@contextlib.contextmanager
def watched(out: TextIO) -> Iterator[None]:
    """Show what is under way while the body runs: rows, tokens a second and the time left, or what is waited for."""
    stop = threading.Event()
    progress.clear()
    thread = threading.Thread(target=_show, args=(out, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if out.isatty():
            out.write(_ERASE)
            out.flush()


def aside(text: str) -> None:
    """Print a line on stderr while a run is watched there."""
    print(f"{_ERASE if sys.stderr.isatty() else ''}{text}", file=sys.stderr)


def _show(out: TextIO, stop: threading.Event) -> None:
    moves, started = out.isatty(), 0.0
    while not stop.wait(SECONDS if moves else SECONDS_APART):
        state = progress.current()
        if state.tokens and not started:
            started = time.monotonic()
        text = line(state, time.monotonic() - (started or state.since) if not state.stage else waited(state))
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            out.write(f"{_ERASE}{text[: columns(out) - 1]}" if moves else f"{text}\n")
            out.flush()


def waited(state: progress.Progress) -> float:
    """Seconds since the stage under way began."""
    return time.monotonic() - state.since


def line(state: progress.Progress, seconds: float) -> str:
    """The line after so many seconds of encoding, or of the stage under way.

    >>> line(progress.Progress(rows=1200, tokens=30000, expected=90000), 10.0)
    '1,200 rows, 3,000 tokens/s, about 20s left'
    >>> line(progress.Progress(stage="verifying", done=20, total=60, things="shards"), 10.0)
    'verifying: 20 of 60 shards, about 20s left'
    >>> line(progress.Progress(stage="loading the model"), 3.0)
    'loading the model, 3s'
    """
    if state.message:
        return state.message
    if state.stage and state.done and state.total:
        left = (state.total - state.done) * seconds / state.done
        return f"{state.stage}: {state.done:,} of {state.total:,} {state.things}, about {duration(max(left, 0))} left"
    if state.stage:
        done = f": {state.done:,} {state.things}" if state.done else ""
        return f"{state.stage}{done}, {duration(seconds)}"
    if not state.tokens or seconds <= 0:
        return f"{'waiting for the first batch' if state.expected else 'getting ready'}, {duration(seconds)}"
    speed = state.tokens / seconds
    left = max(state.expected - state.tokens, 0) / speed
    return f"{state.rows:,} rows, {speed:,.0f} tokens/s, about {duration(left)} left"


def columns(out: TextIO) -> int:
    """The width of a terminal in characters; 80 where it does not say."""
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
