"""What a database is to a push: the few operations that each has, and what it remembers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from transforms.entries import JsonEntry
from transforms.errors import OptionError, SentenceBeamError
from transforms.space import Space
from transforms.store.lease import Lease

KEYS = ("id", "piece")  # of these, the columns that a table has tell its rows apart
MARK = "sentence_beam"  # under which a database keeps what it remembers


@dataclass(frozen=True)
class State(JsonEntry):
    """What a database remembers of the pushes into a table; `columns` are those of its rows, with their types.

    `run` is the snapshot that it holds, None where a push that wrote all rows did not end. `pending` are snapshots of
    pushes that did not end: rows may already be theirs. `writer` is the push that writes now, where the database has no
    transactions.
    """

    space: Space
    metric: str
    columns: dict[str, str]
    run: str | None = None
    pending: tuple[str, ...] = ()
    writer: Lease | None = None
    format: int = 1

    def begun(self, run: str) -> "State":
        """The state while a snapshot is written."""
        return replace(self, pending=tuple(dict.fromkeys((*self.pending, run))))

    @property
    def text(self) -> str:
        """The state as text."""
        return json.dumps(self.to_json(), sort_keys=True)

    @classmethod
    def read(cls, text: str | None, where: str) -> "State":
        """The state of a table that is there. Raises OptionError where no push made it."""
        try:
            return cls.from_json(json.loads(text or ""))
        except (ValueError, OptionError) as error:
            raise OptionError(
                f"--to {where}: it is there, and push did not make it (or a later version did); name another"
            ) from error


@dataclass(frozen=True)
class Table:
    """A table as it has to be: its columns, `embedding` float32 [dim] among them, and the metric of its vectors."""

    columns: pa.Schema
    dim: int
    metric: str
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", keys_of(self.columns.names))


def keys_of(names: Sequence[str]) -> tuple[str, ...]:
    """Those of a table's columns that tell its rows apart."""
    return tuple(name for name in KEYS if name in names)


class Target(Protocol):
    """A table or collection of a database. Rows are written by id (of pieces: and number), as often as it takes.

    Where the database has transactions all is one, which ends with `finish`; elsewhere `finish` is the last write.
    """

    where: str

    def state(self) -> State | None:
        """What it remembers; None where there is none. OptionError for one that no push made.

        Where there are transactions, no other push writes from here on; elsewhere from `begin` on.
        """

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The ids, and numbers of pieces, of all that it holds."""

    def begin(self, table: Table, state: State, anew: bool) -> None:
        """Make it where it is not there, remember the state, and have the columns; `anew`: every row will be written.

        Raises OptionError for columns that it cannot have.
        """

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Write rows, over those of the same key."""

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""

    def count(self) -> int:
        """The number of rows that it holds."""

    def finish(self, state: State) -> None:
        """Remember the state; where there are transactions, commit."""


def refused(where: str, what: Any, mend: str) -> SentenceBeamError:
    """The error of a database that does not do what is asked of it."""
    return SentenceBeamError(f"--to {where}: {what}; {mend}")
