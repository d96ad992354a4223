"""Many poolers over the same sentences, by one forward pass a sentence."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transforms.encoder.devices import resolve_device
from transforms.encoder.encoder import Encoder
from transforms.space import PoolerSpec, Space, parse_pooler, resolve_dtype, resolve_model, resolve_space

ENCODE_ROWS = 4096


@dataclass(frozen=True)
class Source:
    """What all the poolers read from: the arguments of `Encoder.load` that they share."""

    model: str
    revision: str | None = None
    max_tokens: int | None = None
    dtype: str = "float32"
    device: str = "auto"

    def space(self, pooler: str) -> Space:
        """The space of such an encoder, before any calibration."""
        files = resolve_model(self.model, self.revision)
        said = files.as_exported({"pooler": pooler, "prompt": None, "max_tokens": self.max_tokens})
        dtype = resolve_dtype(self.dtype, resolve_device(self.device).type)
        return resolve_space(files, **said, normalize=False, dtype=dtype)

    def encoder(self, pooler: str) -> Encoder:
        """An encoder whose vectors keep their lengths."""
        return Encoder.load(
            self.model,
            pooler=pooler,
            dtype=self.dtype,
            device=self.device,
            max_tokens=self.max_tokens,
            normalize=False,
            revision=self.revision,
        )


def encode_several(
    source: Source, poolers: Sequence[str], sentences: Sequence[str], folder: str
) -> Iterator[tuple[str, np.ndarray]]:
    """(pooler, vectors float32 [n, d]) for every pooler, vectors not normalised.

    Poolers that read the same tokens share one forward pass; one with another input text, or with layers
    after it, has its own. Vectors are mapped from files in `folder`, so that every head of a model fits.
    """
    for number, group in enumerate(_groups(source, poolers)):
        encoder = source.encoder("+".join(computed for _, computed in group))
        path = os.path.join(folder, f"{number}.f32")
        vectors = np.memmap(path, np.float32, "w+", shape=(len(sentences), encoder.dim))
        for start in range(0, len(sentences), ENCODE_ROWS):
            chunk = sentences[start : start + ENCODE_ROWS]
            vectors[start : start + len(chunk)] = encoder.encode(chunk)
        yield from _cut(source, group, vectors)


def _groups(source: Source, poolers: Sequence[str]) -> list[list[tuple[str, str]]]:
    """(as asked, as computed) for each pooler; the first group are all that can be joined."""
    joined: list[tuple[str, str]] = []
    alone: list[list[tuple[str, str]]] = []
    for pooler in poolers:
        computed = _plain(source, pooler)
        if computed is None:
            alone.append([(pooler, pooler)])
        else:
            joined.append((pooler, computed))
    return [*([joined] if joined else []), *alone]


def _plain(source: Source, pooler: str) -> str | None:
    """The pooler by name, or None where it cannot stand beside others."""
    spec = parse_pooler(pooler)
    if not spec.is_auto:
        return None if any(part.rewrites_text for part in spec.parts) else pooler
    files = resolve_model(source.model, source.revision)
    if files.exported:
        return None
    space = resolve_space(files)
    return None if "then" in space.pooler else str(PoolerSpec.from_json(space.pooler))


def _cut(source: Source, group: list[tuple[str, str]], vectors: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Each pooler's columns of the joined vectors."""
    if len(group) == 1:
        yield group[0][0], vectors
        return
    files, start = resolve_model(source.model, source.revision), 0
    for asked, computed in group:
        stop = start + parse_pooler(computed).dim(files.hidden, files.embedding)
        yield asked, np.array(vectors[:, start:stop])
        start = stop
