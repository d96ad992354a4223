"""The plan on record as the ledger and a manifest need it: its files and its spans."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow import mask_array
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN
from sentence_beam.transforms.corpus.unit_files import LONG_BYTES
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.kept import Kept
from sentence_beam.transforms.store.ledger import PlannedSpan
from sentence_beam.transforms.store.runs.plan import FILE, ROWS_AT_ONCE, SCHEMA, entry_of
from sentence_beam.transforms.store.runs.plan_file import PlanFile
from sentence_beam.transforms.store.runs.plan_rows import is_first_of_file
from sentence_beam.transforms.store.runs.stretches import stretch_of_file, stretches_of

OF_SPAN = ("name", "start", "stop", "rows", "carried")
FILES = pa.schema([*(SCHEMA.field(name) for name in (*FILE, "rows")), ("has_span", pa.bool_())])
# ten million rows take 0.7 GB
SPANS = pa.schema([*(SCHEMA.field(name) for name in OF_SPAN), ("file", pa.int32())])
READ = tuple(dict.fromkeys((*FILE, *OF_SPAN, "tokens")))


class RecordedPlan:
    """A plan that was read: files as in manifests, spans or buckets as the ledger checks them.

    Files and spans are made from tables on demand, all of them or those of one stretch. `measures`
    are the figures of planning, `written` is when it ended ("" if an earlier version wrote it).
    `beside` counts the files beside those of the input that were not taken, by reason; `bad` are
    files that were left out, by relative path, with the reason. `types` are those of kept columns
    that the plan found out, `lacking` counts the files that lack a kept column, by its name.
    `tokens` are the estimated tokens of all spans to embed.
    """

    def __init__(self, file: PlanFile):
        self.buckets = file.notes.buckets
        self.checked = file.notes.checked
        self.measures = file.notes.measures
        self.written = file.notes.written
        self.beside = file.notes.beside
        self.bad = file.notes.bad
        self.types = file.notes.types
        self.lacking = file.notes.lacking
        self.tokens = 0
        self._most_tokens = 0
        with file.refuse_damage():
            self._files, self._spans = self._read(file)

    def _read(self, file: PlanFile) -> tuple[pa.Table, pa.Table]:
        """Return the files and the spans as tables; their tokens are added up on the way."""
        files = [FILES.empty_table()]
        spans = [SPANS.empty_table()]
        count = 0
        last = None
        for rows in file.tables(READ):
            is_first = is_first_of_file(rows.column("file"), last)
            numbers = count - 1 + np.cumsum(is_first, dtype=np.int32)
            files.append(_file_rows(rows, is_first))
            spans.append(_span_rows(rows, numbers))
            count += int(is_first.sum())
            last = rows.column("file")[-1].as_py()
            tokens = rows.column("tokens")
            self.tokens += pc.sum(tokens).as_py() or 0
            self._most_tokens = max(self._most_tokens, pc.max(tokens).as_py() or 0)
        return pa.concat_tables(files), pa.concat_tables(spans)

    @cached_property
    def files(self) -> list[InputEntry]:
        """The entries of all input files, by relative path."""
        return sorted(_entries(self._files), key=lambda entry: entry.path)

    @cached_property
    def spans(self) -> list[PlannedSpan]:
        """The spans of all files, to embed and carried over."""
        return self._planned(self._spans)

    @property
    def has_long_spans(self) -> bool:
        """Whether a span to embed may have more text than one worker should read and embed."""
        return self._most_tokens * BYTES_PER_TOKEN > LONG_BYTES

    @property
    def rows(self) -> int | None:
        """The rows of the corpus, None if the plan does not know them all."""
        rows = self._spans.column("rows")
        return None if rows.null_count else pc.sum(rows).as_py() or 0

    @property
    def file_count(self) -> int:
        """The number of input files."""
        return len(self._files)

    @property
    def empty_count(self) -> int:
        """The number of input files that could be read and are empty."""
        is_empty = pc.equal(self._files.column("size"), 0)
        empty = self._files.column("file").filter(is_empty).to_pylist()
        return sum(file not in self.bad for file in empty)

    @property
    def uncounted(self) -> list[str]:
        """The relative paths of files with rows that no planned span has.

        The span may be one of their own or a group's.
        """
        files = self._files
        names = self._spans.column("name")
        planned = names.filter(pc.is_in(names, files.column("group").unique().drop_null()))
        is_counted = pc.or_(files.column("has_span"), pc.is_in(files.column("group"), planned))
        has_rows = pc.greater(pc.coalesce(files.column("rows"), files.column("size")), 0)
        return files.column("file").filter(pc.and_not(has_rows, is_counted)).to_pylist()

    def files_in(self, stretch: int) -> list[InputEntry]:
        """The entries of the input files of a stretch."""
        return _entries(self._files.filter(mask_array(self._file_stretches == stretch)))

    def spans_in(self, stretch: int) -> list[PlannedSpan]:
        """The spans whose units are in a stretch."""
        return self._planned(self._spans.filter(mask_array(self._span_stretches == stretch)))

    @cached_property
    def _file_stretches(self) -> np.ndarray:
        files = values_of(self._files.column("file"))
        return np.fromiter(map(stretch_of_file, files), np.int8, len(self._files))

    @cached_property
    def _span_stretches(self) -> np.ndarray:
        return stretches_of(self._spans.column("name"))

    def _planned(self, spans: pa.Table) -> list[PlannedSpan]:
        files = self._files.column("file").take(spans.column("file"))
        named = spans.set_column(spans.column_names.index("file"), "file", files)
        return [PlannedSpan(**row) for row in values_of(named)]


def _file_rows(rows: pa.Table, is_first: np.ndarray) -> pa.Table:
    """Return the files of rows of a plan, by the first row of each."""
    found = rows.select([*FILE, "rows"]).append_column("has_span", rows.column("name").is_valid())
    return found.filter(mask_array(is_first))


def _span_rows(rows: pa.Table, files: np.ndarray) -> pa.Table:
    """Return the spans of rows of a plan, whose files have these numbers."""
    found = rows.select(OF_SPAN).append_column("file", pa.array(files))
    return found.filter(found.column("name").is_valid())


def _entries(files: pa.Table) -> list[InputEntry]:
    return [entry_of(row) for row in values_of(files)]


def values_of(found: pa.ChunkedArray | pa.Table) -> Iterator[Any]:
    """Yield the values of a column, or the rows of a table, never all in memory at once."""
    for start in range(0, len(found), ROWS_AT_ONCE):
        yield from found.slice(start, ROWS_AT_ONCE).to_pylist()


def read_plan(root: str, run: str) -> RecordedPlan:
    """Return the plan of a run. Raises SentenceBeamError if it is missing or was changed."""
    return RecordedPlan(PlanFile(root, run))


_SHARED: Kept[RecordedPlan] = Kept()


def shared_plan(root: str, run: str) -> RecordedPlan:
    """Return the plan of a run as `read_plan` does, once for a process."""
    return _SHARED.get((root, run), lambda: read_plan(root, run))
