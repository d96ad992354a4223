"""Vectors of many poolers over the same sentences, with one forward pass a sentence."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transforms.encoder.devices import resolve_device
from transforms.encoder.encoder import Encoder
from transforms.space import PoolerSpec, Space, parse_pooler, resolve_dtype, resolve_model, resolve_space

ENCODE_ROWS = 4096


@dataclass(frozen=True)
class ModelOptions:
    """The arguments of `Encoder.load` that all the poolers share."""

    model: str
    revision: str | None = None
    max_tokens: int | None = None
    dtype: str = "float32"
    device: str = "auto"

    def space(self, pooler: str) -> Space:
        """The space of the vectors of `encoder(pooler)`, before any calibration."""
        files = resolve_model(self.model, self.revision)
        said = files.as_exported({"pooler": pooler, "prompt": None, "max_tokens": self.max_tokens})
        dtype = resolve_dtype(self.dtype, resolve_device(self.device).type, files.family)
        return resolve_space(files, **said, normalize=False, dtype=dtype)

    def encoder(self, pooler: str) -> Encoder:
        """An encoder with this pooler whose vectors are not normalised."""
        return Encoder.load(
            self.model,
            pooler=pooler,
            dtype=self.dtype,
            device=self.device,
            max_tokens=self.max_tokens,
            normalize=False,
            revision=self.revision,
        )


def encode_many(
    options: ModelOptions, poolers: Sequence[str], sentences: Sequence[str], folder: str
) -> Iterator[tuple[str, np.ndarray]]:
    """The vectors [n, d] float32 of the sentences, not normalised, as a pair (pooler, vectors) for every pooler.

    Poolers that read the same tokens share one forward pass; one that changes the text, or has layers after it, has its
    own. Vectors are mapped from files in `folder`, so that memory holds the poolers of every head of a model.
    """
    for number, group in enumerate(_groups(options, poolers)):
        encoder = options.encoder("+".join(computed for _, computed in group))
        path = os.path.join(folder, f"{number}.f32")
        vectors = np.memmap(path, np.float32, "w+", shape=(len(sentences), encoder.dim))
        for start in range(0, len(sentences), ENCODE_ROWS):
            chunk = sentences[start : start + ENCODE_ROWS]
            vectors[start : start + len(chunk)] = encoder.encode(chunk)
        yield from _cut(options, group, vectors)


def _groups(options: ModelOptions, poolers: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The poolers of each forward pass, as pairs (SPEC asked for, SPEC computed); the first pass has all it can."""
    joined: list[tuple[str, str]] = []
    separate: list[list[tuple[str, str]]] = []
    for pooler in poolers:
        computed = _joinable(options, pooler)
        if computed is None:
            separate.append([(pooler, pooler)])
        else:
            joined.append((pooler, computed))
    return [*([joined] if joined else []), *separate]


def _joinable(options: ModelOptions, pooler: str) -> str | None:
    """The pooler's SPEC without `auto`; None where it cannot share a forward pass with others."""
    spec = parse_pooler(pooler)
    if not spec.is_auto:
        return None if any(part.rewrites_text for part in spec.parts) else pooler
    files = resolve_model(options.model, options.revision)
    if files.exported:
        return None
    space = resolve_space(files)
    return None if "then" in space.pooler else str(PoolerSpec.from_json(space.pooler))


def _cut(options: ModelOptions, group: list[tuple[str, str]], vectors: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Each pooler of a group with its columns of the joined vectors."""
    if len(group) == 1:
        yield group[0][0], vectors
        return
    files, start = resolve_model(options.model, options.revision), 0
    for asked, computed in group:
        stop = start + parse_pooler(computed).dim(files.hidden, files.embedding)
        yield asked, np.array(vectors[:, start:stop])
        start = stop
