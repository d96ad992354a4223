"""Figures of a store, of files, of pairs or of a sentence, from the options to rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from transforms.base import progress
from transforms.base.errors import OptionError
from transforms.base.python_names import parameters_of, python_names
from transforms.calibration import Calibration
from transforms.calibration.quality import cosines
from transforms.evaluation.diagnostics import impact, pairs, tokens
from transforms.evaluation.diagnostics.figures import (
    FIGURES,
    INFLUENCE,
    OF_A_SENTENCE,
    OF_MODELS,
    OF_PAIRS,
    OF_TOKENS,
    OF_VECTORS,
    PAIRS,
    VARIANCE,
    Row,
)
from transforms.evaluation.diagnostics.options import DiagnoseOptions
from transforms.evaluation.diagnostics.sample import Sampled, of_files, of_store
from transforms.evaluation.diagnostics.vectors import of_vectors
from transforms.evaluation.diagnostics.words import WordCounts, of_words
from transforms.evaluation.encode_many import Encoded, ModelSettings, encode_many, groups
from transforms.evaluation.methods import matched
from transforms.space import DEFAULT_MODEL, resolve_model
from transforms.space.identity import tokenizer_digest
from transforms.space.model_files import ModelFiles
from transforms.space.token_table import read_table
from transforms.store import Store, open_store

if TYPE_CHECKING:
    from transforms.encoder.token_states import StateReader
    from transforms.encoder.tokenize import TextTokenizer, Tokenized

TOKEN_TEXTS = 1000  # texts of the sample whose tokens are looked at, as in Ditto's figures


@dataclass(frozen=True)
class Diagnosis:
    """The rows of figures, what was looked at (of which model, or None), and notes for their
    reader.
    """

    source: str
    model: str | None
    rows: list[Row]
    notes: list[str]


@python_names(parameters_of(DiagnoseOptions))
def diagnose(options: DiagnoseOptions) -> Diagnosis:
    """The figures that the options ask for. Raises OptionError for sources, figures and files that
    do not work.

    Rows have figure, pooler, layer, head, value, n, and what their figure has beside
    (docs/diagnostics.md).
    """
    source = _source(options)
    asked = _asked(options)
    store = None
    if options.store:
        store = open_store(options.store, options.snapshot)
    model = _model(options, store)
    with progress.stage("drawing the sample"):
        drawn = _drawn(options, store)
        asked_pairs = [pairs.read(word, options.sample, options.labels) for word in options.tasks]
    work = _Work(options, model, asked, drawn, asked_pairs)
    work.check_calibrations()
    with progress.stage("figures of vectors"):
        rows = [
            row
            for pooler, vectors in drawn.vectors.items()
            for row in of_vectors(pooler, vectors, asked)
        ]
    rows += work.of_poolers()
    with progress.stage("figures of tokens"):
        rows += [*work.of_model(), *work.of_sentence()]
    return Diagnosis(
        source,
        model.model if work.used_model else None,
        rows,
        _notes(options, work, drawn, asked_pairs),
    )


def _source(options: DiagnoseOptions) -> str:
    sources = [name for name in ("store", "input", "tasks") if getattr(options, name)]
    if len(sources) > 1 or not (sources or options.sentence):
        raise OptionError("say one of --store, --input and --task, or --sentence alone")
    for name in ("where", "snapshot"):
        if options.store is None and getattr(options, name) is not None:
            raise OptionError(f"--{name} is for --store; leave it out")
    named = options.store or ", ".join(options.input or options.tasks)
    return named or f"'{options.sentence}'"


def _asked(options: DiagnoseOptions) -> frozenset[str]:
    """The figures asked for; without any, those that the source gives by itself."""
    unknown = next((name for name in options.figures if name not in FIGURES), None)
    if unknown is not None:
        raise OptionError(f"--figure {unknown} is not known; allowed: {', '.join(FIGURES)}")
    if OF_A_SENTENCE in options.figures and options.sentence is None:
        raise OptionError(f"--figure {OF_A_SENTENCE} is of one sentence; give it by --sentence")
    of_pairs = next((name for name in options.figures if name in (*OF_PAIRS, PAIRS)), None)
    if of_pairs is not None and not options.tasks:
        raise OptionError(f"--figure {of_pairs} is of pairs; give them by --task {pairs.FORM}")
    if options.figures:
        return frozenset(options.figures)
    found = [*OF_VECTORS] if options.store or options.input or options.tasks else []
    found += OF_MODELS if options.input or options.tasks else []
    found += OF_PAIRS if options.tasks else []
    return frozenset([*found, *([OF_A_SENTENCE] if options.sentence is not None else [])])


def _model(options: DiagnoseOptions, store: Store | None) -> ModelSettings:
    if store is None:
        return ModelSettings(
            options.model or DEFAULT_MODEL, options.revision, device=options.device
        )
    said = store.manifest.options
    return ModelSettings(
        options.model or said.model,
        options.revision if options.model else said.revision,
        store.space.max_tokens if options.model is None else None,
        device=options.device,
        prompt=store.space.prompt if options.model is None else None,
    )


def _drawn(options: DiagnoseOptions, store: Store | None) -> Sampled:
    if store is not None:
        return of_store(store, options.sample, options.where)
    if options.input:
        return of_files(
            options.input, options.format, options.delimiter, options.text_column, options.sample
        )
    return Sampled(0, None, {})


def _notes(
    options: DiagnoseOptions, work: "_Work", drawn: Sampled, asked: Sequence[pairs.Pairs]
) -> list[str]:
    notes = []
    if drawn.total:
        notes.append(
            f"{min(options.sample, drawn.total):,} of {drawn.total:,} rows, drawn by keyed hash"
        )
    for one in asked:
        notes.append(
            f"{one.name}: {len(one.first):,} pairs of {one.total:,} in its files, drawn by keyed"
            " hash"
        )
        if one.made:
            notes.append(
                f"{one.name}: half of the pairs are made, of questions with the answer of another"
                " question"
            )
    if work.texts_without_influence:
        notes.append(
            f"influence: {work.texts_without_influence:,} texts have fewer than 3 or more than 64"
            " tokens"
        )
    if work.words_from:
        notes.append(f"words are counted in {work.words_from}")
    return notes


@dataclass(frozen=True)
class _Work:
    """What is made with a model: of poolers' vectors, of its tokens, of a sentence."""

    options: DiagnoseOptions
    model: ModelSettings
    asked: frozenset[str]
    drawn: Sampled
    of_tasks: Sequence[pairs.Pairs]

    @property
    def used_model(self) -> bool:
        """Whether a model was loaded."""
        return bool(self._poolers or self.asked & {*OF_MODELS, *OF_TOKENS, OF_A_SENTENCE})

    @property
    def words_from(self) -> str:
        """What the words were counted in; empty where none were needed."""
        return (
            self._words.source
            if self.asked & {"norms", "heads", INFLUENCE, OF_A_SENTENCE} and self._has_words
            else ""
        )

    # --- poolers

    @property
    def _poolers(self) -> tuple[str, ...]:
        if self.options.store is not None:
            return self.options.poolers
        of_vectors_asked = bool(self.asked & {*OF_VECTORS, *OF_PAIRS, PAIRS})
        return (self.options.poolers or ("auto",)) if of_vectors_asked and self._texts else ()

    def of_poolers(self) -> list[Row]:
        """The figures of each pooler's vectors, and of the pairs that they make."""
        edits = [self._edits(one) for one in self.of_tasks]
        rows: list[Row] = []
        if "edit-distance" in self.asked:
            rows = [
                row
                for one, known in zip(self.of_tasks, edits, strict=True)
                for row in pairs.of_gold(one, known)
            ]
        if not self._poolers:
            return rows
        texts = self._texts
        place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        near: list[dict[str, np.ndarray]] = [{} for _ in self.of_tasks]
        with progress.stage(
            "embedding", len(place) * len(groups(self.model, self._poolers)), "texts"
        ):
            for encoded in encode_many(self.model, list(self._poolers), list(place), progress.step):
                for name, vectors in self._with_calibrations(encoded):
                    rows += of_vectors(name, vectors[[place[text] for text in texts]], self.asked)
                    for one, known, cosine in zip(self.of_tasks, edits, near, strict=True):
                        a, b = (
                            vectors[[place[text] for text in side]]
                            for side in (one.first, one.second)
                        )
                        rows += pairs.of_pairs(name, one, a, b, known, self.asked)
                        cosine[name] = cosines(a, b)
        if "agreement" in self.asked:
            rows += [
                row
                for one, by_name in zip(self.of_tasks, near, strict=True)
                for row in pairs.of_agreement(one, by_name)
            ]
        return rows

    def _with_calibrations(self, encoded: Encoded) -> Iterator[tuple[str, np.ndarray]]:
        """A pooler's vectors by its name, and those under each calibration that was fitted on
        them.
        """
        yield encoded.pooler, encoded.rows
        for path, calibration in self._calibrations[encoded.pooler].items():
            yield f"{encoded.pooler}, {path}", calibration.apply(encoded.rows)

    def check_calibrations(self) -> None:
        """Raise OptionError for calibrations without vectors of a pooler to apply them to."""
        if self.options.calibrations and not self._poolers:
            raise OptionError(
                "--calibration is of the vectors that --pooler makes; say --pooler too"
            )

    @cached_property
    def _calibrations(self) -> dict[str, dict[str, Calibration]]:
        """The calibrations by pooler and path. Raises SpaceMismatchError for one of none of the
        poolers.
        """
        if not self.options.calibrations:
            return {pooler: {} for pooler in self._poolers}
        return matched(
            {pooler: self.model.space(pooler) for pooler in self._poolers},
            self.options.calibrations,
        )

    def _edits(self, one: pairs.Pairs) -> np.ndarray | None:
        """The edit distances of pairs, in the tokens of the model in lower case; None where they
        are not asked for.
        """
        if not self.asked & {"edit-distance", PAIRS}:
            return None
        first, second = (
            self._ids([text.lower() for text in side]) for side in (one.first, one.second)
        )
        return pairs.edit_distances(first, second)

    @cached_property
    def _texts(self) -> list[str]:
        """All texts whose vectors are looked at; both sides of every pair, repeats too."""
        return [
            *(self.drawn.texts or ()),
            *(text for one in self.of_tasks for text in (*one.first, *one.second)),
        ]

    # --- the model itself

    def of_model(self) -> list[Row]:
        """The figures of the model's word embeddings and token states."""
        if not self.asked & {*OF_MODELS, *OF_TOKENS}:
            return []
        self._check_texts()
        rows: list[Row] = []
        if "norms" in self.asked:
            from transforms.encoder.token_states import embedding_matrix

            rows += of_words(embedding_matrix(self._files), self._words, self._special)
        heads = self._heads if "heads" in self.asked else []
        layers = self._files.layers if self.asked & {"layers", VARIANCE} else 0
        if heads or layers:
            states = self._reader.states(self._token_texts)
            found = tokens.gather((batch for _, batch in states), heads, layers)
            rows += tokens.of_heads(found, heads, self._words) if heads else []
            rows += tokens.of_layers(found) if "layers" in self.asked else []
            rows += (
                tokens.of_word_variance(found, self._reader.tokenizer.pieces)
                if VARIANCE in self.asked
                else []
            )
        if INFLUENCE in self.asked:
            rows += impact.of_influences(self._influences, self._words)
        return rows

    @cached_property
    def _influences(self) -> impact.Influences:
        """The influence of the tokens of the first texts on each other."""
        return impact.influences(
            self._reader,
            self._files.layers,
            self._texts[:TOKEN_TEXTS],
            self._mask("--figure influence"),
        )

    @property
    def texts_without_influence(self) -> int:
        """The texts that are too short or too long for it."""
        return self._influences.skipped if INFLUENCE in self.asked else 0

    def _mask(self, what: str) -> int:
        """The id of the mask token. Raises OptionError for a tokenizer without one."""
        mask, pieces = self._files.mask_token(), self._reader.tokenizer.pieces
        if mask is None or mask not in pieces:
            raise OptionError(
                f"{what}: the tokenizer of {self._files.folder} has no mask token; use another"
                " model"
            )
        return pieces.index(mask)

    def of_sentence(self) -> list[Row]:
        """The impact of each token of the sentence on the others."""
        if OF_A_SENTENCE not in self.asked or self.options.sentence is None:
            return []
        pieces, mask = self._reader.tokenizer.pieces, self._mask("--sentence")
        ids, matrix = impact.impact(self._reader, self._files.layers, self.options.sentence, mask)
        return impact.of_sentence(ids, matrix, pieces, self._words if self._has_words else None)

    def _check_texts(self) -> None:
        if not self._texts:
            what = (
                "keeps no text; embed it with --keep-text" if self.options.store else "is missing"
            )
            asked = ", ".join(sorted(self.asked & {*OF_MODELS, *OF_TOKENS}))
            raise OptionError(
                f"--figure {asked} needs text, which {self.options.store or 'here'} {what}"
            )

    @cached_property
    def _files(self) -> ModelFiles:
        return resolve_model(self.model.model, self.model.revision)

    @cached_property
    def _heads(self) -> list[tuple[int, int]]:
        return [
            (block, head)
            for block in range(1, self._files.layers + 1)
            for head in range(1, self._files.heads + 1)
        ]

    @cached_property
    def _reader(self) -> "StateReader":
        from transforms.encoder.token_states import StateReader
        from transforms.pooling.pooler import Needs

        of_layers = self.asked & {"layers", VARIANCE}
        layers = frozenset(range(self._files.layers + 1)) if of_layers else frozenset[int]()
        layers |= {self._files.layers} if self.asked & {OF_A_SENTENCE, INFLUENCE} else set()
        heads = frozenset(self._heads) if "heads" in self.asked else frozenset[tuple[int, int]]()
        needs = Needs(layers=layers, heads=heads)
        return StateReader(
            self._files, needs, self.model.space("mean").max_tokens, self.options.device
        )

    @cached_property
    def _token_texts(self) -> "Tokenized":
        return self._reader.tokenizer(self._texts[:TOKEN_TEXTS])

    # --- words

    @property
    def _has_words(self) -> bool:
        return bool(self.options.table or self._texts)

    @cached_property
    def _special(self) -> np.ndarray:
        return self._tokenizer.special_ids

    @cached_property
    def _words(self) -> WordCounts:
        """The token statistics of `--table`, else of the texts that were drawn."""
        if self.options.table:
            from transforms.encoder.load import load_statistics

            told = read_table(self.options.table).described
            if told["tokenizer"] != tokenizer_digest(self._files):
                raise OptionError(
                    f"--table {self.options.table} counts tokens of another tokenizer; fit it with"
                    " this model (--model)"
                )
            return WordCounts.of(
                load_statistics(self.options.table), f"{self.options.table}, {told['method']}"
            )
        return WordCounts.of_texts(self._ids(self._texts), self._tokenizer.vocabulary)

    def _ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The token ids of texts, special ones left out."""
        found = self._tokenizer(texts)
        plain = ~np.isin(found.ids, self._special)
        before = np.concatenate([[0], np.cumsum(plain)])
        return np.split(found.ids[plain].astype(np.int64), before[found.offsets[1:-1]])

    @cached_property
    def _tokenizer(self) -> "TextTokenizer":
        from transforms.encoder.tokenize import TextTokenizer

        return TextTokenizer(self._files)
