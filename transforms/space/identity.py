"""The identity of a space: everything that decides a vector, and its hash."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError, cite
from sentence_beam.transforms.base.json_entries import hex_digest, one_of
from sentence_beam.transforms.space.dtypes import resolve_dtype
from sentence_beam.transforms.space.hashing import canonical_json, sha256_file, sha256_text
from sentence_beam.transforms.space.model_config import UNLIMITED
from sentence_beam.transforms.space.model_files import ModelFiles, find_safetensors
from sentence_beam.transforms.space.pooler_spec import AUTO, PoolerSpec
from sentence_beam.transforms.space.poolers import check_int8_pooler, resolve_pooler
from sentence_beam.transforms.space.st_weights import check_layer, check_mix
from sentence_beam.transforms.space.whole_model import refuse_cross_encoder

PRECISIONS = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
# A shorter vector counts as zero: no vector is divided by a smaller length.
SHORTEST = 1e-12
POOLED_FIELDS = ("weights", "tokenizer", "architecture", "max_tokens", "prompt", "pooler", "dtype")
# fields of the steps after the pooling
OUTPUT_FIELDS = ("calibration", "normalize", "truncate_dim", "precision", "dim")
# Keys of config.json that decide no vector: names, versions, training and generation settings.
_IDLE_CONFIG_KEYS = frozenset(
    ("_name_or_path", "architectures", "auto_map", "transformers_version", "torch_dtype", "dtype")
    + ("id2label", "label2id", "use_cache", "gradient_checkpointing", "initializer_range")
    + ("problem_type", "finetuning_task", "_attn_implementation_autoset", "output_past")
    + ("return_dict", "tie_word_embeddings", "model_type")
)
_IDLE_TOKENIZER_KEYS = frozenset(
    ("name_or_path", "_commit_hash", "tokenizer_file", "special_tokens_map_file")
    + ("model_max_length", "local_files_only", "is_local", "cache_dir", "transformers_version")
)


@dataclass(frozen=True)
class Space:
    """An embedding space.

    Vectors may be compared if `id` is equal, and reused if `pooled_id` is. `weights`, `tokenizer`
    and `calibration` are sha256 digests in hex, `architecture` is `<family>:<sha256 of its
    config>`. `max_tokens` is None if texts are not truncated. `pooler` holds every parameter, and
    the layers after it.
    """

    weights: str
    tokenizer: str
    architecture: str
    max_tokens: int | None
    prompt: str
    pooler: Mapping[str, Any]
    calibration: Annotated[str, hex_digest] | None
    normalize: bool
    truncate_dim: int | None
    precision: Annotated[str, one_of(*PRECISIONS)]
    dtype: str
    dim: int

    @cached_property
    def id(self) -> str:
        """The sha256 in hex over all fields."""
        return sha256_text(canonical_json(self._read_fields()))

    @cached_property
    def pooled_id(self) -> str:
        """The sha256 in hex over the fields that decide the pooled vector."""
        return sha256_text(canonical_json({name: getattr(self, name) for name in POOLED_FIELDS}))

    def to_json(self) -> dict[str, Any]:
        """Return all fields, with `id` and `pooled_id`."""
        return {**self._read_fields(), "id": self.id, "pooled_id": self.pooled_id}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Space":
        """Read the result of `to_json`.

        Raises `OptionError` if fields are missing or unknown, or do not give the stated id.
        """
        names = {item.name for item in dataclasses.fields(cls)}
        wrong = sorted(names.symmetric_difference(set(value) - {"id", "pooled_id"}))
        if wrong:
            raise OptionError(
                f"space: field {wrong[0]!r} is missing or unknown; was it written by another"
                " version?"
            )
        space = cls(**{name: value[name] for name in names})
        if value.get("id", space.id) != space.id:
            raise OptionError("space: its fields do not give its id; the file was changed by hand")
        return space

    def differences(self, other: "Space") -> list[str]:
        """Return the names of the fields in which the two differ, in the order of the fields."""
        theirs = other._read_fields()
        return [name for name, value in self._read_fields().items() if value != theirs[name]]

    def check(self, other: "Space", what: str, mend: str, ignoring: Collection[str] = ()) -> None:
        """Raise `SpaceMismatchError` if the other differs: `<what> (<fields> differ); <mend>`."""
        fields = ", ".join(name for name in self.differences(other) if name not in ignoring)
        if fields:
            raise SpaceMismatchError(f"{what} ({fields} differ); {mend}")

    def calibrated(self, digest: str | None, dim: int) -> "Space":
        """Return the space of these pooled vectors after another calibration to `dim` components.

        `digest` None: without a calibration. A truncation to `dim` or more is dropped.
        """
        truncated = self.truncate_dim
        if truncated and truncated >= dim:
            truncated = None
        return dataclasses.replace(
            self, calibration=digest, truncate_dim=truncated or None, dim=truncated or dim
        )

    def _read_fields(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def __hash__(self) -> int:
        return hash(self.id)


def resolve_space(
    files: ModelFiles,
    *,
    pooler: PoolerSpec = AUTO,
    prompt: str | None = None,
    prompt_name: str | None = None,
    max_tokens: int | None = None,
    normalize: bool | None = None,
    truncate_dim: int | None = None,
    dtype: str = "float32",
    precision: str = "float32",
    calibration: str | None = None,
    calibrated_dim: int | None = None,
) -> Space:
    """Return the space of a model's files and these options; files are only read and hashed.

    `pooler` auto: the model's own modules, or mean. `normalize` None: as those modules for auto,
    True for every other pooler. `dtype` and `precision` are not checked against the model;
    `calibration` is a digest and `calibrated_dim` the width of its output. Raises `OptionError` for
    a prompt, length, dimension or pooler that this model does not have, and for a cross-encoder.
    """
    refuse_cross_encoder(files.folder, files.config, files.modules.pooling is not None)
    auto = pooler.is_auto
    tokenizer = hash_tokenizer(files)
    spec = resolve_pooler(files, pooler, tokenizer)
    if dtype == "int8":
        check_int8_pooler(files, spec, auto)
    prompt = _resolve_prompt(files, prompt, prompt_name)
    if prompt and spec.parts[0].name == "prompt":
        raise OptionError(
            f"pooler prompt has its own template, prompt {prompt!r} has no place in it; give"
            f" {cite('prompt')} ''"
        )
    described, weights, width = _describe_pooler(files, spec, auto)
    full = calibrated_dim or width
    own = files.modules.truncate_dim
    if auto and truncate_dim is None and own:
        truncate_dim = min(own, full)
    truncate_dim = _resolve_truncate_dim(truncate_dim, full)
    if normalize is None:
        normalize = files.modules.normalize if auto else True
    return Space(
        weights=weights,
        tokenizer=tokenizer,
        architecture=hash_architecture(files),
        max_tokens=_resolve_max_tokens(files, max_tokens),
        prompt=prompt,
        pooler=described,
        calibration=calibration,
        normalize=normalize,
        truncate_dim=truncate_dim,
        precision=precision,
        dtype=resolve_dtype(dtype, family=files.family),
        dim=truncate_dim or full,
    )


def hash_tokenizer(files: ModelFiles) -> str:
    """Return the sha256 over the tokenizer's files and the settings that change its ids."""
    settings = {
        key: value
        for key, value in files.tokenizer_config.items()
        if key not in _IDLE_TOKENIZER_KEYS
    }
    digests = {path.name: sha256_file(path) for path in files.tokenizer}
    return sha256_text(
        canonical_json({"files": digests, "settings": settings, "lower": files.modules.lower_case})
    )


def hash_architecture(files: ModelFiles) -> str:
    """Return `<family>:<sha256>` over the keys of config.json that decide the computation."""
    settings = {
        key: value
        for key, value in files.config.items()
        if key not in _IDLE_CONFIG_KEYS and "dropout" not in key
    }
    return f"{files.family}:{sha256_text(canonical_json(settings))}"


def _describe_pooler(
    files: ModelFiles, spec: PoolerSpec, auto: bool
) -> tuple[dict[str, Any], str, int]:
    """Return the pooler with its layers as JSON, the digest of all weights, and the vector's width.

    The layers of the model's own modules belong to the pooler `auto` alone.
    """
    described = spec.to_json()
    digests = [sha256_file(path) for path in files.weights]

    def weights(folder: Path) -> str:
        digests.append(sha256_file(find_safetensors(folder)[0]))
        return digests[-1]

    modules = files.modules
    if not auto:
        modules = dataclasses.replace(modules, mix=None, tokens=(), layers=())
    hidden = files.hidden
    if modules.mix is not None:
        mix = modules.mix
        check_mix(mix, files.layers)
        described["mix"] = {"name": mix.kind, **mix.parameters, "weights": weights(mix.folder)}
    for layer in modules.tokens:
        check_layer(layer, hidden)
        hidden = layer.parameters["dim"]
        entry = {"name": layer.kind, **layer.parameters, "weights": weights(layer.folder)}
        described.setdefault("tokens", []).append(entry)
    if modules.cnn is not None and any(part.name == "cnn" for part in spec.parts):
        described["cnn"] = {"weights": weights(modules.cnn)}
    width = spec.dim(hidden, files.embedding)
    for layer in modules.layers:
        check_layer(layer, width)
        width = layer.parameters.get("out_features", width)
        entry = {"name": layer.kind, **layer.parameters, "dim": width}
        if layer.kind != "normalize":
            entry["weights"] = weights(layer.folder)
        described.setdefault("then", []).append(entry)
    digest = digests[0] if len(digests) == 1 else sha256_text(canonical_json(digests))
    return described, digest, width


def _resolve_prompt(files: ModelFiles, prompt: str | None, name: str | None) -> str:
    if prompt is not None and name is not None:
        raise OptionError("prompt and prompt name are both given; give one")
    if prompt is not None:
        return prompt
    if name is None:
        name = files.modules.default_prompt
    if name is None:
        return ""
    if name not in files.modules.prompts:
        prompts = ", ".join(files.modules.prompts) or "none"
        raise OptionError(
            f"prompt name {name!r} is not known to {files.root}; its prompts: {prompts}"
        )
    return files.modules.prompts[name]


def _resolve_max_tokens(files: ModelFiles, requested: int | None) -> int | None:
    limit = files.position_limit
    if requested is not None:
        if requested < 1 or (limit is not None and requested > limit):
            most = limit or "any number of"
            raise OptionError(f"max tokens {requested}: {files.folder} takes 1 to {most} tokens")
        return requested
    stated = files.modules.max_tokens or files.tokenizer_config.get("model_max_length")
    bounds = [int(bound) for bound in (stated, limit) if bound is not None and bound < UNLIMITED]
    return min(bounds, default=None)


def _resolve_truncate_dim(requested: int | None, full: int) -> int | None:
    if requested is not None and not 1 <= requested <= full:
        raise OptionError(
            f"truncate dim {requested}: vectors have {full} components; give 1 to {full}"
        )
    return None if requested == full else requested
