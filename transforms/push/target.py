"""The interface of a database: the operations that a push needs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.push.state import PushRecord, State
from sentence_beam.transforms.space import Space

KEYS = ("id", "piece")  # those of them that a table has are its keys


@dataclass(frozen=True)
class Table:
    """A table: its columns, with `embedding` float32, the space of its vectors and its metric.

    `keys` are the columns that identify its rows.
    """

    columns: pa.Schema
    space: Space
    metric: str
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", find_keys(self.columns.names))


def find_keys(names: Sequence[str]) -> tuple[str, ...]:
    """The columns of a table that identify its rows."""
    return tuple(name for name in KEYS if name in names)


class RowWriter(Protocol):
    """Writes rows on a worker, which it reaches as a pickle; it has no password or key."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows; writing them again is harmless."""


class Target(Protocol):
    """A table or collection of a database.

    Rows are written by id, and pieces by id and number; writing a row again is harmless. If the
    database has transactions, a push is one, which `finish` commits. In others `begin` ends the
    writing of all other pushes, and `finish` is the last write.
    """

    where: str
    takes_parallel: bool  # whether several threads may call `upsert` at once, and workers write

    def state(self) -> State | None:
        """Return the state of the table, None if it does not exist.

        Raises OptionError for a table that no push made, SentenceBeamError if another push is
        running. With transactions, no other push writes from here on; in other databases from
        `begin` on.
        """

    def listing(self, keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the keys of all rows: ids, and for pieces their numbers."""

    def begin(self, table: Table, record: PushRecord) -> None:
        """Create the table if it does not exist, record the push, and change the columns.

        Raises OptionError for columns that the database cannot have, SentenceBeamError if another
        push wrote since `state` or at the same time.
        """

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Write rows; they replace those with the same keys."""

    def written_by_workers(self) -> AbstractContextManager[RowWriter]:
        """Return what writes rows on workers, until the block of the result ends.

        The block raises SentenceBeamError if another push wrote meanwhile.
        """

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys."""

    def count(self) -> int:
        """Return the number of rows.

        Raises SentenceBeamError if another push wrote since `begin`.
        """

    def finish(self) -> None:
        """Record that the push is done; with transactions, commit."""


def explain_refusal(where: str, what: Any, mend: str) -> SentenceBeamError:
    """The error of a database that refuses an operation."""
    return SentenceBeamError(f"{cite('to')} {where}: {what}; {mend}")
