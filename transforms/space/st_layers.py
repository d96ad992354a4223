"""The layers of a sentence-transformers directory before and after the pooling."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transforms.base.errors import OptionError

# The head that `train` writes, known by its name; the code beside it is never run here.
CNN_HEAD = "CNN003"
_POOLED = ("Pooling", CNN_HEAD)
LAYERS_AFTER = ("Dense", "LayerNorm", "Normalize", "Dropout")
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")


@dataclass(frozen=True)
class StLayer:
    """A module with its parameters and its folder.

    `dense`, `layer-norm` and `normalize` follow the pooling; `weighted-layers`, `st-cnn` and
    `st-lstm` precede it. The parameter `dim` of the last two is the width of their output.
    """

    kind: str
    folder: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)


def read_layers(root: Path, modules: list[tuple[str, Path]]) -> dict[str, Any]:
    """Return the fields for the layers before and after the pooling.

    A last Normalize becomes the field `normalize`.
    """
    modules = [module for module in modules if module[0] != "Dropout"]
    pooled = next((place for place, (kind, _) in enumerate(modules) if kind in _POOLED), 0)
    layers = [_layer(kind, folder) for kind, folder in modules[pooled + 1 :]]
    normalize = bool(layers) and layers[-1].kind == "normalize"
    if normalize:
        layers.pop()
    before = _layers_before(root, modules[:1], modules[1:pooled])
    return {"layers": tuple(layers), "normalize": normalize, **before}


def _layers_before(
    root: Path, first: list[tuple[str, Path]], before: list[tuple[str, Path]]
) -> dict[str, Any]:
    """Return the fields for the layers between the first module and the pooling."""
    if not before:
        return {"mix": None, "tokens": ()}
    kind, transformer = first[0]
    mix = None
    if before[0][0] == "WeightedLayerPooling":
        mix = _mix(transformer, before[0][1])
        before = before[1:]
    for other, _ in before:
        if other not in _TOKEN_LAYERS or kind == "StaticEmbedding":
            raise OptionError(
                f"{root / 'modules.json'}: {other} between {kind} and Pooling is not supported"
            )
    tokens = tuple(_TOKEN_LAYERS[other](folder) for other, folder in before)
    return {"mix": mix, "tokens": tokens}


def _mix(transformer: Path, folder: Path) -> StLayer | None:
    """Return the weighted mean of layers; None if the transformer does not output its layers.

    sentence-transformers then uses the last layer alone.
    """
    if not load_json(transformer / "config.json", {}).get("output_hidden_states"):
        return None
    start = load_json(folder / "config.json", {}).get("layer_start", 4)
    return StLayer("weighted-layers", folder, {"start": start})


def _cnn(folder: Path) -> StLayer:
    """Return convolutions over tokens that give one state a token.

    Other convolutions would depend on the padding of a text's batch.
    """
    path = folder / "cnn_config.json"
    config: dict[str, Any] = load_json(path, {})
    kernels = config.get("kernel_sizes")
    is_odd = isinstance(kernels, list) and all(size in range(1, 100, 2) for size in kernels)
    if not kernels or not is_odd:
        raise OptionError(
            f"{path}: CNN is supported with kernel_sizes that are odd, which give one state a token"
        )
    if config.get("stride_sizes") not in (None, [1] * len(kernels)):
        raise OptionError(
            f"{path}: CNN is supported with stride_sizes of 1, which give one state a token"
        )
    width = _whole(path, config, "in_embedding_dimension", "in_word_embedding_dimension")
    channels = _whole(path, config, "out_channels")
    sizes = {"width": width, "channels": channels, "kernels": kernels}
    return StLayer("st-cnn", folder, {**sizes, "dim": channels * len(kernels)})


def _lstm(folder: Path) -> StLayer:
    """Return an LSTM over the tokens of a text."""
    path = folder / "lstm_config.json"
    config: dict[str, Any] = load_json(path, {})
    width = _whole(path, config, "embedding_dimension", "word_embedding_dimension")
    hidden = _whole(path, config, "hidden_dim")
    depth = _whole(path, {"num_layers": 1, **config}, "num_layers")
    both = bool(config.get("bidirectional", True))
    sizes = {"width": width, "hidden": hidden, "depth": depth, "both": both}
    directions = 2 if both else 1
    return StLayer("st-lstm", folder, {**sizes, "dim": hidden * directions})


def _whole(path: Path, config: Mapping[str, Any], *names: str) -> int:
    """Return the positive integer that a config has under one of these names."""
    value = next((config[name] for name in names if name in config), None)
    if not isinstance(value, int) or value < 1:
        raise OptionError(
            f"{path}: {names[0]} is {value!r}, not a whole number from 1; fetch the model again"
        )
    return value


_TOKEN_LAYERS = {"CNN": _cnn, "LSTM": _lstm}


def _layer(kind: str, folder: Path) -> StLayer:
    if kind not in LAYERS_AFTER:
        raise OptionError(f"{folder}: {kind} is not supported in this place")
    config = load_json(folder / "config.json", {})
    names = (config.get("module_input_name"), config.get("module_output_name"))
    if any(name not in (None, "sentence_embedding") for name in names):
        raise OptionError(
            f"{folder / 'config.json'}: {kind} on {names[0]!r} must be on sentence_embedding"
        )
    if kind == "Dense":
        return StLayer("dense", folder, _dense(folder, config))
    if kind == "LayerNorm":
        return StLayer("layer-norm", folder, {"dim": config["dimension"]})
    return StLayer("normalize", folder)


def _dense(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    package, _, activation = str(
        config.get("activation_function", "torch.nn.modules.activation.Tanh")
    ).rpartition(".")
    if activation not in ACTIVATIONS or not package.startswith("torch.nn"):
        name = config["activation_function"]
        raise OptionError(
            f"{folder / 'config.json'}: activation {name!r} is none of {', '.join(ACTIVATIONS)}"
        )
    if config.get("use_residual"):
        raise OptionError(f"{folder / 'config.json'}: use_residual is not supported")
    sizes = {key: config[key] for key in ("in_features", "out_features")}
    return {**sizes, "bias": config.get("bias", True), "activation": activation}


def load_json(path: Path, default: Any) -> Any:
    """Return the JSON value in a file; `default` if the file is missing.

    Raises `OptionError` for a value of another type than the default's.
    """
    if not path.is_file():
        return default
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is not valid JSON ({error}); fetch the model again") from None
    if not isinstance(value, type(default)):
        raise OptionError(
            f"{path} should hold a JSON {type(default).__name__}; fetch the model again"
        )
    return value
