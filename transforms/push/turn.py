"""One push at a time into a table of a database without transactions.

Each push keeps a record of its own in the table's notes, which no other push writes, so that no
record is lost when two are written at once. The turn begins when the record is written, no other
push wrote since the look, and the database was told to refuse what other pushes still send: a push
may have been frozen inside a batch, or killed with a request under way. Clocks decide only how long
a silent push is waited for, never what a row is taken for.
"""

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from transforms.base import progress
from transforms.base.errors import SentenceBeamError
from transforms.push.state import MARK, Notes, PushRecord, State, note, note_name
from transforms.push.target import Table, refused
from transforms.store.runs import process
from transforms.store.runs.lease import RENEW_SECONDS, STALE_SECONDS, Lease

LOOK_SECONDS = 5


class Shared(Protocol):
    """A table that pushes of several processes may write into."""

    def read_notes(self) -> Notes | None:
        """Read the notes that the table keeps, None if it does not exist."""

    def write_notes(self, notes: Mapping[str, str | None]) -> None:
        """Write these notes at once, and no other ones; None removes a note."""

    def fence(self, push: str, others: Collection[str]) -> None:
        """Admit the writes of this push, and refuse all that these others sent or will send,
        whenever they arrive.
        """


class Turn:
    """The turn of one push."""

    def __init__(self, where: str, table: Shared):
        self.push = uuid.uuid4().hex
        self._where = where
        self._table = table
        self._found: State | None = None
        self._mine: PushRecord | None = None
        self._may_have_written = False
        self._looked = self._renewed = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether the push has its turn, and has not ended it."""
        return self._mine is not None

    def look(self) -> State | None:
        """Return what the table remembers. Raises SentenceBeamError if another push is under way.

        Waits for the next sign of life of a push on a machine with another clock.
        """
        first_seen: dict[tuple[str, float], float] = {}
        while True:
            self._found = self._read()
            waiting = False
            for name, writer in _writers(self._found):
                waiting = self._is_waited_for(name, writer, first_seen) or waiting
            if not waiting:
                return self._found
            with progress.stage("waiting for another push"):
                time.sleep(LOOK_SECONDS)

    def _is_waited_for(
        self, name: str, writer: Lease, first_seen: dict[tuple[str, float], float]
    ) -> bool:
        """Whether it is not known yet if a push goes on. Raises SentenceBeamError if it does."""
        if writer.is_of_the_dead:
            return False
        if _has_this_clock(writer):
            if time.time() - writer.renewed < STALE_SECONDS:
                raise self._busy(writer)
            return False
        if any(seen == name and renewed != writer.renewed for seen, renewed in first_seen):
            raise self._busy(writer)
        since = first_seen.setdefault((name, writer.renewed), time.monotonic())
        return time.monotonic() - since < STALE_SECONDS

    def _busy(self, writer: Lease) -> SentenceBeamError:
        what = f"another push into it is under way (process {writer.pid} on {writer.host})"
        return refused(
            self._where,
            what,
            f"wait for its end, or {STALE_SECONDS // 60} minutes if it was killed",
        )

    def take(self, table: Table, record: PushRecord, create: Callable[[Notes], None]) -> None:
        """Record the push, and have no other one write from here on; `create` makes a table that
        does not exist.

        Raises SentenceBeamError if another push wrote since the look, or at the same time.
        """
        before = self._table.read_notes()
        if self._parsed(before) != self._found:
            raise self._lost()
        writer = Lease.of_this_process(record.run, "push", self.push, in_process=True)
        self._mine = replace(record, writer=writer)
        try:
            if self._found is None:
                create(State(table.space, table.metric, {self.push: self._mine}).notes)
            else:
                self._table.write_notes(
                    _missing(self._found, before or {}) | {note_name(self.push): note(self._mine)}
                )
        except Exception as error:
            if self._read() != self._found:
                raise self._lost() from error
            raise
        self.check()
        others = self._found.unfinished if self._found else {}
        self._table.fence(self.push, list(others))
        self.check()
        self._may_have_written = True
        self._looked = self._renewed = time.monotonic()

    def keep(self) -> None:
        """Renew the sign of life before a batch. Raises SentenceBeamError if another push took the
        turn.
        """
        if self._mine is None or time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self.check()
        if time.monotonic() - self._renewed >= RENEW_SECONDS and self._mine.writer is not None:
            self._mine = replace(self._mine, writer=replace(self._mine.writer, renewed=time.time()))
            self._write({note_name(self.push): note(self._mine)})
            self._renewed = time.monotonic()
        self._looked = time.monotonic()

    def check(self) -> None:
        """Raise SentenceBeamError if another push took the turn that this one has."""
        if self._mine is not None and not self._is_mine():
            raise self._lost()

    def finish(self) -> None:
        """Record that the push is done. Raises SentenceBeamError if another push took the turn."""
        self.check()
        assert self._mine is not None
        others = list(self._found.pushes) if self._found else []
        done = replace(self._mine, done=True, replaces=tuple(others), writer=None)
        removed: dict[str, str | None] = dict.fromkeys(map(note_name, others))
        self._write(removed | {note_name(self.push): note(done)})
        self._mine = None

    def give_up(self) -> None:
        """Let the next push begin at once, if this one did not come to its end."""
        # the error that ended the push is raised; the turn ends with the process
        with contextlib.suppress(Exception):
            mine = self._mine
            self._mine = None
            state = self._read() if mine is not None else None
            if (
                mine is None
                or state is None
                or self.push not in state.pushes
                or state.pushes[self.push].done
            ):
                return
            text = None
            if self._may_have_written and self.push in state.live:
                text = note(replace(mine, writer=None))
            self._table.write_notes({note_name(self.push): text})

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write one batch. Raises SentenceBeamError if the database refused it because another push
        took the turn.
        """
        self.keep()
        try:
            yield
        except Exception as error:
            if self._mine is not None and not self._is_mine():
                raise self._lost() from error
            raise

    def _write(self, notes: Mapping[str, str | None]) -> None:
        """Write notes, once more if the database refused them because of notes that others wrote at
        the same time.
        """
        try:
            self._table.write_notes(notes)
        except Exception:
            self.check()
            self._table.write_notes(notes)

    def _is_mine(self) -> bool:
        """Whether the table remembers this push, and no other that began after the look."""
        state = self._read()
        known = set(self._found.pushes) if self._found else set()
        return (
            state is not None
            and self.push in state.pushes
            and set(state.pushes) <= known | {self.push}
        )

    def _read(self) -> State | None:
        return self._parsed(self._table.read_notes())

    def _parsed(self, notes: Notes | None) -> State | None:
        if notes is None:
            return None
        return State.from_notes(notes, self._where)

    def _lost(self) -> SentenceBeamError:
        return refused(
            self._where, "another push wrote into it meanwhile", "push again, one at a time"
        )


def _writers(state: State | None) -> list[tuple[str, Lease]]:
    """The processes that write, or that did not say that they stopped, with the names of their
    records.
    """
    records = state.unfinished if state else {}
    return [(name, record.writer) for name, record in records.items() if record.writer is not None]


def _missing(state: State, notes: Notes) -> dict[str, str | None]:
    """The notes that a table lacks into which an earlier version pushed, with the one that it keeps
    for everything.
    """
    missing: dict[str, str | None] = {
        name: text for name, text in state.notes.items() if name not in notes
    }
    return missing and missing | {MARK: state.notes[MARK]}


def _has_this_clock(writer: Lease) -> bool:
    """Whether the times that a process writes are by the clock of this machine."""
    return (
        writer.host == socket.gethostname()
        and writer.boot is not None
        and writer.boot == process.boot_id()
    )
