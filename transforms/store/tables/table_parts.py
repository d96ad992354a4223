"""Parts of a snapshot's tables: Parquet files named by their sha256, cut by their own keys.

A row begins a part if the hash of its key says so. No other row moves a cut, so equal rows give
equal parts whatever the history, and an edit rewrites the parts that it lies in.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from xxhash import xxh3_64_intdigest

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_empty_table, read_parquet_bytes
from sentence_beam.transforms.base.columns import get_column
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import TableEntry, TablePart
from sentence_beam.transforms.store.tables.names import AFTER, get_spans
from sentence_beam.transforms.store.tables.table_columns import FILES, KEYS, UNITS

# A part that a worker reads to find one file is some 200 kB; a folder of 1 % of 20,000 files
# rewrites a fifth of `files`.
ROWS_IN_A_PART = 2_048  # on average
ROWS_IN_A_TURN = 100_000  # of `units`, so that they are never all in memory
PARTS_AT_ONCE = 8  # read together, since storage may be far away
PARTS_HELD = 8  # of those read last: the steps of a process read the same ones
MEND = "restore it, or roll back"
SCHEMAS = {"files": FILES, "units": UNITS}
_KINDS = {"path": "shards", "rejects": "rejects"}  # of the paths of a unit


def read_part(root: str, part: TablePart, columns: Sequence[str] | None = None) -> pa.Table:
    """Read some columns of a part (None: all).

    Raises SentenceBeamError if it is missing or changed, or names a file outside the store.
    """
    data = _read_bytes(root, part)
    with refuse_damage(f"{storage.join(root, part.path)} is no part of a manifest", MEND):
        return _parse_rows(data, columns)


@lru_cache(PARTS_HELD)
def _read_bytes(root: str, part: TablePart) -> bytes:
    path = storage.join(root, part.path)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        raise SentenceBeamError(f"{path} is missing, a part of the manifest; {MEND}")
    if hashlib.sha256(stored[0]).hexdigest() != part.sha256:
        raise SentenceBeamError(
            f"{path} is not the part that the manifest names (sha256 differs); {MEND}"
        )
    return stored[0]


def read_anew() -> None:
    """Let go of the parts that the process holds: a command sees what was damaged since."""
    _read_bytes.cache_clear()


def _parse_rows(data: bytes, columns: Sequence[str] | None) -> pa.Table:
    """Return some columns of a part's bytes, with the types of its table."""
    kind = "units" if "unit" in pq.read_schema(pa.BufferReader(data)).names else "files"
    wanted = _select_schema(kind, columns)
    rows = read_parquet_bytes(data, columns).select(wanted.names).cast(wanted)
    if kind == "units":
        _check_paths(rows)
    return rows


def _select_schema(kind: str, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of some columns (None: all) of `files` or `units`."""
    schema = SCHEMAS[kind]
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _check_paths(units: pa.Table) -> None:
    """Raise ValueError for a path of a unit that is not one of the layout."""
    for name, kind in _KINDS.items():
        if name in units.column_names:
            fits = pc.match_substring_regex(units.column(name), layout.pattern(kind))
            if not pc.all(fits, min_count=0).as_py():
                wrong = units.column(name).filter(pc.invert(fits))[0].as_py()
                raise ValueError(f"{wrong[:80]!r} is no path of this store's {kind}")


def read_in_turns(
    root: str, table: TableEntry, columns: Sequence[str] | None = None
) -> Iterator[tuple[list[TablePart], pa.Table]]:
    """Yield parts that follow each other, some ROWS_IN_A_TURN rows together, and these rows."""
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        for some in _cut_turns(table.parts):
            if len(some) == 1:  # starting a thread takes as long as reading some units
                yield some, read_part(root, some[0], columns)
            else:
                yield (
                    some,
                    pa.concat_tables(pool.map(partial(read_part, root, columns=columns), some)),
                )


def _cut_turns(parts: Sequence[TablePart]) -> Iterator[list[TablePart]]:
    """Yield parts that follow each other, together at most ROWS_IN_A_TURN rows or one part."""
    some: list[TablePart] = []
    rows = 0
    for part in parts:
        if some and rows + part.rows > ROWS_IN_A_TURN:
            yield some
            some = []
            rows = 0
        some.append(part)
        rows += part.rows
    if some:
        yield some


def read_table(
    root: str, kind: str, table: TableEntry, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read some columns (None: all) of all rows of `files` or `units`, in order of their keys."""
    wanted = _select_schema(kind, columns)
    turns = read_in_turns(root, table, wanted.names)
    # one chunk a turn: those of parts would be hundreds, and one of all needs them twice in memory
    return pa.concat_tables(
        [make_empty_table(wanted), *(rows.combine_chunks() for _, rows in turns)]
    )


def read_named_units(root: str, units: TableEntry, name: str) -> pa.Table:
    """Return the units with this name, or whose names continue it with `-` or `.`.

    Of the parts only those are read that can have them.
    """
    some = [part for part in units.parts if part.first < name + AFTER and name <= part.last]
    tables_of_parts = [_filter_named(read_units_in(root, part), name) for part in some]
    return pa.concat_tables([make_empty_table(UNITS), *tables_of_parts])


def read_units_in(root: str, part: TablePart) -> pa.Table:
    """Return the units of a part. Raises SentenceBeamError as `read_part` does."""
    return read_part(root, part, UNITS.names)


def _filter_named(units: pa.Table, name: str) -> pa.Table:
    """Return the units with this name, or whose names continue it."""
    names = units.column("unit")
    is_named = pc.equal(names, name)
    for end in "-.":
        is_named = pc.or_(is_named, pc.starts_with(names, name + end))
    return units.filter(is_named)


def select_parts(units: TableEntry, keys: np.ndarray) -> TableEntry:
    """Return the table with those parts that can have a unit of files with these keys.

    `keys` are 16 hex digits each, sorted.
    """
    return TableEntry.from_parts(
        part
        for part in units.parts
        if np.searchsorted(keys, part.first[:16]) < np.searchsorted(keys, part.last, "right")
    )


def write_table(root: str, kind: str, rows: pa.Table, last: TableEntry) -> TableEntry:
    """Write the parts of a table that the store lacks; `last` names some that it has."""
    writer = PartWriter(root, kind, last)
    writer.add(rows)
    return writer.end()


class PartWriter:
    """Cuts the sorted rows of a table into parts, and writes those that the last snapshot lacks.

    `written` counts the bytes that were written.
    """

    def __init__(self, root: str, kind: str, last: TableEntry):
        self._root = root
        self._kind = kind
        self._key = KEYS[kind]
        self._known = {part.sha256 for part in last.parts}
        self._parts: list[TablePart] = []
        # rows since the last cut, and the part of the last snapshot that has exactly these
        self._open = make_empty_table(SCHEMAS[kind])
        self._open_part: TablePart | None = None
        self.written = 0

    def keep(self, parts: Sequence[TablePart], rows: pa.Table) -> None:
        """Add parts of the last snapshot as they are, and their rows.

        The last one stays open: it goes on if the row that follows does not begin a part any more.
        """
        self._close()
        self._parts += parts[:-1]
        self._open_part = parts[-1]
        self._open = rows.slice(len(rows) - parts[-1].rows)

    def add(self, rows: pa.Table) -> None:
        """Add rows that follow those before."""
        if not len(rows):
            return
        held = len(self._open)
        both = pa.concat_tables([self._open, rows])
        cuts = self._find_cuts(both)
        if self._open_part is not None and held in cuts:
            self._parts.append(self._open_part)
            cuts.remove(0)
        for start, stop in pairwise(cuts):
            self._write(both.slice(start, stop - start))
        self._open = both.slice(cuts[-1])
        self._open_part = None

    def end(self) -> TableEntry:
        """Return the table of all parts."""
        self._close()
        return TableEntry.from_parts(self._parts)

    def _find_cuts(self, rows: pa.Table) -> list[int]:
        """Return where parts begin: at the first row, and where the hash of a key says so.

        The units of a span stay together.
        """
        keys = get_spans(get_column(rows, self._key)).cast(pa.binary()).to_pylist()
        hashes = np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))
        begins = np.flatnonzero(hashes % np.uint64(ROWS_IN_A_PART) == 0).tolist()
        return [0, *(at for at in begins if at and keys[at] != keys[at - 1])]

    def _close(self) -> None:
        if self._open_part is not None:
            self._parts.append(self._open_part)
        elif len(self._open):
            self._write(self._open)
        self._open = self._open.slice(0, 0)
        self._open_part = None

    def _write(self, rows: pa.Table) -> None:
        data = make_part_bytes(rows)
        sha256 = hashlib.sha256(data).hexdigest()
        keys = rows.column(self._key)
        path = layout.part(sha256)
        if sha256 not in self._known:
            storage.ensure(storage.join(self._root, path), data)
            self.written += len(data)
        self._parts.append(
            TablePart(path, sha256, len(rows), keys[0].as_py(), keys[len(rows) - 1].as_py())
        )


def make_part_bytes(rows: pa.Table) -> bytes:
    """Return rows as the bytes of a part: one row group of Parquet, with page checksums."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, rows.schema, compression="zstd", write_page_checksum=True
    ) as writer:
        writer.write_table(rows.combine_chunks(), row_group_size=max(1, len(rows)))
    return sink.getvalue()
