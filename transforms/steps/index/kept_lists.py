"""Trained lists that outlive a failed run: the next run over the same rows takes them up.

A small file is named by all that decides the lists, and names the file of the trained index.
"""

import hashlib
import json
from collections.abc import Sequence

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.steps.index.build import IndexJob
from sentence_beam.transforms.steps.index.training_items import SampledGroup
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import IndexFileEntry
from sentence_beam.transforms.store.index_files import files as index_files

VERSION = 1  # of the training; raised when the same rows would give other lists


def keep(job: IndexJob, sampled: Sequence[SampledGroup], trained: bytes) -> None:
    """Keep a trained index in the store for a run that starts again."""
    name = _name(job, sampled)
    if name is None:
        return
    kept = IndexFileEntry(*job.folder.write(trained, "faiss"))
    storage.ensure(job.folder.stored(name), json.dumps(kept.to_json(), sort_keys=True).encode())


def take(job: IndexJob, sampled: Sequence[SampledGroup]) -> bytes | None:
    """Return the trained index that an earlier run kept for the same rows.

    Returns None if there is none, or a file of it is missing or was changed.
    """
    name = _name(job, sampled)
    if name is None:
        return None
    path = job.folder.stored(name)
    try:
        data = storage.read_bytes(path)
        with refuse_damage(f"{path} is damaged", "the lists are trained again"):
            found = IndexFileEntry.from_json(json.loads(data))
        return index_files.read(job.folder.stored(found.path), found.sha256)
    except (OSError, SentenceBeamError):
        return None


def _name(job: IndexJob, sampled: Sequence[SampledGroup]) -> str | None:
    """Return the name of the file for the lists of a job; None if a shard has no known digest."""
    if not job.plan.nlist:
        return None
    shards = [(item.group.shards, item.group.sha256s) for item in sampled]
    if any(sha256 is None for _, sha256s in shards for sha256 in sha256s):
        return None
    decides = (VERSION, str(job.plan), job.metric, job.sample_below, job.held_out_below, shards)
    return layout.index_file(hashlib.sha256(repr(decides).encode()).hexdigest(), "trained")
