"""Elements of a plan: large enough to work without waiting, small enough to spread."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import read_stream, write_stream
from sentence_beam.transforms.store.entries import TablePart

SPANS_PER_ELEMENT = 8
SPANS_FOR_ONE_PROCESS = 64
FILES_PER_ELEMENT = 256
ROWS_PER_ELEMENT = 20_000  # of files that nobody has to look into
ROUNDS = 4  # of elements that each slot works off at least, so that the last ones end together
SLOTS = 512  # if their number is not known


@dataclass(frozen=True)
class PackedTable:
    """Rows of files as bytes, since most of them are unchanged and very many."""

    data: bytes

    @property
    def table(self) -> pa.Table:
        """The rows of the element."""
        return read_stream(self.data)


class FilesToLookInto(PackedTable):
    """Rows `LISTED`: files that one worker is to look into."""


class FilesToOpen(PackedTable):
    """Rows `PLANNED`: files that one worker is to open if they are not."""


class PlannedFiles(PackedTable):
    """Rows `PLANNED`: files as the plan has them."""


class ShardStates(PackedTable):
    """Rows `STATES` of shards that were checked."""


@dataclass(frozen=True)
class ShardsToCheck:
    """Parts of the last snapshot's units whose shards one worker is to check."""

    parts: tuple[TablePart, ...]


def pack_table(table: pa.Table) -> bytes:
    """Return rows as elements have them."""
    return write_stream(table.combine_chunks())


def pack_batches(table: pa.Table, rows: int) -> Iterator[bytes]:
    """Yield rows of a table as elements have them, so many at a time."""
    for start in range(0, len(table), rows):
        yield pack_table(table.slice(start, rows))


def count_files_per_element(files: int, slots: int | None) -> int:
    """Return the files that one worker looks into, many small ones in threads.

    `slots` as for `count_spans_per_element`.
    """
    return max(1, min(FILES_PER_ELEMENT, files // (ROUNDS * (slots or SLOTS))))


def count_spans_per_element(spans: int, slots: int | None) -> int:
    """Return the spans of an element: enough to overlap read, encode and write, few enough to
    spread.

    `slots` is the number of elements that are processed at once, None if it is not known.
    """
    if slots == 1:
        return SPANS_FOR_ONE_PROCESS
    return max(1, min(SPANS_PER_ELEMENT, spans // (ROUNDS * (slots or SLOTS))))
