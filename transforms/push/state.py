"""The records that a database keeps of the pushes into a table: which rows it may hold.

Each row of a table is as in one of the snapshots in `State.live`. A push adds its record before it
writes a row. When it has written everything that was missing, it lists the records that existed
when it began, because it replaced them and their pushes cannot write any more. A record that is
written late, by a push that was frozen, only adds a snapshot for the next push to compare with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.json_entries import JsonEntry
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.runs.lease_file import Lease

# name of the note about the table; a record's note has the push's name after a dot
MARK = "sentence_beam"
FORMAT = 1

Notes = Mapping[str, str]


@dataclass(frozen=True)
class PushRecord(JsonEntry):
    """A push: the snapshot that it writes, and the columns of its rows with their types.

    A push is `done` when every missing row is written. `whole` means that it writes all rows,
    because the table's rows were unknown. `replaces` names the records whose rows it replaced.
    `writer` is the process that writes, None after it stopped.
    """

    run: str
    columns: dict[str, str]
    whole: bool = False
    done: bool = False
    replaces: tuple[str, ...] = ()
    writer: Lease | None = None


@dataclass(frozen=True)
class State:
    """The state of a table, which the database keeps.

    It has the space and metric of the vectors, and the records of pushes by name.
    """

    space: Space
    metric: str
    pushes: Mapping[str, PushRecord] = field(default_factory=dict)

    @property
    def live(self) -> dict[str, PushRecord]:
        """The records that no finished push replaced."""
        replaced: set[str] = set()
        for record in self.pushes.values():
            if record.done:
                replaced.update(record.replaces)
        return {name: record for name, record in self.pushes.items() if name not in replaced}

    @property
    def unfinished(self) -> dict[str, PushRecord]:
        """The live records of pushes that failed or still run."""
        return {name: record for name, record in self.live.items() if not record.done}

    @property
    def held(self) -> PushRecord | None:
        """The last finished push; None if no push into the table has finished."""
        finished = [record for record in self.live.values() if record.done]
        return max(finished, key=lambda record: record.run, default=None)

    @property
    def is_known(self) -> bool:
        """Whether each row is known to be as in the snapshot of a live record."""
        return self.held is not None and not any(
            record.whole for record in self.unfinished.values()
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table's rows."""
        record = self.held or max(self.live.values(), key=lambda record: record.run, default=None)
        return {} if record is None else record.columns

    @property
    def notes(self) -> dict[str, str]:
        """The notes for a database that keeps several, by name."""
        head = {"space": self.space.to_json(), "metric": self.metric, "format": FORMAT}
        notes = {MARK: _to_text(head)}
        for name, record in self.pushes.items():
            notes[name_note(name)] = format_note(record)
        return notes

    @property
    def text(self) -> str:
        """The notes as one text."""
        return _to_text(self.notes)

    @classmethod
    def from_text(cls, text: str | None, where: str) -> "State":
        """Read the state of a table from one text.

        Raises OptionError for a table that no push made.
        """
        try:
            value = json.loads(text or "")
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and MARK in value:
            return cls.from_notes(value, where)
        return cls.from_notes({MARK: text or ""}, where)

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any], where: str) -> "State":
        """Read the state of a table from its notes.

        Raises OptionError for a table that no push made.
        """
        try:
            head = _Head.from_json(json.loads(notes.get(MARK) or ""))
            if head.format != FORMAT:
                raise ValueError("it is of another format")
            pushes = {}
            for name, text in notes.items():
                if name.startswith(f"{MARK}."):
                    push = name.removeprefix(f"{MARK}.")
                    pushes[push] = PushRecord.from_json(json.loads(text))
        except (ValueError, TypeError, RecursionError, OptionError) as error:
            raise OptionError(
                f"{cite('to')} {where}: it is there, and push did not make it (or another version"
                " did); name another"
            ) from error
        return cls(head.space, head.metric, pushes)


def name_note(push: str) -> str:
    """The name of a push's note."""
    return f"{MARK}.{push}"


def format_note(record: PushRecord) -> str:
    """The text of a push's note."""
    return _to_text(record.to_json())


def _to_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True)
class _Head(JsonEntry):
    """The note about a table."""

    space: Space
    metric: str
    format: int
