"""Files of a plan as the workers that planned them pack them: rows of the plan's table.

These are files that have not changed and, for a new store, files with their spans. So the process
that puts the plan together holds neither them nor their units and spans as objects, and reads only
those parts of the last snapshot's manifest that have other files.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow import parquet_bytes, table_of
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.files import check_distinct, is_unnamed
from sentence_beam.transforms.corpus.groups import AnySpan, is_small
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.store.key_range import KeyRange
from sentence_beam.transforms.store.known_files import KnownFiles, with_files
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.manifest_parts import starts_of
from sentence_beam.transforms.store.runs.carried import Checked
from sentence_beam.transforms.store.runs.carried_ranges import CarriedRange, cut_ranges
from sentence_beam.transforms.store.runs.carry import is_named_after
from sentence_beam.transforms.store.runs.plan import ROWS_AT_ONCE, SCHEMA, PlannedFile
from sentence_beam.transforms.store.runs.plan_rows import RowReader, table_rows

FILES_AT_ONCE = 10_000  # whose ranges are cut together
LEAST_UNITS = 200  # or spans, that are packed; fewer take less in another way
CHECKS = ("shards", "compared", "read", "bytes")  # counts of `Checked`, in its order
# counts of spans to embed: all, their tokens and known rows; those with unknown rows, their tokens
WORK = ("spans", "tokens", "to_read", "uncounted_spans", "uncounted_tokens")
FILES = pa.schema(
    [("file", pa.string()), ("path", pa.string()), ("checksum", pa.string())]
    + [(name, pa.int64()) for name in ("size", "units", "rows", "written", *CHECKS, *WORK)]
    + [("ms", pa.float64()), ("lacks", pa.list_(pa.string()))]
)


@dataclass(frozen=True)
class PackedFiles:
    """Files with these keys, each with units or spans of its own.

    All are as in the last snapshot, and `but` are the snapshot's other files with these keys; or
    there is no snapshot. `files` and `rows` are Parquet: a row for each file (`FILES`), and the
    files' rows of the plan. `examples` are some of the files: one of each types of kept columns.
    """

    keys: KeyRange
    but: frozenset[str]
    files: bytes
    rows: bytes
    examples: tuple[PlannedFile, ...]

    @cached_property
    def table(self) -> pa.Table:
        """The row of each file."""
        return _unpacked(self.files, FILES)

    def without(self, paths: pa.Array) -> "PackedFiles":
        """Return the files except those with these relative paths."""
        dropped = pc.is_in(self.table.column("file"), paths)
        if not pc.any(dropped).as_py():
            return self
        rows = _unpacked(self.rows, SCHEMA)
        left = pc.invert(pc.is_in(rows.column("file"), paths))
        gone = self.table.column("file").filter(dropped).to_pylist()
        return replace(
            self,
            but=self.but.union(gone),
            files=_packed(self.table.filter(pc.invert(dropped))),
            rows=_packed(rows.filter(left)),
        )


def can_pack(item: PlannedFile, unit_tokens: int) -> bool:
    """Whether a file needs no look at any other file of the plan.

    It is unchanged or of a new store. A small file may go into a group. A shard that is named after
    another file may have to make way for that file's own.
    """
    file = item.file
    return (
        bool(item.carried or item.spans)
        and not item.bad
        and not is_small(file, unit_tokens)
        and not is_unnamed(file.path)
        and all(is_named_after(unit, file) for unit in item.carried)
    )


def pack_files(
    items: Sequence[PlannedFile], keys: KeyRange, known: KnownFiles | None = None
) -> PackedFiles:
    """Pack files; `known` has all files of the last snapshot with these keys."""
    columns: dict[str, list[object]] = {name: [] for name in FILES.names}
    but: frozenset[str] = frozenset()
    if known is not None:
        but = frozenset(known.files_by_path).difference(item.file.relative for item in items)
    for item in items:
        counts = {name: getattr(item.checked, name) for name in CHECKS}
        values = {
            "file": item.file.relative,
            "path": item.file.path,
            "checksum": item.file.checksum,
            "size": item.file.size,
            "units": len(item.carried),
            "rows": sum(unit.rows for unit in item.carried),
            "written": sum(unit.written for unit in item.carried),
            **counts,
            **_work_of(item.spans),
            "ms": item.ms,
            "lacks": item.lacks,
        }
        for name, value in values.items():
            columns[name].append(value)
    rows = [row for item in items for row in table_rows(item)]
    return PackedFiles(
        keys,
        but,
        _packed(pa.table(columns, FILES)),
        _packed(pa.Table.from_pylist(rows, SCHEMA)),
        tuple(_one_of_each_types(items)),
    )


def _work_of(spans: Sequence[Span]) -> dict[str, int]:
    """Return the values of the columns `WORK`."""
    uncounted = [span.tokens for span in spans if span.rows is None]
    return {
        "spans": len(spans),
        "tokens": sum(span.tokens for span in spans),
        "to_read": sum(span.rows or 0 for span in spans),
        "uncounted_spans": len(uncounted),
        "uncounted_tokens": sum(uncounted),
    }


def _one_of_each_types(items: Iterable[PlannedFile]) -> Iterator[PlannedFile]:
    """Yield files that differ in the types of their kept columns, each with one span or unit.

    Each has the columns of all files of its types: a template may name any of them.
    """
    examples: dict[object, PlannedFile] = {}
    keys: dict[object, dict[str, None]] = {}
    for item in items:
        types = (item.kept, item.keys is None)
        examples.setdefault(types, item)
        keys.setdefault(types, {}).update(dict.fromkeys(item.keys or ()))
    for same, item in examples.items():
        columns = None
        if item.keys is not None:
            columns = tuple(keys[same])
        yield replace(item, carried=item.carried[:1], spans=item.spans[:1], keys=columns)


def _packed(table: pa.Table) -> bytes:
    """Return a table as Parquet; without rows no byte, since each file of it takes some kB."""
    if not len(table):
        return b""
    return parquet_bytes(table, compression="zstd")


def _unpacked(data: bytes, schema: pa.Schema) -> pa.Table:
    if not data:
        return schema.empty_table()
    return table_of(data)


class PackedPlan:
    """The packed files of all workers, each file once.

    `types` are the words for the types of kept columns, as in InputFile.
    """

    def __init__(self, parts: Iterable[PackedFiles] = (), types: tuple[tuple[str, str], ...] = ()):
        self.parts = sorted(parts, key=lambda part: (part.keys.low, part.keys.high))
        self.types = types

    @cached_property
    def _files(self) -> pa.Table:
        return pa.concat_tables([FILES.empty_table(), *(part.table for part in self.parts)])

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self._files)

    @property
    def carried_count(self) -> int:
        """The number of files that are carried over."""
        return pc.sum(pc.greater(self._files.column("units"), 0)).as_py() or 0

    def total(self, name: str) -> int:
        """Return the sum of a column of `FILES` over all files."""
        return pc.sum(self._files.column(name)).as_py() or 0

    @property
    def checked(self) -> Checked:
        """The counts of the checks of all shards."""
        shards, compared, read, size = (self.total(name) for name in CHECKS)
        return Checked(shards, compared, read, size)

    def tables(self, rows: int) -> Iterator[pa.Table]:
        """Yield the files' rows of the plan, about so many at a time."""
        some: list[pa.Table] = []
        for part in self.parts:
            some.append(_unpacked(part.rows, SCHEMA))
            if sum(map(len, some)) >= rows:
                yield pa.concat_tables(some)
                some = []
        if some:
            yield pa.concat_tables(some)

    def spans(self, syntax: Syntax) -> Iterator[AnySpan]:
        """Yield the spans to embed, in order of their files' keys; `syntax` is the run's."""
        reader = RowReader(syntax, self.types)
        for rows in self._work():
            yield from reader.spans(rows)

    def _work(self) -> Iterator[pa.Table]:
        """Yield the rows of the plan if they are spans to embed: all of them are, or none."""
        if self.total("spans"):
            yield from self.tables(ROWS_AT_ONCE)

    def uncounted(self, syntax: Syntax) -> Iterator[AnySpan]:
        """Yield those spans to embed whose rows are not known."""
        return (span for span in self.spans(syntax) if span.rows is None)

    def some_spans(self, most: int, syntax: Syntax) -> Iterator[AnySpan]:
        """Yield a random sample of `most` spans to embed."""
        total = self.total("spans")
        places = np.sort(random.Random(0).sample(range(total), min(total, most)))
        reader = RowReader(syntax, self.types)
        start = 0
        for rows in self._work():
            first, after = np.searchsorted(places, [start, start + len(rows)])
            yield from reader.spans(rows.take(pa.array(places[first:after] - start)))
            start += len(rows)

    def reading(self, types: tuple[tuple[str, str], ...]) -> "PackedPlan":
        """Return the plan with the types that its files' kept columns are read as."""
        return PackedPlan(self.parts, types)

    @property
    def examples(self) -> list[PlannedFile]:
        """A file for each combination of types of kept columns."""
        return list(_one_of_each_types(item for part in self.parts for item in part.examples))

    @property
    def lacking(self) -> Counter[str]:
        """The number of files that lack a kept column, by its name."""
        return Counter(pc.list_flatten(self._files.column("lacks")).to_pylist())

    @property
    def ms(self) -> list[float]:
        """The milliseconds that planning each file took."""
        return self._files.column("ms").drop_null().to_pylist()

    def same_bytes(self, checksums: Collection[str]) -> dict[str, str]:
        """Return the relative path of a file for each of these checksums that one has."""
        files = self._files.select(["checksum", "file"])
        wanted = pc.is_in(files.column("checksum"), pa.array([*checksums], pa.string()))
        found = files.filter(wanted).sort_by("file")
        return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def distinct(self, planned: Sequence[PlannedFile]) -> "PackedPlan":
        """Return the plan without files that several parts have, or that are among `planned`.

        Patterns that overlap name a file twice. Raises OptionError if another file has the relative
        path of a packed one.
        """
        names = self._files.column("file")
        counts = names.value_counts()
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        again = pa.array([item.file.relative for item in planned], pa.string())
        again = again.filter(pc.is_in(again, names))
        if not len(twice) and not len(again):
            return self
        is_again = pc.or_(pc.is_in(names, again), pc.is_in(names, twice))
        same = self._files.filter(is_again).select(["path", "file"]).to_pylist()
        check_distinct(
            [item.file for item in planned]
            + [InputFile(row["path"], row["file"], "", "", 0, "", "") for row in same]
        )
        parts = []
        for part in self.parts:
            parts.append(part.without(again))
            own = part.table.column("file")
            again = pa.concat_arrays([again, *own.filter(pc.is_in(own, twice)).chunks])
        return PackedPlan(parts)

    def ranges(self, last: Manifest) -> Iterator[CarriedRange]:
        """Yield ranges of keys that have the units of these files and no others."""
        starts = starts_of(last.parts)
        for keys, parts in _adjacent(self.parts):
            units: dict[str, int] = {}
            for part in parts:
                names, counts = (part.table.column(name).to_pylist() for name in ("file", "units"))
                units |= zip(names, counts, strict=True)
            but = set[str]().union(*(part.but for part in parts))
            yield from cut_ranges(units, but, keys, starts)

    def others(self, last: Manifest) -> Manifest:
        """Return the last snapshot without the packed files and their units."""
        others: set[str] = set().union(*(part.but for part in self.parts))
        paths = pa.array(sorted(others), pa.string())
        packed = paths.filter(pc.is_in(paths, self._files.column("file")))
        return with_files(last, others.difference(packed.to_pylist()))


def _adjacent(parts: Iterable[PackedFiles]) -> Iterator[tuple[KeyRange, list[PackedFiles]]]:
    """Yield parts whose ranges of keys follow each other, sorted, with the range of them all.

    About FILES_AT_ONCE files together, so that few names are held.
    """
    some: list[PackedFiles] = []
    files = 0
    for part in parts:
        if some and (files >= FILES_AT_ONCE or some[-1].keys.high != part.keys.low):
            yield KeyRange(some[0].keys.low, some[-1].keys.high), some
            some = []
            files = 0
        some.append(part)
        files += len(part.table)
    if some:
        yield KeyRange(some[0].keys.low, some[-1].keys.high), some


NO_FILES = PackedPlan()
