"""The encoder of a run, checked against the run's space and the store's canary."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DataGateError, cite
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.space import Machine, Recipe, Space
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.space.int8_model import Int8Model
from sentence_beam.transforms.steps.embed.inputs import make_vectors
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.calibrations import read_calibration, read_kept_calibration
from sentence_beam.transforms.store.int8_models import read_kept_int8
from sentence_beam.transforms.store.runs.canary import TEXTS, Canary
from sentence_beam.transforms.store.shards.precision import to_float_space
from sentence_beam.transforms.store.shards.unit_vectors import compute_pooled

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import Encoder


def load_checked_encoder(job: EmbedJob) -> "Encoder":
    """Return the run's encoder, once its vectors of the canary are the store's."""
    with progress.stage(progress.LOADING):
        encoder = load_encoder(job)
        check_canary(job, encoder)
    return encoder


def check_canary(job: EmbedJob, encoder: "Encoder") -> None:
    """Embed the store's canary; raise DataGateError if its vectors moved too far.

    The first worker of a store's first run stores the canary.
    """
    file = job.run.canary_file
    kept = file.read()
    texts = kept.texts if kept else TEXTS
    tokenized = encoder.tokenize(texts)
    pooled = compute_pooled(
        make_vectors(tokenized, encoder.embed(tokenized)), job.run.space.normalize
    )
    drift = (kept or file.keep(Canary(texts, pooled))).measure_drift(pooled)
    allowed = job.run.gates.max_drift
    if drift > allowed:
        raise DataGateError(
            f"the model's vectors of {file.full_path} moved by a cosine distance of {drift:.2g},"
            f" more than {cite('max_drift')} {allowed:g} allows: the model's files are the same, so"
            " a library or processor changed since the store was begun; go back to it, or embed"
            f" everything again with {cite('reembed=True')}"
        )


def load_encoder(job: EmbedJob) -> "Encoder":
    """Return the run's encoder.

    Raises SpaceMismatchError if the files here make another space than the run's.
    """
    folder = job.calibration
    space = job.run.space
    calibration = read_calibration(folder) if folder else read_kept_calibration(job.root, space)
    int8 = read_kept_int8(job.root, space)
    encoder = make_encoder(job.recipe, job.machine, calibration, to_float_space(space), int8)
    check_chunks(encoder, job.chunks)
    return encoder


def make_encoder(
    recipe: Recipe,
    machine: Machine,
    calibration: Calibration | None,
    space: Space,
    int8: Int8Model | None = None,
) -> "Encoder":
    """Return a recipe's encoder with this calibration, and this quantised model if it is in int8.

    Raises SpaceMismatchError if its space is another one.
    """
    from sentence_beam.transforms.encoder import Encoder

    encoder = Encoder.from_recipe(replace(recipe, calibration=""), machine, calibration, int8=int8)
    what = f"{recipe.model} on this worker makes another space than the run's"
    space.check(encoder.space, what, "install the same files")
    return encoder


def check_chunks(encoder: "Encoder", chunks: ChunksSpec) -> None:
    """Raise OptionError if late chunking is requested and the model cannot do it."""
    if chunks.kind == "late":
        encoder.windows(["a"], [[(0, 1)]], chunks.window, chunks.overlap)
