"""`--partition content`: a corpus cut into buckets by the hash of its texts.

Packed text travels between workers; the units made of it are embedded like all others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.base.measures import with_waits
from sentence_beam.transforms.corpus import Columns, Span, UnitRows, read_span
from sentence_beam.transforms.corpus.beside import Beside, merged
from sentence_beam.transforms.corpus.blocks import PackedRows, Packer, slices, unit_rows, unpack
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.counting import count_rows as count_rows_of
from sentence_beam.transforms.corpus.groups import spans_of
from sentence_beam.transforms.corpus.heavy import cut, without
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, estimated_tokens
from sentence_beam.transforms.steps.embed.cutting import pieces_of, read_unerased
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.elements import PlannedFiles, in_batches
from sentence_beam.transforms.steps.plan.kept_types import with_types
from sentence_beam.transforms.steps.plan.rows import check_rows
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord, carried
from sentence_beam.transforms.store.runs.carried import CarriedShards, Checked
from sentence_beam.transforms.store.runs.carry import rows_of_entry, rows_of_file
from sentence_beam.transforms.store.runs.commit import carried_shards, last_snapshot
from sentence_beam.transforms.store.runs.plan import PlannedFile, Standing, rows_at_most
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.plan_work import RecordedWork

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


def begin(
    planned: list[PlannedFile], beside: Beside, job: EmbedJob
) -> Iterator[UnitRecord | PlannedFiles | Beside | Standing]:
    """Yield all units of the last snapshot if the corpus is unchanged; else the files, some of
    them to be opened.
    """
    shards = carried_shards(job.run)
    last, checked = unchanged(planned, job, shards)
    if last is not None:
        files = [replace(item, spans=()) for item in planned]
        if write_plan(
            job.root, job.run.id, with_checked(files, checked), last.buckets, beside, unchanged=True
        ):
            yield from (carried(shards.current(unit)) for unit in last.units)
        else:
            yield from begin_again(job)
        return
    planned = with_checked(planned, checked)
    yield beside
    for is_unopened in (False, True):
        files = [item for item in planned if item.is_unopened is is_unopened]
        yield from (PlannedFiles(tuple(some)) for some in in_batches(files))


def begin_again(job: EmbedJob) -> Iterator[UnitRecord | Standing]:
    """Yield what `begin` yielded in an earlier attempt, whose plan is on record."""
    last = None
    if RecordedWork(job.root, job.run.id).notes.unchanged:
        last = last_snapshot(job.run)
    if last is None:
        yield Standing()
    else:
        yield from map(carried, last.units)


Passing = Beside | Problem | Standing


def to_count(
    found: list[PlannedFiles | Passing], job: EmbedJob
) -> Iterator[PlannedFile | ToCount | Passing]:
    """Check the opened files as a whole; yield them with the spans to count, or only problems."""
    problems = [item for item in found if isinstance(item, Problem)]
    standing = [item for item in found if isinstance(item, Standing)]
    if problems or standing:
        yield from problems
        yield from standing
        return
    try:
        planned = checked_opened(_files_in_order(found), job)
    except SentenceBeamError as error:
        yield Problem.of(error)
        return
    yield from (item for item in found if isinstance(item, Beside))
    exact = _needs_exact_counts(planned, job)
    for item in planned:
        yield replace(item, spans=())
        yield from (ToCount(span, exact) for span in item.spans)


def _files_in_order(found: list[PlannedFiles | Passing]) -> list[PlannedFile]:
    """Return the planned files among other elements, by relative path."""
    planned = [item for some in found if isinstance(some, PlannedFiles) for item in some.files]
    return sorted(planned, key=lambda item: item.file.relative)


def _needs_exact_counts(planned: list[PlannedFile], job: EmbedJob) -> bool:
    """Whether tokens are counted, to choose buckets for the first time or for a larger corpus."""
    if job.buckets is None:
        return True
    tokens = sum(span.tokens for item in planned for span in item.spans)
    return tokens > COUNT_AGAIN * job.buckets.chosen_tokens


def checked_opened(planned: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """Return opened files with the types that their kept columns are read as.

    Raises OptionError if kept columns differ, the text is more than this process may group in
    memory or the rows are too few for the requested index, DataGateError if they are too few after
    the last snapshot.
    """
    planned = with_types(planned, job, last_snapshot(job.run))
    if (rows := rows_at_most(planned)) is not None:
        check_rows(job, rows)
    text = BYTES_PER_TOKEN * sum(span.tokens for item in planned for span in item.spans)
    if job.text_limit is not None and text > job.text_limit:
        raise OptionError(
            f"--partition content groups the text in memory here: about {text / 1e9:,.1f} GB, more"
            " than a quarter of this machine's; say --partition file, or run it on a cluster"
            " (--runner)"
        )
    return planned


def with_checked(files: list[PlannedFile], checked: Checked) -> list[PlannedFile]:
    """Return the files; the first one has the result of checking all shards."""
    if files:
        return [replace(files[0], checked=checked), *files[1:]]
    return files


def unchanged(
    planned: list[PlannedFile], job: EmbedJob, shards: CarriedShards
) -> tuple[Manifest | None, Checked]:
    """Return the last snapshot if its input was the same and its shards are sound, else None; and
    the result of checking the shards.

    Names of files may differ if they show nowhere.
    """
    manifest = None
    if job.carry:
        manifest = last_snapshot(job.run)
    if manifest is None or not _is_same_input(manifest, planned, job):
        return None, Checked()
    checked = shards.check(manifest.units)
    if checked.damaged:
        return None, checked
    return manifest, checked


def _is_same_input(manifest: Manifest, planned: list[PlannedFile], job: EmbedJob) -> bool:
    """Whether a snapshot was made of the same files; only their content counts if names do not."""
    names = job.columns.path_names
    before = [(entry.path, rows_of_entry(entry, names)) for entry in manifest.files]
    now = [(item.file.relative, rows_of_file(item.file, names)) for item in planned]
    # Without ids of their own rows are named after files, and rejected rows are.
    is_named = job.columns.id is None or manifest.rows.rejected > 0
    if is_named:
        return Counter(before) == Counter(now)
    return Counter(text for _, text in before) == Counter(text for _, text in now)


def count_rows(item: ToCount, job: EmbedJob) -> Span | Problem:
    """Count the rows of a span; returns a problem if it cannot be read."""
    try:
        with progress.stage("counting rows", things="pieces of the input"):
            if item.exact:
                found = counted(item.span, job.columns, job.run.unit_tokens)
            else:
                found = with_rows(item.span)
            progress.step()
        return found
    except SentenceBeamError as error:
        return Problem.of(error)


def with_rows(span: Span) -> Span:
    """The span with its number of rows."""
    return replace(span, rows=count_rows_of(span))


def counted(span: Span, columns: Columns, unit_tokens: int) -> Span:
    """Return the span with its rows, and its tokens estimated from the texts alone.

    The tokens do not depend on the file format. They are rounded up text by text, so that sums over
    spans do not depend on how the rows lie in files.
    """
    rows = tokens = 0
    for unit in read_span(span, columns, unit_tokens):
        rows += unit.read
        tokens += sum(
            estimated_tokens(len(text.encode()) + BYTES_PER_TOKEN - 1, 1) for text in unit.texts
        )
        tokens += estimated_tokens(0, unit.read - len(unit.texts))
    return replace(span, rows=rows, tokens=tokens)


def record(
    found: list[PlannedFile | Span | Passing], job: EmbedJob, slots: int | None
) -> Iterator[ToRead | Problem]:
    """Choose the buckets, write the plan down and hand out what to read; or only the problems.

    A plan that is already on record is handed out instead.
    """
    if Standing() in found:
        yield from recorded(job, slots)
        return
    problems = [item for item in found if isinstance(item, Problem)]
    if problems:
        yield from problems
        return
    files = _with_spans(found)
    everything = [span for item in files for span in item.spans]
    try:
        check_rows(job, sum(span.rows or 0 for span in everything))
    except SentenceBeamError as error:
        yield Problem.of(error)
        return
    buckets = buckets_for(everything, job)
    if not write_plan(job.root, job.run.id, files, buckets, merged(found)):
        yield from recorded(job, slots)
        return
    progress.planned(sum(span.tokens for span in everything))
    yield from readings(everything, buckets, slots)


def _with_spans(found: list[PlannedFile | Span | Passing]) -> list[PlannedFile]:
    """Return the files among the elements in order, each with its spans in order."""
    files = [item for item in found if isinstance(item, PlannedFile)]
    spans: dict[str, list[Span]] = {item.file.path: [] for item in files}
    for item in found:
        if isinstance(item, Span):
            spans[item.file.path].append(item)
    made = []
    for item in sorted(files, key=lambda item: item.file.relative):
        in_order = sorted(spans[item.file.path], key=lambda span: span.start)
        made.append(replace(item, spans=tuple(in_order)))
    return made


def recorded(job: EmbedJob, slots: int | None) -> Iterator[ToRead | Problem]:
    """Yield what to read by the plan on record, or a problem if the plan has changed."""
    try:
        work = RecordedWork(job.root, job.run.id, job.syntax)
        spans = [span for one in work.spans() for span in spans_of(one)]
    except SentenceBeamError as error:
        yield Problem.of(error)
        return
    progress.planned(sum(span.tokens for span in spans))
    if work.notes.buckets is not None:
        yield from readings(spans, work.notes.buckets, slots)


def buckets_for(spans: list[Span], job: EmbedJob) -> Buckets:
    """Return the buckets of a run over these spans, whose rows are known."""
    rows = sum(span.rows or 0 for span in spans)
    tokens = sum(span.tokens for span in spans)
    if job.buckets is None:
        return Buckets.choose(rows, tokens, job.run.unit_tokens)
    return job.buckets.for_rows(rows, tokens, job.run.unit_tokens)


def readings(spans: list[Span], buckets: Buckets, slots: int | None) -> Iterator[ToRead]:
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
    """Yield (group of buckets, block) for all rows of an element; calls `renew` for each unit
    read.
    """
    packer = Packer(work.buckets)
    units = (rows for span in work.spans for rows in read_unerased(span, job))
    for rows, waited in with_waits(units):
        renew()  # no unit is finished before all rows are read
        with progress.stage("reading text", things="rows"):
            packer.add(pieces_of(rows, job))
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
    def of(cls, key: Key, blocks: Iterable[PackedRows]) -> "Group":
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
            return [without(data, self.buckets, self.heavy) for data in packed]
        return list(packed)

    def units(self, packed: list[bytes]) -> Iterator[UnitRows]:
        """Every bucket that is not heavy, from the light blocks."""
        for bucket, table in slices(packed, self.buckets, self.number):
            if bucket not in self.heavy:
                yield unit_rows(self.buckets.name(bucket), bucket, table)

    def pieces(self, blocks: Iterable[PackedRows]) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Yield ((unit's name, bucket), block) for the rows of heavy buckets, and an empty block
        for each piece.
        """
        for bucket, count in self.heavy.items():
            yield from ((self._piece(bucket, k), b"") for k in range(count))
        if self.heavy:
            packed = (block.data for block in blocks if block.counts)
            yield from (
                (self._piece(b, k), data) for b, k, data in cut(packed, self.buckets, self.heavy)
            )

    def _piece(self, bucket: int, k: int) -> tuple[str, int]:
        return f"{self.buckets.name(bucket)}.{k}", bucket


def piece_unit(key: tuple[str, int], blocks: Iterable[bytes]) -> Iterator[UnitRows]:
    """Yield the one unit of a piece of a heavy bucket."""
    yield unit_rows(*key, unpack([data for data in blocks if data]))
