"""The jobs of `fit`, from its options: a calibration of a store, token statistics of a corpus."""

import os
from collections.abc import Sequence

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.calibration import parse_calibration
from sentence_beam.transforms.calibration.calibration_spec import CALIBRATIONS, CalibrationSpec
from sentence_beam.transforms.calibration.fitting import SHOWN_ROWS
from sentence_beam.transforms.calibration.methods import AFFINE
from sentence_beam.transforms.corpus import InputFile, match_inputs
from sentence_beam.transforms.corpus.files import check_distinct
from sentence_beam.transforms.corpus.found_columns import choose_text_column
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.space import DEFAULT_MODEL, resolve_model
from sentence_beam.transforms.space.identity import hash_tokenizer
from sentence_beam.transforms.space.token_table import METHODS
from sentence_beam.transforms.steps.fit.corpus_statistics import CountJob
from sentence_beam.transforms.steps.fit.gathered_vectors import GatherJob
from sentence_beam.transforms.steps.fit.store_fit import FitJob
from sentence_beam.transforms.steps.options.index_options import FLOW_SAMPLE, FitOptions
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.layout import default_store
from sentence_beam.transforms.store.open import Store
from sentence_beam.transforms.store.runs.run_result import now
from sentence_beam.transforms.store.shards.shard_reading import is_narrow

OF_STORES = ("store", "sample")  # options that token statistics have no use for
OF_CORPORA = (
    "input", "model", "revision", "format", "delimiter", "csv", "json_rows", "text_column",
)  # fmt: skip


def counts_tokens(options: FitOptions) -> bool:
    """Whether the method counts the tokens of a corpus.

    Raises OptionError for options of the other methods, and if no corpus is named.
    """
    if options.method not in METHODS:
        return False
    _refuse(options, OF_STORES)
    if options.input is None:
        raise OptionError(
            f"{cite('method')} {options.method} counts the tokens of a corpus; name its files by"
            f" {cite('input')}"
        )
    return True


def parse_calibration_method(options: FitOptions) -> CalibrationSpec:
    """Return the calibration to fit.

    Raises OptionError for an unknown method, and for options of methods that count tokens.
    """
    if options.method.partition(":")[0].partition("+")[0] not in CALIBRATIONS:
        of_stores = ", ".join(CALIBRATIONS)
        of_corpora = ", ".join(METHODS)
        raise OptionError(
            f"{cite('method')} {options.method} is not known; allowed: {of_stores} (a store),"
            f" {of_corpora} (a corpus)"
        )
    spec = parse_calibration(options.method)
    _refuse(options, OF_CORPORA)
    return spec


def _refuse(options: FitOptions, names: Sequence[str]) -> None:
    """Raise OptionError for options that are given and that the method has no use for."""
    for name in names:
        if getattr(options, name) is not None:
            raise OptionError(
                f"{cite(name)} has no meaning with {cite('method')} {options.method}; leave it out"
            )


def open_store_to_fit(options: FitOptions) -> Store:
    """Open the store that is named, else the default one."""
    return open_store(options.store or default_store())


def make_calibration_job(
    store: Store, spec: CalibrationSpec, sample: int | None, run: str, output: str
) -> FitJob:
    """Return the job for the workers. Raises OptionError for a store without rows.

    Without `sample`, affine methods are fitted on all rows, a flow on FLOW_SAMPLE.
    """
    manifest = store.manifest
    shards = manifest.shard_paths
    if not shards:
        raise OptionError(f"{store.root} holds no rows; a calibration cannot be fitted on it")
    affine = spec.name in AFFINE
    gather = GatherJob(
        prefix=storage.join(output, f"sample-{run}"),
        want=sample or (SHOWN_ROWS if affine else FLOW_SAMPLE),
        rows=manifest.rows.stored,
        normalized=store.space.normalize,
        whole=affine and sample is None,
    )
    snapshot = storage.join(store.root, layout.snapshot(manifest.run))
    fitted_on = {
        "store": store.root,
        "run": manifest.run,
        "manifest": storage.sha256_of(snapshot)[0],
        "space": store.space.to_json(),
        "date": now(),
    }
    narrow = store.space.dtype != "float32" or is_narrow(shards[0])
    return FitJob(run, spec, output, gather, narrow=narrow, fitted_on=fitted_on)


def make_count_job(
    options: FitOptions, files: Sequence[InputFile], run: str, output: str
) -> CountJob:
    """Return the job that counts tokens with the tokenizer of the model as it is here."""
    model = options.model or DEFAULT_MODEL
    tokenizer = hash_tokenizer(resolve_model(model, options.revision))
    if os.path.isdir(model):
        model = os.path.abspath(model)
    text_column = choose_text_column(files, options.text_column)
    return CountJob(run, options.method, model, options.revision, tokenizer, text_column, output)


def list_corpus_files(options: FitOptions) -> list[InputFile]:
    """Return the files of the corpus, each once. Raises OptionError if a pattern names none."""
    by_path = {
        file.path: file
        for glob in options.input or ()
        for file in match_inputs(
            glob, options.format or "auto", syntax=Syntax.from_options(options)
        )
    }
    files = [by_path[path] for path in sorted(by_path)]
    check_distinct(files)
    return files
