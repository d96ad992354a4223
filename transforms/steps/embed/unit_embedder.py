"""Units through read | tokenise | forward | write: overlapping stages that hold few units."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat, starmap
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sentence_beam.transforms.base.errors import DataGateError, cite
from sentence_beam.transforms.base.measures import Stopwatch, time_waits
from sentence_beam.transforms.corpus import Rejected, UnitRows
from sentence_beam.transforms.corpus.pieces import take_rows
from sentence_beam.transforms.corpus.row_blocks import EMPTY_TEXT
from sentence_beam.transforms.steps.embed.final_vectors import Finisher
from sentence_beam.transforms.steps.embed.inputs import Inputs, hash_inputs, make_inputs
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.forms import compute_run_form
from sentence_beam.transforms.store.records import UnitRecord, reused
from sentence_beam.transforms.store.runs.reused_vectors import Found, LastSnapshot
from sentence_beam.transforms.store.shards.precision import read_kept_ranges
from sentence_beam.transforms.store.shards.shard_bytes import add_text, compute_unit_digest
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import Embedded, Encoder

UNITS_BEING_WRITTEN = 2

Item = TypeVar("Item")


@dataclass(frozen=True)
class UnitWork:
    """A unit ready for the forward pass.

    `inverse` has the place of every row's text among the distinct ones; `found` has the vectors of
    some of these, `inputs` is the model's input for the others (None without others), with `known`
    and `unknown` tokens; `watch` has measured the stages so far.
    """

    unit: PreparedUnit
    inverse: np.ndarray
    found: Found
    inputs: Inputs | None
    watch: Stopwatch
    known: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class UnitEmbedder:
    """Writes units with their vectors; the stages of several units overlap.

    `encoder` loads the model on first use, so that a run with nothing to embed loads none.
    `on_batch` is called with the rows and tokens of each batch. `last` is the snapshot whose
    vectors are reused, `finisher` makes final vectors from pooled ones. `keep_text` says that
    shards have the texts too.
    """

    generation: int
    store: UnitStore
    encoder: Callable[[], "Encoder"]
    on_batch: Callable[[int, int], None]
    last: LastSnapshot
    finisher: Finisher
    keep_text: bool = False

    @classmethod
    def from_job(
        cls, job: EmbedJob, encoder: Callable[[], "Encoder"], on_batch: Callable[[int, int], None]
    ) -> "UnitEmbedder":
        """Return the embedder of a run."""
        run = job.run
        space = job.run.first_space
        ranges = read_kept_ranges(job.root, run.ranges) if run.ranges else None
        store = UnitStore(
            job.root, space, ranges, run.id, compute_run_form(space, run.generation, run.options)
        )
        previous = run.previous if job.reuse else None
        last = LastSnapshot(job.root, previous, space, run.previous_digest)
        finisher = Finisher(space, partial(read_kept_calibration, job.root, space))
        return cls(run.generation, store, encoder, on_batch, last, finisher, job.keep_text)

    def embed(self, units: Iterator[UnitRows], read_ms: float = 0.0) -> Iterator[UnitRecord]:
        """Yield the record of every unit, each as soon as it is written, in order.

        `read_ms` is the time in which their rows were read before; it counts for the first unit.
        Only the thread that writes waits for the model: it gets a unit while those before it are
        computed. Units under way are dropped if Ctrl-C or the caller ends the iteration.
        """
        cancelled = threading.Event()
        with (
            ThreadPoolExecutor(1) as reader,
            ThreadPoolExecutor(1) as preparer,
            ThreadPoolExecutor(1) as writer,
        ):
            try:
                prepared = make_ahead(
                    preparer,
                    starmap(self.prepare, make_ahead(reader, watch_reading(units, read_ms))),
                )
                yield from self._hand_over(prepared, writer, cancelled)
            except (KeyboardInterrupt, GeneratorExit):
                cancelled.set()
                raise

    def _hand_over(
        self,
        prepared: Iterator[UnitRecord | UnitWork],
        writer: Executor,
        cancelled: threading.Event,
    ) -> Iterator[UnitRecord]:
        """Yield the records of prepared units, which the model and the writer work on in turn."""
        writing: deque[Future[UnitRecord]] = deque()
        first = True
        for item, waited in time_waits(prepared):
            if isinstance(item, UnitWork):
                item.watch.set("wait_ms", waited)
                item.watch.set("queue", sum(not unit.done() for unit in writing))
                through = self._start(item, cancelled)
                writing.append(writer.submit(self._write, item, through, first))
                first = False
            else:
                writing.append(_make_done(item))
            while writing and (writing[0].done() or len(writing) > UNITS_BEING_WRITTEN):
                yield writing.popleft().result()
        while writing:
            yield writing.popleft().result()

    def prepare(self, rows: UnitRows, watch: Stopwatch) -> UnitRecord | UnitWork:
        """Return the work of a unit, or its record if an earlier attempt has written it."""
        rows = add_text(rows) if self.keep_text else rows
        with watch.time("reuse_ms"):
            hashes = hash_inputs(rows)
            digest = compute_unit_digest(
                self.store.space, rows, hashes, self.generation, self.store.ranges
            )
            unit = PreparedUnit(rows, hashes, digest)
            record = self.store.finished(unit)
        if record is not None:
            if self.last.had(record):
                return replace(reused(record), measures=watch.figures)
            return record
        if not rows.ids:
            return self.store.write(
                unit, make_no_vectors(self.store.space.dim), [], UnitCounts(0, 0, 0), watch
            )
        with watch.time("reuse_ms"):
            first, inverse = collapse(hashes)
            vectors_before = self._find_vectors(rows, select_items(hashes, first))
        new = np.delete(np.arange(len(first)), vectors_before.places)
        inputs = (
            self._make_inputs(rows, select_items(first, new.tolist()), watch) if len(new) else None
        )
        unit = replace(unit, rows=replace(rows, parts=None, windows=None))
        work = UnitWork(unit, inverse, vectors_before, inputs, watch)
        if inputs is None:
            return work
        words = self.encoder().words(inputs.tokenized)
        return replace(work, known=int(words.known.sum()), unknown=int(words.unknown.sum()))

    def _make_inputs(self, rows: UnitRows, places: list[int], watch: Stopwatch) -> Inputs:
        with watch.time("load_ms"):
            encoder = self.encoder()
        with watch.time("tokenise_ms"):
            return make_inputs(rows, places, encoder)

    def _find_vectors(self, rows: UnitRows, hashes: list[bytes]) -> Found:
        """Return the last snapshot's vectors of these texts that stay usable."""
        reused = self.last.open_shards_of(rows).find(hashes)
        if reused.vectors is None or self.last.is_final:
            return reused
        good, vectors = self.finisher.finish(reused.vectors)
        return replace(reused, places=reused.places[good], vectors=vectors)

    def _start(self, item: UnitWork, cancelled: threading.Event) -> "Callable[[], Embedded | None]":
        """Hand the unit to the model; return the function that waits for its vectors."""
        if item.inputs is None:
            return lambda: None  # all vectors are reused
        return item.inputs.start(self.encoder(), self.on_batch, cancelled)

    def _write(
        self, item: UnitWork, through: "Callable[[], Embedded | None]", first: bool
    ) -> UnitRecord:
        embedded = through()
        if embedded is not None:
            item.watch.set("forward_ms", 1000 * embedded.seconds)
        if embedded is not None and not first:  # the model may have been busy with the unit before
            item.watch.set("wait_ms", min(item.watch.figures["wait_ms"], 1000 * embedded.idle))
        with item.watch.time("write_ms"):
            record = self._write_vectors(item, embedded)
        return replace(record, measures=item.watch.figures)

    def _write_vectors(self, item: UnitWork, embedded: "Embedded | None") -> UnitRecord:
        vectors, status = merge_found_and_embedded(item, embedded)
        unit = item.unit
        inverse = item.inverse
        good, late = split_by_status(unit.rows, status)
        if late:
            unit = replace(
                unit, rows=take_rows(unit.rows, good), hashes=[unit.hashes[i] for i in good]
            )
            vectors = vectors.take(good)
            inverse = inverse[good]
        counts = count(inverse, item.found, status, embedded)
        counts = replace(
            counts, known=item.known, unknown=item.unknown, moved=self.finisher.moved(vectors)
        )
        if embedded is not None:
            counts = replace(counts, device=self.encoder().device_names)
        return self.store.write(unit, vectors, late, counts, item.watch)


def watch_reading(
    units: Iterator[UnitRows], read_ms: float
) -> Iterator[tuple[UnitRows, Stopwatch]]:
    """Yield the units, each with a stopwatch that has measured its reading.

    The first one has `read_ms` more.
    """
    for before in chain([read_ms], repeat(0.0)):
        watch = Stopwatch()
        watch.set("read_ms", before)
        with watch.time("read_ms"):
            rows = next(units, None)
        if rows is None:
            return
        yield rows, watch


def make_ahead(executor: Executor, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; the executor makes the next one while the last one is used."""
    end = object()
    future = executor.submit(next, items, end)
    while (item := future.result()) is not end:
        future = executor.submit(next, items, end)
        yield item  # type: ignore[misc]


def _make_done(record: UnitRecord) -> "Future[UnitRecord]":
    """Return a future that has the record already."""
    future: Future[UnitRecord] = Future()
    future.set_result(record)
    return future


def collapse(hashes: list[bytes]) -> tuple[list[int], np.ndarray]:
    """Return the first row of each distinct text, in order, and each row's place among these."""
    if len(set(hashes)) == len(hashes):
        return list(range(len(hashes))), np.arange(len(hashes))
    position: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(len(hashes), np.int64)
    for row, row_hash in enumerate(hashes):
        if row_hash not in position:
            position[row_hash] = len(first)
            first.append(row)
        inverse[row] = position[row_hash]
    return first, inverse


def select_items(items: list[Item], places: list[int]) -> list[Item]:
    """Return the items at these places, each once and in order."""
    return items if len(places) == len(items) else [items[i] for i in places]


def merge_found_and_embedded(
    item: UnitWork, embedded: "Embedded | None"
) -> tuple[Vectors, np.ndarray]:
    """Return vectors and statuses of every row, from the distinct texts."""
    from sentence_beam.transforms.pooling import Status

    parts = []
    statuses = []
    new = np.empty(0, np.int64)
    if item.found.vectors is not None:
        parts.append(item.found.vectors)
        statuses.append(np.full(len(item.found.places), int(Status.OK), np.uint8))
    if item.inputs is not None and embedded is not None:
        new = np.delete(np.arange(item.inverse.max() + 1), item.found.places)
        parts.append(item.inputs.vectors(embedded))
        statuses.append(embedded.status)
    order = np.argsort(np.concatenate([item.found.places, new]))[item.inverse]
    return Vectors.concat(parts).take(order), np.concatenate(statuses)[order]


def count(
    inverse: np.ndarray, reused: Found, status: np.ndarray, embedded: "Embedded | None"
) -> UnitCounts:
    """Return how the rows came by their vectors.

    `inverse` is of the rows written, `status` of all.
    """
    new = np.zeros(1 + max(inverse.max(initial=-1), reused.places.max(initial=-1)), bool)
    new[inverse] = True
    new[reused.places] = False
    distinct = int(new.sum())
    reused_rows = len(inverse) - int(new[inverse].sum())
    counts = UnitCounts(
        embedded=distinct,
        reused=reused_rows,
        duplicates=len(inverse) - reused_rows - distinct,
        fallbacks=count_fallbacks(status),
        damaged=reused.damaged,
    )
    if embedded is None:
        return counts
    stats = embedded.stats
    return replace(counts, real=stats.real, padded=stats.padded, oom_splits=stats.oom_splits)


def make_no_vectors(dim: int) -> Vectors:
    """Return the vectors of no rows."""
    none = np.empty(0)
    return Vectors(
        np.empty((0, dim), np.float32),
        none,
        none.astype(np.int32),
        none.astype(bool),
        none.astype(np.int32),
    )


def find_reasons(status: np.ndarray) -> dict[int, str]:
    """Return the places of rows without a usable vector, ascending, and the reason for each."""
    from sentence_beam.transforms.pooling import Status

    names = {
        int(Status.ZERO): "zero vector",
        int(Status.NONFINITE): "non-finite vector",
        int(Status.EMPTY): EMPTY_TEXT,
    }
    return {
        int(place): names[int(status[place])]
        for place in np.flatnonzero(np.isin(status, list(names)))
    }


def split_by_status(rows: UnitRows, status: np.ndarray) -> tuple[np.ndarray, list[Rejected]]:
    """Return the places of rows with usable vectors, and the others as rejected rows."""
    reasons = find_reasons(status)
    first = np.array(list(reasons), np.int64)
    bad = np.isin(np.arange(len(status)), first)
    if rows.pieces is not None:
        first, bad = _find_bad_documents(rows, bad)
    late = [rows.reject(place, reasons[place]) for place in first.tolist()]
    return np.flatnonzero(~bad), late


def _find_bad_documents(rows: UnitRows, bad: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first bad piece of each document with one, and its document's rows.

    The latter is bool [rows]. Raises DataGateError for a document of which other units have pieces
    too, since it can only be rejected whole.
    """
    columns = rows.pieces.select(["piece", "pieces", "doc_hash"]).to_pydict()  # type: ignore[union-attr]
    documents: dict[tuple[str, int, bytes, str], list[int]] = {}
    for row, (row_id, place, doc) in enumerate(
        zip(rows.ids, rows.positions, columns["doc_hash"], strict=True)
    ):
        documents.setdefault((row_id, place, doc, rows.find_file(row)), []).append(row)
    first = []
    all_of = np.zeros(len(bad), bool)
    for (row_id, _, _, file), places in documents.items():
        without_vector = [row for row in places if bad[row]]
        if without_vector and len(places) != columns["pieces"][places[0]]:
            mend = "leave the document out"
            if not rows.file:
                mend += f", or say {cite('partition')} file, which rejects it"
            raise DataGateError(
                f"document {row_id} of {file}: piece {columns['piece'][without_vector[0]]} has no"
                f" usable vector (zero, or not finite), and other units have pieces of it; {mend}"
            )
        all_of[places] |= bool(without_vector)
        first += without_vector[:1]
    return np.array(first, np.int64), all_of


def count_fallbacks(status: np.ndarray) -> int:
    """Return the number of rows for which the pooler had to fall back."""
    from sentence_beam.transforms.pooling import Status

    return int(np.count_nonzero(status == int(Status.FALLBACK)))
