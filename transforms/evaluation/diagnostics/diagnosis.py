"""Figures of a store, of files, of pairs or of a sentence, from the options to rows."""

from dataclasses import dataclass

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.diagnostics import pair_figures
from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import DiagnoseOptions
from sentence_beam.transforms.evaluation.diagnostics.drawn_samples import (
    Sampled,
    sample_files,
    sample_store,
)
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import (
    FIGURES,
    IMPACT,
    MODEL_FIGURES,
    PAIR_FIGURES,
    PAIRS,
    VECTOR_FIGURES,
    Row,
)
from sentence_beam.transforms.evaluation.diagnostics.material import Material
from sentence_beam.transforms.evaluation.diagnostics.model_figures import ModelFigures
from sentence_beam.transforms.evaluation.diagnostics.pooler_figures import PoolerFigures
from sentence_beam.transforms.evaluation.diagnostics.vector_figures import vector_figures
from sentence_beam.transforms.evaluation.encode_many import ModelSettings
from sentence_beam.transforms.space import DEFAULT_MODEL
from sentence_beam.transforms.store import Store, open_store


@dataclass(frozen=True)
class Diagnosis:
    """The rows of figures, their source and model (None if none was used), and notes."""

    source: str
    model: str | None
    rows: list[Row]
    notes: list[str]


def diagnose(options: DiagnoseOptions) -> Diagnosis:
    """Compute the figures that the options request.

    Rows have figure, pooler, layer, head, value, n, and further fields of their figure
    (docs/diagnostics.md). Raises OptionError for sources, figures and files that cannot be used.
    """
    source = _name_source(options)
    requested = _select_figures(options)
    store = open_store(options.store, options.snapshot) if options.store else None
    settings = _choose_model(options, store)
    with progress.stage("drawing the sample"):
        sample = _sample(options, store)
        with task_files.reading_as(Syntax.from_options(options)):
            tasks = [
                pair_figures.read(word, options.sample, options.labels) for word in options.tasks
            ]
    material = Material(options, settings, requested, sample, tasks)
    pooler_figures = PoolerFigures(material)
    model_figures = ModelFigures(material)
    pooler_figures.check_calibrations()
    rows: list[Row] = []
    with progress.stage("figures of vectors"):
        for pooler, vectors in sample.vectors.items():
            rows += vector_figures(pooler, vectors, requested)
    rows += pooler_figures.rows()
    with progress.stage("figures of tokens"):
        rows += model_figures.rows()
    model = settings.model if pooler_figures.poolers or model_figures.is_requested else None
    return Diagnosis(source, model, rows, _write_notes(material, model_figures))


def _name_source(options: DiagnoseOptions) -> str:
    """Return the name of the source. Raises OptionError for several."""
    sources = [name for name in ("store", "input", "tasks") if getattr(options, name)]
    if len(sources) > 1:
        raise OptionError(
            f"say one of {cite('store')}, {cite('input')} and {cite('task')}, or {cite('sentence')}"
            " alone"
        )
    for name in ("where", "snapshot"):
        if options.store is None and getattr(options, name) is not None:
            raise OptionError(f"{cite(name)} is for {cite('store')}; leave it out")
    name = options.store or ", ".join(options.input or options.tasks)
    return name or f"'{options.sentence}'"


def _select_figures(options: DiagnoseOptions) -> frozenset[str]:
    """Return the requested figures, or those that suit the source if none are named."""
    _check_figures(options)
    if options.figures:
        return frozenset(options.figures)
    figures: set[str] = set()
    if options.store or options.input or options.tasks:
        figures.update(VECTOR_FIGURES)
    if options.input or options.tasks:
        figures.update(MODEL_FIGURES)
    if options.tasks:
        figures.update(PAIR_FIGURES)
    if options.sentence is not None:
        figures.add(IMPACT)
    return frozenset(figures)


def _check_figures(options: DiagnoseOptions) -> None:
    """Raise OptionError for a figure that is unknown, or whose source is missing."""
    for name in options.figures:
        if name not in FIGURES:
            raise OptionError(
                f"{cite('figure')} {name} is not known; allowed: {', '.join(FIGURES)}"
            )
    if IMPACT in options.figures and options.sentence is None:
        raise OptionError(
            f"{cite('figure')} {IMPACT} is of one sentence; give it by {cite('sentence')}"
        )
    for name in options.figures:
        if name in (*PAIR_FIGURES, PAIRS) and not options.tasks:
            raise OptionError(
                f"{cite('figure')} {name} is of pairs; give them by {cite('task')}"
                f" {pair_figures.FORM}"
            )


def _choose_model(options: DiagnoseOptions, store: Store | None) -> ModelSettings:
    """Return the settings of the requested model, else of the store's, else of the default one."""
    if options.model is not None or store is None:
        model = DEFAULT_MODEL if options.model is None else options.model
        return ModelSettings(model, options.revision, device=options.device)
    remembered = store.manifest.options
    return ModelSettings(
        remembered.model,
        remembered.revision,
        store.space.max_tokens,
        device=options.device,
        prompt=store.space.prompt,
    )


def _sample(options: DiagnoseOptions, store: Store | None) -> Sampled:
    if store is not None:
        return sample_store(store, options.sample, options.where)
    if options.input:
        return sample_files(
            options.input,
            options.format,
            Syntax.from_options(options),
            options.text_column,
            options.sample,
        )
    return Sampled(0, None, {})


def _write_notes(material: Material, model_figures: ModelFigures) -> list[str]:
    """Return notes on the sample, the pairs and the words for the reader of the figures."""
    notes = []
    sample = material.sample
    if sample.total:
        drawn = min(material.options.sample, sample.total)
        notes.append(f"{drawn:,} of {sample.total:,} rows, drawn by keyed hash")
    for task in material.pairs:
        notes += _describe_pairs(task)
    skipped = model_figures.texts_without_influence
    if skipped:
        notes.append(f"influence: {skipped:,} texts have fewer than 3 or more than 64 tokens")
    if model_figures.word_source:
        notes.append(f"words are counted in {model_figures.word_source}")
    return notes


def _describe_pairs(task: pair_figures.Pairs) -> list[str]:
    notes = [
        f"{task.name}: {len(task.first):,} pairs of {task.total:,} in its files, drawn by keyed"
        " hash"
    ]
    if task.made:
        notes.append(
            f"{task.name}: half of the pairs are made, of questions with the answer of another"
            " question"
        )
    return notes
