"""The layers a sentence-transformers model puts after its pooling."""

from collections.abc import Callable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from transforms.errors import OptionError
from transforms.space.model_files import find_safetensors
from transforms.space.st_modules import StLayer

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
    "SiLU": F.silu,
}


def load_layers(layers: tuple[StLayer, ...], device: torch.device) -> Callable[[Tensor], Tensor]:
    """One function [B, in] -> [B, out], float32, that applies all layers in order."""
    steps = [_load_layer(layer, device) for layer in layers]

    def apply(vectors: Tensor) -> Tensor:
        for step in steps:
            vectors = step(vectors)
        return vectors

    return apply


def _load_layer(layer: StLayer, device: torch.device) -> Callable[[Tensor], Tensor]:
    if layer.kind == "normalize":
        return lambda x: F.normalize(x, dim=1)
    if layer.kind == "layer-norm":
        return _with_weights(nn.LayerNorm(layer.parameters["dim"]), "norm.", layer, device)
    sizes = (layer.parameters[key] for key in ("in_features", "out_features", "bias"))
    linear = _with_weights(nn.Linear(*sizes), "linear.", layer, device)
    activation = _ACTIVATIONS[layer.parameters["activation"]]
    return lambda x: activation(linear(x))


def _with_weights(module: nn.Module, prefix: str, layer: StLayer, device: torch.device) -> nn.Module:
    path = find_safetensors(layer.folder)[0]
    try:
        state = {key.removeprefix(prefix): value.float() for key, value in load_file(path).items()}
        module.load_state_dict(state)
    except (SafetensorError, RuntimeError) as error:
        raise OptionError(f"{path} does not fit its config.json ({str(error).splitlines()[0]})") from None
    return module.to(device).eval()
