"""What workers are told of a run of `embed`, without the command."""

from pathlib import Path
from typing import Any

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.space import Machine, Recipe, resolve_model, resolve_space
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.run_result import now


def embed_job(store: Path, model: Path, glob: object, run: str = "run1", **values: Any) -> EmbedJob:
    """A run that brings the store up to date with files of rows with an id and a text, in float32
    on this machine.

    `partition` and `unit_tokens` are the run's, all other `values` the job's.
    """
    space = resolve_space(resolve_model(str(model)))
    previous = read_manifest(str(store))
    how = {
        "partition": values.pop("partition", "file"),
        "unit_tokens": values.pop("unit_tokens", 1000),
    }
    found = Run(
        root=str(store), id=run, space=space, globs=(str(glob),), options=RememberedOptions(id_column="id"),
        versions={}, started=now(), previous=previous.run if previous else None,
        version=previous.version if previous else None, gates=UsedGates(max_rejects=1.0, max_drift=1e-6),
        canary=previous.canary if previous else None, **how,
    )  # fmt: skip
    last = {"carry": previous is not None, "reuse": previous is not None}
    last["buckets"] = previous.buckets if previous else None
    recipe = Recipe(str(model), dtype="float32")
    return EmbedJob(
        found, Columns("text", "id", ("lang",)), recipe, Machine("cpu"), **{**last, **values}
    )
