"""Quantise the model of a store's first run in int8, before its plan, on a sample of the corpus."""

import heapq
from dataclasses import replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.corpus import read_span
from sentence_beam.transforms.space.hashing import row_hash, sha256_text
from sentence_beam.transforms.space.int8_model import INT8, Int8Model
from sentence_beam.transforms.space.recipe import Machine
from sentence_beam.transforms.steps.embed.cutting import list_piece_texts
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.options.resolve import Resolved
from sentence_beam.transforms.steps.plan.look import look
from sentence_beam.transforms.store.int8_models import keep_int8, read_claimed_int8
from sentence_beam.transforms.store.runs.canary import TEXTS

_CPU = Machine("cpu")
SAMPLE_SPANS = 16
SAMPLE_TEXTS = 512


def prepare_int8_model(resolved: Resolved) -> Resolved:
    """Return the run in the space of its quantised model, which is made and kept if there is none.

    Only the first run of a store, or one with `--reembed`, makes one. A restart of it finds it.
    """
    job = resolved.job
    run = job.run
    if run.space.dtype != INT8 or job.reuse:
        return resolved
    model = read_claimed_int8(run.root, run.space, run.generation)
    if model is None:
        with progress.stage("quantising the model to int8"):
            made = _quantise_model(job)
        model = keep_int8(run.root, run.space, run.generation, made)
    space = model.applied(run.space)
    return replace(resolved, job=replace(job, run=replace(run, space=space)))


def _quantise_model(job: EmbedJob) -> Int8Model:
    """Return the job's model in int8, compared with float32."""
    from sentence_beam.transforms.encoder import Encoder
    from sentence_beam.transforms.encoder.quantise import quantise

    options = job.run.options
    # workers may have the model elsewhere
    recipe = replace(job.recipe, model=options.model, revision=options.revision, calibration="")
    exact = Encoder.from_recipe(replace(recipe, dtype="float32"), _CPU)
    model = quantise(recipe.files(), exact, job.run.space.weights, _draw_sample(job))
    other = Encoder.from_recipe(recipe, _CPU, int8=model)
    cosines = _cosines(exact.encode(TEXTS), other.encode(TEXTS))
    facts = replace(model.facts, cosine=float(cosines.mean()), worst=float(cosines.min()))
    return replace(model, facts=facts)


def _draw_sample(job: EmbedJob) -> list[str]:
    """Return texts of the corpus, those with the lowest hashes in spans with the lowest hashes.

    The texts are pieces if documents are cut. A corpus without rows has those of the canary.
    """
    spans = heapq.nsmallest(SAMPLE_SPANS, look(job).spans, key=lambda span: sha256_text(span.name))
    texts: dict[str, None] = {}
    for span in spans:
        unit = next(iter(read_span(span, job.columns, job.run.unit_tokens)), None)
        if unit is not None:
            texts |= dict.fromkeys(list_piece_texts(unit.texts, job))
    return heapq.nsmallest(SAMPLE_TEXTS, texts, key=row_hash) or list(TEXTS)


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the cosines [n] of vectors [n, d], row by row."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.einsum("nd,nd->n", one, other, dtype=np.float64) / lengths
