"""One push at a time into a table of a database without transactions: what the table remembers says whose turn it is.

No such database compares before it writes, so that a turn is taken by a write and a look whether that stood. A push
whose turn another one took stops before its next batch; what it wrote is made good by the other, which knows of it.
"""

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from transforms.errors import SentenceBeamError
from transforms.push.target import State, refused
from transforms.store.lease import RENEW_SECONDS, STALE_SECONDS, Lease

SETTLE_SECONDS = 0.5  # after which a push that took the turn in the same moment is seen
LOOK_SECONDS = 5
Write = Callable[[State], None]


class Turn:
    """The turn of one push; `read` and `write` are those of what the database remembers."""

    def __init__(self, where: str, read: Callable[[], State | None], write: Write):
        self._where, self._read, self._write = where, read, write
        self._found: State | None = None
        self._mine: State | None = None
        self._looked = self._renewed = 0.0

    def look(self) -> State | None:
        """What the database remembers. Raises SentenceBeamError where it is another push's turn."""
        self._found = self._read()
        writer = self._found.writer if self._found else None
        if writer is not None and not writer.is_of_the_dead and time.time() - writer.renewed < STALE_SECONDS:
            what = f"another push into it is under way (process {writer.pid} on {writer.host})"
            raise refused(self._where, what, f"wait for its end, or {STALE_SECONDS // 60} minutes if it was killed")
        return self._found

    def take(self, state: State, write: Write | None = None) -> None:
        """Remember the state, and that it is this push's turn; `write` does it the first time.

        Raises SentenceBeamError where another push wrote there since the look, or at the same time.
        """
        if self._read() != self._found:
            raise self._lost()
        writer = Lease.of_this_process(state.pending[-1], "push", uuid.uuid4().hex, in_process=True)
        self._mine = replace(state, writer=writer)
        (write or self._write)(self._mine)
        time.sleep(SETTLE_SECONDS)
        self._check()
        self._looked = self._renewed = time.monotonic()

    def keep(self) -> None:
        """Before each batch: raises SentenceBeamError where another push took the turn; says that this one lives."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        mine = self._check()
        if time.monotonic() - self._renewed >= RENEW_SECONDS and mine.writer is not None:
            self._mine = replace(mine, writer=replace(mine.writer, renewed=time.time()))
            self._write(self._mine)
            self._renewed = time.monotonic()
        self._looked = time.monotonic()

    def end(self, state: State) -> None:
        """Remember the state, and that nobody writes. Raises SentenceBeamError where another push took the turn."""
        self._check()
        self._mine = None
        self._write(replace(state, writer=None))

    def give_up(self) -> None:
        """Let the next push begin at once, where this one did not come to its end."""
        with contextlib.suppress(Exception):  # what ended the push is told; the turn ends with the process
            if self._mine is not None:
                mine, self._mine = self._check(), None
                self._write(replace(mine, writer=None))

    def _check(self) -> State:
        """The state as this push wrote it. Raises SentenceBeamError where another one did."""
        found, mine = self._read(), self._mine
        if found is None or mine is None or found.writer is None or mine.writer is None:
            raise self._lost()
        if found.writer.job != mine.writer.job:
            raise self._lost()
        return mine

    def _lost(self) -> SentenceBeamError:
        return refused(self._where, "another push wrote into it meanwhile", "push again, one at a time")
