"""What a database is to a push: the few operations that each has."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from transforms.base.errors import SentenceBeamError
from transforms.push.state import PushRecord, State
from transforms.space import Space

KEYS = ("id", "piece")  # of these, the columns that a table has tell its rows apart


@dataclass(frozen=True)
class Table:
    """A table as it has to be: its columns, `embedding` float32 among them, the space of its
    vectors and its metric.
    """

    columns: pa.Schema
    space: Space
    metric: str
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", keys_of(self.columns.names))


def keys_of(names: Sequence[str]) -> tuple[str, ...]:
    """Those of a table's columns that tell its rows apart."""
    return tuple(name for name in KEYS if name in names)


class Target(Protocol):
    """A table or collection of a database. Rows are written by id (of pieces: and number), as often
    as it takes.

    If the database has transactions, a push is one, which `finish` commits. In others `begin` ends
    the writing of all other pushes, and `finish` is the last write.
    """

    where: str

    def state(self) -> State | None:
        """Return what it remembers, None if it does not exist. Raises OptionError for a table that
        no push made.

        Raises SentenceBeamError if another push is under way. If there are transactions, no other
        push writes from here on; in other databases from `begin` on.
        """

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the ids, and numbers of pieces, of all rows that it holds."""

    def begin(self, table: Table, record: PushRecord) -> None:
        """Create the table if it does not exist, remember the push, and change the columns to those
        of its rows.

        Raises OptionError for columns that the database cannot have, SentenceBeamError if another
        push wrote since `state` or at the same time.
        """

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Write rows, over those of the same key."""

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""

    def count(self) -> int:
        """Return the number of rows that it holds. Raises SentenceBeamError if another push wrote
        since `begin`.
        """

    def finish(self) -> None:
        """Remember that the push is done; if there are transactions, commit."""


def refused(where: str, what: Any, mend: str) -> SentenceBeamError:
    """The error of a database that does not do what is asked of it."""
    return SentenceBeamError(f"--to {where}: {what}; {mend}")
