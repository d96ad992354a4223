"""Refuse a folder whose files are not one whole encoder, or name files outside the space's hash."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.json_files import read_json_if_there

ADAPTER_CONFIG = "adapter_config.json"
_ADAPTER_FILES = (ADAPTER_CONFIG, "adapter_model.safetensors", "adapter_model.bin")
# the end of the name of an architecture that gives scores or labels
HEAD = "ForSequenceClassification"
# what sentence-transformers' CrossEncoder writes into config.json
_CROSS_ENCODER_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")


def refuse_adapters(folder: Path) -> None:
    """Raise OptionError for files of PEFT in a folder.

    transformers would load the base that they name, which the hash of the folder does not cover, or
    leave the adapter out if PEFT is not installed.
    """
    adapter = next((name for name in _ADAPTER_FILES if (folder / name).is_file()), None)
    if adapter is None:
        return
    base = read_json_if_there(folder / ADAPTER_CONFIG).get("base_model_name_or_path")
    what = f"an adapter of {base}" if base else "an adapter"
    if not (folder / "config.json").is_file():
        what += " without its base"
    raise OptionError(
        f"{folder / adapter}: the folder holds {what}, and adapters are not loaded; merge it into"
        " its base with PEFT's merge_and_unload, then delete the adapter's files"
    )


def refuse_other_files(
    folder: Path, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]
) -> None:
    """Raise OptionError for settings that make transformers read files of other names."""
    weights = config.get("transformers_weights")
    if weights not in (None, "model.safetensors"):
        raise OptionError(
            f"{folder / 'config.json'}: transformers_weights names {weights!r}, which is not read;"
            " rename that file to model.safetensors, and remove the key"
        )
    if tokenizer_config.get("fast_tokenizer_files"):
        raise OptionError(
            f"{folder / 'tokenizer_config.json'}: fast_tokenizer_files names files that are not"
            " read; keep the one for this version as tokenizer.json, and remove the key"
        )


def refuse_cross_encoder(folder: Path, config: Mapping[str, Any], has_pooling: bool) -> None:
    """Raise OptionError for a model that scores texts or pairs of texts.

    Its states are poor vectors. A classifier with several labels (`bert-base-nli`) is accepted,
    because people pool such models, and so is any model whose modules.json has a pooling.
    """
    named = config.get("architectures") or [""]
    if has_pooling or not str(named[0]).endswith(HEAD):
        return
    labels = config.get("id2label")
    has_score = config.get("num_labels") == 1 or (labels is not None and len(labels) == 1)
    if has_score or any(key in config for key in _CROSS_ENCODER_KEYS):
        raise make_cross_encoder_error(folder / "config.json")


def make_cross_encoder_error(path: Path) -> OptionError:
    """Return the error for a file that describes a cross-encoder."""
    return OptionError(
        f"{path}: the model is a cross-encoder or another scorer of texts, whose states are poor"
        " vectors; use an encoder"
    )
