"""The recipe of a vector, what a user says about it, which with the model's files gives the space;
and the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from transforms.base.values import read
from transforms.space.chunks import ChunksSpec
from transforms.space.identity import Space, resolve_space
from transforms.space.model_files import DEFAULT_MODEL, ModelFiles, resolve_model
from transforms.space.st_modules import DOCUMENT


@dataclass(frozen=True)
class Recipe:
    """What decides a vector, as far as it was said; None, and `auto`, leave it to the model or the
    machine.

    `model` is a hub's id, a folder or `minilm`, `pooler` a SPEC; `prompt` stands before a row, or
    the model's own one that is named `prompt_name`, and `query_prompt` before a query.
    `calibration` is the folder of a fitted one, "" for none, also where an exported model has one.
    `chunks` is the SPEC by which documents are cut.
    """

    model: str = DEFAULT_MODEL
    revision: str | None = None
    pooler: str = "auto"
    prompt: str | None = None
    prompt_name: str | None = None
    query_prompt: str | None = None
    max_tokens: int | None = None
    normalize: bool | None = None
    truncate_dim: int | None = None
    dtype: str = "auto"
    precision: str = "float32"
    calibration: str | None = None
    chunks: str = "none"

    def __post_init__(self) -> None:
        read(self, {})

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Recipe":
        """The recipe among a command's or a manifest's options; what is missing there, or None, is
        not said.
        """
        said = {item.name: options.get(item.name) for item in fields(cls)}
        return cls(**{name: value for name, value in said.items() if value is not None})

    def files(self, route: str = DOCUMENT) -> ModelFiles:
        """The model's files. Raises `OptionError` where they are not there, or not whole."""
        return resolve_model(self.model, self.revision, route)

    def as_exported(self, files: ModelFiles) -> "Recipe":
        """The recipe with what is not said taken from the model's folder, where a store was
        exported into it.
        """
        names = (
            "pooler",
            "prompt",
            "prompt_name",
            "max_tokens",
            "normalize",
            "truncate_dim",
            "dtype",
            "calibration",
        )
        return replace(self, **files.as_exported({name: getattr(self, name) for name in names}))

    def space(
        self, files: ModelFiles, calibration: str | None = None, calibrated_dim: int | None = None
    ) -> Space:
        """The space that these files make; `calibration` is the digest of the one that is applied,
        with its width.
        """
        names = (
            "pooler",
            "prompt",
            "prompt_name",
            "max_tokens",
            "normalize",
            "truncate_dim",
            "dtype",
            "precision",
        )
        said = {name: getattr(self, name) for name in names}
        space = resolve_space(files, **said, calibration=calibration, calibrated_dim=calibrated_dim)
        decides = ChunksSpec.parse(self.chunks).in_pooled
        return replace(space, pooler={**space.pooler, **decides}) if decides else space


@dataclass(frozen=True)
class Machine:
    """Where an encoder runs, and in what batches.

    `device` is `auto` (every GPU, else the CPU), `cpu`, `cuda` (every GPU) or `cuda:1`;
    `tokens_per_batch` None: as suits the device. `deterministic`: a text's vector is the same to
    the bit whatever its neighbours and the number of threads.
    """

    device: str = "auto"
    tokens_per_batch: int | None = None
    deterministic: bool = False
