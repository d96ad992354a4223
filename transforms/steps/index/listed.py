"""Rows sorted by list that a step leaves, and from which ranges of lists are made.

A source is a group of shards or a segment. Of each, a range reads its lists alone.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.index.refine import row_type
from sentence_beam.transforms.index.segment import ListedRows
from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.steps.index.files import Folder, lines_of
from sentence_beam.transforms.store.index_files import locators

PLACES = pa.schema(
    [("id", pa.string()), ("row_hash", pa.binary(16)), ("shard", pa.int32()), ("row", pa.int64())]
)
SLICES = 1024  # tables of places, each of equally many lists


@dataclass(frozen=True)
class ListedSource:
    """A source whose rows have been left: its number, and the sum of its rows' closeness.

    `lists` are those that it may have rows of, as runs [first, stop), () for all. Rows that
    `is_new` were in no segment before.
    """

    number: int
    rows: int
    code_size: int
    closeness: float = 0.0
    lists: tuple[tuple[int, int], ...] = ()
    is_new: bool = False


@dataclass(frozen=True)
class SourcePart:
    """Rows of a source in some consecutive lists, in the order of the lists.

    `sizes` int64 [lists], `codes` uint8 [n, code size], `rows` int64 [n] in the source, `shard`
    int64 [n] numbers in `shards`; `vectors` [n] of `refine.row_type`, None if none are kept.
    """

    sizes: np.ndarray
    codes: np.ndarray
    rows: np.ndarray
    places: pa.Table
    shard: np.ndarray
    shards: list[str]
    vectors: np.ndarray | None


def leave_listed(
    folder: Folder,
    source: int,
    listed: ListedRows,
    first: int,
    nlist: int,
    locator: pa.Table,
    vectors: np.ndarray | None,
) -> None:
    """Leave the rows of a source; `locator` and `vectors` have them by their local rows.

    `listed` has the lists from `first` on.
    """
    sizes = np.zeros(nlist, np.int64)
    sizes[first : first + len(listed.sizes)] = listed.sizes
    starts = np.concatenate([[0], np.cumsum(sizes)])
    folder.put(scratch.listed_starts(source), starts.astype("<i8").tobytes())
    records = np.empty(len(listed.rows), _record(listed.codes.shape[1]))
    records["code"] = listed.codes
    records["row"] = listed.rows
    folder.put(scratch.listed_codes(source), records.tobytes())
    found = locator.take(pa.array(listed.rows))
    numbers, names = locators.shards_of(found)
    columns = [found.column("id"), found.column("row_hash"), pa.array(numbers, pa.int32())]
    places = pa.table([*columns, found.column("row")], schema=PLACES)
    width = _slice_width(nlist)
    bounds = starts[np.minimum(np.arange(0, nlist + width, width), nlist)]
    tables = [
        places.slice(start, stop - start)
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    folder.put(scratch.listed_places(source), matching.to_bytes(tables))
    folder.put(scratch.listed_shards(source), "\n".join(names).encode())
    if vectors is not None:
        folder.put(scratch.listed_vectors(source), vectors[listed.rows].tobytes())


def read_listed(
    folder: Folder, source: ListedSource, first: int, stop: int, nlist: int, dim: int | None
) -> SourcePart:
    """Return the rows of a source in the lists `first` to `stop` - 1.

    `dim` is that of the kept vectors, None if none are kept.
    """
    width = _slice_width(nlist)
    slice_first = first // width
    slices = (stop - 1) // width + 1 - slice_first
    low = slice_first * width
    starts = np.frombuffer(
        folder.part(scratch.listed_starts(source.number), 8 * low, 8 * (stop + 1)), "<i8"
    )
    here = starts[first - low :]
    begin = int(here[0])
    end = int(here[-1])
    records = _records(folder, scratch.listed_codes(source.number), _record(source.code_size),
                       begin, end)  # fmt: skip
    vectors = None
    if dim is not None:
        name = scratch.listed_vectors(source.number)
        vectors = _records(folder, name, row_type(dim), begin, end)
    places = PLACES.empty_table()
    if begin < end:
        name = scratch.listed_places(source.number)
        tables = folder.tables(name, PLACES, slice_first, slices)
        places = pa.concat_tables(tables).slice(begin - int(starts[0]), end - begin)
    names = folder.parsed(scratch.listed_shards(source.number), lines_of)
    return SourcePart(
        np.diff(here),
        records["code"],
        records["row"].astype(np.int64),
        places,
        places.column("shard").to_numpy(),
        names,
        vectors,
    )


def sizes_of(folder: Folder, source: ListedSource) -> np.ndarray:
    """Return the rows of a source in each list, int64 [nlist]."""
    starts = folder.parsed(
        scratch.listed_starts(source.number), lambda data: np.frombuffer(data, "<i8")
    )
    return np.diff(starts)


def _records(folder: Folder, name: str, kind: np.dtype, start: int, stop: int) -> np.ndarray:
    """Return the records from `start` up to `stop` of a file of them."""
    if start == stop:
        return np.empty(0, kind)
    return np.frombuffer(folder.part(name, start * kind.itemsize, stop * kind.itemsize), kind)


def _record(code_size: int) -> np.dtype:
    return np.dtype([("code", "u1", (code_size,)), ("row", "<u4")])


def _slice_width(nlist: int) -> int:
    """Return the number of lists in a table of places."""
    return -(-nlist // SLICES)
