"""The record that a database keeps of the pushes into a table: what its rows may be.

Each row of a table is as one of the snapshots in `State.live` has it. A push adds its record before
it writes a row. When it has written all that was lacking, it says which records it replaced: those
that were there when it began, whose pushes cannot write any more. A record that is written late, by
a push that was frozen, only adds a snapshot that the next push compares with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transforms.base.entries import JsonEntry
from transforms.base.errors import OptionError
from transforms.space import Space
from transforms.store.runs.lease import Lease

# name of the note about the table; records of pushes have names of their own after a dot
MARK = "sentence_beam"
FORMAT = 2
FIRST_HELD = "first"  # names of the records made of a state of format 1
FIRST_PENDING = "first-{}"

Notes = Mapping[str, str]


@dataclass(frozen=True)
class PushRecord(JsonEntry):
    """One push: the snapshot that it writes, and the columns of its rows with their types.

    A push is `done` when every lacking row is written. `whole` says that it writes all rows,
    because what the table held before is not known. `replaces` names the records whose rows it made
    good. `writer` is the process that writes, None after it stopped.
    """

    run: str
    columns: dict[str, str]
    whole: bool = False
    done: bool = False
    replaces: tuple[str, ...] = ()
    writer: Lease | None = None


@dataclass(frozen=True)
class State:
    """What a database remembers of a table: space and metric of its vectors, and the records of
    pushes by name.
    """

    space: Space
    metric: str
    pushes: Mapping[str, PushRecord] = field(default_factory=dict)

    @property
    def live(self) -> dict[str, PushRecord]:
        """The records that no finished push replaced."""
        replaced = {
            name for record in self.pushes.values() if record.done for name in record.replaces
        }
        return {name: record for name, record in self.pushes.items() if name not in replaced}

    @property
    def unfinished(self) -> dict[str, PushRecord]:
        """The live records of pushes that did not end, or that go on."""
        return {name: record for name, record in self.live.items() if not record.done}

    @property
    def held(self) -> PushRecord | None:
        """The last finished push, None if no push into the table has ended."""
        finished = [record for record in self.live.values() if record.done]
        return max(finished, key=lambda record: record.run, default=None)

    @property
    def is_known(self) -> bool:
        """Whether each row is known to be as one of the live records' snapshots has it."""
        return self.held is not None and not any(
            record.whole for record in self.unfinished.values()
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table's rows."""
        record = self.held or max(self.live.values(), key=lambda record: record.run, default=None)
        return record.columns if record else {}

    @property
    def notes(self) -> dict[str, str]:
        """The notes for a database that keeps several, by name."""
        head = {
            MARK: _text({"space": self.space.to_json(), "metric": self.metric, "format": FORMAT})
        }
        return head | {note_name(name): note(record) for name, record in self.pushes.items()}

    @property
    def text(self) -> str:
        """The notes as one text."""
        return _text(self.notes)

    @classmethod
    def from_text(cls, text: str | None, where: str) -> "State":
        """Read the state of a table from one text. Raises OptionError for a table that no push
        made.
        """
        try:
            value = json.loads(text or "")
        except ValueError:
            value = None
        if isinstance(value, dict) and MARK in value:
            return cls.from_notes(value, where)
        return cls.from_notes({MARK: text or ""}, where)

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any], where: str) -> "State":
        """Read the state of a table from its notes. Raises OptionError for a table that no push
        made.
        """
        try:
            head = _Head.from_json(json.loads(notes.get(MARK) or ""))
            if head.format > FORMAT:
                raise ValueError("it is of a later version")
            pushes = dict(head.records)
            for name in notes:
                if name.startswith(f"{MARK}."):
                    pushes[name.removeprefix(f"{MARK}.")] = PushRecord.from_json(
                        json.loads(notes[name])
                    )
        except (ValueError, TypeError, RecursionError, OptionError) as error:
            raise OptionError(
                f"--to {where}: it is there, and push did not make it (or a later version did);"
                " name another"
            ) from error
        return cls(head.space, head.metric, pushes)


def note_name(push: str) -> str:
    """The name of the note of one push."""
    return f"{MARK}.{push}"


def note(record: PushRecord) -> str:
    """The text of the note of one push."""
    return _text(record.to_json())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True)
class _Head(JsonEntry):
    """The note about a table. All fields after `format` are of format 1, which kept everything in
    this note.
    """

    space: Space
    metric: str
    format: int = 1
    columns: dict[str, str] = field(default_factory=dict)
    run: str | None = None
    pending: tuple[str, ...] = ()
    writer: Lease | None = None

    @property
    def records(self) -> dict[str, PushRecord]:
        """The records that a note of format 1 stands for."""
        found = {}
        if self.run is not None:
            found[FIRST_HELD] = PushRecord(self.run, self.columns, done=True)
        for number, run in enumerate(self.pending):
            record = PushRecord(run, self.columns, whole=self.run is None)
            found[FIRST_PENDING.format(number)] = record
        if self.writer is not None and self.pending:
            last = FIRST_PENDING.format(len(self.pending) - 1)
            found[last] = replace(found[last], writer=self.writer)
        return found
