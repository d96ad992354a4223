"""The identity of a space: everything that decides a vector, and its hash."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from transforms.base.entries import hex_digest, one_of
from transforms.base.errors import OptionError, SpaceMismatchError
from transforms.space.dtypes import resolve_dtype
from transforms.space.hashing import canonical_json, sha256_file, sha256_text
from transforms.space.model_files import ModelFiles, find_safetensors
from transforms.space.poolers import resolve_pooler
from transforms.space.spec import PoolerSpec, parse_pooler

PRECISIONS = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
# a shorter vector counts as zero: it has no direction, and no vector is divided by a smaller length
SHORTEST = 1e-12
POOLED_FIELDS = ("weights", "tokenizer", "architecture", "max_tokens", "prompt", "pooler", "dtype")
# what is done to a pooled vector
OUTPUT_FIELDS = ("calibration", "normalize", "truncate_dim", "precision", "dim")
# Keys of config.json that decide no vector: names, versions, training and generation settings.
_IDLE_CONFIG_KEYS = frozenset(
    (
        "_name_or_path",
        "architectures",
        "auto_map",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "id2label",
    )
    + (
        "label2id",
        "use_cache",
        "gradient_checkpointing",
        "initializer_range",
        "problem_type",
        "finetuning_task",
    )
    + (
        "_attn_implementation_autoset",
        "output_past",
        "return_dict",
        "tie_word_embeddings",
        "model_type",
    )
)
_IDLE_TOKENIZER_KEYS = frozenset(
    (
        "name_or_path",
        "_commit_hash",
        "tokenizer_file",
        "special_tokens_map_file",
        "model_max_length",
    )
    + ("local_files_only", "is_local", "cache_dir", "transformers_version")
)
# Families of which version 0.1.0 made other vectors: with their texts padded, or for long texts
# (BigBird) ...
_CORRECTED = frozenset(("big_bird", "convbert", "cpmant", "fnet", "nystromformer", "yoso"))
# ... or with their texts padded on the left, which moved their positions or got into their
# convolutions.
_CORRECTED_ON_THE_LEFT = frozenset(
    (
        "albert",
        "beam",
        "bert",
        "bert-generation",
        "biogpt",
        "ctrl",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
    )
    + (
        "ernie",
        "flaubert",
        "git",
        "gpt-sw3",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
    )
    + (
        "imagegpt",
        "layoutlm",
        "megatron-bert",
        "mobilebert",
        "mra",
        "openai-gpt",
        "recurrent_gemma",
        "rembert",
    )
    + ("roc_bert", "rwkv", "splinter", "squeezebert", "tapas", "visual_bert", "xglm", "xlm")
)


@dataclass(frozen=True)
class Space:
    """An embedding space. Vectors may be compared where `id` is equal, and reused where `pooled_id`
    is.

    `weights`, `tokenizer` and `calibration` are sha256 digests in hex, `architecture` is
    `<family>:<sha256 of its config>`; `max_tokens` is None where nothing is cut; `pooler` holds
    every parameter, and the layers after it.
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
        return sha256_text(canonical_json(self._fields()))

    @cached_property
    def pooled_id(self) -> str:
        """The sha256 in hex over the fields that decide the pooled vector."""
        return sha256_text(canonical_json({name: getattr(self, name) for name in POOLED_FIELDS}))

    def to_json(self) -> dict[str, Any]:
        """All fields, with `id` and `pooled_id`."""
        return {**self._fields(), "id": self.id, "pooled_id": self.pooled_id}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Space":
        """The inverse of `to_json`; `OptionError` where fields are missing, unknown, or do not give
        the stated id.
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
        """Names of the fields in which the two differ, in the order of the fields."""
        mine, theirs = self._fields(), other._fields()
        return [name for name in mine if mine[name] != theirs[name]]

    def check(self, other: "Space", what: str, mend: str, ignoring: Collection[str] = ()) -> None:
        """Raise `SpaceMismatchError` where the other differs, naming the fields: `<what> (<fields>
        differ); <mend>`.
        """
        fields = ", ".join(name for name in self.differences(other) if name not in ignoring)
        if fields:
            raise SpaceMismatchError(f"{what} ({fields} differ); {mend}")

    def calibrated(self, digest: str | None, dim: int) -> "Space":
        """The space of these pooled vectors by another calibration (None: by none), with `dim`
        components then.

        A truncation that leaves all of them is dropped.
        """
        kept = self.truncate_dim if self.truncate_dim and self.truncate_dim < dim else None
        return dataclasses.replace(self, calibration=digest, truncate_dim=kept, dim=kept or dim)

    def _fields(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def __hash__(self) -> int:
        return hash(self.id)


def resolve_space(
    files: ModelFiles,
    *,
    pooler: str = "auto",
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
    """The space of a model's files and these options, by reading and hashing files alone.

    `pooler` auto: the model's own modules, mean where it has none. `normalize` None: what those
    modules say for auto, True for every other pooler. `dtype` and `precision` are taken as they
    are, `calibration` is a digest and `calibrated_dim` the width of what it gives. Raises
    `OptionError` for a prompt, length, dimension or pooler that this model does not have.
    """
    spec, tokenizer = parse_pooler(pooler), tokenizer_digest(files)
    auto, spec = spec.is_auto, resolve_pooler(files, spec, tokenizer)
    prompt = _resolve_prompt(files, prompt, prompt_name)
    if prompt and spec.parts[0].name == "prompt":
        raise OptionError(
            f"pooler prompt has its own template, prompt {prompt!r} has no place in it; give"
            " --prompt ''"
        )
    described, weights, width = _describe_pooler(files, spec, auto)
    full = calibrated_dim or width
    own = files.modules.truncate_dim if auto and truncate_dim is None else None
    truncate_dim = _resolve_truncate_dim(min(own, full) if own else truncate_dim, full)
    return Space(
        weights=weights,
        tokenizer=tokenizer,
        architecture=architecture_digest(files),
        max_tokens=_resolve_max_tokens(files, max_tokens),
        prompt=prompt,
        pooler=described,
        calibration=calibration,
        normalize=(files.modules.normalize if auto else True) if normalize is None else normalize,
        truncate_dim=truncate_dim,
        precision=precision,
        dtype=resolve_dtype(dtype, family=files.family),
        dim=truncate_dim or full,
    )


def tokenizer_digest(files: ModelFiles) -> str:
    """sha256 over the tokenizer's files and the settings that change its ids."""
    settings = {
        key: value
        for key, value in files.tokenizer_config.items()
        if key not in _IDLE_TOKENIZER_KEYS
    }
    digests = {path.name: sha256_file(path) for path in files.tokenizer}
    return sha256_text(
        canonical_json({"files": digests, "settings": settings, "lower": files.modules.lower_case})
    )


def architecture_digest(files: ModelFiles) -> str:
    """`<family>:<sha256>` over the keys of config.json that decide the computation, and whether it
    was once wrong.
    """
    kept = {
        key: value
        for key, value in files.config.items()
        if key not in _IDLE_CONFIG_KEYS and "dropout" not in key
    }
    if _is_corrected(files):
        kept["corrected"] = 1
    return f"{files.family}:{sha256_text(canonical_json(kept))}"


def _is_corrected(files: ModelFiles) -> bool:
    """Whether vectors of version 0.1.0 were wrong, so that they are never reused."""
    left = files.tokenizer_config.get("padding_side") == "left"
    return files.family in _CORRECTED or (left and files.family in _CORRECTED_ON_THE_LEFT)


def _describe_pooler(
    files: ModelFiles, spec: PoolerSpec, auto: bool
) -> tuple[dict[str, Any], str, int]:
    """The pooler as JSON with the layers around it, the digest of all weights it depends on, and
    the vector's width.
    """
    described, digests = spec.to_json(), [sha256_file(path) for path in files.weights]

    def weights(folder: Path) -> str:
        digests.append(sha256_file(find_safetensors(folder)[0]))
        return digests[-1]

    modules, hidden = files.modules, files.hidden
    if auto and modules.mix is not None:
        mix = modules.mix
        described["mix"] = {"name": mix.kind, **mix.parameters, "weights": weights(mix.folder)}
    for layer in modules.tokens if auto else ():
        hidden = layer.parameters["dim"]
        entry = {"name": layer.kind, **layer.parameters, "weights": weights(layer.folder)}
        described.setdefault("tokens", []).append(entry)
    if modules.cnn is not None and any(part.name == "cnn" for part in spec.parts):
        described["cnn"] = {"weights": weights(modules.cnn)}
    width = spec.dim(hidden, files.embedding)
    for layer in modules.layers if auto else ():
        width = layer.parameters.get("out_features", width)
        entry = {"name": layer.kind, **layer.parameters, "dim": width}
        if layer.kind != "normalize":
            entry["weights"] = weights(layer.folder)
        described.setdefault("then", []).append(entry)
    return (
        described,
        digests[0] if len(digests) == 1 else sha256_text(canonical_json(digests)),
        width,
    )


def _resolve_prompt(files: ModelFiles, prompt: str | None, name: str | None) -> str:
    if prompt is not None and name is not None:
        raise OptionError("prompt and prompt name are both given; give one")
    if prompt is not None:
        return prompt
    name = files.modules.default_prompt if name is None else name
    if name is not None and name not in files.modules.prompts:
        known = ", ".join(files.modules.prompts) or "none"
        raise OptionError(
            f"prompt name {name!r} is not known to {files.root}; its prompts: {known}"
        )
    return files.modules.prompts[name] if name is not None else ""


def _resolve_max_tokens(files: ModelFiles, asked: int | None) -> int | None:
    limit = files.position_limit
    if asked is not None:
        if asked < 1 or (limit is not None and asked > limit):
            raise OptionError(
                f"max tokens {asked}: {files.folder} takes 1 to {limit or 'any number of'} tokens"
            )
        return asked
    stated = files.modules.max_tokens or files.tokenizer_config.get("model_max_length")
    # transformers writes 1e30 for "no limit"
    bounds = [int(bound) for bound in (stated, limit) if bound is not None and bound < 1e9]
    return min(bounds) if bounds else None


def _resolve_truncate_dim(asked: int | None, full: int) -> int | None:
    if asked is not None and not 1 <= asked <= full:
        raise OptionError(f"truncate dim {asked}: vectors have {full} components; give 1 to {full}")
    return None if asked == full else asked
