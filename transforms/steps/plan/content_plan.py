"""`--partition content`: a corpus cut into buckets by the hash of its texts.

Packed text travels between workers; the units made of it are embedded like all others.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import (
    is_valid,
    make_nulls,
    replace_column,
    replace_rows,
    sum_column,
)
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.base.measures import time_waits
from sentence_beam.transforms.corpus import Columns, Span, UnitRows, read_span
from sentence_beam.transforms.corpus.beside import Beside, merge_counts
from sentence_beam.transforms.corpus.blocks import (
    PackedRows,
    Packer,
    make_bucket_unit,
    slice_group,
    unpack,
)
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.groups import list_spans as spans_in
from sentence_beam.transforms.corpus.heavy import cut, drop_heavy
from sentence_beam.transforms.corpus.row_counting import count_rows as rows_of
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, estimate_tokens
from sentence_beam.transforms.steps.embed.cutting import cut_into_pieces, read_unerased
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.elements import (
    FILES_PER_ELEMENT,
    FilesToOpen,
    PlannedFiles,
    ShardStates,
    pack_batches,
    pack_table,
)
from sentence_beam.transforms.steps.plan.footers import open_rows
from sentence_beam.transforms.steps.plan.kept_types import Types, choose_types
from sentence_beam.transforms.steps.plan.planned import replace_spans
from sentence_beam.transforms.steps.plan.row_checks import check_rows, count_rows_at_most
from sentence_beam.transforms.steps.plan.whole_plan import (
    find_problems,
    join_files,
    join_states,
    make_notes,
    put_together,
    stands,
    write_rows,
)
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.commit import read_last_snapshot
from sentence_beam.transforms.store.runs.lease import kept_alive
from sentence_beam.transforms.store.runs.recorded_plan import (
    PLAN,
    SOME,
    Standing,
    get_span_values,
    list_spans,
    read_plan,
)
from sentence_beam.transforms.store.tables.file_rows import make_content_marks

READ_TOKENS = 16_000_000  # in one element at most, so that blocks become large
READS_WANTED = 64
READS_PER_SLOT = 4
COUNT_AGAIN = 1.5  # times the tokens that the buckets were chosen for: the corpus may have doubled

Key = tuple[int, ...]


@dataclass(frozen=True)
class ToCount:
    """A span whose rows are counted, and with `exact` its tokens too."""

    span: Span
    exact: bool


@dataclass(frozen=True)
class ToRead:
    """Spans to read into buckets; the `first` of a run also brings the empty buckets."""

    spans: tuple[Span, ...]
    buckets: Buckets
    first: bool


Begun = FilesToOpen | ShardStates | Beside | Problem | Standing
Passing = ShardStates | Beside | Problem | Standing


def begin(items: list[Any], job: EmbedJob) -> list[Begun]:
    """Return the files, which are to be opened if they are not; or only problems.

    If the corpus is unchanged, the plan is written that carries all units over.
    """
    with kept_alive(job.root, job.run.id):
        try:
            return list(_compare(items, job))
        except SentenceBeamError as error:
            return [Problem.from_error(error)]


def _compare(items: list[Any], job: EmbedJob) -> Iterator[Begun]:
    if stands(items, job):
        yield Standing()
        return
    problems = find_problems(items)
    if problems:
        yield from problems
        return
    files = put_together(items, job).files
    states = join_states(items)
    last = find_unchanged(files, states, job)
    if last is not None:
        record_unchanged(files, last, job, states, merge_counts(items))
        yield Standing()
        return
    if read_last_snapshot(job.run) is not None:
        yield ShardStates(pack_table(states))
    yield merge_counts(items)
    yield from (FilesToOpen(data) for data in pack_batches(files, FILES_PER_ELEMENT))


def record_unchanged(
    files: pa.Table, last: Manifest, job: EmbedJob, states: pa.Table, beside: Beside | None = None
) -> None:
    """Write the plan that carries all units of the last snapshot over."""
    notes = make_notes(files, buckets=last.buckets, beside=beside)
    rows = replace_column(files, "carried", pa.repeat(pa.scalar(True), len(files)))
    rows = replace_column(rows, "spans", make_nulls(len(files), PLAN.field("spans").type))
    write_rows(job, rows, replace(notes, replaces=SOME, snapshot=last.run), states)


def open_files(files: pa.Table, job: EmbedJob) -> pa.Table:
    """Return rows `PLANNED`, with those files opened that nobody has opened, except bad ones."""
    to_open = np.flatnonzero(~is_valid(files, "kept") & ~is_valid(files, "bad"))
    return replace_rows(files, to_open, open_rows(files.take(pa.array(to_open)), job))


def list_to_count(items: list[Any], job: EmbedJob) -> Iterator[PlannedFiles | ToCount | Passing]:
    """Check the opened files as a whole; yield them with the spans to count, or only problems."""
    if Standing() in items or find_problems(items):
        yield from (item for item in items if isinstance(item, Problem | Standing))
        return
    try:
        files, types = check_opened(join_files(items).sort_by("path"), job)
    except SentenceBeamError as error:
        yield Problem.from_error(error)
        return
    yield from (item for item in items if isinstance(item, Beside | ShardStates))
    yield PlannedFiles(pack_table(files))
    exact = _needs_exact_counts(files, job)
    for span in list_spans(files, job.syntax, types):
        yield from (ToCount(one, exact) for one in spans_in(span))


def _needs_exact_counts(files: pa.Table, job: EmbedJob) -> bool:
    """Whether tokens are counted, to choose buckets for the first time or for a larger corpus."""
    if job.buckets is None:
        return True
    tokens = pc.sum(get_span_values(files, "tokens")).as_py() or 0
    return bool(tokens > COUNT_AGAIN * job.buckets.chosen_tokens)


def check_opened(files: pa.Table, job: EmbedJob) -> tuple[pa.Table, Types]:
    """Return opened files, and the types that their kept columns are read as.

    Raises OptionError if kept columns differ, the text is more than this process may group in
    memory or the rows are too few for the requested index, DataGateError if they are too few after
    the last snapshot.
    """
    types = choose_types(files, job, read_last_snapshot(job.run))
    rows = count_rows_at_most(files)
    if rows is not None:
        check_rows(job, rows)
    text = BYTES_PER_TOKEN * (pc.sum(get_span_values(files, "tokens")).as_py() or 0)
    if job.text_limit is not None and text > job.text_limit:
        raise OptionError(
            f"{cite('partition')} content groups the text in memory here: about {text / 1e9:,.1f}"
            f" GB, more than a quarter of this machine's; say {cite('partition')} file, or run it"
            " on a cluster (--runner)"
        )
    return files, types


def find_unchanged(files: pa.Table, states: pa.Table, job: EmbedJob) -> Manifest | None:
    """Return the last snapshot if its input was the same and its shards are sound, else None.

    Names of files may differ if they show nowhere.
    """
    manifest = read_last_snapshot(job.run) if job.carry else None
    if manifest is None or not _is_same_input(manifest, files, job):
        return None
    return None if sum_column(states, "is_damaged") else manifest


def _is_same_input(manifest: Manifest, files: pa.Table, job: EmbedJob) -> bool:
    """Whether a snapshot was made of the same files; only their content counts if names do not."""
    # Without ids of their own rows are named after files, and rejected rows are.
    is_named = job.columns.id is None or manifest.rows.rejected > 0
    sides = []
    for side in (manifest.read_files(), files):
        marks = make_content_marks(side, job.columns.path_names)
        if is_named:
            marks = pc.binary_join_element_wise(marks, side.column("path").combine_chunks(), "\n")
        sides.append(marks.take(pc.sort_indices(marks)))
    return bool(sides[0].equals(sides[1]))


def count_rows(item: ToCount, job: EmbedJob) -> Span | Problem:
    """Count the rows of a span; returns a problem if it cannot be read."""
    try:
        with progress.stage("counting rows", things="pieces of the input"):
            if item.exact:
                counted_span = count_span(item.span, job.columns, job.run.unit_tokens)
            else:
                counted_span = replace(item.span, rows=rows_of(item.span))
            progress.step()
        return counted_span
    except SentenceBeamError as error:
        return Problem.from_error(error)


def count_span(span: Span, columns: Columns, unit_tokens: int) -> Span:
    """Return the span with its rows, and its tokens estimated from the texts alone.

    The tokens do not depend on the file format. They are rounded up text by text, so that sums over
    spans do not depend on how the rows lie in files.
    """
    rows = tokens = 0
    for unit in read_span(span, columns, unit_tokens):
        rows += unit.read
        tokens += sum(
            estimate_tokens(len(text.encode()) + BYTES_PER_TOKEN - 1, 1) for text in unit.texts
        )
        tokens += estimate_tokens(0, unit.read - len(unit.texts))
    return replace(span, rows=rows, tokens=tokens)


def record(items: list[Any], job: EmbedJob, slots: int | None) -> Iterator[ToRead | Problem]:
    """Choose the buckets, write the plan down and hand out what to read; or only the problems.

    A plan that is already on record is handed out instead.
    """
    problems = find_problems(items)
    if problems:
        yield from problems
        return
    try:
        if Standing() not in items:
            _write_counted(items, job)
        yield from _hand_out(job, slots)
    except SentenceBeamError as error:
        yield Problem.from_error(error)


def _write_counted(items: list[Any], job: EmbedJob) -> None:
    """Write the plan of opened files whose spans have been counted."""
    counted_spans = [item for item in items if isinstance(item, Span)]
    spans = sorted(counted_spans, key=lambda span: span.start)
    check_rows(job, sum(span.rows or 0 for span in spans))
    files = replace_spans(join_files(items), spans)
    types = choose_types(files, job, read_last_snapshot(job.run))
    notes = make_notes(files, types, choose_buckets(spans, job), merge_counts(items))
    write_rows(job, files, notes, join_states(items))


def _hand_out(job: EmbedJob, slots: int | None) -> Iterator[ToRead]:
    """Yield what to read by the plan on record."""
    plan = read_plan(job.root, job.run.id)
    progress.planned(plan.tokens)
    if plan.notes.buckets is not None and not plan.notes.replaces:
        spans = [one for span in plan.list_spans_to_embed(job.syntax) for one in spans_in(span)]
        yield from divide_reads(spans, plan.notes.buckets, slots)


def choose_buckets(spans: list[Span], job: EmbedJob) -> Buckets:
    """Return the buckets of a run over these spans, whose rows are known."""
    rows = sum(span.rows or 0 for span in spans)
    tokens = sum(span.tokens for span in spans)
    if job.buckets is None:
        return Buckets.choose(rows, tokens, job.run.unit_tokens)
    return job.buckets.for_rows(rows, tokens, job.run.unit_tokens)


def divide_reads(spans: list[Span], buckets: Buckets, slots: int | None) -> Iterator[ToRead]:
    """Yield the spans in lists: short ones spread over workers (`slots` at once, if known), long
    ones make large blocks.

    Each list but the last has enough rows for a block of each group.
    """
    wanted = max(READS_WANTED, READS_PER_SLOT * (slots or 0))
    most = min(READ_TOKENS, sum(span.tokens for span in spans) // wanted)
    least = buckets.block_rows * buckets.groups
    current: list[Span] = []
    used = 0
    rows = 0
    first = True
    for span in spans:
        if rows >= least and used + span.tokens > most:
            yield ToRead(tuple(current), buckets, first)
            current = []
            used = 0
            rows = 0
            first = False
        current.append(span)
        used = used + span.tokens
        rows = rows + (span.rows or 0)
    if current or first:
        yield ToRead(tuple(current), buckets, first)


def read_rows(
    work: ToRead, job: EmbedJob, renew: Callable[[], None]
) -> Iterator[tuple[int, PackedRows]]:
    """Yield (group of buckets, block) for the rows of an element; `renew` after each unit."""
    packer = Packer(work.buckets)
    units = (rows for span in work.spans for rows in read_unerased(span, job))
    for rows, waited in time_waits(units):
        renew()  # no unit is finished before all rows are read
        with progress.stage("reading text", things="rows"):
            packer.add(cut_into_pieces(rows, job))
            progress.step(rows.read)
        packer.read_ms += waited
        yield from packer.relieve()
    yield from packer.flush()


@dataclass(frozen=True)
class Group:
    """Buckets that were grouped; `heavy` has the number of pieces of each heavy one.

    `read_ms` is the time of reading their rows from files.
    """

    buckets: Buckets
    number: int
    heavy: dict[int, int]
    read_ms: float

    @classmethod
    def from_key(cls, key: Key, blocks: Iterable[PackedRows]) -> "Group":
        """Return the group of a key; the counts of the blocks tell its heavy buckets."""
        buckets = Buckets(*key[:-1])
        number = key[-1]
        rows = np.zeros(buckets.per_group)
        read_ms = 0.0
        for block in blocks:
            rows += np.asarray(block.counts or 0.0)
            read_ms += block.read_ms
        pieces = {
            number * buckets.per_group + i: buckets.pieces(n) for i, n in enumerate(rows.tolist())
        }
        return cls(buckets, number, {bucket: n for bucket, n in pieces.items() if n > 1}, read_ms)

    def light(self, blocks: Iterable[PackedRows]) -> list[bytes]:
        """The blocks without the rows of heavy buckets."""
        packed = (block.data for block in blocks if block.counts)
        if self.heavy:
            return [drop_heavy(data, self.buckets, self.heavy) for data in packed]
        return list(packed)

    def units(self, packed: list[bytes]) -> Iterator[UnitRows]:
        """Every bucket that is not heavy, from the light blocks."""
        for bucket, table in slice_group(packed, self.buckets, self.number):
            if bucket not in self.heavy:
                yield make_bucket_unit(self.buckets.name(bucket), bucket, table)

    def pieces(self, blocks: Iterable[PackedRows]) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Yield ((unit's name, bucket), block) for the rows of heavy buckets, and an empty block
        for each piece.
        """
        for bucket, count in self.heavy.items():
            yield from ((self._name(bucket, k), b"") for k in range(count))
        if self.heavy:
            packed = (block.data for block in blocks if block.counts)
            yield from (
                (self._name(b, k), data) for b, k, data in cut(packed, self.buckets, self.heavy)
            )

    def _name(self, bucket: int, k: int) -> tuple[str, int]:
        return f"{self.buckets.name(bucket)}.{k}", bucket


def make_piece_unit(key: tuple[str, int], blocks: Iterable[bytes]) -> Iterator[UnitRows]:
    """Yield the one unit of a piece of a heavy bucket."""
    yield make_bucket_unit(*key, unpack([data for data in blocks if data]))
