"""Turns of pushes, one at a time, into a table of a database without transactions.

Each push has its own record in the table's notes, which no other push writes, so that no record is
lost when two are written at once. The turn begins when three things are done: the record is
written, no other push has written since the look, and the database refuses late writes of other
pushes. Such a push may have been frozen inside a batch, or killed during a request. Clocks only
decide how long to wait for a silent push, never which rows the table holds.
"""

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.push.state import Notes, PushRecord, State, format_note, name_note
from sentence_beam.transforms.push.target import Table, explain_refusal
from sentence_beam.transforms.store.runs import writer_process
from sentence_beam.transforms.store.runs.lease import RENEW_SECONDS, STALE_SECONDS
from sentence_beam.transforms.store.runs.lease_file import Lease

LOOK_SECONDS = 5


class Shared(Protocol):
    """A table into which pushes of several processes may write."""

    def read_notes(self) -> Notes | None:
        """Read the table's notes; None if the table does not exist."""

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Write these notes at once, and no others; None removes a note."""

    def fence(self, push: str, others: Collection[str]) -> None:
        """Admit the writes of this push, and refuse all writes of the others, however late."""


class Turn:
    """The turn of one push."""

    def __init__(self, where: str, table: Shared):
        self.push = uuid.uuid4().hex
        self._where = where
        self._table = table
        self._state: State | None = None
        self._mine: PushRecord | None = None
        self._may_have_written = False
        self._looked = 0.0
        self._renewed = 0.0
        self._lock = threading.Lock()

    @property
    def is_taken(self) -> bool:
        """Whether the push has its turn."""
        return self._mine is not None

    def look(self) -> State | None:
        """Return the state of the table. Raises SentenceBeamError if another push is running.

        If a push on a machine with another clock may be running, this waits for its next sign of
        life.
        """
        first_seen: dict[tuple[str, float], float] = {}
        while True:
            self._state = self._read()
            waiting = False
            records = self._state.unfinished if self._state is not None else {}
            for name, record in records.items():
                if record.writer is not None:
                    waiting = self._is_waited_for(name, record.writer, first_seen) or waiting
            if not waiting:
                return self._state
            with progress.stage("waiting for another push"):
                time.sleep(LOOK_SECONDS)

    def _is_waited_for(
        self, name: str, writer: Lease, first_seen: dict[tuple[str, float], float]
    ) -> bool:
        """Whether it is still unknown if a push runs. Raises SentenceBeamError if it does."""
        if writer.is_of_the_dead:
            return False
        if _has_this_clock(writer):
            if time.time() - writer.renewed < STALE_SECONDS:
                raise self._explain_busy(writer)
            return False
        if any(seen == name and renewed != writer.renewed for seen, renewed in first_seen):
            raise self._explain_busy(writer)
        since = first_seen.setdefault((name, writer.renewed), time.monotonic())
        return time.monotonic() - since < STALE_SECONDS

    def _explain_busy(self, writer: Lease) -> SentenceBeamError:
        what = f"another push into it is under way (process {writer.pid} on {writer.host})"
        mend = f"wait for its end, or {STALE_SECONDS // 60} minutes if it was killed"
        return explain_refusal(self._where, what, mend)

    def take(self, table: Table, record: PushRecord, create: Callable[[Notes], None]) -> None:
        """Record the push, and let no other one write from here on.

        `create` makes a table that does not exist. Raises SentenceBeamError if another push wrote
        since the look, or at the same time.
        """
        before = self._table.read_notes()
        if self._parse(before) != self._state:
            raise self._explain_loss()
        writer = Lease.from_this_process(record.run, "push", self.push, in_process=True)
        self._mine = replace(record, writer=writer)
        try:
            if self._state is None:
                create(State(table.space, table.metric, {self.push: self._mine}).notes)
            else:
                self._table.write_notes({name_note(self.push): format_note(self._mine)})
        except Exception as error:
            if self._read() != self._state:
                raise self._explain_loss() from error
            raise
        self.check()
        others = list(self._state.unfinished) if self._state is not None else []
        self._table.fence(self.push, others)
        self.check()
        self._may_have_written = True
        self._looked = time.monotonic()
        self._renewed = self._looked

    def keep(self) -> None:
        """Renew the sign of life before a batch.

        Raises SentenceBeamError if another push took the turn.
        """
        with self._lock:  # several threads may write
            if self._mine is None or time.monotonic() - self._looked < LOOK_SECONDS:
                return
            self.check()
            writer = self._mine.writer
            if time.monotonic() - self._renewed >= RENEW_SECONDS and writer is not None:
                self._mine = replace(self._mine, writer=replace(writer, renewed=time.time()))
                self._write({name_note(self.push): format_note(self._mine)})
                self._renewed = time.monotonic()
            self._looked = time.monotonic()

    def check(self) -> None:
        """Raise SentenceBeamError if another push took this one's turn."""
        if self._mine is not None and not self._is_mine():
            raise self._explain_loss()

    def finish(self) -> None:
        """Record that the push is done. Raises SentenceBeamError if another push took the turn."""
        self.check()
        assert self._mine is not None
        others = list(self._state.pushes) if self._state is not None else []
        done = replace(self._mine, done=True, replaces=tuple(others), writer=None)
        removed: dict[str, str | None] = dict.fromkeys(map(name_note, others))
        self._write(removed | {name_note(self.push): format_note(done)})
        self._mine = None

    def give_up(self) -> None:
        """End the turn of an unfinished push, so that the next one need not wait."""
        # the error that ended the push is raised; the turn ends with the process
        with contextlib.suppress(Exception):
            mine = self._mine
            if mine is None:
                return
            self._mine = None
            state = self._read()
            if state is None:
                return
            own = state.pushes.get(self.push)
            if own is None or own.done:
                return
            may_have_rows = self._may_have_written and self.push in state.live
            text = format_note(replace(mine, writer=None)) if may_have_rows else None
            self._table.write_notes({name_note(self.push): text})

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write one batch inside the block.

        Raises SentenceBeamError if the database refused it because another push took the turn.
        """
        self.keep()
        try:
            yield
        except Exception as error:
            if self._mine is not None and not self._is_mine():
                raise self._explain_loss() from error
            raise

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the sign of life while workers write inside the block.

        Raises SentenceBeamError if another push took the turn.
        """
        ended = threading.Event()
        renewing = threading.Thread(target=self._keep_until, args=(ended,), daemon=True)
        renewing.start()
        try:
            yield
        except Exception as error:
            if not self._is_mine():
                raise self._explain_loss() from error
            raise
        finally:
            ended.set()
            renewing.join()
        self.check()

    def _keep_until(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_SECONDS):
            with contextlib.suppress(Exception):  # a turn that is lost is noticed at the end
                self.keep()

    def _write(self, notes: Mapping[str, str | None]) -> None:
        """Write notes; retry once, since the database refuses notes that are written at once."""
        try:
            self._table.write_notes(notes)
        except Exception:
            self.check()
            self._table.write_notes(notes)

    def _is_mine(self) -> bool:
        """Whether the table has this push's record, and none that began after the look."""
        state = self._read()
        if state is None or self.push not in state.pushes:
            return False
        before = self._state.pushes if self._state is not None else {}
        return {self.push, *before}.issuperset(state.pushes)

    def _read(self) -> State | None:
        return self._parse(self._table.read_notes())

    def _parse(self, notes: Notes | None) -> State | None:
        return None if notes is None else State.from_notes(notes, self._where)

    def _explain_loss(self) -> SentenceBeamError:
        return explain_refusal(
            self._where, "another push wrote into it meanwhile", "push again, one at a time"
        )


def _has_this_clock(writer: Lease) -> bool:
    """Whether a process writes times by the clock of this machine."""
    return (
        writer.host == socket.gethostname()
        and writer.boot is not None
        and writer.boot == writer_process.read_boot_id()
    )
