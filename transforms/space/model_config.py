"""Read a model's config.json and tokenizer_config.json, and check what is used of them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.json_entries import Reader, fail, text
from sentence_beam.transforms.space.json_files import read_json, read_json_if_there

WIDTHS = ("hidden_size", "d_model", "dim", "n_embd", "emb_dim")
LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("encoder_layers", "num_encoder_layers"),
)
HEADS = (
    *("num_attention_heads", "n_heads", "n_head", "num_heads", "attention_heads"),
    "encoder_attention_heads",
)
_COUNTS = (
    *(*WIDTHS, *HEADS, "embedding_size", "input_embedding_size", "vocab_size"),
    "intermediate_size",
)
_MOST = 2**31 - 1
_MOST_LAYERS = 1000
_WHOLE = ("max_position_embeddings", "pad_token_id", "type_vocab_size")
# Families whose heads share the width of a state, so that it must be a multiple of their number.
_SHARED_WIDTH = frozenset(
    ("albert", "bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")
)
UNLIMITED = 10**9  # a tokenizer's limit from here on means none: transformers writes 1e30
_MODEL_CLASSES = ("AutoModel", "AutoModelForTextEncoding", "AutoConfig")
_TOKENIZER_CLASSES = ("AutoTokenizer",)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a transformer.

    Raises `OptionError` for a file that is missing or damaged, for sizes that no model has, and for
    a model that is defined by code in its folder.
    """
    path = folder / "config.json"
    if not path.exists():
        raise OptionError(
            f"{path} is missing; give a directory in transformers or sentence-transformers layout"
        )
    config = read_json(path)
    if "model_type" not in config:
        raise OptionError(f"{path}: no model_type; give a directory that transformers saved")
    _check(path, config, "model_type", text)
    refuse_own_code(path, config, _MODEL_CLASSES, f"transformers' {config['model_type']}")
    for name in _COUNTS:
        _check(path, config, name, partial(_read_counts, most=_MOST))
    for name in LAYERS:
        _check(path, config, name, partial(_read_counts, most=_MOST_LAYERS))
    for name in _WHOLE:
        _check(path, config, name, _read_whole)
    if config["model_type"] in _SHARED_WIDTH:
        _check_heads(path, config)
    return config


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a tokenizer, `{}` without the file.

    Raises `OptionError` for a damaged file, for a length that no text has, and for a tokenizer that
    is defined by code in its folder.
    """
    path = folder / "tokenizer_config.json"
    config = read_json_if_there(path)
    refuse_own_code(path, config, _TOKENIZER_CLASSES, "tokenizer.json")
    _check(path, config, "model_max_length", _read_length)
    return config


def is_causal_language_model(config: Mapping[str, Any]) -> bool:
    """Whether a model was made to continue texts: its last token alone has seen a whole text.

    This is sentence-transformers' rule for a directory without modules.
    """
    named = config.get("architectures")
    if not isinstance(named, list) or not named:
        return False
    return str(named[0]).endswith("ForCausalLM") and bool(config.get("is_causal", True))


def find_first_number(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the first of these settings that is a whole number, None without one."""
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


def _check(path: Path, config: Mapping[str, Any], name: str, read: Reader) -> None:
    """Raise OptionError for a setting of another type; null is a missing setting."""
    if config.get(name) is None:
        return
    try:
        read(config[name], name)
    except ValueError as error:
        raise OptionError(f"{path}: {error}; fetch the model again") from None


def _read_counts(value: Any, where: str, most: int) -> Any:
    """Read a whole number up to `most`, or several in a list or an object."""
    if isinstance(value, list | dict):
        return value
    if type(value) is not int or not 1 <= value <= most:
        fail(where, f"a whole number from 1 to {most}")
    return value


def _read_whole(value: Any, where: str) -> int:
    if type(value) is not int or abs(value) > _MOST:
        fail(where, f"a whole number up to {_MOST}")
    return value


def _read_length(value: Any, where: str) -> float:
    if type(value) is float and value >= UNLIMITED:
        return value
    if type(value) is not int or value < 1:
        fail(where, "a whole number from 1")
    return value


def _check_heads(path: Path, config: Mapping[str, Any]) -> None:
    width = find_first_number(config, WIDTHS)
    heads = find_first_number(config, HEADS)
    if width and heads and width % heads:
        raise OptionError(
            f"{path}: {heads} attention heads do not divide the width {width};"
            " fetch the model again"
        )


def refuse_own_code(
    path: Path, config: Mapping[str, Any], kinds: tuple[str, ...], instead: str
) -> None:
    """Raise OptionError if `auto_map` names a class of these kinds, which would be left out."""
    named = config.get("auto_map") or {}
    if isinstance(named, list | str):  # an older format of tokenizers
        named = dict.fromkeys(kinds, named)
    if not isinstance(named, dict):
        raise OptionError(f"{path}: auto_map is not an object; fetch the model again")
    for kind in kinds:
        classes = named.get(kind)
        if not isinstance(classes, list):
            classes = [classes]
        own_class = next((name for name in classes if name), None)
        if own_class is not None:
            raise OptionError(
                f"{path}: auto_map names {own_class}, code of the model's own, which is never run"
                f" here; if {instead} gives the same vectors, delete auto_map, else use another"
                " model"
            )
