"""The layers of a sentence-transformers directory before and after the pooling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.json_files import (
    read_fields,
    read_json,
    read_json_if_there,
    read_known_fields,
)
from sentence_beam.transforms.space.st_configs import (
    SENTENCE,
    CnnConfig,
    DenseConfig,
    DropoutConfig,
    LayerNormConfig,
    LstmConfig,
    NormalizeConfig,
    WeightedLayersConfig,
    read_width,
)

# The head that `train` writes, known by its name; the code beside it is never run here.
CNN_HEAD = "CNN003"
POOLED = ("Pooling", CNN_HEAD)
LAYERS_AFTER = ("Dense", "LayerNorm", "Normalize", "Dropout")
# Modules of torch.nn that compute an activation without arguments, and keep a vector's width.
ACTIVATIONS = (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU",
    "SiLU", "Sigmoid", "Softmax", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink",
)  # fmt: skip
_TORCH = ("torch.nn", "torch.nn.modules", "torch.nn.modules.activation", "torch.nn.modules.linear")


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
    pooled = next((place for place, (kind, _) in enumerate(modules) if kind in POOLED), 0)
    read = [_read_layer(kind, folder) for kind, folder in modules[pooled + 1 :]]
    layers = [layer for layer in read if layer is not None]
    normalize = bool(layers) and layers[-1].kind == "normalize"
    if normalize:
        layers.pop()
    before = _read_layers_before(root, modules[:1], modules[1:pooled])
    return {"layers": tuple(layers), "normalize": normalize, **before}


def _read_layers_before(
    root: Path, first: list[tuple[str, Path]], before: list[tuple[str, Path]]
) -> dict[str, Any]:
    """Return the fields for the layers between the first module and the pooling."""
    if not before:
        return {"mix": None, "tokens": ()}
    kind, transformer = first[0]
    mix = None
    if before[0][0] == "WeightedLayerPooling":
        mix = _read_mix(transformer, before[0][1])
        before = before[1:]
    for other, _ in before:
        if other not in _TOKEN_LAYERS or kind == "StaticEmbedding":
            raise OptionError(
                f"{root / 'modules.json'}: {other} between {kind} and Pooling is not supported"
            )
    tokens = tuple(_TOKEN_LAYERS[other](folder) for other, folder in before)
    return {"mix": mix, "tokens": tokens}


def _read_mix(transformer: Path, folder: Path) -> StLayer | None:
    """Return the weighted mean of layers; None if the transformer does not output its layers.

    sentence-transformers then uses the last layer alone.
    """
    path = folder / "config.json"
    config = read_known_fields(WeightedLayersConfig, read_json(path), path)
    read_width(config, path)
    if not read_json_if_there(transformer / "config.json").get("output_hidden_states"):
        return None
    return StLayer("weighted-layers", folder, {"start": config.layer_start})


def _read_cnn(folder: Path) -> StLayer:
    """Return convolutions over tokens that give one state a token.

    Other convolutions would depend on the padding of a text's batch.
    """
    path = folder / "cnn_config.json"
    config = read_known_fields(CnnConfig, read_json(path), path)
    kernels = list(config.kernel_sizes)
    if not kernels or any(size % 2 == 0 for size in kernels):
        raise OptionError(
            f"{path}: CNN is supported with kernel_sizes that are odd, which give one state a token"
        )
    if config.stride_sizes not in (None, (1,) * len(kernels)):
        raise OptionError(
            f"{path}: CNN is supported with stride_sizes of 1, which give one state a token"
        )
    width = read_width(config, path)
    sizes = {"width": width, "channels": config.out_channels, "kernels": kernels}
    return StLayer("st-cnn", folder, {**sizes, "dim": config.out_channels * len(kernels)})


def _read_lstm(folder: Path) -> StLayer:
    """Return an LSTM over the tokens of a text."""
    path = folder / "lstm_config.json"
    config = read_known_fields(LstmConfig, read_json(path), path)
    both = config.bidirectional
    sizes = {"width": read_width(config, path), "hidden": config.hidden_dim}
    depth = {"depth": config.num_layers, "both": both}
    directions = 2 if both else 1
    return StLayer("st-lstm", folder, {**sizes, **depth, "dim": config.hidden_dim * directions})


_TOKEN_LAYERS = {"CNN": _read_cnn, "LSTM": _read_lstm}


def _read_layer(kind: str, folder: Path) -> StLayer | None:
    """Return a layer after the pooling; None for Dropout, which does nothing outside training."""
    path = folder / "config.json"
    if kind == "Dense":
        return StLayer("dense", folder, _read_dense(path))
    if kind == "LayerNorm":
        norm = read_known_fields(LayerNormConfig, read_json(path), path)
        return StLayer("layer-norm", folder, {"dim": norm.dimension})
    if kind == "Normalize":
        config = read_fields(NormalizeConfig, read_json_if_there(path), path)
        _check_names(path, kind, config)
        return StLayer("normalize", folder)
    if kind == "Dropout":
        read_known_fields(DropoutConfig, read_json_if_there(path), path)
        return None
    raise OptionError(f"{folder}: {kind} is not supported in this place")


def _check_names(path: Path, kind: str, config: DenseConfig | NormalizeConfig) -> None:
    """Raise OptionError for a layer that does not read and write the sentence's vector."""
    for name in (config.module_input_name, config.module_output_name):
        if name not in (None, SENTENCE):
            raise OptionError(f"{path}: {kind} on {name!r} must be on {SENTENCE}")


def _read_dense(path: Path) -> dict[str, Any]:
    config = read_fields(DenseConfig, read_json(path), path)
    _check_names(path, "Dense", config)
    package, _, activation = config.activation_function.rpartition(".")
    if activation not in ACTIVATIONS or package not in _TORCH:
        raise OptionError(
            f"{path}: activation {config.activation_function!r} is none of torch.nn's"
            f" {', '.join(ACTIVATIONS)}"
        )
    if config.use_residual:
        raise OptionError(f"{path}: use_residual is not supported")
    sizes = {"in_features": config.in_features, "out_features": config.out_features}
    return {**sizes, "bias": config.bias, "activation": activation}
