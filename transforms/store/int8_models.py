"""Quantised models in a store: made once, before the first plan, and loaded by every later run."""

import json

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.space.int8_model import (
    ABOUT,
    GRAPH,
    INT8,
    WEIGHTS,
    Int8Facts,
    Int8Model,
    quantised,
)
from sentence_beam.transforms.store import layout

_MEND = f"restore it, or embed everything again with {cite('reembed=True')}"


def keep_int8(root: str, space: Space, generation: int, model: Int8Model) -> Int8Model:
    """Write a model that was made for a float space; return the one that the store has for it.

    A run that was interrupted after this finds the model again.
    """
    folder = storage.join(root, layout.int8_model(model.digest))
    for name, data in model.to_files().items():
        storage.replace(storage.join(folder, name), data)
    path = _locate_claim(root, space, generation)
    storage.storage_of(path).put_if_absent(path, json.dumps({"digest": model.digest}).encode())
    return read_claimed_int8(root, space, generation) or model


def read_claimed_int8(root: str, space: Space, generation: int) -> Int8Model | None:
    """Return the model that an earlier start of this run made for a float space, None without."""
    path = _locate_claim(root, space, generation)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return None
    try:
        with refuse_damage(f"{path} is damaged", "the model is made again"):
            digest = json.loads(stored[0])["digest"]
        return _read_model(root, digest)
    except SentenceBeamError:
        return None


def read_kept_int8(root: str, space: Space) -> Int8Model | None:
    """Return the quantised model of a space; None for a space of another dtype.

    Raises SentenceBeamError that names the file if it is missing or damaged.
    """
    return _read_model(root, space.weights) if space.dtype == INT8 else None


def read_kept_facts(root: str, space: Space) -> Int8Facts | None:
    """Return the facts of a space's quantised model; None for another dtype. Raises as above."""
    if space.dtype != INT8:
        return None
    path = storage.join(_locate_model(root, space.weights), ABOUT)
    return Int8Facts.from_bytes(_read_file(path), path)


def add_kept_int8(space: Space, root: str, kept: Space) -> Space:
    """Return a float space of dtype int8 with the quantised model of the store's space `kept`."""
    facts = read_kept_facts(root, kept)
    return space if facts is None else quantised(space, facts, kept.weights)


def _locate_claim(root: str, space: Space, generation: int) -> str:
    return storage.join(root, layout.int8_claim(space.pooled_id, generation))


def _locate_model(root: str, digest: str) -> str:
    """Return the folder of a model. Raises SentenceBeamError if it would be outside the store."""
    relative = layout.int8_model(digest)
    if not layout.is_a("int8", f"{relative}/{GRAPH}"):
        raise SentenceBeamError(f"{root}: {digest!r} is no digest of a quantised model; {_MEND}")
    return storage.join(root, relative)


def _read_model(root: str, digest: str) -> Int8Model:
    folder = _locate_model(root, digest)
    files = {name: _read_file(storage.join(folder, name)) for name in (GRAPH, WEIGHTS, ABOUT)}
    facts = Int8Facts.from_bytes(files[ABOUT], storage.join(folder, ABOUT))
    model = Int8Model(files[GRAPH], files[WEIGHTS], facts)
    if model.digest != digest:
        raise SentenceBeamError(f"{folder} was changed after it was written; {_MEND}")
    return model


def _read_file(path: str) -> bytes:
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        raise SentenceBeamError(f"{path} is missing; {_MEND}")
    return stored[0]
