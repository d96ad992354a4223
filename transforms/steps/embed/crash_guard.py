"""A guard around work that may kill its process: repeat it in a process of its own.

If a worker dies, an engine tries its work again, and again, and gives up without reporting the
cause. So a worker that begins an element leaves a mark, and one that finds the marks of two
attempts begins with this guard. One mark proves little: if machines are taken away, every element
in flight has one.
"""

import multiprocessing
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.storage.beam_options import (
    get_filesystem_options_as_dict,
    set_filesystem_options,
)
from sentence_beam.transforms.store import layout

# Spawned, not forked: the worker has threads and perhaps a GPU.
PROCESSES = multiprocessing.get_context("spawn")
Tell = Callable[[str], None]
Work = Callable[[Tell], None]


@dataclass(frozen=True)
class Death:
    """The step that a process died in, and the signal that ended it."""

    at: str
    signal: str


@contextmanager
def mark_work(root: str, run: str, name: str, work: Work) -> Iterator[None]:
    """Do the body's work under a mark that stays if this process dies or the body fails.

    From the third attempt on, `work` first runs alone. Raises SentenceBeamError if that dies too.
    """
    paths = [
        storage.join(root, layout.scratch(run, f"begun-{name}{again}")) for again in ("", ".again")
    ]
    place = storage.storage_of(root)
    nonce = uuid.uuid4().bytes  # some storage takes an equal mark for this process's own
    own = next((at for at, path in enumerate(paths) if place.put_if_absent(path, nonce)), None)
    if own is None:
        death = find_death(work)
        if death is not None:
            raise SentenceBeamError(
                f"{death.at}: the worker died of it ({death.signal}), also in a process that did"
                " nothing else; leave that text or file out, or mend the library that it crashes"
                " (SIGKILL: give workers more memory)"
            )
    yield
    if own is not None:
        paths = paths[: own + 1]
    place.delete(*paths)


def find_death(work: Work) -> Death | None:
    """Do the work in a process of its own, and return its death; None if it came to its end."""
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(
        target=_run_work, args=(work, there, get_filesystem_options_as_dict())
    )
    process.start()
    there.close()
    last = "its first step"
    while True:
        try:
            last = here.recv()
        except EOFError:
            break
    process.join()
    code = process.exitcode or 0
    return Death(last, signal.Signals(-code).name) if code < 0 else None


def _run_work(work: Work, there: Connection, options: dict[str, Any]) -> None:
    set_filesystem_options(options)
    work(there.send)
