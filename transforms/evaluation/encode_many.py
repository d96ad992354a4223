"""Vectors of many poolers over the same texts, with one forward pass a text."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.calibration import load_calibration
from sentence_beam.transforms.space import (
    ModelFiles,
    PoolerSpec,
    Space,
    resolve_dtype,
    resolve_model,
    resolve_space,
)
from sentence_beam.transforms.space.recipe import Machine, Recipe
from sentence_beam.transforms.space.st_modules import DOCUMENT, QUERY

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import (
        Encoder,  # loads torch, which reading options and tasks does not need
    )

ENCODE_ROWS = 2048
CHUNK_BYTES = 64 << 20  # of the vectors of all poolers for one chunk of texts


@dataclass(frozen=True)
class ModelSettings:
    """The settings that all poolers share: model, prompt, length, dtype, device and route.

    If `prompt` is None, the model's default prompt is used.
    """

    model: str
    revision: str | None = None
    max_tokens: int | None = None
    dtype: str = "float32"
    device: str = "auto"
    prompt: str | None = None
    route: str = DOCUMENT

    def recipe(self, pooler: PoolerSpec) -> Recipe:
        """Return the recipe of a pooler's vectors, not normalised.

        With `auto`, the vectors of an exported store are calibrated.
        """
        prompt = self.prompt
        if prompt and any(part.name == "prompt" for part in pooler.parts):
            prompt = ""
        return Recipe(
            model=self.model,
            revision=self.revision,
            pooler=pooler,
            prompt=prompt,
            max_tokens=self.max_tokens,
            normalize=False,
            dtype=self.dtype,
        )

    def space(self, pooler: PoolerSpec) -> Space:
        """Return the space of the vectors of `encoder(pooler)`."""
        files = resolve_model(self.model, self.revision, self.route)
        recipe = self.recipe(pooler).as_exported(files)
        from sentence_beam.transforms.encoder.devices import resolve_device

        dtype = resolve_dtype(self.dtype, resolve_device(self.device).type, files.family)
        recipe = replace(recipe, dtype=dtype)
        if not recipe.calibration:
            return recipe.space(files)
        calibration = load_calibration(recipe.calibration)
        return recipe.space(files, calibration.digest, calibration.dim)

    def encoder(self, pooler: PoolerSpec) -> "Encoder":
        """Return an encoder with this pooler."""
        from sentence_beam.transforms.encoder import Encoder

        return Encoder.from_recipe(
            self.recipe(pooler), Machine(device=self.device), route=self.route
        )

    def for_documents(self) -> "ModelSettings | None":
        """Return the settings for the documents of searches, or None if they are the same."""
        files = resolve_model(self.model, self.revision)
        modules = files.modules
        default = modules.prompts.get(modules.default_prompt or "", "")
        is_same = modules.document_prompt == default
        if is_same or files.exported is not None or self.prompt is not None:
            return None
        return replace(self, prompt=modules.document_prompt)

    def for_queries(self, query_prompt: str | None) -> "ModelSettings | None":
        """Return the settings for queries, or None if they are those of documents.

        If `query_prompt` is None, queries get the model's prompt.
        """
        files = resolve_model(self.model, self.revision)
        prompt = _find_query_prompt(files) if query_prompt is None else query_prompt
        of_documents = _find_document_prompt(files) if self.prompt is None else self.prompt
        if prompt == of_documents and not files.modules.routes:
            return None
        return replace(self, prompt=prompt, route=QUERY if files.modules.routes else DOCUMENT)


def _find_document_prompt(files: ModelFiles) -> str:
    return files.modules.document_prompt if files.exported is None else files.exported.prompt


def _find_query_prompt(files: ModelFiles) -> str:
    if files.exported is not None and files.exported.query_prompt is not None:
        return files.exported.query_prompt
    return files.modules.query_prompt or ""


@dataclass(frozen=True)
class Encoded:
    """The vectors float32 [n, d] of one pooler, by its requested SPEC, not normalised.

    `speed` is the texts a second of the forward pass.
    """

    pooler: str
    rows: np.ndarray
    speed: float


def encode_many(
    options: ModelSettings,
    poolers: Mapping[str, PoolerSpec],
    texts: Sequence[str],
    done: Callable[[int], None],
) -> Iterator[Encoded]:
    """Yield the vectors of the texts for every pooler; `poolers` are by their requested SPECs.

    `done` is called with the number of texts after each chunk. Poolers that read the same tokens
    share one forward pass. A pooler that changes the text, or has layers after it, has its own
    pass. Vectors wait in a temporary file, so that memory holds one chunk of texts for all poolers,
    and all texts for one.
    """
    for group in group_poolers(options, poolers):
        parts = chain.from_iterable(pooler.parts for pooler in group.values())
        encoder = options.encoder(PoolerSpec(tuple(parts)))
        widths = _list_widths(options, list(group.values()), encoder.dim)
        starts = np.cumsum([0, *widths]) * 4 * len(texts)
        size = max(1, min(ENCODE_ROWS, CHUNK_BYTES // (4 * encoder.dim)))
        took = 0.0
        with tempfile.TemporaryFile(buffering=0) as file:
            for start in range(0, len(texts), size):
                began = time.monotonic()
                chunk = encoder.encode(texts[start : start + size])
                took += time.monotonic() - began
                columns = np.split(chunk, np.cumsum(widths)[:-1], axis=1)
                for at, width, part in zip(starts[:-1], widths, columns, strict=True):
                    _write(
                        file.fileno(),
                        np.ascontiguousarray(part, np.float32),
                        int(at) + 4 * width * start,
                    )
                done(len(chunk))
            for pooler, at, width in zip(group, starts[:-1], widths, strict=True):
                file.seek(int(at))
                rows = np.fromfile(file, np.float32, len(texts) * width).reshape(len(texts), width)
                yield Encoded(pooler, rows, len(texts) / max(took, 1e-9))


def group_poolers(
    options: ModelSettings, poolers: Mapping[str, PoolerSpec]
) -> list[dict[str, PoolerSpec]]:
    """Return the poolers to compute in each forward pass, by their requested SPECs.

    The first pass has all poolers that can share one.
    """
    joined: dict[str, PoolerSpec] = {}
    separate: list[dict[str, PoolerSpec]] = []
    for name, pooler in poolers.items():
        computed = _resolve_joinable(options, pooler)
        if computed is None:
            separate.append({name: pooler})
        else:
            joined[name] = computed
    return [joined, *separate] if joined else separate


def _resolve_joinable(options: ModelSettings, pooler: PoolerSpec) -> PoolerSpec | None:
    """Return the pooler without `auto`, or None if it needs a forward pass of its own."""
    if not pooler.is_auto:
        return None if any(part.rewrites_text for part in pooler.parts) else pooler
    files = resolve_model(options.model, options.revision, options.route)
    if files.exported:
        return None
    space = resolve_space(files)
    has_layers = any(layers in space.pooler for layers in ("mix", "tokens", "then"))
    return None if has_layers else PoolerSpec.from_json(space.pooler)


def _list_widths(options: ModelSettings, group: list[PoolerSpec], dim: int) -> list[int]:
    """Return the width of each pooler's vectors in a group."""
    if len(group) == 1:
        return [dim]
    files = resolve_model(options.model, options.revision, options.route)
    return [pooler.dim(files.hidden, files.embedding) for pooler in group]


def _write(file: int, rows: np.ndarray, at: int) -> None:
    """Write all bytes of an array at a position of a file."""
    left = memoryview(rows.tobytes())
    while left:
        written = os.pwrite(file, left, at)
        left = left[written:]
        at = at + written
