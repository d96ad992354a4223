"""Progress of a run: a bar or a clock on a terminal, else a line a minute."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TextIO

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.progress import Progress, format_duration

SECONDS = 0.5
SECONDS_APART = 60.0  # if nobody sees a line that moves
_watching = False
_silent = False  # nothing is shown, although a run is watched
_unheard = ContextVar("_unheard", default=False)  # nothing is printed: a program calls


@contextlib.contextmanager
def watching(out: TextIO | None) -> Iterator[None]:
    """Show the progress while the body runs; `out` is None if the process has no stream."""
    global _watching
    stop = threading.Event()
    progress.clear()
    _watching = True
    thread = threading.Thread(target=_show, args=(out, stop), daemon=True)
    if out is not None:
        thread.start()
    try:
        yield
    finally:
        _watching = False
        stop.set()
        if out is not None:
            thread.join()
            _write(out, _make_eraser(out))


@contextlib.contextmanager
def hiding_progress() -> Iterator[None]:
    """Show no progress inside: for commands that run until somebody ends them."""
    global _silent
    _silent = True
    try:
        yield
    finally:
        _silent = False


@contextlib.contextmanager
def muting() -> Iterator[None]:
    """Suppress the lines that the body prints for a person."""
    token = _unheard.set(True)
    try:
        yield
    finally:
        _unheard.reset(token)


def print_news(text: str) -> None:
    """Print a line on stderr if a run is watched there, else nothing."""
    if _watching:
        print_aside(text)


def print_aside(text: str) -> None:
    """Print a line on stderr, unless a program calls."""
    if sys.stderr is not None and not _unheard.get():
        print(f"{_make_eraser(sys.stderr)}{text}", file=sys.stderr)


def _show(out: TextIO, stop: threading.Event) -> None:
    moves = _can_move(out)
    first_batch = 0.0
    is_shown = False
    while not stop.wait(SECONDS if moves else SECONDS_APART):
        if _silent:
            _write(out, _make_eraser(out) if is_shown else "")
            is_shown = False
            continue
        state = progress.current()
        now = time.monotonic()
        if not state.tokens:
            first_batch = 0.0
        elif not first_batch:
            first_batch = now
        seconds = now - (state.since if state.stage else first_batch or state.since)
        if moves:
            width = measure_columns(out) - 1
            _write(out, f"\r{draw_bar(state, seconds, width, _has_blocks(out)):{width}.{width}}")
        else:
            _write(out, f"{describe_progress(state, seconds)}\n")
        is_shown = True


def _write(out: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
        out.write(text)
        out.flush()


def draw_bar(state: Progress, seconds: float, width: int, blocks: bool = True) -> str:
    """Return the line of a terminal of `width` characters: a bar if the total is known, else a
    clock.

    >>> bar(Progress(stage="verifying", done=20, total=60, things="shards"), 10.0, 66, blocks=False)
    'verifying:  33%|####3        | 20/60 [00:10<00:20,  2.00 shards/s]'
    >>> bar(Progress(stage="loading the model"), 3.0, 66)
    'loading the model, 3s'
    """
    from tqdm.std import tqdm

    if state.message or not (state.total or (state.expected and state.tokens and not state.stage)):
        return describe_progress(state, seconds)
    if state.stage:
        done = state.done
        total = state.total
        unit = state.things
        rows = None
    else:
        done = state.tokens
        total = max(state.tokens, state.expected)
        unit = "tokens"
        rows = f"{state.rows:,} rows"
    named = state.stage or "embedding"
    shown = tqdm.format_meter(
        done, total, seconds, ncols=width, prefix=named, ascii=not blocks, unit=f" {unit}",
        unit_scale=total >= 10_000, postfix=rows,
    )  # fmt: skip
    return str(shown)


def describe_progress(state: Progress, seconds: float) -> str:
    """Return the line after some seconds of encoding, or of the current stage.

    >>> line(Progress(rows=1200, tokens=30000, expected=90000), 10.0)
    '1,200 rows, 3,000 tokens/s, about 20s left'
    >>> line(Progress(stage="verifying", done=20, total=60, things="shards"), 10.0)
    'verifying: 20 of 60 shards, about 20s left'
    >>> line(Progress(stage="loading the model"), 3.0)
    'loading the model, 3s'
    """
    if state.message:
        return state.message
    if state.stage and state.done and state.total:
        left = (state.total - state.done) * seconds / state.done
        return (
            f"{state.stage}: {state.done:,} of {state.total:,} {state.things}, about"
            f" {format_duration(max(left, 0))} left"
        )
    if state.stage:
        done = f": {state.done:,} {state.things}" if state.done else ""
        return f"{state.stage}{done}, {format_duration(seconds)}"
    if not state.tokens or seconds <= 0:
        what = "waiting for the first batch" if state.expected else "getting ready"
        return f"{what}, {format_duration(seconds)}"
    speed = state.tokens / seconds
    left = max(state.expected - state.tokens, 0) / speed
    return f"{format_count(state.rows, 'row')}, {speed:,.0f} tokens/s, about {format_duration(left)} left"


def _can_move(out: TextIO) -> bool:
    """Whether a line can be overwritten: on a terminal or in a notebook."""
    return out.isatty() or type(out).__module__.startswith("ipykernel.")


def _make_eraser(out: TextIO) -> str:
    """Return the characters that erase the moving line."""
    return f"\r{'':{measure_columns(out) - 1}}\r" if _can_move(out) else ""


def _has_blocks(out: TextIO) -> bool:
    """Whether the terminal's encoding has the characters of a smooth bar."""
    try:
        "█▏".encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def measure_columns(out: TextIO) -> int:
    """The width of a terminal in characters; 80 if it does not say."""
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
