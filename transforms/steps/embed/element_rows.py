"""Rows of other people's pipelines with vectors: many elements at once, no files, no store."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.measures import Stopwatch
from sentence_beam.transforms.corpus import UnitRows
from sentence_beam.transforms.corpus.column_values import NOT_UTF8
from sentence_beam.transforms.corpus.pieces import cut_where_possible, find_own_texts, take_rows
from sentence_beam.transforms.corpus.row_blocks import EMPTY_TEXT
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.corpus.text_template import Template, parse
from sentence_beam.transforms.space import FLOAT32_ONLY, Machine, Recipe, Space, resolve_dtype
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.space.int8_model import INT8, MISSING
from sentence_beam.transforms.steps.embed.cutting import load_cutter, load_tokenizer, prepare_inputs
from sentence_beam.transforms.steps.embed.inputs import Finish, hash_inputs, make_inputs
from sentence_beam.transforms.steps.embed.load_encoder import check_chunks, make_encoder
from sentence_beam.transforms.steps.embed.row_shapes import (
    OF_PIECES,
    OF_VECTORS,
    REASON,
    AddedColumns,
    Before,
    Element,
    MakeRow,
    check_prefix,
    estimate_text_tokens,
    find_faults,
    read_elements,
)
from sentence_beam.transforms.steps.embed.row_windows import (
    EmbeddedElement,
    EmbeddedWindow,
    Window,
    measure_window,
)
from sentence_beam.transforms.steps.embed.unit_embedder import collapse, find_reasons
from sentence_beam.transforms.steps.options.auto import UNKNOWN_PROCESSORS
from sentence_beam.transforms.store.calibrations import read_calibration

if TYPE_CHECKING:
    from sentence_beam.transforms.corpus.chunks.cut import Pieces
    from sentence_beam.transforms.encoder import Encoder

WINDOWS_AHEAD = 2  # that are embedded while the results of one before them are given away


@dataclass(frozen=True)
class RowsJob:
    """The embedding of rows: `text` names the field, `recipe` makes the vectors of `space`.

    `prefix` is the template of the text before every piece of a document, "" for none.
    `has_own_dtype` says that the dtype is this machine's, because none was given.
    """

    recipe: Recipe
    machine: Machine
    text: str
    space: Space
    prefix: str = ""
    has_own_dtype: bool = False

    @classmethod
    def from_recipe(
        cls, recipe: Recipe, machine: Machine, text: str, prefix: str = ""
    ) -> "RowsJob":
        """Return the job of a recipe, whose model must be on this machine.

        Raises OptionError for options that do not work.
        """
        recipe.chunks.check_prefix(prefix)
        parse(prefix)
        if os.path.isdir(recipe.model):
            recipe = replace(recipe, model=os.path.abspath(recipe.model))
        files = recipe.files()
        exported = recipe.as_exported(files).for_rows(files)
        if exported.dtype == INT8:
            raise OptionError(MISSING)
        has_own_dtype = exported.dtype == "auto" and files.family not in FLOAT32_ONLY
        exported = replace(
            exported, dtype=resolve_dtype(exported.dtype, machine.device, files.family)
        )
        if exported.calibration:
            fitted = read_calibration(exported.calibration)
            space = exported.space(files, fitted.digest, fitted.dim)
        else:
            space = exported.space(files)
        return cls(exported, machine, text, space, prefix, has_own_dtype)

    @property
    def chunks(self) -> ChunksSpec:
        """How documents are cut."""
        return self.recipe.chunks

    def on_workers(self, engine: bool, accelerator: bool) -> "RowsJob":
        """Return the job as its workers do it, in other processes if there is an `engine`.

        Raises OptionError if its dtype was left to them, which may have other processors.
        """
        if engine and self.has_own_dtype:
            raise OptionError(UNKNOWN_PROCESSORS)
        return replace(self, machine=self.machine.on_workers(engine, accelerator))

    @property
    def before_pieces(self) -> Template | None:
        """The template of the text before every piece, None without one."""
        return parse(self.prefix) if self.prefix else None

    @property
    def adds_pieces(self) -> bool:
        """Whether rows become rows of their pieces."""
        return self.chunks.cuts and self.chunks.combine == "none"

    @property
    def added(self) -> frozenset[str]:
        """The names of the fields that rows get."""
        names = frozenset((*OF_VECTORS, REASON))
        if self.adds_pieces:
            names |= frozenset(OF_PIECES)
        return names

    def load(self) -> "Encoder":
        """Return the encoder.

        Raises SpaceMismatchError if this machine's files make another space than the job's.
        """
        calibration = read_calibration(self.recipe.calibration) if self.recipe.calibration else None
        encoder = make_encoder(self.recipe, self.machine, calibration, self.space)
        check_chunks(encoder, self.chunks)
        return encoder

    def check_prefix(self, fields: list[str]) -> None:
        """Raise OptionError if the prefix of pieces names none of the fields."""
        if self.before_pieces is not None:
            check_prefix(self.before_pieces, fields)

    def check_names(self, names: Iterable[str]) -> None:
        """Raise OptionError for a field with the name of one that is added."""
        taken = next((name for name in names if name in self.added), None)
        if taken is not None:
            raise OptionError(
                f"rows have a field {taken!r} already, which EmbedRows would replace; rename it"
                " before"
            )


@dataclass
class RowEmbedder:
    """Embeds the elements of one bundle, held until they have the tokens of a unit.

    So batches have texts of about one length, whatever the bundle's order is. A thread of its own
    prepares a window of elements and hands it to the model while earlier ones are computed; another
    puts vectors into order. Results come in the order of elements. `encoder` loads the model when
    it is first needed, `make` makes a named row of fields; `measured` gets the counts and figures
    of each window, in the thread that takes the results.
    """

    job: RowsJob
    encoder: Callable[[], "Encoder"]
    make: MakeRow
    measured: Callable[[Mapping[str, int], Mapping[str, float]], None]
    window_tokens: int = UNIT_TOKENS
    _held: list[tuple[Element, Any, list[Any]]] = field(default_factory=list)
    _tokens: int = 0
    _ahead: "deque[Future[EmbeddedWindow]]" = field(default_factory=deque)
    _preparer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _finisher: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def add(self, element: Any, place: Any) -> Iterator[EmbeddedElement]:
        """Take an element; yield the results of earlier ones if enough are held now."""
        for part, texts in read_elements(element, self.job.text, self.window_tokens, self.make):
            self.job.check_names(part.names())
            self._held.append((part, place, texts))
            self._tokens += sum(map(estimate_text_tokens, texts))
            if self._tokens >= self.window_tokens:
                yield from self._begin_window()

    def finish(self) -> Iterator[EmbeddedElement]:
        """Yield the results of all elements that are still held."""
        yield from self._begin_window()
        while self._ahead:
            yield from self._give_results(self._ahead.popleft().result())
        self._preparer.shutdown()
        self._finisher.shutdown()

    def _begin_window(self) -> Iterator[EmbeddedElement]:
        """Begin to embed the held elements; yield the results of finished windows.

        A window with too many behind it is waited for.
        """
        held = self._held
        self._held = []
        self._tokens = 0
        if held:
            started = self._preparer.submit(self._start, held)
            self._ahead.append(self._finisher.submit(self._collect, started))
        while self._ahead and (self._ahead[0].done() or len(self._ahead) > WINDOWS_AHEAD):
            yield from self._give_results(self._ahead.popleft().result())

    def _start(self, held: list[tuple[Element, Any, list[Any]]]) -> tuple[Window, Finish | None]:
        """Return the window of held elements, and the function that waits for its vectors."""
        window = self._prepare(held)
        if window.inputs is None:
            return window, None
        return window, window.inputs.start(self.encoder(), _ignore_batch)

    def _prepare(self, held: list[tuple[Element, Any, list[Any]]]) -> Window:
        watch = Stopwatch()
        bounds = [0, *accumulate(len(texts) for _, _, texts in held)]
        rows, reasons = self._select_good_rows(held)
        with watch.time("tokenise_ms"):
            rows, others, not_cut = self._cut(rows)
        reasons |= not_cut
        with watch.time("reuse_ms"):
            first, inverse = collapse(hash_inputs(rows))
        inputs = None
        if first:
            with watch.time("load_ms"):
                encoder = self.encoder()
            with watch.time("tokenise_ms"):
                inputs = make_inputs(rows, first, encoder)
        elements = [(element, place) for element, place, _ in held]
        return Window(
            elements,
            bounds,
            reasons,
            np.array(rows.positions, np.int64),
            inverse,
            inputs,
            others,
            watch,
        )

    def _select_good_rows(
        self, held: list[tuple[Element, Any, list[Any]]]
    ) -> tuple[UnitRows, dict[int, str]]:
        """Return the rows with a text, and the reasons against the others by place."""
        texts = list(chain.from_iterable(texts for _, _, texts in held))
        reasons = find_faults(texts, self.job.text)
        before: list[Before] = []
        if self.job.before_pieces is not None:
            before = [
                each for element, _, _ in held for each in element.before(self.job.before_pieces)
            ]
            reasons = {
                place: NOT_UTF8 for place, each in enumerate(before) if each is None
            } | reasons
        good = [place for place in range(len(texts)) if place not in reasons]
        prefixes = None
        if before:
            prefixes = [each for place in good if (each := before[place]) is not None]
        own = [texts[place] for place in good]
        none = [""] * len(good)
        return UnitRows("", None, 0, None, none, own, good, None, [], prefixes=prefixes), reasons

    def _cut(self, rows: UnitRows) -> tuple[UnitRows, dict[str, list[Any]], dict[int, str]]:
        """Return the model's input for the rows, columns of pieces, and reasons against others."""
        job = self.job
        chunks = self.job.chunks
        if not chunks.cuts:
            return rows, {}, {}
        tried = cut_where_possible(rows, load_cutter(job.recipe, job.space, chunks))
        cut_pieces: list[Pieces] = []
        not_cut = {}
        for position, pieces_of_row in zip(rows.positions, tried, strict=True):
            if isinstance(pieces_of_row, OptionError):
                not_cut[position] = str(pieces_of_row)
            elif pieces_of_row.spans:
                cut_pieces.append(pieces_of_row)
            else:
                not_cut[position] = EMPTY_TEXT
        if not_cut:
            is_cut = [position not in not_cut for position in rows.positions]
            rows = take_rows(rows, np.flatnonzero(is_cut))
        cut = prepare_inputs(rows, cut_pieces, chunks, load_tokenizer(job.recipe, job.space))
        if cut.pieces is None:
            return cut, {}, not_cut
        places = {
            name: cut.pieces.column(name).to_pylist() for name in OF_PIECES if name != "headings"
        }
        headings = list(chain.from_iterable(pieces.headings for pieces in cut_pieces))
        return cut, {job.text: find_own_texts(cut), **places, "headings": headings}, not_cut

    def _give_results(self, made: EmbeddedWindow) -> Iterator[EmbeddedElement]:
        """Yield the results of a window's elements, in order."""
        window = made.window
        self.measured(made.counts, made.figures)
        firsts = np.searchsorted(made.owners, window.bounds).tolist()
        rows = zip(pairwise(window.bounds), pairwise(firsts), strict=True)
        for (element, place), ((start, stop), (first, end)) in zip(
            window.elements, rows, strict=True
        ):
            own = (made.owners[first:end] - start).tolist()
            for value in element.embedded(own, made.columns, first):
                yield EmbeddedElement(place, value)
            against = {
                row - start: made.reasons[row] for row in range(start, stop) if row in made.reasons
            }
            if against:
                yield EmbeddedElement(place, element.rejected(against), rejected=True)

    def _collect(self, started: "Future[tuple[Window, Finish | None]]") -> EmbeddedWindow:
        """Return the results of a window, once the model is through with it."""
        window, through = started.result()
        if window.inputs is None or through is None:
            none = np.empty((0, self.job.space.dim), np.float32)
            counts = {"rejected": len(window.reasons)}
            columns = AddedColumns(none, {})
            return EmbeddedWindow(
                window, columns, window.owners, window.reasons, counts, window.watch.figures
            )
        embedded = through()
        window.watch.set("forward_ms", 1000 * embedded.seconds)
        vectors = window.inputs.vectors(embedded).take(window.inverse)
        status = embedded.status[window.inverse]
        # A document of which one piece has no vector has none: half of it would be lost without a
        # word.
        bad = {int(window.owners[place]): reason for place, reason in find_reasons(status).items()}
        kept = np.flatnonzero(~np.isin(window.owners, list(bad)))
        vectors = vectors.take(kept)
        reasons = {**window.reasons, **bad}
        measured = measure_window(window, vectors, status, embedded.stats, len(reasons))
        others = {name: [column[place] for place in kept] for name, column in window.others.items()}
        others |= {
            name: getattr(vectors, name).tolist() for name in ("norm", "tokens", "truncated")
        }
        text = self.job.text if window.others else None
        columns = AddedColumns(vectors.embedding, others, text)
        return EmbeddedWindow(window, columns, window.owners[kept], reasons, *measured)


def _ignore_batch(rows: int, tokens: int) -> None:
    """Do nothing after a batch."""
