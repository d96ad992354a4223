"""The recipe of a vector: what a user requests; with the model's files it gives the space."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import read
from sentence_beam.transforms.space.chunks_spec import UNCUT, ChunksSpec
from sentence_beam.transforms.space.identity import Space, resolve_space
from sentence_beam.transforms.space.model_files import DEFAULT_MODEL, ModelFiles, resolve_model
from sentence_beam.transforms.space.pooler_spec import AUTO, PoolerSpec, parse_pooler
from sentence_beam.transforms.space.st_modules import DOCUMENT

# The fields that are read from a SPEC.
_SPECS: dict[str, Callable[[str], object]] = {"pooler": parse_pooler, "chunks": ChunksSpec.parse}


@dataclass(frozen=True)
class Recipe:
    """The requested settings of a vector; None and `auto` leave them to the model or the machine.

    `model` is a hub's id, a folder or `minilm`. `prompt` is put before a row, or the model's own
    prompt with the name `prompt_name`; `query_prompt` is put before a query. `calibration` is the
    folder of a fitted one; "" means none, even if an exported model has one. `chunks` says how
    documents are cut.
    """

    model: str = DEFAULT_MODEL
    revision: str | None = None
    pooler: PoolerSpec = AUTO
    prompt: str | None = None
    prompt_name: str | None = None
    query_prompt: str | None = None
    max_tokens: int | None = None
    normalize: bool | None = None
    truncate_dim: int | None = None
    dtype: str = "auto"
    precision: str = "float32"
    calibration: str | None = None
    chunks: ChunksSpec = UNCUT

    def __post_init__(self) -> None:
        read(self)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "Recipe":
        """The recipe among a command's or a manifest's options.

        Missing ones and None are defaults. SPECs are texts or parsed. Raises `OptionError` for a
        wrong one.
        """
        given = ((item.name, options.get(item.name)) for item in fields(cls))
        return cls(**{name: _parse(name, value) for name, value in given if value is not None})

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON, SPECs as texts; `of` reads it back."""
        return {**vars(self), **{name: str(getattr(self, name)) for name in _SPECS}}

    def files(self, route: str = DOCUMENT) -> ModelFiles:
        """The model's files. Raises `OptionError` if they are missing or incomplete."""
        return resolve_model(self.model, self.revision, route)

    def as_exported(self, files: ModelFiles) -> "Recipe":
        """The recipe with the defaults of a model's folder that was exported from a store."""
        return replace(self, **files.as_exported(vars(self)))

    def for_rows(self, files: ModelFiles) -> "Recipe":
        """The recipe of rows: if no prompt is given or named, it is the model's for documents.

        Without this, the prompt is the model's default one.
        """
        if self.prompt is not None or self.prompt_name is not None:
            return self
        return replace(self, prompt=files.modules.document_prompt)

    def space(
        self, files: ModelFiles, calibration: str | None = None, calibrated_dim: int | None = None
    ) -> Space:
        """The space of these files.

        `calibration` is the digest of the applied calibration, `calibrated_dim` its width.
        """
        space = resolve_space(
            files,
            pooler=self.pooler,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
            max_tokens=self.max_tokens,
            normalize=self.normalize,
            truncate_dim=self.truncate_dim,
            dtype=self.dtype,
            precision=self.precision,
            calibration=calibration,
            calibrated_dim=calibrated_dim,
        )
        chunks = self.chunks.in_pooled
        return replace(space, pooler={**space.pooler, **chunks}) if chunks else space


def _parse(name: str, value: Any) -> Any:
    """Parse the value of a field, which may be the text of a SPEC."""
    if name not in _SPECS or isinstance(value, PoolerSpec | ChunksSpec):
        return value
    if not isinstance(value, str):
        raise OptionError(f"argument --{name}: {value!r} is not text")
    return _SPECS[name](value)


@dataclass(frozen=True)
class Machine:
    """The device of an encoder, and its batches.

    `device` is `auto` (every GPU, else the CPU), `cpu`, `cuda` (every GPU), `cuda:1` or `cuda:own`
    (one that the process claims). `tokens_per_batch` None: as fits the device. `deterministic`: a
    text's vector has the same bits with any neighbours and any number of threads.
    `refuses_unseen_gpu`: with `auto`, a GPU that torch does not see is an error.
    """

    device: str = "auto"
    tokens_per_batch: int | None = None
    deterministic: bool = False
    refuses_unseen_gpu: bool = False

    def on_workers(self, engine: bool, accelerator: bool) -> "Machine":
        """Return the machine of a run's workers, which may have been given an accelerator.

        `engine` says that they are other processes than the submitting one. What `auto` means is
        then `cuda` with an accelerator; without one, or in this process, a GPU must not be left
        unused in silence.
        """
        if self.device != "auto":
            return self
        if engine and accelerator:
            return replace(self, device="cuda")
        return replace(self, refuses_unseen_gpu=engine or accelerator)
