"""A line on a terminal that shows how far a run is; none where the output is no terminal."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from transforms import progress
from transforms.progress import duration

SECONDS = 0.5


@contextlib.contextmanager
def watched(out: TextIO) -> Iterator[None]:
    """Show rows, tokens a second and the time left while the body runs, if `out` is a terminal."""
    if not out.isatty():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(out, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        out.write("\r\033[K")
        out.flush()


def _show(out: TextIO, stop: threading.Event) -> None:
    started: float | None = None
    while not stop.wait(SECONDS):
        state = progress.current()
        if state.tokens and started is None:
            started = time.monotonic()
        out.write("\r\033[K" + line(state, time.monotonic() - started if started else 0.0))
        out.flush()


def line(state: progress.Progress, seconds: float) -> str:
    """The line for a terminal after so many seconds of encoding.

    >>> line(progress.Progress(rows=1200, tokens=30000, expected=90000), 10.0)
    '1,200 rows, 3,000 tokens/s, about 20s left'
    """
    if state.message:
        return state.message
    if not state.tokens or seconds <= 0:
        return "planning" if not state.expected else "loading the model"
    speed = state.tokens / seconds
    left = max(state.expected - state.tokens, 0) / speed
    return f"{state.rows:,} rows, {speed:,.0f} tokens/s, about {duration(left)} left"
